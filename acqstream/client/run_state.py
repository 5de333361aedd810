"""State of one acquisition as its producer knows it: window, cursors, first error, receipt and what that lacks.

`RunState` owns the only lock of a run. No socket; a clock for waits only.
"""

from __future__ import annotations

import errno
import math
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from acqstream.client.arguments import RunSettings
from acqstream.client.daemon_report import (
    Contact,
    DaemonReport,
    PatchQueue,
    RefusedFrames,
    RunWarning,
    failure,
    name_unforced,
)
from acqstream.client.outbox import BATCH_BYTES, Outbox, OutboxMessage
from acqstream.client.plain_values import sendable_reason
from acqstream.errors import AcqStreamError, AcquisitionFailed, DaemonUnavailable, DiskFull
from acqstream.model.receipt import Receipt
from acqstream.model.state import Cursors, Limit
from acqstream.model.status import AcquisitionStatus
from acqstream.protocol.frame_batch import encode_request
from acqstream.protocol.replies import (
    Ack,
    Closed,
    Error,
    Noted,
    Opened,
    Reply,
    StatusReply,
    StoredPage,
    UnknownReply,
    Warn,
    Welcome,
)

RECONNECT_CODES = frozenset({"unknown_ds", "denied"})
"""Errors that are not fatal: the daemon does not know this connection, and the client makes a new one."""
SHUTTING_DOWN = "shutting_down"
_MAX_WAIT_S = 1.0
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a run. The first four are counts of frames from the first on, skipped ones included.

    behind_bytes are the pixel bytes that the local buffer keeps because they are not safe yet. free_bytes is the space
    left on the daemon's disk, None before the first status; seconds_left is how long it lasts at the present rate, None
    where that is unknown.
    """

    sent: int
    received: int
    published: int
    durable: int
    behind_bytes: int
    free_bytes: int | None
    seconds_left: float | None = None


def is_interrupted(reply: Reply) -> bool:
    """The daemon ends, or has ended, without the producer's request: the run continues once it is started again."""
    if isinstance(reply, Closed):
        return reply.receipt.status == "interrupted"
    return isinstance(reply, Error) and reply.code == SHUTTING_DOWN


@dataclass(frozen=True, slots=True)
class RequestedEnd:
    """The end that the producer requested.

    drops_unsent: frames outside the window are not sent any more. is_out_of_space: it is sent although the run has
    failed. abandons_wait: the daemon is to wait for space no longer. is_sent: to the present daemon.
    """

    status: str
    reason: str
    drops_unsent: bool = False
    is_out_of_space: bool = False
    abandons_wait: bool = False
    is_sent: bool = False

    @property
    def wire_status(self) -> str:
        """Status in `close`. "error" ends the daemon's wait for space; frames on the disk stay in the receipt."""
        return "error" if self.abandons_wait else self.status


