"""The journal, record by record, and whether it says of every frame what the index says."""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.errors import CorruptDataset
from acqstream.formats.base import CheckReport, FrameColumns
from acqstream.log.journal import (
    FRAME,
    HEADER_BYTES,
    KNOWN_FLAGS,
    KNOWN_FLAGS_1,
    RECORD_BYTES,
    RECORD_DTYPE,
    SKIP,
    counts_of,
    decode_journal_header,
)
from acqstream.storage.read_file import ReadFile

_READ_RECORDS = 2**14
_MAX_BAD_RECORDS = 10_000  # a sparse file must not keep us for ever
_CRC_AT = RECORD_BYTES - 4


@dataclass(frozen=True, slots=True)
class CheckedJournal:
    """An item per record: sound, if its CRC holds and its number is the next one; the first frame number that it stands
    for, and how many (of a damaged one those up to the next). end is the number behind them; root_sha256 is of all.
    """

    path: Path
    dataset_id: str
    records: NDArray[np.void]
    sound: NDArray[np.bool_]
    numbers: NDArray[np.int64]
    counts: NDArray[np.int64]
    end: int
    root_sha256: str

    @property
    def is_frame(self) -> NDArray[np.bool_]:
        """Where there are pixels; a damaged record counts as a frame if it has a length."""
        is_frame: NDArray[np.bool_] = self.records["flags"] == FRAME
        return is_frame | (~self.sound & (self.records["length"] > 0))

    @property
    def is_skip(self) -> NDArray[np.bool_]:
        """Numbers declared as never coming."""
        is_skip: NDArray[np.bool_] = self.sound & (self.records["flags"] & SKIP > 0)
        return is_skip

    @property
    def skipped(self) -> int:
        """How many numbers were declared as never coming."""
        return int(self.counts[self.is_skip].sum())


def read_journal(path: Path, report: CheckReport, *, writing: bool) -> CheckedJournal | None:
    """All records, what is wrong with them reported; None without a header. While it is written its end may be cut."""
    file = ReadFile(path)
    try:
        header = decode_journal_header(file.read(0, HEADER_BYTES), str(path))
    except CorruptDataset as error:
        report.add_error(error)
        return None
    if not header.clean and not writing:
        report.add_problem(path, "is not marked as closed, but the acquisition is said to have ended", offset=80)
    size, position, bad = file.size() - HEADER_BYTES, 0, 0
    digest = hashlib.sha256()
    order = _Order(path, report, may_jump=header.version > 1)
    parts, sound_parts = [np.empty(0, RECORD_DTYPE)], [np.empty(0, np.bool_)]
    while position < size and bad <= _MAX_BAD_RECORDS:
        data = file.read(HEADER_BYTES + position, min(_READ_RECORDS * RECORD_BYTES, size - position))
        digest.update(data)
        data = data[: len(data) - len(data) % RECORD_BYTES]
        if not data:
            break
        records = np.frombuffer(data, RECORD_DTYPE)
        sound = order.check(records, data)
        bad += int(np.count_nonzero(~sound))
        parts.append(records)
        sound_parts.append(sound)
        position += len(data)
        report.on_progress("journal", position, size)
    if position < size and not writing:
        text = "of a cut record" if size - position < RECORD_BYTES else "are not looked at: too many bad records"
        report.add_problem(path, f"the last {size - position} bytes {text}", offset=HEADER_BYTES + position)
    records, sound = np.concatenate(parts), np.concatenate(sound_parts)
    numbers = np.concatenate([*order.numbers, np.array([order.next], np.int64)])
    return CheckedJournal(
        path, header.dataset_id, records, sound, numbers[:-1], np.diff(numbers), order.next, digest.hexdigest()
    )


