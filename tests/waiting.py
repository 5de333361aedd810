"""Waiting for a condition, with a bound that does not depend on how busy the machine is.

A bound in seconds fails on a machine where many programs compete for the processors: the awaited process gets little
processor time, and the clock runs on. Bounds here are in seconds of a free machine: an interval in which four tasks
compete for each processor counts a quarter.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from time import monotonic  # tests replace the functions of the module `time`
from typing import Any

WAIT_S = 50.0
HANG_S = 600.0
"""For calls that have a bound of their own, in seconds of the clock: far beyond what a busy machine needs. The watchdog
of tests/conftest.py ends a test that hangs long before, as it counts seconds of a free machine."""
SLICE_S = 0.05
_LOAD = "/proc/loadavg"


class FreeSeconds:
    """Seconds that a free machine would have had since the start.

    `passed` must be called often: it samples the load.
    """

    def __init__(self, clock: Callable[[], float] = monotonic, load: Callable[[], float] | None = None) -> None:
        self._clock = clock
        self._load = load or tasks_per_processor
        self._last = clock()
        self._passed_s = 0.0

    def passed(self) -> float:
        now = self._clock()
        self._passed_s += (now - self._last) / max(1.0, self._load())
        self._last = now
        return self._passed_s


def tasks_per_processor() -> float:
    """Runnable tasks for each processor at this moment; 1 where the system does not report them."""
    try:
        with open(_LOAD, encoding="ascii") as file:
            running = file.read().split()[3].partition("/")[0]
    except OSError:
        return 1.0
    return int(running) / (os.cpu_count() or 1)


def until(condition: Callable[[], Any], what: str, timeout_s: float = WAIT_S, *, every_s: float = 0.005) -> Any:
    """The first true value of `condition`, which is asked every every_s. timeout_s: on a free machine."""
    waited = FreeSeconds()
    while not (value := condition()):
        assert waited.passed() < timeout_s, f"not within {timeout_s} s of a free machine: {what}"
        time.sleep(every_s)
    return value


def until_notified(
    changed: threading.Condition, condition: Callable[[], bool], what: str, timeout_s: float = WAIT_S
) -> None:
    """Wait, holding `changed`, until `condition` is true. timeout_s: on a free machine."""
    waited = FreeSeconds()
    while not changed.wait_for(condition, SLICE_S):
        assert waited.passed() < timeout_s, f"not within {timeout_s} s of a free machine: {what}"


def in_time(promised_s: float) -> float:
    """The promised time where processors are free; longer where tasks queue for them."""
    waiting = os.getloadavg()[0] / (os.cpu_count() or 1) if hasattr(os, "getloadavg") else 1.0
    return promised_s * max(1.0, waiting)
