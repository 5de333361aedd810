"""The tally: what was published, what was declared missing; the numbers of the receipt."""

from __future__ import annotations

from collections.abc import Sequence

from acqstream.model.receipt import MissingFrames, Receipt, Status
from acqstream.pipeline.group import Gap, Group
from acqstream.pipeline.state_file import MAX_GAPS_NOTED, now_text


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
                if len(self.gaps) < MAX_GAPS_NOTED:
                    self.gaps.append(MissingFrames(entry.first_number, entry.count, entry.reason))
            else:
                self.stored += len(entry.placements)
                self.payload_bytes += entry.payload_bytes
                self.without_checksum += sum(one.header.checksum is None for one in entry.placements)

    def receipt(
        self,
        dataset_id: str,
        path: str,
        *,
        ending: tuple[Status, str, int | None],
        published: int,
        received: int,
        started_at: str,
    ) -> Receipt:
        """The receipt of an acquisition that ended so. Counts are of frame numbers; sent is the producer's own."""
        status, reason, sent = ending
        missing = list(self.gaps)
        last = max(received, sent or 0)
        if last > published:
            missing.append(MissingFrames(published, last - published, reason or "never arrived"))
        return Receipt(
            dataset_id=dataset_id,
            path=path,
            status=status,
            reason=reason,
            sent=sent,
            stored=self.stored,
            skipped=self.skipped,
            missing=tuple(missing),
            payload_bytes=self.payload_bytes,
            without_checksum=self.without_checksum,
            started_at=started_at,
            finished_at=now_text(),
        )
