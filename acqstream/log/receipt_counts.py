"""The tally: what was published, what was declared missing; the numbers of the receipt."""

from __future__ import annotations

from collections.abc import Sequence

from acqstream.log.group import Gap, Group
from acqstream.log.state_file import MAX_GAPS_NOTED, MAX_REASON_CHARACTERS_NOTED
from acqstream.model.receipt import MissingFrames


class Tally:
    """Counts, kept by the committing thread and read by anybody."""

    def __init__(self) -> None:
        self.stored = 0
        self.skipped = 0
        self.payload_bytes = 0
        self.without_checksum = 0
        self.gaps: list[MissingFrames] = []
        self._reason = ""  # of the last gap, in full
        self._characters_left = MAX_REASON_CHARACTERS_NOTED

    def restore_gaps(self, gaps: Sequence[MissingFrames]) -> None:
        """Those of an earlier run of the dataset."""
        self.gaps = list(gaps)
        self._reason = gaps[-1].reason if gaps else ""
        self._characters_left = MAX_REASON_CHARACTERS_NOTED - sum(len(gap.reason) for gap in gaps)

    def add(self, entries: Sequence[Group | Gap]) -> None:
        """These were published."""
        for entry in entries:
            if isinstance(entry, Gap):
                self.skipped += entry.count
                self._note(entry)
            else:
                self.stored += entry.next_number - entry.first_number
                self.payload_bytes += entry.payload_bytes
                self.without_checksum += sum(one.frames.checksums.count(None) for one in entry.placements)

    def _note(self, gap: Gap) -> None:
        last = self.gaps[-1] if self.gaps else None
        if last is not None and last.first + last.count == gap.first_number and self._reason == gap.reason:
            self.gaps[-1] = MissingFrames(last.first, last.count + gap.count, last.reason)
        elif len(self.gaps) < MAX_GAPS_NOTED:
            reason = gap.reason[: max(0, self._characters_left)]
            self._characters_left -= len(reason)
            self._reason = gap.reason
            self.gaps.append(MissingFrames(gap.first_number, gap.count, reason))

    def missing(self, published: int, end: int, reason: str) -> tuple[MissingFrames, ...]:
        """All numbers below `end` without pixels: the declared ones, and those that were not published."""
        rest = [MissingFrames(published, end - published, reason or "never arrived")] if end > published else []
        return (*self.gaps, *rest)
