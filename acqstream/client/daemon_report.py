"""The daemon as its producer hears it: last contact, disk state, warnings, errors as exceptions, and the receipt.

The receipt is compared with the frames that the producer sent and skipped. Pure.
"""

from __future__ import annotations

import errno
import math
import threading
import time
from collections import deque
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from acqstream.client.arguments import patch_parts
from acqstream.client.outbox import DeclaredGaps
from acqstream.errors import (
    AcqStreamError,
    AcquisitionFailed,
    AcquisitionRefused,
    DatasetExists,
    DiskFull,
    FrameRefused,
    StorageError,
)
from acqstream.model.receipt import CTRL_C, UNFORCED, Receipt
from acqstream.model.run_note import RunNote
from acqstream.model.status import AcquisitionStatus, WarningCode
from acqstream.model.units import count_text
from acqstream.protocol.frame_batch import encode_request
from acqstream.protocol.replies import Error, StoredPage, Warn

MAX_WARNINGS = 1000
MAX_LOSSES_IN_A_ROW = 5
MAX_WAITING_NOTES = 100
NOTE_ANSWER_S = 15.0  # longer than a daemon waits for its disk
NOTES_END_S = 30.0  # for all notes, once nothing else keeps a run from its end
NOTE_RETRY_S = 0.25  # after a daemon was too busy for a note
_SHOWN_CHARACTERS = 100  # of a note in a warning
_STORED = "stored"  # a question among the patches: like them it is sent again after a lost contact
_NOTE = "note"  # likewise
_MAX_NUMBERS = 10  # in the text of an error
_MANY = 50_000  # more than there are in flight
_STORAGE_ERRORS: dict[str, tuple[type[StorageError], int]] = {
    "disk_full": (DiskFull, errno.ENOSPC),
    "io_error": (StorageError, errno.EIO),
}
_FRAME_CODES = frozenset(
    {"duplicate_axes", "shape_mismatch", "dtype_unsupported", "payload_size", "checksum", "tile_axes", "tile_size"}
)
_MAX_GAPS = 5  # likewise


@dataclass(frozen=True, slots=True)
class RunWarning:
    """A problem that the daemon reported and that does not end the run; time is in seconds since 1970."""

    code: str
    text: str
    time: float


class Contact:
    """Contact with the daemon. Times are seconds of one monotonic clock."""

    def __init__(self, now: float) -> None:
        self.heard_at = now
        self.released_at = now  # frames became safe last
        self.epoch = 0
        self.is_lost = False
        self.loss_reason = ""  # for the error, should contact not return
        self._losses_in_a_row = 0

    def restore(self, epoch: int, now: float) -> None:
        """The daemon has opened the acquisition, for the first time or again."""
        self.epoch = max(self.epoch, epoch)
        self.is_lost = False
        self.heard_at = self.released_at = now

    def forgive(self, seconds: float, now: float) -> None:
        """Move both times, because this program did not run and could not hear."""
        self.heard_at = min(self.heard_at + seconds, now)
        self.released_at = min(self.released_at + seconds, now)

    def acknowledge(self) -> None:
        """The daemon has taken frames over this connection."""
        self._losses_in_a_row = 0

    def lose(self) -> bool:
        """The daemon does not know this connection; False when too many connections in a row ended in this way."""
        if not self.is_lost:  # else one of many answers to frames that were on their way
            self.is_lost = True
            self._losses_in_a_row += 1
        return self._losses_in_a_row <= MAX_LOSSES_IN_A_ROW


