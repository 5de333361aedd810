"""Check: is the clock kept right? Capture times and the records of two PCs are compared by it."""

from __future__ import annotations

from dataclasses import dataclass

from acqstream.doctor.examination import Examination
from acqstream.doctor.verdict import CheckVerdict, ok, unknown, warning
from acqstream.storage.platform.pc import is_clock_synchronised

NAME = "clock"


@dataclass(frozen=True, slots=True)
class ClockFacts:
    """is_synchronised: None where the system does not say."""

    is_synchronised: bool | None


def gather(examination: Examination) -> ClockFacts:
    """Ask the system."""
    del examination
    return ClockFacts(is_clock_synchronised())


def judge(facts: ClockFacts) -> CheckVerdict:
    """A wrong clock loses no frames, but their times."""
    if facts.is_synchronised is None:
        return unknown("The system does not report whether its clock is kept by a time server.")
    if facts.is_synchronised:
        return ok("The clock is kept by a time server.")
    return warning(
        "The clock is not kept by a time server: capture times drift and jump.",
        "Switch network time on (Linux: `timedatectl set-ntp true`; Windows: time settings).",
    )
