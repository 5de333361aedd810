"""What the producer knows of its acquisition: window, cursors, warnings, first error, receipt.

Pure: no socket, no clock. Not for several threads at a time: the run's condition guards it.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import deque
from dataclasses import dataclass, replace
from datetime import datetime

from acqstream.client.daemon_errors import failure
from acqstream.client.outbox import HeldMessage, Outbox
from acqstream.errors import AcqStreamError, AcquisitionFailed, DiskFull
from acqstream.model.cursors import Cursors, Limit
from acqstream.model.receipt import Receipt
from acqstream.model.status import AcquisitionStatus, DaemonStatus
from acqstream.protocol.replies import Ack, Closed, Error, Opened, Reply, StatusReply, StoredPage, UnknownReply, Warn
from acqstream.protocol.request_fields import encode_request

MAX_WARNINGS = 1000
MAX_LOST_IN_A_ROW = 5
LOST_CODES = frozenset({"unknown_ds", "denied"})
"""Not fatal errors that say that the daemon no longer knows this connection: it is made anew."""

SHUTTING_DOWN = "shutting_down"
_STORED = "stored"  # among the patches: a question, which is sent again after a lost contact as they are


@dataclass(frozen=True, slots=True)
class RunWarning:
    """Something the daemon reported while going on; time is when it noted it, in seconds since 1970."""

    code: str
    text: str
    time: float


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is. The first four count frames from the first on, skipped ones included.

    behind_bytes are pixel bytes held here because they are not safe yet. free_bytes is the space left on the daemon's
    disk, None before the first status; seconds_left is how long it lasts at the present rate, None where that is
    unknown.
    """

    sent: int
    received: int
    published: int
    durable: int
    behind_bytes: int
    free_bytes: int | None
    seconds_left: float | None = None


def is_interrupted(reply: Reply) -> bool:
    """The daemon ends, or has ended, without the producer's wish: the run goes on once it is started again."""
    if isinstance(reply, Closed):
        return reply.receipt.status == "interrupted"
    return isinstance(reply, Error) and reply.code == SHUTTING_DOWN


@dataclass(frozen=True, slots=True)
class RequestedEnd:
    """The end that the producer asked for.

    drops_unsent: what waits for the window is not sent any more. gives_up: the daemon is to wait for space no longer.
    """

    status: str
    reason: str
    drops_unsent: bool = False
    gives_up: bool = False

    @property
    def wire_status(self) -> str:
        """What `close` says: of what is on the disk nothing is lost by giving up, the receipt tells."""
        return "error" if self.gives_up else self.status


