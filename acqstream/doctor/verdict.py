"""Examination (what a check is asked), Check, and CheckVerdict (how severe, what, and what to do)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from acqstream.daemon.config import DaemonConfig
from acqstream.model.status import DaemonStatus


@dataclass(frozen=True, slots=True)
class PlannedCamera:
    """Frames of `shape` (Y, X) or (Y, X, 3), each pixel value of itemsize bytes, fps of them in a second."""

    shape: tuple[int, ...]
    itemsize: int
    fps: float

    @property
    def bytes_per_s(self) -> float:
        return math.prod(self.shape) * self.itemsize * self.fps


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """data: the data directory; camera: None if none is planned; config: of a daemon here.

    status: of the daemon that has the directory, else of the default one; None if none answers.
    """

    data: Path
    camera: PlannedCamera | None
    config: DaemonConfig
    status: DaemonStatus | None

    @property
    def running(self) -> tuple[str, ...]:
        """Names of the acquisitions that are open now: nothing may disturb them."""
        return tuple(one.name for one in self.status.acquisitions) if self.status is not None else ()


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


@dataclass(frozen=True, slots=True)
class Check:
    """gather returns a frozen dataclass of facts, the pure judge a verdict on them.

    is_of_disk: an OSError is a problem of the disk.
    """

    name: str
    gather: Callable[[Examination], Any]
    judge: Callable[[Any], CheckVerdict]
    is_of_disk: bool = False
