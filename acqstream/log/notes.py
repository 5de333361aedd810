"""The notes of an acquisition besides its frames: warnings, and stalls of the disk."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime

from acqstream.errors import FrameRefused
from acqstream.log.state_file import now_text
from acqstream.model.receipt import Stall
from acqstream.storage.files.disk import MAX_STALLS, SlowCall

MAX_WARNINGS = 1000
MAX_REFUSALS_TOLD = 100  # each with its reason; later ones are counted
MAX_REFUSALS_KEPT = 16_384  # for the producer: as many as the window takes


class LogNotes:
    """Bounded lists, only ever appended to. Thread-safe; on_change is called after every note.

    warning_counts (by code), n_stalls, n_refusals and stall_s (seconds) also count the notes that the lists have no
    space for.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self.warnings: list[tuple[str, str, str]] = []  # code, text, time
        self._slow: list[SlowCall] = []
        self.warning_counts: dict[str, int] = {}
        self.n_stalls = 0
        self.stall_s = 0.0
        self.n_refusals = 0
        self._refusals: deque[FrameRefused] = deque(maxlen=MAX_REFUSALS_KEPT)
        self._n_untold = 0  # of the last ones, to the producer
        self._lock = threading.Lock()  # an addition to a count is two steps

    def warn(self, code: str, text: str) -> None:
        """Note something that the operator should know."""
        with self._lock:
            self.warning_counts[code] = self.warning_counts.get(code, 0) + 1
        if len(self.warnings) < MAX_WARNINGS:
            is_last = len(self.warnings) == MAX_WARNINGS - 1
            more = "; further warnings are not kept" if is_last else ""
            self.warnings.append((code, text + more, now_text()))
        self._on_change()

    def refuse(self, error: FrameRefused) -> FrameRefused:
        """Note a frame that is refused. Returns the error; after many with a reason that is the same for all."""
        # It is kept: the frames of its traceback would keep the producer's memory mapped.
        error.__traceback__ = error.__context__ = error.__cause__ = None
        with self._lock:
            self.n_refusals += 1
            if self.n_refusals > MAX_REFUSALS_TOLD:
                text = f"frame {error.number}: one of many; their reasons are not kept"
                error = FrameRefused(text, code=error.code, number=error.number)
            self._refusals.append(error)
            self._n_untold = min(self._n_untold + 1, MAX_REFUSALS_KEPT)
            if self.n_refusals > MAX_REFUSALS_TOLD:
                self.warning_counts["frame_refused"] += 1
        if self.n_refusals <= MAX_REFUSALS_TOLD:
            more = "; further refused frames are counted in the receipt" if self.n_refusals == MAX_REFUSALS_TOLD else ""
            self.warn("frame_refused", f"frame {error.number} was {error.reason}{more}")
        self._on_change()
        return error

    def take_refusals(self) -> list[FrameRefused]:
        """The refused frames since the last call."""
        if not self._n_untold:  # in each turn of the loop
            return []
        with self._lock:
            count, self._n_untold = self._n_untold, 0
            return list(self._refusals)[-count:]

    def repeat_refusals(self) -> None:
        """Give all that are kept again: the producer may have missed the last ones, and knows their numbers."""
        with self._lock:
            self._n_untold = len(self._refusals)

    def stall(self, slow: SlowCall) -> None:
        """Note a disk call that stalled and has returned. Calls that overlap in time are one stall."""
        text, joined_s, count = stall_text(slow, "took"), 0.0, len(self._slow)
        with self._lock:
            while count < MAX_STALLS and self._slow and (both := self._slow[-1].joined(slow)) is not None:
                joined_s, slow = joined_s + self._slow.pop().seconds, both
            self.stall_s += slow.seconds - joined_s
            self.n_stalls += not joined_s
            if count < MAX_STALLS:
                self._slow.append(slow)
        if count < MAX_STALLS and not joined_s:
            self.warn("disk_stalled", text)

    @property
    def stalls(self) -> list[Stall]:
        """The first MAX_STALLS, each named after its oldest call, as `status` names it while it lasts."""
        dates = [datetime.fromtimestamp(one.began_s, UTC).isoformat(timespec="milliseconds") for one in self._slow]
        return [Stall(one.call, one.file, at, round(one.seconds, 3)) for one, at in zip(self._slow, dates, strict=True)]

    def unforced(self, folder: str) -> None:
        """Note that the file system cannot force the names of files."""
        text = f"the file system of {folder} cannot force the names of new files to the disk (fsync of a folder)"
        self.warn("names_unforced", f"{text}: a power cut may take files created shortly before; frames go on")


def stall_text(slow: SlowCall, verb: str) -> str:
    """For people: "fdatasync of cells_NDTiffStack.tif took 12.3 s"."""
    return f"{slow.call} of {slow.file} {verb} {slow.seconds:.1f} s"