class _Order:
    """Follows the frame numbers from one piece of the journal to the next, and reports records that are wrong.

    may_jump: a record may stand for many numbers, so that nobody knows where they go on behind a damaged one. next is
    the number behind the pieces so far, numbers have the first one of each of their records.
    """

    def __init__(self, path: Path, report: CheckReport, *, may_jump: bool) -> None:
        self._path = path
        self._report = report
        self._may_jump = may_jump
        self._rows = 0
        self._is_behind_damage = False
        self.next = 0
        self.numbers: list[NDArray[np.int64]] = []

    def check(self, records: NDArray[np.void], data: bytes) -> NDArray[np.bool_]:
        """Which records of the next piece are sound. data: their bytes."""
        view = memoryview(data)
        crc32 = zlib.crc32
        sums = np.array([crc32(view[at : at + _CRC_AT]) for at in range(0, len(data), RECORD_BYTES)], np.uint32)
        whole = sums == records["crc"]
        flags = KNOWN_FLAGS if self._may_jump else KNOWN_FLAGS_1
        counts = counts_of(records).astype(np.int64)
        known = np.isin(records["flags"], flags) & (counts > 0)
        numbers = self._follow(records["number"], whole & known, counts)
        in_place = records["number"] == numbers.astype(np.uint64)
        self._tell(~whole, "a record fails its checksum")
        self._tell(whole & ~in_place, "the frame number is not the record's position")
        self._tell(whole & in_place & ~known, "neither frame nor skip nor hole")
        self._rows += len(records)
        self.numbers.append(numbers)
        sound: NDArray[np.bool_] = whole & in_place & known
        return sound

    def _follow(
        self, told: NDArray[np.uint64], good: NDArray[np.bool_], counts: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The number that each record should have."""
        counts = np.where(good, counts, 1) if self._may_jump else np.ones(len(told), np.int64)
        ends = self.next + np.cumsum(counts)
        numbers = ends - counts
        is_plain = good.all() and not self._is_behind_damage and (told == numbers.astype(np.uint64)).all()
        if is_plain or not self._may_jump:
            self.next = int(ends[-1])
            return numbers
        for row in range(len(told)):
            if self._is_behind_damage and good[row] and told[row] > self.next:
                self.next = int(told[row])
            numbers[row] = self.next
            self._is_behind_damage = not (good[row] and told[row] == self.next)
            self.next += 1 if self._is_behind_damage else int(counts[row])
        return numbers

    def _tell(self, wrong: NDArray[np.bool_], text: str) -> None:
        rows = np.arange(self._rows, self._rows + len(wrong))
        none = np.full(len(wrong), -1)
        words = text + ": record {}"
        self._report.add_problems(
            self._path, wrong, none, lambda i: (words.format(rows[i]), int(HEADER_BYTES + RECORD_BYTES * rows[i]))
        )


def compare_with_index(journal: CheckedJournal, columns: FrameColumns, report: CheckReport, *, growing: bool) -> None:
    """Report every frame of which journal and index do not say the same, one to one and in order.

    While the dataset grows only the frames that both had when they were read are compared.
    """
    numbers = np.flatnonzero(journal.is_frame)
    rows = np.arange(len(columns))
    if growing:
        numbers, rows = numbers[: len(rows)], rows[: len(numbers)]
    file_numbers = np.array([*columns.file_numbers, -1], np.int64)[columns.file]
    if len(numbers) != len(rows):
        text = f"{len(numbers)} frames in the journal, {len(rows)} in the index"
        report.add_problem(journal.path, text)
        numbers, rows = _match(journal, numbers, (file_numbers << 40) + columns.offset, report)
    sound = journal.sound[numbers]

    def compare(what: str, field: str, indexed: NDArray[Any], where: NDArray[np.bool_] | bool = True) -> None:
        told = journal.records[field][numbers].astype(np.int64)
        offsets = HEADER_BYTES + RECORD_BYTES * numbers
        report.add_problems(
            journal.path,
            sound & (told != indexed) & where,
            rows,
            lambda i: (f"{what} {told[i]} in the journal, {indexed[i]} in the dataset", int(offsets[i])),
        )

    compare("stack number", "stack", file_numbers[rows])
    compare("pixel offset", "offset", columns.offset[rows])
    compare("pixel length", "length", columns.length[rows])
    compare("pixel type", "pixel_type", columns.pixel_type[rows].astype(np.int64))
    compare("page directory", "directory", columns.directory[rows], columns.directory[rows] >= 0)
    _compare_metadata(journal, columns, report, (numbers, rows))
    no_axes = ~columns.has_axes[rows]
    report.add_problems(journal.path, no_axes, rows, lambda _: ("the frame's metadata does not name its axes", None))


def _compare_metadata(
    journal: CheckedJournal, columns: FrameColumns, report: CheckReport, pairs: tuple[NDArray[Any], NDArray[Any]]
) -> None:
    numbers, rows = pairs
    recorded = journal.records["metadata_checksum"][numbers]
    found = columns.metadata_checksum[rows]
    text = "metadata hash to {:016x}, recorded was {:016x}"
    report.add_problems(
        journal.path,
        journal.sound[numbers] & (found != recorded),
        rows,
        lambda i: (text.format(int(found[i]), int(recorded[i])), int(HEADER_BYTES + RECORD_BYTES * numbers[i])),
    )


def _match(
    journal: CheckedJournal, numbers: NDArray[np.int64], places: NDArray[np.int64], report: CheckReport
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Frame numbers and rows that lie at the same place; the others are reported."""
    stacks, offsets = (journal.records[field][numbers].astype(np.int64) for field in ("stack", "offset"))
    journal_places = (stacks << 40) + offsets
    _, left, right = np.intersect1d(journal_places, places, return_indices=True)
    order = np.argsort(left)
    left, right = left[order], right[order]
    lost = np.ones(len(numbers), np.bool_)
    lost[left] = False
    extra = np.ones(len(places), np.bool_)
    extra[right] = False
    offsets = HEADER_BYTES + RECORD_BYTES * numbers
    ranks = np.arange(len(numbers))
    report.add_problems(journal.path, lost, ranks, lambda i: ("the index has no entry for this frame", int(offsets[i])))
    text = "an entry of the index (number {} in it) that has no record in the journal"
    report.add_problems(journal.path, extra, np.full(len(places), -1), lambda i: (text.format(i), None))
    if (np.diff(right) < 0).any():
        report.add_problem(journal.path, "frames stand in another order in the index")
    return numbers[left], right