class RefusedFrames:
    """Frames that the daemon refused. n_frames counts them, each once; `pending` were not raised yet.

    is_raised: the program gets them as errors; else, as for hooks, in warnings and receipt only. lost_notes: texts of
    notes that are not confirmed, and were not raised yet.
    """

    def __init__(self) -> None:
        self.n_frames = 0
        self.pending: list[tuple[int, Error]] = []
        self.is_raised = True
        self.lost_notes: list[str] = []
        self._numbers: set[int] = set()
        self._lock = threading.RLock()  # a signal handler may call in the middle of `raise_pending`

    def add(self, error: Error, first: int, kept: range) -> None:
        """Note refused frames, unless that is a repetition. kept: the numbers of frames that may still be refused."""
        if len(self._numbers) >= _MANY:
            self._numbers = {one for one in self._numbers if one >= kept.start}
        new = set(range(max(first, kept.start), min(first + error.count, kept.stop))) - self._numbers
        self._numbers |= new
        self.n_frames += len(new)
        with self._lock:
            self.pending += [(number, error) for number in sorted(new)]

    def raise_pending(self) -> None:
        """Raise FrameRefused for the pending frames, once."""
        with self._lock:
            pending, self.pending = self.pending, []
        if not pending or not self.is_raised:
            return
        first, numbers = pending[0][1], tuple(number for number, _ in pending)
        text = f"{first.text} ({first.code})"
        if len(numbers) > 1:
            more = ", ".join(map(str, numbers[1:_MAX_NUMBERS])) + (", ..." if len(numbers) > _MAX_NUMBERS else "")
            text += f"; {len(numbers)} frames were refused, also {more}"
        text += "; this call did its work all the same"
        raise FrameRefused(text, code=first.code, number=numbers[0], earlier=numbers)

    def raise_notes(self) -> None:
        """Raise AcquisitionRefused for notes that are not confirmed, once."""
        lost, self.lost_notes = self.lost_notes, []
        if lost and self.is_raised:
            more = f"; and {len(lost) - _MAX_NUMBERS} more" if len(lost) > _MAX_NUMBERS else ""
            text = f"{'; '.join(lost[:_MAX_NUMBERS])}{more}; the run has ended as its receipt says"
            raise AcquisitionRefused(text, code=WarningCode.NOTE_REFUSED)


class NoteQueue:
    """Notes that the daemon has not answered, the first of them sent: they are stored in their order.

    sent_at: when the first one was sent to the present daemon. busy_text: why that was too busy for it; retry_at: when
    it is sent again.
    """

    def __init__(self) -> None:
        self._notes: deque[tuple[str, RunNote]] = deque()
        self.rewind()

    def __len__(self) -> int:
        return len(self._notes)

    def add(self, dataset_id: str, note: RunNote) -> None:
        """Raises AcquisitionRefused where too many wait for the daemon."""
        if len(self._notes) >= MAX_WAITING_NOTES:
            text = f"{len(self._notes)} notes wait for the daemon, which may wait for its disk; add fewer"
            raise AcquisitionRefused(text, code="too_many_notes")
        self._notes.append((dataset_id, note))

    def header(self) -> bytes:
        """The message of the first note; empty without one."""
        if not self._notes:
            return b""
        dataset_id, note = self._notes[0]
        return encode_request("note", ds=dataset_id, **note.request())

    def answer(self, note_id: str) -> RunNote | None:
        """Remove the first note, if it has this id."""
        if not self._notes or self._notes[0][1].id != note_id:
            return None
        self.sent_at, self.busy_text = math.inf, ""
        return self._notes.popleft()[1]

    def rewind(self) -> None:
        """Begin all waits anew: nothing was sent to the present daemon."""
        self.sent_at = self.retry_at = self._end_at = math.inf
        self.busy_text = ""

    def overdue(self, now: float, *, is_last: bool) -> str:
        """The id of the first note, if it had no answer for NOTE_ANSWER_S; else empty. now: math.inf at the end.

        is_last: the end of the run waits for notes alone, for at most NOTES_END_S.
        """
        self._end_at = min(self._end_at, now + NOTES_END_S) if is_last else math.inf
        is_overdue = now == math.inf or now > min(self._end_at, self.sent_at + NOTE_ANSWER_S)
        return self._notes[0][1].id if self._notes and is_overdue else ""


