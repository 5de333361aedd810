"""Follows the running acquisitions: news for producers and readers, the producer's grace time, the end. Loop only.

It also watches for the daemon's idleness, keeps the PC awake, and knows the daemon's exit status.
"""

from __future__ import annotations

import enum
import logging
import time
from collections import deque
from functools import partial

from acqstream.daemon.acquisition import AcquisitionRegistry, ActiveAcquisition
from acqstream.daemon.announcer import Announcer
from acqstream.daemon.resources import Resources
from acqstream.errors import AcqStreamError, StorageError
from acqstream.log.memory import BUSY_BYTES
from acqstream.model.receipt import Receipt
from acqstream.model.state import AcquisitionState
from acqstream.model.status import DaemonTotals, EndedStatus, SpaceLevel
from acqstream.protocol.replies import Closed, Error, StatusReply, StoredPage
from acqstream.protocol.session import Event
from acqstream.storage import platform

logger = logging.getLogger("acqstream.daemon")

STATUS_INTERVAL_S = 1.0
DELAYED_ACK_POLL_MS = 20
ENDED_S = 60.0
MAX_ENDED = 100


class Supervisor:
    """Looks after every acquisition once in each turn of the loop. exit_status is the worst so far.

    idle_exit_s: see `is_idle_over`; None for a daemon that stays. restarts: see DaemonConfig.
    """

    def __init__(
        self,
        registry: AcquisitionRegistry,
        announcer: Announcer,
        resources: Resources,
        *,
        idle_exit_s: float | None = None,
        restarts: bool = False,
    ) -> None:
        self.exit_status = ExitStatus.SUCCESS
        self._restarts = restarts
        self._registry = registry
        self._announcer = announcer
        self._space, self._views, self._reads = resources.space, resources.views, resources.reads
        self._budget = resources.budget
        self._status_at_s = 0.0
        self._awake = Awake()
        self._idle = IdleWatch(idle_exit_s)
        self._just_ended: deque[tuple[float, EndedStatus]] = deque(maxlen=MAX_ENDED)
        self._ended = DaemonTotals()  # of acquisitions that are no longer running

    @property
    def is_idle_over(self) -> bool:
        """True once no acquisition was open, and no view unfinished, for idle_exit_s."""
        return self._idle.is_over

    def poll_ms(self, idle_ms: int) -> int:
        """Return how long the loop may sleep."""
        return DELAYED_ACK_POLL_MS if any(one.is_ack_pending() for one in self._registry) else idle_ms

    def totals(self) -> DaemonTotals:
        """Return the counts since the daemon started."""
        totals = self._ended
        for acquisition in self._registry:
            totals = totals.plus(acquisition.progress.totals())
        return totals

    def just_ended(self) -> tuple[EndedStatus, ...]:
        """Return the acquisitions that ended within ENDED_S: one who asks at intervals misses none."""
        first_s = time.monotonic() - ENDED_S
        return tuple(one for at_s, one in self._just_ended if at_s >= first_s)

    def tick(self, now_s: float) -> None:
        """Send what changed, and once a second a status as a sign of life; finish what has ended."""
        is_status_due = now_s - self._status_at_s >= STATUS_INTERVAL_S
        if is_status_due:
            self._status_at_s = now_s
        running = tuple(self._registry)
        self._space.running = running
        if is_status_due:
            self._budget.collect()
        self._awake.keep(bool(running))
        self._reads.tick(now_s)
        for acquisition in running:
            self._tick(acquisition, now_s, is_status_due=is_status_due)
        self._views.tick(now_s, lambda: any(one.has_backlog for one in self._registry))
        self._idle.tick(now_s, is_busy=bool(self._registry) or self._views.is_busy)

    def stop_all(self) -> None:
        """Finish every acquisition with the frames received so far, so that it can be resumed."""
        self._views.stop()
        for acquisition in self._registry:
            acquisition.log.abandon("interrupted", "the daemon was stopped")
            if acquisition.end(Event.STOP, "interrupted", "the daemon was stopped"):
                text = "the daemon was stopped; what it acknowledged is stored"
                acquisition.is_error_reported = True
                self._announcer.notify(
                    acquisition, Error("shutting_down", text, acquisition.dataset_id, fatal=not self._restarts)
                )

    def abandon_all(self) -> None:
        """Log which frames are not stored, as the time to stop is over. Their producers still have them."""
        for acquisition in self._registry:
            cursors, stall = acquisition.log.cursors(), acquisition.log.stall
            frames = f"frames {cursors.published} to {cursors.received - 1} were received and are not stored"
            cause = f" ({stall})" if stall else ""
            logger.error("%s: not finished, the time to stop is over%s; %s", acquisition.name, cause, frames)
            self.exit_status = max(self.exit_status, ExitStatus.STORAGE)

    def _tick(self, acquisition: ActiveAcquisition, now_s: float, *, is_status_due: bool) -> None:
        session, log = acquisition.session, acquisition.log
        is_finished = log.is_finished  # asked first: an error at the very end is reported before the end
        is_log_open = log.state is not AcquisitionState.OPENING and log.error is None
        if session.state is AcquisitionState.OPENING and is_log_open:
            self._report_opened(acquisition, now_s)
        if log.error is not None and not acquisition.is_error_reported:
            self._announcer.notify_failure(acquisition, log.error)
        if session.state is not AcquisitionState.OPENING:
            acquisition.progress.tick(now_s)
            if log.memory_peak_bytes > BUSY_BYTES:
                acquisition.share.bring_in(acquisition.share.length)
            self._announcer.notify_cursors(acquisition, now_s)
        has_pause_changed = acquisition.space_reports.note(self._space)
        if has_pause_changed or (is_status_due and self._space.level is not SpaceLevel.ENOUGH):
            self._announcer.publish(acquisition, {"t": "space", **acquisition.space_reports.fields(self._space)})
        if session.state is not AcquisitionState.OPENING:  # a producer gets `opened` before anything else
            self._announcer.notify_warnings(acquisition)
            self._read_keys(acquisition)
        if is_status_due or has_pause_changed:
            if session.state is not AcquisitionState.OPENING:  # what a resumed run has is known from then on
                acquisition.space_reports.measure_rate(now_s)
            status = StatusReply(acquisition.status(self._space))
            self._announcer.notify(acquisition, status)
        if session.is_grace_over(now_s):
            reason = "the producer was lost and did not come back"
            log.abandon("interrupted", reason)
            acquisition.end(Event.GRACE_OVER, "interrupted", reason)
        if is_finished:
            self._finish(acquisition)

    def _read_keys(self, acquisition: ActiveAcquisition) -> None:
        """Read and send a page of stored axes if the producer waits for one."""
        at = acquisition.take_key_request()
        if at is None:
            return
        asker = acquisition.peer.identity

        def answer(page: StoredPage) -> None:
            if acquisition.peer.identity == asker:  # else the acquisition was resumed by another one meanwhile
                self._announcer.notify(acquisition, page)

        refuse = partial(self._announcer.notify_unreadable_keys, acquisition)
        try:
            self._reads.submit(asker, partial(acquisition.read_keys, at), answer, refuse)
        except StorageError as error:
            refuse(error)

    def _report_opened(self, acquisition: ActiveAcquisition, now_s: float) -> None:
        folder = acquisition.log.folder
        acquisition.session.on(Event.OPENED, now_s)
        acquisition.progress.begin(now_s)
        acquisition.views.begin(folder)
        logger.info("opened %s for acquisition %s", folder, acquisition.dataset_id)
        self._announcer.notify(acquisition, acquisition.opened())
        self._announcer.publish(acquisition, {"t": "opened", "name": acquisition.name, "path": folder})

    def _finish(self, acquisition: ActiveAcquisition) -> None:
        """Send the last acknowledgement and the receipt of an ended log; take the memory back."""
        receipt = acquisition.log.receipt
        assert receipt is not None
        self.exit_status = max(self.exit_status, exit_status_of(acquisition.log.error))
        self._announcer.acknowledge(acquisition)
        self._announcer.notify(acquisition, Closed(receipt))
        for asker in acquisition.stop_requesters:
            self._announcer.send(asker, Closed(receipt))
        self._announcer.publish(acquisition, {"t": "closed", "status": receipt.status})
        counts = receipt.stored, len(receipt.missing)
        logger.info("closed %s: %s, %d frames stored, %d missing", receipt.path, receipt.status, *counts)
        acquisition.take_memory(None)
        acquisition.views.end()
        acquisition.share.close()
        self._registry.remove(acquisition, receipt)
        names = {"name": acquisition.name, "dataset_id": acquisition.dataset_id, "path": receipt.path}
        durable = acquisition.log.cursors().durable
        now_s = time.monotonic()
        self._just_ended.append((now_s, EndedStatus(**names, durable=durable, finished_at=receipt.finished_at)))
        self._ended = self._ended.plus(acquisition.progress.totals()).plus(_end_totals(receipt))


