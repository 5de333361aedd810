"""Asks a daemon for its status at intervals: the last status, runs that ended lately, rates of an hour."""

from __future__ import annotations

import logging
import os
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from acqstream.client.daemon_requests import StatusClient
from acqstream.errors import AcqStreamError
from acqstream.log.state_file import read_receipt
from acqstream.model.daemon_note import STARTING
from acqstream.model.receipt import END_STATES, Receipt
from acqstream.model.status import AcquisitionStatus, DaemonStatus, DaemonTotals, EndedStatus, LatencyHistogram

ENDED_KEPT_S = 300.0
MAX_ENDED = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """An acquisition that has ended. last is its last status; receipt None: it left none that can be read.

    at_s: when that was noticed, in monotonic seconds.
    """

    last: AcquisitionStatus
    receipt: Receipt | None
    at_s: float

    @property
    def state(self) -> str:
        """The state at the end; "" if it is not known."""
        return END_STATES.get(self.receipt.status, "") if self.receipt is not None else ""

    @property
    def is_good(self) -> bool:
        """True if the run ended as its user wanted: completed with every frame, or canceled."""
        return self.receipt is not None and (self.receipt.complete or self.receipt.is_canceled)


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonView:
    """What is known of a daemon. status is None while it does not answer; why is the reason then.

    running are the acquisitions of the last status, also while the daemon does not answer. ended are the latest runs
    that ended within ENDED_KEPT_S, in the order of their ends. told are the ends in the last status.
    at_s: monotonic seconds.
    """

    status: DaemonStatus | None = None
    why: str = ""
    at_s: float = 0.0
    running: tuple[AcquisitionStatus, ...] = ()
    ended: tuple[EndedRun, ...] = ()
    told: tuple[EndedStatus, ...] = ()

    @property
    def is_starting(self) -> bool:
        """True if no daemon answers because it is starting."""
        return self.status is None and self.why.startswith(STARTING)

    def following(
        self,
        status: DaemonStatus | None,
        now_s: float,
        read_receipt: Callable[[AcquisitionStatus], Receipt | None],
        *,
        why: str = "",
        has_daemon_ended: bool = False,
    ) -> DaemonView:
        """Return the view after this one. An acquisition that is missing in a complete status has ended.

        read_receipt is asked once for each ended run. has_daemon_ended: the daemon's process is gone, and nothing runs.
        """
        ended = [one for one in self.ended if now_s - one.at_s < ENDED_KEPT_S]
        if status is None and not has_daemon_ended:
            return DaemonView(why=why, at_s=now_s, running=self.running, ended=tuple(ended), told=self.told)
        running = status.acquisitions if status is not None else ()
        names = {one.dataset_id for one in running}
        is_complete = status is None or not status.left_out.get("acquisitions")
        told = status.ended if status is not None else ()
        fresh = {one.dataset_id: one for one in told if one not in self.told}
        known = {one.dataset_id: one for one in self.running}
        kept: tuple[AcquisitionStatus, ...] = ()
        for key, end in fresh.items():
            last = known.get(key) or AcquisitionStatus(
                name=end.name, dataset_id=key, path=end.path, durable=end.durable
            )
            ended.append(EndedRun(last=last, receipt=read_receipt(last), at_s=now_s))
        for one in self.running:
            if one.dataset_id in names or one.dataset_id in fresh:
                continue
            if is_complete:
                ended.append(EndedRun(last=one, receipt=read_receipt(one), at_s=now_s))
            else:
                kept += (one,)  # perhaps it did not fit into the answer
        ended = [one for one in ended if one.last.dataset_id not in names]  # a resumed run has not ended
        return DaemonView(
            status=status,
            why=why,
            at_s=now_s,
            running=(*running, *kept),
            ended=tuple(ended[-MAX_ENDED:]),
            told=told,
        )


logger = logging.getLogger("acqstream.monitor")


def receipt_in(folder: str | os.PathLike[str]) -> Receipt | None:
    """Return the receipt in a folder; None if it has none, or it cannot be read from this machine."""
    try:
        return read_receipt(os.fspath(folder))
    except (AcqStreamError, OSError) as error:
        logger.warning("cannot read the receipt in %s: %s", folder, error)
        return None


def receipt_of(run: AcquisitionStatus) -> Receipt | None:
    """Return the receipt of a run; None if its folder has none of this run."""
    receipt = receipt_in(run.path) if run.path else None
    return receipt if receipt is not None and receipt.dataset_id == run.dataset_id else None


ANSWER_S = 3.0


class DaemonWatch:
    """The latest view of a daemon; `view` may be read from any thread, the methods are for one thread.

    endpoint: as in `StatusClient`.
    """

    def __init__(self, endpoint: str | None = None) -> None:
        self._client = StatusClient(endpoint)
        self.view = DaemonView(why="the daemon has not been asked yet")

    def tick(self, timeout_s: float = ANSWER_S) -> DaemonView:
        """Ask the daemon, for at most timeout_s, and return the new view."""
        status, why = None, ""
        try:
            status = self._client.fetch(timeout_s)
        except (AcqStreamError, OSError) as error:
            why = str(error)
        self.view = self.view.following(status, time.monotonic(), receipt_of, why=why)
        return self.view

    def note_end_of_daemon(self, why: str) -> DaemonView:
        """The daemon's process has ended: so has each run, with or without a receipt. Return the new view."""
        self.view = self.view.following(None, time.monotonic(), receipt_of, why=why, has_daemon_ended=True)
        return self.view

    def close(self) -> None:
        self._client.close()


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
    is_same = before.status.boot == after.status.boot and after.status.uptime_s >= before.status.uptime_s
    return (before.status.totals, after.status.totals) if is_same else None
