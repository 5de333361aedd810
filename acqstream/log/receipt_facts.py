"""The facts that a receipt states: counts of published and missing frames; warnings, refusals, stalls of the disk."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

from acqstream.errors import FrameRefused
from acqstream.log.group import Gap, Group
from acqstream.log.state_file import MAX_GAPS_NOTED, MAX_REASON_CHARACTERS_NOTED, now_text
from acqstream.model.receipt import UNFORCED, MissingFrames, Stall
from acqstream.storage.files.disk import MAX_STALLS, SlowCall

MAX_WARNINGS = 1000
MAX_REFUSALS_TOLD = 100  # each with its reason; later ones are counted
MAX_REFUSALS_KEPT = 16_384  # for the producer: as many as the window takes


class ForcedCounts(NamedTuple):
    """The counts when journal and index were forced last, as in `ReceiptCounts`."""

    published: int = 0
    stored: int = 0
    skipped: int = 0
    refused: int = 0
    payload_bytes: int = 0
    without_checksum: int = 0


class ReceiptCounts:
    """Counts of one dataset. The committing thread is their only writer; any thread may read them.

    published is the next frame number to be published; stored counts the frames with pixels below it, refused those
    that the daemon refused, refused_late of them after they had been received. refused_bytes is their payload as their
    producer counts it. forced has the counts of what is durable.
    """

    def __init__(self) -> None:
        self.published = 0
        self.stored = 0
        self.skipped = 0
        self.refused = 0
        self.refused_late = 0
        self.refused_bytes = 0
        self.payload_bytes = 0
        self.without_checksum = 0
        self.forced = ForcedCounts()
        self.gaps: list[MissingFrames] = []
        self._reason = ""  # of the last gap, in full
        self._characters_left = MAX_REASON_CHARACTERS_NOTED

    def resume(self, earlier: ReceiptCounts) -> None:
        """Before the first frame: continue the counts of an earlier run."""
        vars(self).update(vars(earlier))

    def restore_gaps(self, gaps: Sequence[MissingFrames]) -> None:
        """Take over the gaps of an earlier run of the dataset."""
        self.gaps = list(gaps)
        self._reason = gaps[-1].reason if gaps else ""
        self._characters_left = MAX_REASON_CHARACTERS_NOTED - sum(len(gap.reason) for gap in gaps)

    def add(self, entries: Sequence[Group | Gap]) -> None:
        """Count entries that were published, at least one."""
        for entry in entries:
            if isinstance(entry, Gap):
                self.skipped += 0 if entry.is_refused else entry.count
                self.refused += entry.count if entry.is_refused else 0
                self.refused_bytes += entry.refused_bytes or 0
                self._note(entry)
            else:
                self.stored += entry.next_number - entry.first_number - len(entry.refused)
                self.payload_bytes += entry.payload_bytes
                self.without_checksum += sum(one.frames.checksums.count(None) for one in entry.placements)
                self._take_off(entry)
        self.published = entries[-1].next_number

    def _take_off(self, group: Group) -> None:
        """Count the refused frames of a group as such."""
        self.refused += len(group.refused)
        self.refused_late += len(group.refused)
        for refused in group.refused.values():
            size = group.frame(refused.number).payload_bytes
            self.payload_bytes -= size
            self.refused_bytes += size
            self._note(Gap(refused.number, 1, refused.reason))

    def note_forced(self) -> None:
        """All that is published is durable."""
        self.forced = ForcedCounts(*(getattr(self, name) for name in ForcedCounts._fields))

    def _note(self, gap: Gap) -> None:
        last = self.gaps[-1] if self.gaps else None
        if last is not None and last.first + last.count == gap.first_number and self._reason == gap.reason:
            self.gaps[-1] = MissingFrames(last.first, last.count + gap.count, last.reason)
        elif len(self.gaps) < MAX_GAPS_NOTED:
            reason = gap.reason[: max(0, self._characters_left)]
            self._characters_left -= len(reason)
            self._reason = gap.reason
            self.gaps.append(MissingFrames(gap.first_number, gap.count, reason))

    def missing(self, end: int, reason: str) -> tuple[MissingFrames, ...]:
        """All numbers below `end` without durable pixels: declared, refused, not forced or not published."""
        durable, published = self.forced.published, self.published
        gaps = [replace(gap, count=min(gap.count, durable - gap.first)) for gap in self.gaps if gap.first < durable]
        if published > durable:
            gaps.append(MissingFrames(durable, published - durable, UNFORCED))
        if end > published:
            gaps.append(MissingFrames(published, end - published, reason or "never arrived"))
        return tuple(gaps)


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