class PatchQueue:
    """Late metadata to send, the latest message of each kind; sent again after a lost connection.

    The question for stored axes is among them. A patch of the summary has all entries of those before, which may still
    be unsent. notes: those without an answer.
    """

    def __init__(self) -> None:
        self._headers: dict[str, tuple[bytes, bytes]] = {}  # and the second part of each, empty where there is none
        self._summary: dict[str, Any] = {}
        self.unsent: list[str] = []  # kinds; read with every frame, so without a call
        self.stored_answer: StoredPage | AcqStreamError | None = None
        self.notes = NoteQueue()

    def add(self, kind: str, header: bytes, part: bytes = b"") -> None:
        self._headers[kind] = header, part
        if kind not in self.unsent:
            self.unsent.append(kind)

    def add_values(self, dataset_id: str, kind: str, values: dict[str, Any]) -> None:
        """Add a patch of "summary" or "display". Raises ConfigError for what cannot be stored."""
        if kind == "summary":
            self._summary = values = {**self._summary, **values}
        self.add(kind, *patch_parts(dataset_id, kind, values))

    def ask_stored(self, dataset_id: str, at: int) -> None:
        """Request a page of the stored axes; `stored_answer` is None until the answer arrives."""
        self.stored_answer = None
        self.add(_STORED, encode_request("stored", ds=dataset_id, at=at))

    def answer_stored(self, answer: StoredPage | AcqStreamError) -> None:
        """Take the answer in, if there was a question, which is not sent again."""
        if self._headers.pop(_STORED, None) is not None:
            self.stored_answer = answer

    def add_note(self, dataset_id: str, note: RunNote) -> None:
        """Add a note; it is sent when those before it are answered. Raises as `NoteQueue.add`."""
        self.notes.add(dataset_id, note)
        self._send_note()

    def answer_note(self, note_id: str) -> RunNote | None:
        """Take in that the daemon has answered a note, or is not to; None if it is not the one that was sent."""
        note = self.notes.answer(note_id)
        if note is not None:
            del self._headers[_NOTE]
            self.unsent = [kind for kind in self.unsent if kind != _NOTE]
            self._send_note()
        return note

    def lose_note(self, note_id: str, reason: str) -> str:
        """As `answer_note`, for a note that is not confirmed; return a text about it, "" without a note."""
        note = self.answer_note(note_id)
        return "" if note is None else f"the note {note.content[:_SHOWN_CHARACTERS]!r} was not confirmed: {reason}"

    def lose_overdue(self, now: float, reason: str, *, is_last: bool) -> str:
        """As `lose_note`, for the first note if it is overdue: see `NoteQueue.overdue`. Sends again what is due."""
        if self.notes.retry_at <= now:
            self.notes.retry_at = math.inf
            if _NOTE in self._headers and _NOTE not in self.unsent:
                self.unsent.append(_NOTE)
        note_id = self.notes.overdue(now, is_last=is_last)
        return self.lose_note(note_id, self.notes.busy_text or reason) if note_id else ""

    def retry_note_if_busy(self, error: Error) -> bool:
        """True if the daemon was too busy for the note, which is sent again, within the time for an answer."""
        is_busy = error.errno == errno.EBUSY
        if is_busy:
            self.notes.busy_text, self.notes.retry_at = error.text, time.monotonic() + NOTE_RETRY_S
        return is_busy

    def _send_note(self) -> None:
        if _NOTE not in self._headers and (header := self.notes.header()):
            self.add(_NOTE, header)

    def take(self) -> list[tuple[str, bytes, bytes]]:
        """Kind, header and second part of the patches to send now."""
        if _NOTE in self.unsent:
            self.notes.sent_at = min(self.notes.sent_at, time.monotonic())
        due = [(kind, *self._headers[kind]) for kind in self.unsent]
        self.unsent.clear()
        return due

    def rewind(self, next_frame: int) -> None:
        """Send all again; the summary only if the daemon has no frame."""
        self.unsent = [kind for kind in self._headers if kind != "summary" or next_frame == 0]
        self.notes.rewind()


class DaemonReport:
    """Disk, state and warnings, as the daemon reported them last."""

    def __init__(self, now: float) -> None:
        self.status = AcquisitionStatus()
        self.free_bytes: int | None = None
        self.seconds_left: float | None = None
        self.state = ""
        self.pause_reason = ""  # the daemon waits for space on its disk
        self.stall = ""  # the disk call that stalls
        self.paused_at = now
        self.warnings: tuple[RunWarning, ...] = ()  # replaced and never changed, so that any thread may read it

    def update(self, status: AcquisitionStatus, now: float) -> None:
        self.status = status
        if status.free_bytes is not None:
            self.free_bytes = status.free_bytes
        self.seconds_left = status.seconds_left
        self.state = status.state or self.state
        if status.paused and not self.pause_reason:
            self.paused_at = now
        self.pause_reason, self.stall = status.paused, status.stall

    def add_warning(self, code: str, text: str, wall_time: float) -> RunWarning:
        """Keep a warning; the oldest give way."""
        warning = RunWarning(code, text, wall_time)
        self.warnings = (*self.warnings, warning)[-MAX_WARNINGS:]
        return warning

    def add_lost_note(self, text: str, refused: RefusedFrames) -> RunWarning | None:
        """Keep a warning of a note that is not confirmed, and have it raised; None without a text."""
        if text:
            refused.lost_notes.append(text)
        return self.add_warning(WarningCode.NOTE_REFUSED, text, time.time()) if text else None

    def add_reply(self, reply: Warn, wall_time: float) -> RunWarning | None:
        """Keep the daemon's warning; None for one that it repeats, as after a lost contact."""
        try:
            noted_at = datetime.fromisoformat(reply.time).timestamp()
        except (ValueError, OverflowError):  # not a time
            noted_at = wall_time
        if RunWarning(reply.code, reply.text, noted_at) in self.warnings:
            return None
        return self.add_warning(reply.code, reply.text, noted_at)

    def phrases(self) -> list[str]:
        """State, space and last warning, for an error message."""
        phrases = [f"its disk stalls: {self.stall}"] if self.stall else []
        if self.state:
            phrases.append(f"the daemon's state is {self.state}")
        if self.free_bytes is not None:
            phrases.append(f"{self.free_bytes / 1e9:.1f} GB are free on its disk")
        if self.warnings:
            phrases.append(f"its last warning: {self.warnings[-1].text}")
        return phrases


