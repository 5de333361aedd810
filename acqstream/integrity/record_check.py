"""The journal against itself and against the index, and the receipt against the journal and the state."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.formats.check_report import CheckReport, FrameColumns
from acqstream.log.journal import HEADER_BYTES, HOLE, RECORD_BYTES
from acqstream.log.journal_file import JournalContent, journal_pieces, read_journal
from acqstream.log.state_file import MAX_GAPS_NOTED, DatasetState
from acqstream.model.fields import Fields
from acqstream.model.receipt import END_STATES, MissingFrames, Receipt
from acqstream.model.units import count_text
from acqstream.storage.files.small_file import parsed, read_json_object

_OFFSET_BITS = 40  # more than offsets in a stack file have
_MAX_DAMAGED_RECORDS = 10_000  # a sparse file must not keep us for ever

_NEEDED = ("sent", "missing", "stored", "skipped", "payload_bytes", "without_checksum")
"""Fields that a receipt in a file has, although a receipt without them can be read."""


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
        # Refused frames that were written before stay in the chain of pages, without an entry.
        refused = records[piece.sound & (records["flags"] == HOLE)]
        self.refused.update(zip(refused["stack"].tolist(), refused["offset"].tolist(), strict=True))


def _missing_in(journal: JournalContent) -> MissingNumbers:
    """Numbers of the journal that have no pixels and were not declared as skipped."""
    lost = ~journal.is_frame & ~journal.is_skip
    # Where a run of lost records begins and where it ends, in turn.
    edges = np.flatnonzero(np.diff(np.concatenate(([False], lost, [False])).astype(np.int8)))
    bounds = np.append(journal.numbers, journal.end)
    pairs = bounds[edges.reshape(-1, 2)[:MAX_GAPS_NOTED]].tolist()
    ranges = tuple(MissingFrames(first, end - first, "lost") for first, end in pairs)
    return MissingNumbers(int(journal.counts[lost].sum()), ranges)


def plain_facts(path: Path) -> JournalFacts | None:
    """As `JournalFacts.of`, in little memory; None for a journal that is damaged."""
    facts = JournalFacts.of(path, journal_pieces(path))
    return facts if facts.is_plain else None


def check_journal(path: Path, report: CheckReport, *, writing: bool) -> JournalContent | None:
    """The journal, its damage reported; None without a header. While it is being written its end may be cut."""
    journal = read_journal(
        path,
        max_damaged=_MAX_DAMAGED_RECORDS,
        on_progress=lambda done, total: report.on_progress("journal", done, total),
    )
    if journal.header is None:
        assert journal.header_error is not None
        report.add_error(journal.header_error)
        return None
    if not journal.header.clean and not writing:
        report.add_problem(path, "is not marked as closed, but by its state the acquisition has ended", offset=80)
    # Each record gets one problem only, the first of the three.
    intact, in_place = journal.intact, journal.in_place
    for wrong, text in (
        (~intact, "a record fails its checksum"),
        (intact & ~in_place, "the frame number is not the record's position"),
        (intact & in_place & ~journal.known, "neither frame nor skip nor hole"),
    ):
        report.add_problems(path, wrong, np.full(len(wrong), -1), partial(_problem_of, text))
    if journal.unread_bytes and not writing:
        is_cut = journal.unread_bytes < RECORD_BYTES
        text = "of a cut record" if is_cut else "are not looked at: too many bad records"
        offset = _offset(len(journal.records))
        report.add_problem(path, f"the last {journal.unread_bytes} bytes {text}", offset=offset)
    return journal


def _problem_of(text: str, record: int) -> tuple[str, int]:
    return f"{text}: record {record}", _offset(record)


def _offset(record: int) -> int:
    return HEADER_BYTES + RECORD_BYTES * int(record)


def compare_with_index(journal: JournalContent, columns: FrameColumns, report: CheckReport, *, growing: bool) -> None:
    """Report every frame that journal and index describe differently, one to one and in order.

    While the dataset grows, only frames that both had when they were read are compared.
    """
    numbers = np.flatnonzero(journal.is_frame)
    rows = np.arange(len(columns))
    if growing:  # journal and index were not read at the same moment
        numbers, rows = numbers[: len(rows)], rows[: len(numbers)]
    # The last item stands for frames whose stack file is missing: columns.file is -1 there.
    file_numbers = np.array([*columns.file_numbers, -1], np.int64)[columns.file]
    if len(numbers) != len(rows):
        text = f"{count_text(len(numbers), 'frame')} in the journal, {len(rows)} in the index"
        report.add_problem(journal.path, text)
        numbers, rows = _match(journal, numbers, (file_numbers << _OFFSET_BITS) + columns.offset, report)
    sound = journal.sound[numbers]  # a damaged record is reported once, not again with each of its fields

    def compare(text: str, field: str, indexed: NDArray[Any], where: NDArray[np.bool_] | bool = True) -> None:
        recorded = journal.records[field][numbers].astype(indexed.dtype)
        wrong = sound & (recorded != indexed) & where
        report.add_problems(
            journal.path, wrong, rows, lambda i: (text.format(int(recorded[i]), int(indexed[i])), _offset(numbers[i]))
        )

    compare("stack number {} in the journal, {} in the dataset", "stack", file_numbers[rows])
    compare("pixel offset {} in the journal, {} in the dataset", "offset", columns.offset[rows])
    compare("pixel length {} in the journal, {} in the dataset", "length", columns.length[rows])
    types = columns.pixel_type[rows].astype(np.int64)
    compare("pixel type {} in the journal, {} in the dataset", "pixel_type", types)
    # A page that was not found is reported with the chain of its stack file.
    directories = columns.directory[rows]
    compare("page directory {} in the journal, {} in the dataset", "directory", directories, directories >= 0)
    checksums = columns.metadata_checksum[rows]
    compare("metadata hash to {1:016x}, recorded was {0:016x}", "metadata_checksum", checksums)
    no_axes = ~columns.has_axes[rows]
    report.add_problems(journal.path, no_axes, rows, lambda _: ("the frame's metadata does not name its axes", None))


def _match(
    journal: JournalContent, numbers: NDArray[np.int64], places: NDArray[np.int64], report: CheckReport
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Frame numbers and rows that lie at the same place; the others are reported."""
    stacks, offsets = (journal.records[field][numbers].astype(np.int64) for field in ("stack", "offset"))
    journal_places = (stacks << _OFFSET_BITS) + offsets  # offsets have 32 bits, so the sum is unique per place
    # Sorted by place; put back in the order of the journal.
    _, left, right = np.intersect1d(journal_places, places, return_indices=True)
    order = np.argsort(left)
    left, right = left[order], right[order]
    lost = np.ones(len(numbers), np.bool_)
    lost[left] = False
    extra = np.ones(len(places), np.bool_)
    extra[right] = False
    text = "the index has no entry for this frame"
    report.add_problems(journal.path, lost, np.arange(len(lost)), lambda i: (text, _offset(numbers[i])))
    text = "an entry of the index (number {} in it) that has no record in the journal"
    report.add_problems(journal.path, extra, np.full(len(places), -1), lambda i: (text.format(i), None))
    if (np.diff(right) < 0).any():
        report.add_problem(journal.path, "frames stand in another order in the index")
    return numbers[left], right


