"""State of one acquisition as its producer knows it: window, cursors, first error, receipt.

Pure: no socket, no clock. Not thread-safe by itself: the lock of `RunState` guards it.
"""

from __future__ import annotations

import errno
import threading
from dataclasses import dataclass, replace

from acqstream.client.daemon_contact import Contact, DaemonReport, RefusedFrames, RunWarning
from acqstream.client.daemon_errors import failure, name_unforced
from acqstream.client.outbox import Outbox, OutboxMessage
from acqstream.errors import AcqStreamError, AcquisitionFailed, DaemonUnavailable, DiskFull
from acqstream.model.receipt import Receipt
from acqstream.model.state import Cursors, Limit
from acqstream.model.status import AcquisitionStatus
from acqstream.protocol.frame_batch import encode_request
from acqstream.protocol.replies import Ack, Closed, Error, Opened, Reply, StatusReply, StoredPage, UnknownReply, Warn

RECONNECT_CODES = frozenset({"unknown_ds", "denied"})
"""Errors that are not fatal: the daemon does not know this connection, and the client makes a new one."""

SHUTTING_DOWN = "shutting_down"
_STORED = "stored"  # a question among the patches: like them it is sent again after a lost contact


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
    failed. abandons_wait: the daemon is to wait for space no longer.
    """

    status: str
    reason: str
    drops_unsent: bool = False
    is_out_of_space: bool = False
    abandons_wait: bool = False

    @property
    def wire_status(self) -> str:
        """Status in `close`. "error" ends the daemon's wait for space; frames on the disk stay in the receipt."""
        return "error" if self.abandons_wait else self.status


class PatchQueue:
    """Late metadata to send, the latest message of each kind; sent again after a lost connection."""

    def __init__(self) -> None:
        self._headers: dict[str, tuple[bytes, bytes]] = {}  # and the second part of each, empty where there is none
        self.unsent: list[str] = []  # kinds; read with every frame, so without a call

    def add(self, kind: str, header: bytes, part: bytes = b"") -> None:
        self._headers[kind] = header, part
        if kind not in self.unsent:
            self.unsent.append(kind)

    def remove(self, kind: str) -> bool:
        """Never send this kind again; True if it was there."""
        return self._headers.pop(kind, None) is not None

    def take(self) -> list[tuple[str, bytes, bytes]]:
        """Kind, header and second part of the patches to send now."""
        due = [(kind, *self._headers[kind]) for kind in self.unsent]
        self.unsent.clear()
        return due

    def rewind(self, next_frame: int) -> None:
        """Send all again; the summary only if the daemon has no frame."""
        self.unsent = [kind for kind in self._headers if kind != "summary" or next_frame == 0]


