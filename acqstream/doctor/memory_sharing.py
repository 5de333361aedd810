"""Check: can programs hand frames over without a copy?"""

from __future__ import annotations

from dataclasses import dataclass

from acqstream.doctor.examination import Examination
from acqstream.doctor.verdict import CheckVerdict, ok, warning
from acqstream.storage.platform import memory_listener, shared_memory

NAME = "shared memory"


@dataclass(frozen=True, slots=True)
class MemorySharingFacts:
    """reason: why memory cannot be shared, empty if it can; is_switched_off: in the configuration."""

    reason: str = ""
    is_switched_off: bool = False


def gather(examination: Examination) -> MemorySharingFacts:
    """Ask the system for its means."""
    reason = shared_memory.unavailable_reason()
    if not reason and not memory_listener.is_possible():
        reason = "this system cannot hand memory to another process"
    return MemorySharingFacts(reason, not examination.config.shared_memory)


def judge(facts: MemorySharingFacts) -> CheckVerdict:
    """Sockets serve as well, at a cost."""
    if facts.reason:
        text = f"Memory cannot be shared with the daemon: {facts.reason}."
        return warning(text, "Nothing can be done; frames go over sockets, which takes more processor time.")
    if facts.is_switched_off:
        return warning("The configuration switches shared memory off.", "Remove `shared_memory = false`.")
    return ok("Programs on this PC hand frames to the daemon in shared memory.")
