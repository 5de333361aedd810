"""Rates of a daemon over the last hour, in steps of a few seconds. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from acqstream.model.status import DaemonTotals, LatencyHistogram
from acqstream.monitor.daemon_watch import DaemonView

STEP_S = 10.0
STEPS = 360  # an hour


@dataclass(frozen=True, slots=True)
class RateStep:
    """Rates of one step. at_s: its end, in monotonic seconds. None: the daemon did not answer, or nothing was stored.

    bytes_per_s and frames_per_s: published. queue_frames: the most that waited. publish_p99_s: upper bound of the time
    from received to published of 99 of 100 frames.
    """

    at_s: float
    bytes_per_s: float | None
    frames_per_s: float | None
    queue_frames: int | None
    publish_p99_s: float | None


class StatusHistory:
    """Makes a step of the views that come within STEP_S; keeps the last STEPS. Used by one thread."""

    def __init__(self) -> None:
        self._steps: deque[RateStep] = deque(maxlen=STEPS)
        self._first: DaemonView | None = None  # of the step that has begun
        self._queue_frames = 0

    @property
    def steps(self) -> Sequence[RateStep]:
        """The steps that have ended, the oldest first."""
        return tuple(self._steps)

    def add(self, view: DaemonView) -> None:
        """Take over a view, later than the one before."""
        first = self._first
        if first is None:
            self._first = view
            return
        if view.status is not None:
            waiting = sum(one.queue_frames for one in view.status.acquisitions)
            self._queue_frames = max(self._queue_frames, waiting)
        if view.at_s - first.at_s >= STEP_S:
            self._steps.append(_step(first, view, self._queue_frames))
            self._first, self._queue_frames = view, 0


def upper_quantile(counts: Sequence[int], bounds: Sequence[float], share: float) -> float | None:
    """The upper bound in s of the bucket in which this share of all frames is reached; None without frames.

    Above all bounds, the last one.
    """
    sums = [*accumulate(counts)]
    if not sums or sums[-1] <= 0:
        return None
    return bounds[min(bisect_left(sums, share * sums[-1]), len(bounds) - 1)]


def _step(first: DaemonView, last: DaemonView, queue_frames: int) -> RateStep:
    totals = _totals_of(first, last)
    if totals is None:
        return RateStep(last.at_s, None, None, None, None)
    before, after = totals
    seconds = last.at_s - first.at_s
    return RateStep(
        last.at_s,
        (after.payload_bytes - before.payload_bytes) / seconds,
        (after.frames_published - before.frames_published) / seconds,
        queue_frames,
        _late(before.publish_latency, after.publish_latency),
    )


def _late(before: LatencyHistogram, after: LatencyHistogram) -> float | None:
    if before.bounds_s != after.bounds_s:
        return None
    counts = [now - then for then, now in zip(before.counts, after.counts, strict=True)]
    return upper_quantile(counts, after.bounds_s, 0.99)


def _totals_of(before: DaemonView, after: DaemonView) -> tuple[DaemonTotals, DaemonTotals] | None:
    """The totals of two views of the same daemon; None if one did not answer, or it was started again meanwhile."""
    if before.status is None or after.status is None:
        return None
    if before.status.totals is None or after.status.totals is None:
        return None
    is_same = before.status.boot == after.status.boot and after.status.uptime_s >= before.status.uptime_s
    return (before.status.totals, after.status.totals) if is_same else None