class RunThread:
    """The thread of a run's connection, as others see it. wake: makes it look for something to do.

    is_idle: it waits, and has to be woken when something is due. is_lingering: it waits a moment for more small frames.
    is_over: it does nothing more.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake = wake
        self.is_idle = self.is_lingering = self.is_over = False


class RunState:
    """State of one acquisition in its producer. `now` is always seconds of one monotonic clock.

    The program's threads and the run's own thread change it only through its methods, which take `lock`. `condition`
    has the same lock and is notified of every change that a thread may wait for. Entering the lock costs a third of
    entering the condition, and Ctrl-C may come in Condition.__enter__. Single values may be read without the lock.
    wake: of the run's thread.
    """

    def __init__(
        self, settings: RunSettings, outbox: Outbox, now: float, wake: Callable[[], None] = lambda: None
    ) -> None:
        self.lock = threading.RLock()  # a signal handler may ask for the progress while its thread has it
        self.condition = threading.Condition(self.lock)
        self.settings = settings
        self.thread = RunThread(wake)
        self.outbox = outbox
        self.contact = Contact(now)
        self.report = DaemonReport(now)
        self.refused = RefusedFrames()
        self.patches = PatchQueue()
        self.cursors = Cursors()
        self.limit = Limit(0, 0)
        self.release_when_durable = False
        self.opened: Opened | None = None
        self.stored_before = 0  # frames when the run was opened
        self.failure: AcqStreamError | None = None
        self.receipt: Receipt | None = None
        self.ending: RequestedEnd | None = None
        self.ended = False  # nothing more will be sent or received

    @property
    def dataset_id(self) -> str:
        """Identifier of the acquisition; the daemon's answer may name the one that this run continues."""
        return self.opened.dataset_id if self.opened is not None else self.settings.dataset_id

    @property
    def _path(self) -> str:
        return self.opened.path if self.opened else ""

    def raise_if_over(self) -> None:
        """Raise the run's first error, or AcquisitionFailed for a closed run."""
        if self.failure is not None:
            raise self.failure.with_traceback(None)  # the trace would grow with every raise
        if self.ending is not None or self.ended:
            raise AcquisitionFailed(f"run {self.settings.name!r} is closed", code="closed")

    def wake(self) -> None:
        """Wake the run's thread if something is due; the caller has the lock."""
        thread = self.thread
        if not thread.is_idle or (thread.is_lingering and self.can_wait):
            return
        if not self.ended and self.has_due():
            thread.is_idle = False
            thread.wake()

    def wait_until(self, is_met: Callable[[], bool], timeout_s: float = math.inf) -> bool:
        """Wait until `is_met`, asked after each change; False if it is not within timeout_s."""
        deadline = time.monotonic() + timeout_s
        with self.lock:  # a signal handler may wait while its thread has the lock: waiting gives it back
            while not is_met():
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self.condition.wait(min(left, _MAX_WAIT_S))
            return True

    def queue(self, add: Callable[..., None], *values: Any) -> None:
        """Call `add` of `patches`, and have sent what it adds."""
        with self.lock:
            add(self.dataset_id, *values)
            self.wake()

    def request_close(self, status: str, reason: str) -> None:
        """End the run; a second request changes nothing."""
        with self.lock:
            if self.ending is None:
                drops_unsent = status != "completed" and bool(self.report.pause_reason)
                self.ending = RequestedEnd(status, sendable_reason(str(reason)), drops_unsent)
            self.wake()
            self.condition.notify_all()  # a waiting put

    def add_warning(self, code: str, text: str, *, is_once: bool = True) -> RunWarning | None:
        """Note a warning of this program; is_once: unless there is one with this code."""
        with self.lock:
            if is_once and any(warning.code == code for warning in self.report.warnings):
                return None
            return self.report.add_warning(code, text, time.time())

    def open(self, opened: Opened, welcome: Welcome, *, same_machine: bool, now: float) -> None:
        """The daemon is ready for frames from `opened.next` on, for the first time or again.

        Raises ProtocolError if it asks for frames that were never put.
        """
        with self.lock:
            self.outbox.message_bytes = min(BATCH_BYTES, welcome.max_payload)
            if self.opened is None:
                self.outbox.begin(opened.next, opened.received_bytes)
                self.opened = opened
                self.stored_before = opened.stored
            else:
                self.stored_before = min(self.stored_before, opened.stored)  # a killed daemon may have lost some
                self._rewind(opened)
                self.patches.rewind(opened.next)
            self.outbox.ring.goes_round = opened.views
            self.release_when_durable = not same_machine
            self.limit = opened.limit
            if self.ending is not None:
                self.ending = replace(self.ending, is_sent=False)
            self.report.pause_reason = ""
            self.contact.restore(opened.epoch, now)
            self.condition.notify_all()

    def _rewind(self, opened: Opened) -> None:
        """Send again from `opened.next` on; frames that the outbox has released are declared lost."""
        outbox = self.outbox
        lost = outbox.first_number - opened.next
        gap = b""
        if lost > 0:
            reason = "lost by the daemon after it had reported them as safe; the producer no longer holds them"
            gap = encode_request("skip", ds=opened.dataset_id, n=opened.next, count=lost, reason=reason)
        outbox.rewind(opened.next, opened.received_bytes, gap)

    def end(self, *, is_thread_over: bool = False) -> None:
        """Nothing more will be sent or received; then the run's thread does nothing more."""
        with self.lock:
            self.ended, self.thread.is_over = True, is_thread_over
            self.condition.notify_all()

    def receive(self, reply: Reply | UnknownReply, now: float, wall_time: float) -> RunWarning | None:
        """Take a message in and return the warning that it carries. wall_time is seconds since 1970."""
        with self.lock:
            self.contact.heard_at = now
            self.condition.notify_all()
            if isinstance(reply, Ack):
                self._acknowledge(reply, now)
            elif isinstance(reply, StatusReply):
                status = reply.status
                if isinstance(status, AcquisitionStatus) and status.dataset_id == self.dataset_id:
                    self.report.update(status, now)  # any other is a sign of life only
            elif isinstance(reply, Warn):
                return self.report.add_reply(reply, wall_time)
            elif isinstance(reply, Closed):
                self._finish(reply.receipt)
            elif isinstance(reply, StoredPage):
                self.patches.answer_stored(reply)
            elif isinstance(reply, Noted):
                self.patches.answer_note(reply.note_id)
            elif isinstance(reply, Error):
                return self._refuse(reply, wall_time)
            return None

    def _acknowledge(self, ack: Ack, now: float) -> None:
        self.cursors = ack.cursors
        self.limit = ack.limit
        self.contact.acknowledge()
        safe = ack.cursors.durable if self.release_when_durable else ack.cursors.published
        if self.outbox.release(safe):
            self.contact.released_at = now

    def _refuse(self, error: Error, wall_time: float) -> RunWarning | None:
        if error.fatal and error.code == SHUTTING_DOWN:
            text = f"the daemon was stopped for good{self.describe_unsafe()}; its last message: {error.text}"
            self.fail(DaemonUnavailable(text))
            return None
        if error.fatal:
            self.fail(failure(error, self._path))
            return None
        if error.code in RECONNECT_CODES:
            if not self.contact.lose():  # opening again does not help
                self.fail(failure(error, self._path))
            return None
        if error.number is not None:
            self.refused.add(error, error.number, range(self.outbox.first_number, self.outbox.next))
            return None  # a warning comes too
        if error.note_id is not None:
            text = "" if self.patches.retry_note_if_busy(error) else self.patches.lose_note(error.note_id, error.text)
            return self.report.add_lost_note(text, self.refused)
        if error.code == SHUTTING_DOWN:
            self.contact.loss_reason = f"; its last message: {error.text}"
        else:
            self.patches.answer_stored(failure(error, self._path))
        return self.report.add_warning(error.code, error.text, wall_time)

    def _finish(self, receipt: Receipt) -> None:
        if is_interrupted(Closed(receipt)) and self.failure is None:
            self.contact.is_lost = True  # the daemon was stopped; if it is started again, the run continues
            return
        self.receipt = receipt
        self.ended = True
        if self.failure is not None:
            name_unforced(self.failure, receipt)
        if self.ending is None:  # for example ended by an operator
            why = f": {receipt.reason}" if receipt.reason else ""
            self.fail(AcquisitionFailed(f"the daemon ended the acquisition as {receipt.status}{why}", code="ended"))

    def fail(self, error: AcqStreamError) -> None:
        """Keep the first error of the run."""
        with self.lock:
            if self.failure is None:
                self.failure = error
                self.condition.notify_all()

    def check_space(self, patience_s: float, now: float) -> None:
        """Fail, and close, when the daemon waits for space for longer than the patience and frames are not safe."""
        with self.lock:
            outbox, ending, pause_reason = self.outbox, self.ending, self.report.pause_reason
            if not pause_reason or self.failure is not None:
                return
            if ending is not None and ending.status != "completed":
                self.ending = replace(ending, drops_unsent=True)
                return
            if now - max(self.report.paused_at, self.contact.released_at) < patience_s:
                return
            waited = f"the daemon has been waiting for space for {patience_s:g} s: {pause_reason}"
            if outbox.first_number == outbox.next:
                if ending is not None and not ending.abandons_wait:
                    # only the end waits: it may have the space kept for it
                    self.ending = replace(ending, abandons_wait=True, reason=waited, is_sent=False)
                return
            why = OSError(errno.ENOSPC, waited)  # it may be a quota
            error = DiskFull(why, self._path, "frames are not stored")
            error.number = self.cursors.published
            self.fail(error)
            self.ending = RequestedEnd("error", str(error), drops_unsent=True, is_out_of_space=True)

    def take_due(self, max_messages: int) -> list[OutboxMessage]:
        """Frames and skips to send now; none once the run has failed."""
        with self.lock:
            if self.failure is not None or self._drops_unsent:
                return []
            return self.outbox.take_due(self.limit, max_messages)

    def take_patches(self) -> list[tuple[str, bytes, bytes]]:
        """Kind, header and second part of the patches to send now."""
        with self.lock:
            return self.patches.take()

    def note_sent(self, refused: int | None, patches: Iterable[tuple[str, bytes, bytes]]) -> RequestedEnd | None:
        """Take back what the socket did not take, messages from `refused` on; return the end that is due now."""
        with self.lock:
            if refused is not None:
                self.outbox.put_back(refused)
            for patch in patches:
                self.patches.add(*patch)
            return self.ending if self.close_is_due else None

    def linger(self) -> bool:
        """True if the run's thread may wait a moment for more small frames."""
        with self.lock:
            self.thread.is_lingering = self.thread.is_idle = self.can_wait
            return self.can_wait

    def rest(self, *, is_blocked: bool) -> bool:
        """True if the run's thread has nothing to send; from now on changes wake it. is_blocked: the socket is full."""
        with self.lock:
            self.thread.is_lingering = False
            self.thread.is_idle = is_blocked or not self.has_due()
            return self.thread.is_idle

    def has_due(self) -> bool:
        """True when something could be sent now."""
        if self.failure is not None:
            return self.close_is_due
        is_frame_due = not self._drops_unsent and self.outbox.has_due(self.limit)
        return bool(self.patches.unsent) or self.close_is_due or is_frame_due

    @property
    def can_wait(self) -> bool:
        """True when only small frames are due, fewer than fill a message: more may soon come."""
        if self.failure is not None or self.ending is not None or self.patches.unsent:
            return False
        return self.outbox.can_wait

    @property
    def close_is_due(self) -> bool:
        """True when all frames were sent, notes are answered, and `close` was not sent."""
        ending = self.ending
        if ending is None or ending.is_sent:
            return False
        is_all_sent = self.outbox.all_sent and not len(self.patches.notes)
        return ending.is_out_of_space or (self.failure is None and (ending.drops_unsent or is_all_sent))

    @property
    def _drops_unsent(self) -> bool:
        return self.ending is not None and self.ending.drops_unsent

    def describe_unsafe(self) -> str:
        """The frames that the daemon may not have stored, for an error message; empty without any."""
        first = self.outbox.first_number
        return f"; frames from {first} on may not be stored" if first < self.outbox.next else ""

    def progress(self) -> Progress:
        with self.lock:
            unsafe_bytes, report = self.outbox.unsafe_payload_bytes, self.report
            counts = self.cursors.received, self.cursors.published, self.cursors.durable
            return Progress(self.outbox.next, *counts, unsafe_bytes, report.free_bytes, report.seconds_left)