class RunState:
    """State of one acquisition in its producer. `now` is always seconds of one monotonic clock.

    The program's threads and the connection's thread change it only through its methods, and hold `lock` meanwhile.
    `condition` has the same lock and is notified on every change that a thread may wait for. Entering the lock costs a
    third of entering the condition, and Ctrl-C may come in Condition.__enter__.
    """

    def __init__(self, outbox: Outbox, now: float) -> None:
        self.lock = threading.RLock()  # a signal handler may ask for the progress while its thread has it
        self.condition = threading.Condition(self.lock)
        self.outbox = outbox
        self.contact = Contact(now)
        self.report = DaemonReport(now)
        self.refused = RefusedFrames()
        self.patches = PatchQueue()
        self.cursors = Cursors()
        self.limit = Limit(0, 0)
        self.release_when_durable = False
        self.opened: Opened | None = None
        self.stored_before: int | None = None  # frames when the run was opened; None from a daemon without this field
        self.stored_answer: StoredPage | AcqStreamError | None = None
        self.failure: AcqStreamError | None = None
        self.receipt: Receipt | None = None
        self.ending: RequestedEnd | None = None
        self.ending_sent = False
        self.ended = False  # nothing more will be sent or received

    @property
    def _path(self) -> str:
        return self.opened.path if self.opened else ""

    def open(self, opened: Opened, *, same_machine: bool, now: float) -> None:
        """The daemon is ready for frames from `opened.next` on, for the first time or again.

        Raises ProtocolError if it asks for frames that were never put.
        """
        if self.opened is None:
            self.outbox.begin(opened.next, opened.received_bytes)
            self.opened = opened
            self.stored_before = opened.stored
        else:
            if self.stored_before is not None and opened.stored is not None:
                self.stored_before = min(self.stored_before, opened.stored)  # a killed daemon may have lost the last
            self._rewind(opened)
            self.patches.rewind(opened.next)
        self.outbox.ring.goes_round = opened.views
        self.release_when_durable = not same_machine
        self.limit = opened.limit
        self.ending_sent = False
        self.report.pause_reason = ""
        self.contact.restore(opened.epoch, now)

    def _rewind(self, opened: Opened) -> None:
        """Send again from `opened.next` on; frames that the outbox has released are declared lost."""
        outbox = self.outbox
        lost = outbox.first_number - opened.next
        gap = b""
        if lost > 0:
            reason = "lost by the daemon after it had reported them as safe; the producer no longer holds them"
            gap = encode_request("skip", ds=opened.dataset_id, n=opened.next, count=lost, reason=reason)
        outbox.rewind(opened.next, opened.received_bytes, gap)

    def request_close(self, status: str, reason: str) -> None:
        """End the run; a second request changes nothing."""
        if self.ending is None:
            is_paused = bool(self.report.pause_reason)
            self.ending = RequestedEnd(status, reason, drops_unsent=status != "completed" and is_paused)

    def end(self) -> None:
        """Nothing more will be sent or received."""
        self.ended = True
        self.condition.notify_all()

    def receive(self, reply: Reply | UnknownReply, now: float, wall_time: float) -> RunWarning | None:
        """Take a message in and return the warning that it carries. wall_time is seconds since 1970."""
        self.contact.heard_at = now
        if isinstance(reply, Ack):
            self._acknowledge(reply, now)
        elif isinstance(reply, StatusReply):
            status = reply.status
            if isinstance(status, AcquisitionStatus) and self.opened and status.dataset_id == self.opened.dataset_id:
                self.report.update(status, now)  # any other is a sign of life only
        elif isinstance(reply, Warn):
            return self.report.add_reply(reply, wall_time)
        elif isinstance(reply, Closed):
            self._finish(reply.receipt)
        elif isinstance(reply, StoredPage):
            self._answer_stored(reply)
        elif isinstance(reply, Error):
            return self._refuse(reply, wall_time)
        return None

    def ask_stored(self, header: bytes) -> None:
        """Request a page of the stored axes; `stored_answer` is None until the answer arrives."""
        self.stored_answer = None
        self.patches.add(_STORED, header)

    def _answer_stored(self, answer: StoredPage | AcqStreamError) -> None:
        if self.patches.remove(_STORED):
            self.stored_answer = answer

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
        if error.code == SHUTTING_DOWN:
            self.contact.loss_reason = f"; its last message: {error.text}"
        else:
            self._answer_stored(failure(error, self._path))
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
        if self.failure is None:
            self.failure = error

    def check_space(self, patience_s: float, now: float) -> None:
        """Fail, and close, when the daemon waits for space for longer than the patience and frames are not safe."""
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
            if ending is not None and not ending.abandons_wait:  # only the end waits: it may have the space kept for it
                self.ending, self.ending_sent = replace(ending, abandons_wait=True, reason=waited), False
            return
        why = OSError(errno.ENOSPC, waited)  # it may be a quota
        error = DiskFull(why, self._path, "frames are not stored")
        error.number = self.cursors.published
        self.fail(error)
        self.ending = RequestedEnd("error", str(error), drops_unsent=True, is_out_of_space=True)
        self.ending_sent = False

    def take_due(self, max_messages: int) -> list[OutboxMessage]:
        """Frames and skips to send now; none once the run has failed."""
        if self.failure is not None or self._drops_unsent:
            return []
        return self.outbox.take_due(self.limit, max_messages)

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
        """True when all frames were sent and `close` was not."""
        ending = self.ending
        if ending is None or self.ending_sent:
            return False
        return ending.is_out_of_space or (self.failure is None and (ending.drops_unsent or self.outbox.all_sent))

    @property
    def _drops_unsent(self) -> bool:
        return self.ending is not None and self.ending.drops_unsent

    def describe_backlog(self, how_long: str) -> str:
        """Reasons for a wait, for the error of a producer that waited too long."""
        ring = self.outbox.ring
        word = "durable" if self.release_when_durable else "published"
        bound = f"{ring.used_bytes / 1e6:.1f} of {ring.capacity / 1e6:.1f} MB; see buffer_mb"
        phrases = [f"nothing became {word} {how_long} ({bound})"]
        if not self.outbox.all_sent:
            phrases.append(f"the daemon's window is closed at frame {self.limit.number}")
        return "; ".join(phrases + self.report.phrases())

    def describe_unsafe(self) -> str:
        """The frames that the daemon may not have stored, for an error message; empty without any."""
        first = self.outbox.first_number
        return f"; frames from {first} on may not be stored" if first < self.outbox.next else ""

    def progress(self) -> Progress:
        cursors, report = self.cursors, self.report
        return Progress(
            self.outbox.next,
            cursors.received,
            cursors.published,
            cursors.durable,
            self.outbox.unsafe_payload_bytes,
            report.free_bytes,
            report.seconds_left,
        )