def refusal(reply: Error, name: str) -> AcqStreamError:
    """Why `open` was answered with an error."""
    if reply.code == "name_taken":
        return DatasetExists(reply.text)
    if reply.code in _STORAGE_ERRORS:
        return _storage_error(reply, name, f"the daemon refuses to open {name!r}")
    return AcquisitionRefused(f"the daemon refuses to open {name!r}: {reply.text} ({reply.code})", code=reply.code)


def failure(reply: Error, path: str) -> AcqStreamError:
    """Why a running acquisition ended."""
    if reply.code in _STORAGE_ERRORS:
        return _storage_error(reply, path, "the daemon ended the acquisition")
    text = f"the daemon ended the acquisition: {reply.text} ({reply.code})"
    if reply.number is not None and reply.code in _FRAME_CODES:
        return FrameRefused(text, code=reply.code, number=reply.number)
    return AcquisitionFailed(text, code=reply.code, number=reply.number)


def name_unforced(error: AcqStreamError, receipt: Receipt) -> None:
    """Add the frames to the error of a failed run that were published and are not durable: the disk may lose them."""
    for gap in receipt.missing:
        if gap.reason == UNFORCED and isinstance(error, StorageError):
            error.number = gap.first if error.number is None else min(error.number, gap.first)
            error.add_note(f"frames {gap.first} to {gap.first + gap.count - 1} were {UNFORCED}; send them again")


def end_reason(error: BaseException) -> str:
    """The reason in `close` of a run that an exception of its program ended: type and text."""
    if isinstance(error, KeyboardInterrupt):
        return CTRL_C
    text = str(error).strip()
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _storage_error(reply: Error, path: str, action: str) -> StorageError:
    kind, usual_errno = _STORAGE_ERRORS[reply.code]
    error = kind(OSError(reply.errno or usual_errno, reply.text), path, action)
    error.number = reply.number
    return error


def describe_missing(receipt: Receipt, declared: DeclaredGaps, sent: int, refused: int = 0) -> str:
    """Text about the frames that a completed run lacks, empty if none. sent is the number of frame numbers in use.

    refused frames are known to be missing.
    """
    complaints = []
    if receipt.status != "completed":
        complaints.append(f"it ended as {receipt.status!r}" + (f": {receipt.reason}" if receipt.reason else ""))
    gaps = [
        (*part, entry.reason)
        for entry in receipt.missing
        for part in declared.without(entry.first, entry.first + entry.count)
    ]
    count = sum(end - first for first, end, _ in gaps)
    if count > refused:
        shown = ", ".join(_numbers(first, end, reason) for first, end, reason in gaps[:_MAX_GAPS])
        more = f" and {len(gaps) - _MAX_GAPS} more gaps" if len(gaps) > _MAX_GAPS else ""
        complaints.append(f"{count} of {count_text(sent, 'frame', 'are')} missing: {shown}{more}")
    else:
        # Numbers of an earlier producer count as declared, though most are stored: the receipt distinguishes them.
        absent = max(receipt.skipped + receipt.refused, sum(entry.count for entry in receipt.missing))
        skipped = min(declared.count + refused, absent)
        if (lost := sent - receipt.stored - skipped) > 0:
            missing = f"{lost} of {count_text(sent, 'frame', 'are')} missing"
            complaints.append(f"{missing}: {receipt.stored} are stored, {skipped} skipped")
    return "; ".join(complaints)


def _numbers(first: int, end: int, reason: str) -> str:
    numbers = str(first) if end == first + 1 else f"{first} to {end - 1}"
    return f"{numbers} ({reason})" if reason else numbers