def read_receipt(path: Path) -> Receipt:
    """The receipt in a file. Raises CorruptDataset where a field is missing or wrong, StorageError."""
    return parsed(read_json_object(path, is_ours=True), path, _complete_receipt)


def _complete_receipt(fields: Fields) -> Receipt:
    for name in _NEEDED:
        if name not in fields:
            raise fields.wrong(name, "given")
    return Receipt.of(fields)


class ReceiptCheck:
    """One receipt: `run` reports what is wrong with it."""

    def __init__(self, path: Path, receipt: Receipt, report: CheckReport) -> None:
        self._path = path
        self._receipt = receipt
        self._report = report

    def run(self, journal: JournalFacts | None, state: DatasetState | None) -> MissingNumbers:
        """Compare with what there is; the numbers that are missing without having been declared."""
        receipt = self._receipt
        if receipt.status not in END_STATES:
            self._tell(f"unknown status {receipt.status!r:.60}")
        elif state is not None and END_STATES[receipt.status] is not state.state:
            self._tell(f"status is {receipt.status!r}, but the state is {state.state}")
        if state is not None and receipt.dataset_id != state.dataset_id:
            self._tell(f"is of dataset {receipt.dataset_id!r:.80}, this one is {state.dataset_id!r:.80}")
        if os.path.abspath(receipt.path) != os.path.abspath(self._path.parent):
            self._report.add_note(f"was written as {receipt.path!r:.300}: moved, renamed or copied since")
        if journal is None:
            undeclared = sum(gap.count for gap in receipt.missing) - receipt.skipped
            return MissingNumbers(max(0, undeclared), receipt.missing if undeclared > 0 else ())
        self._compare_counts(journal)
        return self._compare_missing(journal)

    def _tell(self, text: str) -> None:
        self._report.add_problem(self._path, text)

    def _compare_counts(self, journal: JournalFacts) -> None:
        receipt = self._receipt
        if receipt.dataset_id != journal.dataset_id:
            self._tell(f"is of dataset {receipt.dataset_id!r:.80}, the journal of {journal.dataset_id!r:.80}")
        if receipt.root_sha256 and receipt.root_sha256 != journal.root_sha256:
            self._tell(f"root hash {receipt.root_sha256:.64}, that of the journal is {journal.root_sha256}")
        found = {
            "stored": len(journal.numbers),
            "skipped": journal.skipped,
            "payload_bytes": journal.payload_bytes,
            "without_checksum": journal.own_checksums,
        }
        for name, count in found.items():
            if getattr(receipt, name) != count:
                self._tell(f"{name} is {getattr(receipt, name)}, by the journal {count}")

    def _compare_missing(self, journal: JournalFacts) -> MissingNumbers:
        """Declared missing is what has no pixels, and nothing else; numbers after the journal count too."""
        receipt, count = self._receipt, journal.end
        behind = [
            MissingFrames(max(gap.first, count), gap.first + gap.count - max(gap.first, count), gap.reason)
            for gap in receipt.missing
            if gap.first + gap.count > count
        ]
        declared = self._declared(count)
        frames = journal.numbers
        # Frames inside each declared range: there should be none.
        low, high = np.searchsorted(frames, declared[:, 0]), np.searchsorted(frames, declared[:, 1])
        if wrong := int((high - low).sum()):
            first = frames[low[high > low][0]]
            self._tell(f"{count_text(wrong, 'frame', 'are')} listed as missing that exist, the first is {first}")
        self._compare_silent(frames, declared, count)
        self._compare_end(count, behind)
        holes = journal.missing
        return MissingNumbers(holes.count + sum(gap.count for gap in behind), (*holes.ranges, *behind))

    def _declared(self, count: int) -> NDArray[np.int64]:
        """The numbers below `count` that are listed as missing: rows of first and end, in order, each number once."""
        ranges: list[tuple[int, int]] = []
        end = 0
        for gap in sorted(self._receipt.missing, key=lambda one: one.first):
            first, stop = gap.first, min(gap.first + gap.count, count)
            if first < min(end, stop):
                self._tell(f"numbers from {gap.first} on are listed twice as missing")
            if stop > max(first, end):
                ranges.append((max(first, end), stop))
                end = stop
        return np.array(ranges, np.int64).reshape(-1, 2)

    def _compare_silent(self, frames: NDArray[np.int64], declared: NDArray[np.int64], count: int) -> None:
        """Numbers that are neither stored nor listed as missing."""
        starts = np.concatenate([np.zeros(1, np.int64), declared[:, 1]])
        ends = np.concatenate([declared[:, 0], np.array([count], np.int64)])
        low, high = np.searchsorted(frames, starts), np.searchsorted(frames, ends)
        lacking = ends - starts - (high - low)  # between the declared ranges every number should have a frame
        if not lacking.any():
            return
        text = f"{count_text(int(lacking.sum()), 'number', 'have')} no pixels and no place in the list of missing ones"
        if len(self._receipt.missing) >= MAX_GAPS_NOTED:
            self._report.add_note(f"{text}: at most {MAX_GAPS_NOTED} ranges are listed")
            return
        place = int(np.flatnonzero(lacking)[0])
        inside = frames[low[place] : high[place]]
        # As long as frames follow one another from the start on, none is lacking.
        first = starts[place] + np.count_nonzero(inside == starts[place] + np.arange(len(inside)))
        self._tell(f"{text}, the first is {first}")

    def _compare_end(self, count: int, behind: Sequence[MissingFrames]) -> None:
        """Numbers received, or sent by the producer's count, end where journal and missing ranges do."""
        end = count
        for gap in sorted(behind, key=lambda one: one.first):
            if gap.first != end:
                self._tell(f"what became of numbers {end} to {gap.first - 1} is not recorded")
            end = max(end, gap.first + gap.count)
        sent = self._receipt.sent
        if sent is not None and (sent > end or (sent < end and self._receipt.status == "completed")):
            self._tell(f"the producer sent {sent}, stored and missing are {end}")