def _end_totals(receipt: Receipt) -> DaemonTotals:
    """Return what the end of an acquisition adds to the totals: its status, and undeclared missing frames."""
    missing = sum(gap.count for gap in receipt.missing) - receipt.skipped
    return DaemonTotals(ended={receipt.status: 1}, frames_missing=max(0, missing))


class IdleWatch:
    """is_over: nothing was to be done for idle_exit_s seconds, until it is busy again. None: never."""

    def __init__(self, idle_exit_s: float | None) -> None:
        self.is_over = False
        self._idle_exit_s = idle_exit_s
        self._idle_since_s: float | None = None

    def tick(self, now_s: float, *, is_busy: bool) -> None:
        """Note the state at `now_s` (monotonic seconds)."""
        if self._idle_exit_s is None:
            return
        if is_busy:
            self._idle_since_s, self.is_over = None, False
            return
        if self._idle_since_s is None:
            self._idle_since_s = now_s
        if not self.is_over and now_s - self._idle_since_s >= self._idle_exit_s:
            self.is_over = True
            logger.info("no acquisition and no unfinished view for %g s; ending", self._idle_exit_s)


class Awake:
    """Used by the loop only, as Windows counts the request for the thread that makes it."""

    def __init__(self) -> None:
        self._is_needed = False

    def keep(self, is_needed: bool) -> None:
        """Keep the PC awake if is_needed; costs a comparison while that does not change."""
        if is_needed == self._is_needed:
            return
        self._is_needed = is_needed
        try:
            platform.keep_awake(is_needed)
        except OSError as error:
            logger.warning("cannot keep the PC awake: %s; it may sleep in the middle of a run", error)


class ExitStatus(enum.IntEnum):
    """From good to bad; the worst event of a daemon's life counts."""

    SUCCESS = 0  # every acquisition was finished
    STORAGE = 1  # an acquisition failed, or was not finished, because of the disk
    FAULT = 2  # an unexpected error in a thread


def exit_status_of(error: AcqStreamError | None) -> ExitStatus:
    """Return what the error that ended an acquisition (None: it ended in order) means for the daemon."""
    if error is None:
        return ExitStatus.SUCCESS
    return ExitStatus.STORAGE if isinstance(error, StorageError) else ExitStatus.FAULT
