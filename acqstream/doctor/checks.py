"""All checks, in the order in which they are shown, and how they are run. A new check is a module and a line here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any

from acqstream.doctor import (
    clock,
    compiled_kernels,
    connections,
    disk_speed,
    file_system,
    free_space,
    memory_limits,
    memory_sharing,
    packages,
    power_saving,
    running_daemon,
    virus_scanner,
)
from acqstream.doctor.examination import Examination
from acqstream.doctor.verdict import CheckVerdict, problem, unknown
from acqstream.errors import AcqStreamError

CHECKS: tuple[ModuleType, ...] = (
    running_daemon,
    disk_speed,
    free_space,
    file_system,
    memory_limits,
    memory_sharing,
    power_saving,
    virus_scanner,
    clock,
    connections,
    packages,
    compiled_kernels,
)
"""Each has NAME, `gather(examination)` that returns a frozen dataclass of facts, and the pure `judge(facts)`."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """facts: plain values, as for JSON; empty if they could not be gathered."""

    check: str
    verdict: CheckVerdict
    facts: dict[str, Any]


def run_checks(examination: Examination, checks: tuple[ModuleType, ...] = CHECKS) -> Iterator[CheckResult]:
    """Run the checks one after the other. One that fails is UNKNOWN, of a disk a PROBLEM; it ends no other."""
    for check in checks:
        gather: Callable[[Examination], Any] = check.gather
        judge: Callable[[Any], CheckVerdict] = check.judge
        try:
            facts = gather(examination)
        except (OSError, AcqStreamError) as error:
            why = getattr(error, "strerror", None) or error
            verdict = unknown(f"This could not be checked: {why}.")
            if check in (disk_speed, free_space, file_system) and isinstance(error, OSError):
                verdict = problem(f"The disk failed in this check: {why}.", "Look at the disk, or use another one.")
            yield CheckResult(check.NAME, verdict, {})
            continue
        yield CheckResult(check.NAME, judge(facts), asdict(facts))
