"""Capture times of frames that a hook gets: its own clock, since programs give local time without a zone."""

from __future__ import annotations

import time

from acqstream.storage.platform import wall_clock_ns


class CaptureClock:
    """Nanoseconds since 1970, read once and counted on from there: a wall clock that is set back changes nothing.

    `TimeReceivedByCore` of Micro-Manager is no source: it is local time, and one hour of each year comes twice.
    """

    def __init__(self) -> None:
        self.started_ns = wall_clock_ns()
        self._started = time.perf_counter_ns()  # on Windows 1000 times finer than the monotonic clock

    def now_ns(self) -> int:
        return self.started_ns + time.perf_counter_ns() - self._started
