"""All checks, in the order in which they are shown, and how they are run. A new check is a Check and a line here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from acqstream.doctor.pc_checks import (
    CLOCK,
    COMPILED_KERNELS,
    MEMORY_LIMITS,
    MEMORY_SHARING,
    PACKAGES,
    POWER_SAVING,
    VIRUS_SCANNER,
)
from acqstream.doctor.recording_checks import CONNECTIONS, DISK_SPEED, FILE_SYSTEM, FREE_SPACE, RUNNING_DAEMON
from acqstream.doctor.verdict import Check, CheckVerdict, Examination, problem, unknown
from acqstream.errors import AcqStreamError

CHECKS = (
    RUNNING_DAEMON,
    DISK_SPEED,
    FREE_SPACE,
    FILE_SYSTEM,
    MEMORY_LIMITS,
    MEMORY_SHARING,
    POWER_SAVING,
    VIRUS_SCANNER,
    CLOCK,
    CONNECTIONS,
    PACKAGES,
    COMPILED_KERNELS,
)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """facts: plain values, as for JSON; empty if they could not be gathered."""

    check: str
    verdict: CheckVerdict
    facts: dict[str, Any]


def run_checks(examination: Examination, checks: tuple[Check, ...] = CHECKS) -> Iterator[CheckResult]:
    """Run the checks one after the other. One that fails is UNKNOWN, of a disk a PROBLEM; it ends no other."""
    for check in checks:
        try:
            facts = check.gather(examination)
        except (OSError, AcqStreamError) as error:
            why = getattr(error, "strerror", None) or error
            verdict = unknown(f"This could not be checked: {why}.")
            if check.is_of_disk and isinstance(error, OSError):
                verdict = problem(f"The disk failed in this check: {why}.", "Look at the disk, or use another one.")
            yield CheckResult(check.name, verdict, {})
            continue
        yield CheckResult(check.name, check.judge(facts), asdict(facts))
