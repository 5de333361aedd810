"""The result of a check."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How bad it is. UNKNOWN: the system does not say, or it was not measured."""

    OK = "ok"
    UNKNOWN = "unknown"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class CheckVerdict:
    """what: one sentence about this PC; remedy: one about what to do, empty where nothing is to be done."""

    level: Severity
    what: str
    remedy: str = ""


def ok(what: str) -> CheckVerdict:
    return CheckVerdict(Severity.OK, what)


def unknown(what: str, remedy: str = "") -> CheckVerdict:
    return CheckVerdict(Severity.UNKNOWN, what, remedy)


def warning(what: str, remedy: str) -> CheckVerdict:
    return CheckVerdict(Severity.WARNING, what, remedy)


def problem(what: str, remedy: str) -> CheckVerdict:
    return CheckVerdict(Severity.PROBLEM, what, remedy)


def worst(levels: list[Severity]) -> Severity:
    """The worst of all levels; OK for none."""
    order = list(Severity)
    return max(levels, key=order.index, default=Severity.OK)
