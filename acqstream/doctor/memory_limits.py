"""Check: is there memory for the daemon, and may it open enough files?"""

from __future__ import annotations

from dataclasses import dataclass

from acqstream.doctor.examination import Examination
from acqstream.doctor.verdict import CheckVerdict, ok, problem, warning
from acqstream.storage.platform.capabilities import address_limit_bytes

NAME = "memory"
_MIB = 2**20
_MIN_DESCRIPTORS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFacts:
    """In bytes. needed: for frames, one pyramid, one mirror and programs; frames: of those, what is taken at the start.

    group_limit: of a service or container; address_limit: of a process (ulimit -v); None: no limit. descriptors: files
    that a process may open at most.
    """

    needed_bytes: int
    frames_bytes: int
    available_bytes: int
    group_limit_bytes: int | None = None
    address_limit_bytes: int | None = None
    descriptors: int = 65536


def gather(examination: Examination) -> MemoryFacts:
    """Ask the system, as the daemon does when it starts."""
    import psutil

    from acqstream.daemon.resources import raise_descriptor_limit
    from acqstream.storage.memory_limit import memory_limit_bytes

    config = examination.config
    return MemoryFacts(
        needed_bytes=config.max_memory_mb * _MIB,
        frames_bytes=config.memory_mb * _MIB,
        available_bytes=psutil.virtual_memory().available,
        group_limit_bytes=memory_limit_bytes(),
        address_limit_bytes=address_limit_bytes(),
        descriptors=raise_descriptor_limit(),
    )


def judge(facts: MemoryFacts) -> CheckVerdict:
    """Compare what the daemon may need with what it gets."""
    need = f"{_gb(facts.needed_bytes)} with a mirror and levels"
    smaller = "Set a smaller memory_mb in the configuration of the daemon"
    limit = facts.address_limit_bytes
    if limit is not None and limit < 2 * facts.needed_bytes:
        return problem(
            f"A process may use {_gb(limit)} of addresses (ulimit -v); a daemon needs twice {need}.",
            "Run `ulimit -v unlimited`.",
        )
    limit = facts.group_limit_bytes
    if limit is not None and limit < facts.needed_bytes:
        return problem(
            f"This service or container may use {_gb(limit)}; a daemon needs {need}.",
            f"Raise its limit (MemoryMax), or {smaller.lower()}.",
        )
    if facts.available_bytes < facts.frames_bytes:
        text = (
            f"{_gb(facts.available_bytes)} of memory are available; a daemon takes {_gb(facts.frames_bytes)} at once."
        )
        return problem(text, f"Close other programs, or {smaller.lower()}.")
    if facts.available_bytes < facts.needed_bytes:
        return warning(
            f"{_gb(facts.available_bytes)} of memory are available; a daemon may need {need}.", f"{smaller}."
        )
    if facts.descriptors < _MIN_DESCRIPTORS:
        return warning(f"A process may open {facts.descriptors} files.", "Raise the limit (`ulimit -n`, LimitNOFILE).")
    return ok(f"{_gb(facts.available_bytes)} of memory are available; a daemon may need {need}.")


def _gb(count: int) -> str:
    return f"{count / 1e9:,.1f} GB"
