"""The counts of the receipt: published frames, and frames that were declared as missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from acqstream.log.group import Gap, Group
from acqstream.log.state_file import MAX_GAPS_NOTED, MAX_REASON_CHARACTERS_NOTED
from acqstream.model.receipt import UNFORCED, MissingFrames


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