class RunState:
    """Everything a producer knows about its acquisition. `now` is always seconds of one monotonic clock.

    The program's threads and the connection's thread change it only through its methods, and hold `lock` meanwhile.
    `condition` has the same lock and is notified on every change that somebody may wait for. Entering the lock costs a
    third of entering the condition, and Ctrl-C may come in Condition.__enter__.
    """

    def __init__(self, outbox: Outbox, now: float) -> None:
        self.lock = threading.RLock()  # a signal handler may ask for the progress while its thread has it
        self.condition = threading.Condition(self.lock)
        self.outbox = outbox
        self.cursors = Cursors()
        self.limit = Limit(0, 0)
        self.release_when_durable = False
        self.last_word = now
        self.released_at = now
        self.opened: Opened | None = None
        self.stored_before: int | None = None  # frames when the run was opened; None: the daemon does not tell
        self.stored_answer: StoredPage | AcqStreamError | None = None
        self.failure: AcqStreamError | None = None
        self.receipt: Receipt | None = None
        self.ending: RequestedEnd | None = None
        self.ending_sent = False
        self.ended = False  # nothing more will be sent or received
        self.contact_lost = False
        self.why_lost = ""  # for the error, should contact not come back
        self.epoch = 0
        self.free_bytes: int | None = None
        self.daemon_state = ""
        self.paused_why = ""  # the daemon waits for space on its disk
        self._paused_at = now
        self.seconds_left: float | None = None
        self.warnings: deque[RunWarning] = deque(maxlen=MAX_WARNINGS)
        self._is_out_of_space = False
        self._lost_in_a_row = 0
        self._patches: dict[str, bytes] = {}  # the latest of each kind: sent again after a lost connection
        self._unsent_patches: list[str] = []

    def open(self, opened: Opened, *, same_machine: bool, now: float) -> None:
        """The daemon is ready for frames from `opened.next` on, for the first time or again.

        Raises ProtocolError if it asks for frames that were never put.
        """
        self.epoch = max(self.epoch, opened.epoch)
        if self.opened is None:
            self.outbox.begin(opened.next, opened.received_bytes)
            self.opened = opened
            self.stored_before = opened.stored
        else:
            if self.stored_before is not None and opened.stored is not None:
                self.stored_before = min(self.stored_before, opened.stored)  # a killed daemon may have lost the last
            self._rewind(opened)
            self._unsent_patches = [kind for kind in self._patches if kind != "summary" or opened.next == 0]
        self.release_when_durable = not same_machine
        self.limit = opened.limit
        self.ending_sent = False
        self.contact_lost = False
        self.paused_why = ""
        self.last_word = self.released_at = now

    def _rewind(self, opened: Opened) -> None:
        """Send again from `opened.next` on; what is not held any more is declared lost."""
        outbox = self.outbox
        lost = outbox.first_held - opened.next
        gap = b""
        if lost > 0:
            reason = "lost by the daemon after it had reported them as safe; the producer no longer holds them"
            gap = encode_request("skip", ds=opened.dataset_id, n=opened.next, count=lost, reason=reason)
        outbox.rewind(opened.next, opened.received_bytes, gap)

    def request_close(self, status: str, reason: str) -> None:
        """End the run; a second request changes nothing."""
        if self.ending is None:
            self.ending = RequestedEnd(status, reason, drops_unsent=status != "completed" and bool(self.paused_why))

    def note_close_sent(self, *, is_sent: bool) -> None:
        self.ending_sent = is_sent

    def end(self) -> None:
        """Nothing more will be sent or received."""
        self.ended = True
        self.condition.notify_all()

    def forgive(self, seconds: float, now: float) -> None:
        """Move the daemon's last word and the last progress: nobody was there to hear."""
        self.last_word = min(self.last_word + seconds, now)
        self.released_at = min(self.released_at + seconds, now)

    def receive(self, reply: Reply | UnknownReply, now: float, wall_time: float) -> RunWarning | None:
        """Take a message in; the warning it carries, if one. wall_time is seconds since 1970."""
        self.last_word = now
        if isinstance(reply, Ack):
            self._acknowledge(reply, now)
        elif isinstance(reply, StatusReply):
            self._note_status(reply.status, now)
        elif isinstance(reply, Warn):
            return self._note_warning(reply, wall_time)
        elif isinstance(reply, Closed):
            self._finish(reply.receipt)
        elif isinstance(reply, StoredPage):
            self._answer_stored(reply)
        elif isinstance(reply, Error):
            return self._refuse(reply, wall_time)
        return None

    def ask_stored(self, header: bytes) -> None:
        """Ask for a page of the axes that are stored; `stored_answer` is None until there is an answer."""
        self.stored_answer = None
        self.add_patch(_STORED, header)

    def _answer_stored(self, answer: StoredPage | AcqStreamError) -> None:
        if self._patches.pop(_STORED, None) is not None:
            self.stored_answer = answer

    def _acknowledge(self, ack: Ack, now: float) -> None:
        self.cursors = ack.cursors
        self.limit = ack.limit
        self._lost_in_a_row = 0
        safe = ack.cursors.durable if self.release_when_durable else ack.cursors.published
        if self.outbox.release(safe):
            self.released_at = now

    def _note_status(self, status: AcquisitionStatus | DaemonStatus, now: float) -> None:
        if isinstance(status, DaemonStatus) or self.opened is None or status.dataset_id != self.opened.dataset_id:
            return  # nothing but a sign of life
        if status.free_bytes is not None:
            self.free_bytes = status.free_bytes
        self.daemon_state = status.state or self.daemon_state
        was_paused, self.paused_why = bool(self.paused_why), status.paused
        if self.paused_why and not was_paused:
            self._paused_at = now
        self.seconds_left = status.seconds_left

    def _refuse(self, error: Error, wall_time: float) -> RunWarning | None:
        if error.fatal:
            self.fail(failure(error, self.opened.path if self.opened else ""))
            return None
        if error.code == SHUTTING_DOWN:
            self.why_lost = f"; it said: {error.text}"
            return self.warn(error.code, error.text, wall_time)
        if error.code in LOST_CODES:
            self._lose_contact(error)
            return None
        self._answer_stored(failure(error, self.opened.path if self.opened else ""))
        return self.warn(error.code, error.text, wall_time)

    def _lose_contact(self, error: Error) -> None:
        if self.contact_lost:
            return  # one of many answers to what was on its way
        self.contact_lost = True
        self._lost_in_a_row += 1
        if self._lost_in_a_row > MAX_LOST_IN_A_ROW:  # opening again does not help
            self.fail(failure(error, self.opened.path if self.opened else ""))

    def _note_warning(self, reply: Warn, wall_time: float) -> RunWarning | None:
        """Keep the daemon's warning; None if it is told again, as after a lost contact, and is known."""
        known = RunWarning(reply.code, reply.text, _seconds_of(reply.time, wall_time))
        return None if known in self.warnings else self.warn(known.code, known.text, known.time)

    def warn(self, code: str, text: str, wall_time: float) -> RunWarning:
        """Keep a warning; the oldest give way."""
        warning = RunWarning(code, text, wall_time)
        self.warnings.append(warning)
        return warning

    def _finish(self, receipt: Receipt) -> None:
        if is_interrupted(Closed(receipt)) and self.failure is None:
            self.contact_lost = True  # the daemon was stopped; if it is started again, the run goes on
            return
        self.receipt = receipt
        self.ended = True
        if self.ending is None:  # for example ended by an operator
            why = f": {receipt.reason}" if receipt.reason else ""
            self.fail(AcquisitionFailed(f"the daemon ended the acquisition as {receipt.status}{why}", code="ended"))

    def fail(self, error: AcqStreamError) -> None:
        """Keep the first error of the run."""
        if self.failure is None:
            self.failure = error

    def check_space(self, patience_s: float, now: float) -> None:
        """Fail, and close, when the daemon waits for space for longer than the patience and frames are not safe."""
        outbox, ending = self.outbox, self.ending
        if not self.paused_why or self.failure is not None:
            return
        if ending is not None and ending.status != "completed":
            self.ending = replace(ending, drops_unsent=True)
            return
        if now - max(self._paused_at, self.released_at) < patience_s:
            return
        waited = f"the daemon has been waiting for space for {patience_s:g} s: {self.paused_why}"
        if outbox.first_held == outbox.next:
            if ending is not None and not ending.gives_up:  # only the end waits: it may have the space kept for it
                self.ending, self.ending_sent = replace(ending, gives_up=True, reason=waited), False
            return
        why = OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}; {waited}")
        error = DiskFull(why, self.opened.path if self.opened else "", "frames are not stored")
        error.number = self.cursors.published
        self.fail(error)
        self._is_out_of_space = True
        self.ending = RequestedEnd("error", str(error), drops_unsent=True)
        self.ending_sent = False

    def add_patch(self, kind: str, header: bytes) -> None:
        """Send late metadata: a "summary" or "display" patch."""
        self._patches[kind] = header
        if kind not in self._unsent_patches:
            self._unsent_patches.append(kind)

    def take_patches(self) -> list[tuple[str, bytes]]:
        """Kind and header of the patches to send now."""
        due = [(kind, self._patches[kind]) for kind in self._unsent_patches]
        self._unsent_patches.clear()
        return due

    def take_due(self, most: int) -> list[HeldMessage]:
        """Frames and skips to send now, at most so many; none once the run has failed."""
        if self.failure is not None or self._drops_unsent:
            return []
        return self.outbox.take_due(self.limit, most)

    def has_due(self) -> bool:
        """True when something could be sent now."""
        if self.failure is not None:
            return self.close_is_due
        is_frame_due = not self._drops_unsent and self.outbox.has_due(self.limit)
        return bool(self._unsent_patches) or self.close_is_due or is_frame_due

    @property
    def can_wait(self) -> bool:
        """True when only small frames are due, fewer than a message may hold: more may soon come."""
        if self.failure is not None or self.ending is not None or self._unsent_patches:
            return False
        return self.outbox.can_wait

    @property
    def close_is_due(self) -> bool:
        """True when all frames were sent and `close` was not."""
        if self.ending is None or self.ending_sent:
            return False
        return self._is_out_of_space or (self.failure is None and (self.ending.drops_unsent or self.outbox.all_sent))

    @property
    def _drops_unsent(self) -> bool:
        return self.ending is not None and self.ending.drops_unsent

    def what_is_behind(self, how_long: str) -> str:
        """For a producer that waited in vain."""
        ring = self.outbox.ring
        word = "durable" if self.release_when_durable else "published"
        bound = f"{ring.used_bytes / 1e6:.1f} of {ring.capacity / 1e6:.1f} MB; see buffer_mb"
        text = [f"nothing became {word} {how_long} ({bound})"]
        if not self.outbox.all_sent:
            text.append(f"the daemon's window is closed at frame {self.limit.number}")
        if self.daemon_state:
            text.append(f"the daemon says {self.daemon_state}")
        if self.free_bytes is not None:
            text.append(f"{self.free_bytes / 1e9:.1f} GB are free on its disk")
        if self.warnings:
            text.append(f"its last warning: {self.warnings[-1].text}")
        return "; ".join(text)

    def progress(self) -> Progress:
        cursors = self.cursors
        return Progress(
            self.outbox.next,
            cursors.received,
            cursors.published,
            cursors.durable,
            self.outbox.held_payload_bytes,
            self.free_bytes,
            self.seconds_left,
        )


def _seconds_of(text: str, default: float) -> float:
    """Seconds since 1970 of a time in ISO 8601; the default for a daemon that tells none, or no time."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return default
