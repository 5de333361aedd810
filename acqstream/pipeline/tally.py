"""The tally: what was published, what was declared missing; the numbers of the receipt."""

from __future__ import annotations

from collections.abc import Sequence

from acqstream.model.receipt import MissingFrames
from acqstream.pipeline.group import Gap, Group
from acqstream.pipeline.state_file import MAX_GAPS_NOTED


class Tally:
    """Counts, kept by the committing thread and read by anybody."""

    def __init__(self) -> None:
        self.stored = 0
        self.skipped = 0
        self.payload_bytes = 0
        self.without_checksum = 0
        self.gaps: list[MissingFrames] = []

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
        if last is not None and last.first + last.count == gap.first_number and last.reason == gap.reason:
            self.gaps[-1] = MissingFrames(last.first, last.count + gap.count, last.reason)
        elif len(self.gaps) < MAX_GAPS_NOTED:
            self.gaps.append(MissingFrames(gap.first_number, gap.count, gap.reason))

    def missing(self, published: int, end: int, reason: str) -> tuple[MissingFrames, ...]:
        """All numbers below `end` without pixels: the declared ones, and those that were not published."""
        rest = [MissingFrames(published, end - published, reason or "never arrived")] if end > published else []
        return (*self.gaps, *rest)
