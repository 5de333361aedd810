"""What a journal says of a run as a whole, read in pieces: the numbers that a receipt has to agree with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from acqstream.log.journal import HOLE
from acqstream.log.journal_file import JournalContent, journal_pieces
from acqstream.log.state_file import MAX_GAPS_NOTED
from acqstream.model.receipt import MissingFrames


@dataclass(frozen=True, slots=True)
class MissingNumbers:
    """Frame numbers without pixels that were not declared as skipped: their count and the first ranges."""

    count: int = 0
    ranges: tuple[MissingFrames, ...] = ()

    def followed_by(self, more: MissingNumbers) -> MissingNumbers:
        """With those that come after them."""
        ranges, others = list(self.ranges), list(more.ranges)
        if ranges and others and ranges[-1].first + ranges[-1].count == others[0].first:
            ranges[-1] = MissingFrames(ranges[-1].first, ranges[-1].count + others.pop(0).count, "lost")
        return MissingNumbers(self.count + more.count, tuple((ranges + others)[:MAX_GAPS_NOTED]))


@dataclass(slots=True)
class JournalFacts:
    """What a journal says of the run as a whole.

    numbers are those of its frames, in order. metadata_sent, timed and own_checksums count its sound frames; missing
    are numbers without pixels that were not declared as skipped. is_plain: nothing is damaged. refused: number of the
    stack file and offset of refused frames.
    """

    path: Path
    dataset_id: str = ""
    root_sha256: str = ""
    end: int = 0
    records: int = 0
    skipped: int = 0
    payload_bytes: int = 0
    own_checksums: int = 0
    sound_frames: int = 0
    metadata_sent: int = 0
    timed: int = 0
    is_plain: bool = True
    numbers: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    missing: MissingNumbers = field(default_factory=MissingNumbers)
    refused: set[tuple[int, int]] = field(default_factory=set)

    @classmethod
    def of(cls, path: Path, pieces: Iterable[JournalContent]) -> JournalFacts:
        """Of pieces that follow one another, each taken when the one before was looked at."""
        facts, numbers = cls(path), []
        for piece in pieces:
            facts._add(piece)
            numbers.append(piece.numbers[piece.is_frame])
        facts.is_plain &= not piece.unread_bytes
        facts.numbers = np.concatenate(numbers)
        return facts

    def _add(self, piece: JournalContent) -> None:
        records, frames = piece.records, piece.sound_frames
        self.dataset_id, self.root_sha256, self.end = piece.dataset_id, piece.root_sha256, piece.end
        self.records += len(records)
        self.skipped += piece.skipped
        self.payload_bytes += int(records["length"][piece.is_frame].sum())
        self.own_checksums += int(np.count_nonzero(records["own_checksum"][piece.is_frame]))
        self.sound_frames += len(frames)
        self.metadata_sent += int(np.count_nonzero(frames["metadata_sent"]))
        self.timed += int(np.count_nonzero(frames["timed"]))
        self.missing = self.missing.followed_by(_missing_in(piece))
        self.is_plain &= piece.header is not None and piece.header.clean and bool(piece.sound.all())
        refused = records[piece.sound & (records["flags"] == HOLE)]
        self.refused.update(zip(refused["stack"].tolist(), refused["offset"].tolist(), strict=True))


def _missing_in(journal: JournalContent) -> MissingNumbers:
    """Numbers of the journal that have no pixels and were not declared as skipped."""
    lost = ~journal.is_frame & ~journal.is_skip
    edges = np.flatnonzero(np.diff(np.concatenate(([False], lost, [False])).astype(np.int8)))
    bounds = np.append(journal.numbers, journal.end)
    pairs = bounds[edges.reshape(-1, 2)[:MAX_GAPS_NOTED]].tolist()
    ranges = tuple(MissingFrames(first, end - first, "lost") for first, end in pairs)
    return MissingNumbers(int(journal.counts[lost].sum()), ranges)


def plain_facts(path: Path) -> JournalFacts | None:
    """As `JournalFacts.of`, in little memory; None for a journal that is damaged."""
    facts = JournalFacts.of(path, journal_pieces(path))
    return facts if facts.is_plain else None
