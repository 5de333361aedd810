"""Reports damaged journal records, and frames that journal and index describe differently."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.formats.check_report import CheckReport, FrameColumns
from acqstream.log.journal import HEADER_BYTES, RECORD_BYTES
from acqstream.log.journal_file import JournalContent, read_journal
from acqstream.model.units import count_text

_OFFSET_BITS = 40  # more than offsets in a stack file have
_MAX_DAMAGED_RECORDS = 10_000  # a sparse file must not keep us for ever


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

    def compare(what: str, field: str, indexed: NDArray[Any], where: NDArray[np.bool_] | bool = True) -> None:
        recorded = journal.records[field][numbers].astype(np.int64)
        offsets = HEADER_BYTES + RECORD_BYTES * numbers
        report.add_problems(
            journal.path,
            sound & (recorded != indexed) & where,
            rows,
            lambda i: (f"{what} {recorded[i]} in the journal, {indexed[i]} in the dataset", int(offsets[i])),
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
    journal: JournalContent, columns: FrameColumns, report: CheckReport, pairs: tuple[NDArray[Any], NDArray[Any]]
) -> None:
    numbers, rows = pairs
    recorded = journal.records["metadata_checksum"][numbers]
    stored = columns.metadata_checksum[rows]
    text = "metadata hash to {:016x}, recorded was {:016x}"
    report.add_problems(
        journal.path,
        journal.sound[numbers] & (stored != recorded),
        rows,
        lambda i: (text.format(int(stored[i]), int(recorded[i])), int(HEADER_BYTES + RECORD_BYTES * numbers[i])),
    )


def _match(
    journal: JournalContent, numbers: NDArray[np.int64], places: NDArray[np.int64], report: CheckReport
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Frame numbers and rows that lie at the same place; the others are reported."""
    stacks, offsets = (journal.records[field][numbers].astype(np.int64) for field in ("stack", "offset"))
    journal_places = (stacks << _OFFSET_BITS) + offsets  # offsets have 32 bits, so the sum is unique per place
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
