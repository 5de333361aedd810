"""Resuming an interrupted dataset: where the log continues after recovery, and which axes its producer may skip.

The next frame goes to a new stack file, with the number after the last one in the journal.
"""

from __future__ import annotations

import itertools
import os
import re
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.errors import CorruptDataset
from acqstream.formats.ndtiff.index_entries import INDEX_NAME, MAX_ENTRY_BYTES, parse_entries, read_entries
from acqstream.formats.ndtiff.layout import NDTiffLayout
from acqstream.formats.ndtiff.stack_header import parse_stack_header
from acqstream.log import journal
from acqstream.log.frame_keys import AxisKinds, FrameKeys
from acqstream.log.journal_file import read_journal
from acqstream.log.receipt_facts import ReceiptCounts
from acqstream.log.state_file import MAX_GAPS_NOTED
from acqstream.model.axes import AxisValue
from acqstream.model.receipt import MissingFrames
from acqstream.storage.files.read_file import ReadFile

_LOST_REASON = "skipped or refused before the writer was interrupted"

MAX_KEYS = 1024  # some 5 ms of the daemon's loop
PAGE_BYTES = 2 * MAX_ENTRY_BYTES  # at least one entry, and less than a message's header may hold


@dataclass(frozen=True, slots=True)
class Continuation:
    """The facts that the log needs to resume. records are those of the journal; ends are file lengths in bytes.

    Without frames stack_header is empty; the first frame starts stack 0. summary is empty if no stack file keeps it.
    """

    next_number: int
    records: bytes
    next_stack: int
    journal_end: int
    index_end: int
    payload_bytes: int
    summary: dict[str, Any]
    stack_header: bytes
    counts: ReceiptCounts
    axis_kinds: AxisKinds


def read_continuation(
    folder: str, stack_folder: str, layout: NDTiffLayout, *, gaps: tuple[MissingFrames, ...], keys: FrameKeys | None
) -> Continuation:
    """Read journal, index and first header of a dataset that is not being written; its axes go into `keys`.

    stack_folder is where its index and stack files lie, see `DatasetState.stack_folder`.
    Raises CorruptDataset if journal and index disagree.
    """
    journal_path, index_path = Path(folder, journal.JOURNAL_NAME), Path(stack_folder, INDEX_NAME)
    content = read_journal(journal_path)
    content.checked_header()
    records = content.prefix
    is_frame = records["flags"] == journal.FRAME
    kinds, n_entries, index_end = AxisKinds(), 0, 0
    for batch in read_entries(index_path):  # what is no entry was never published: the log cuts it
        for axes in batch.axes:
            kinds.learn(axes)
            if keys is not None:
                keys.add(axes)
        n_entries, index_end = n_entries + len(batch.axes), index_end + batch.consumed
    if n_entries != np.count_nonzero(is_frame):
        text = f"{n_entries} entries, but the journal has {np.count_nonzero(is_frame)} frames"
        raise CorruptDataset(text, path=str(index_path))
    first_stack = int(records["stack"][is_frame][0]) if is_frame.any() else 0
    summary, header = _header(stack_folder, layout.stack_name(first_stack), is_needed=bool(is_frame.any()))
    return Continuation(
        next_number=journal.next_number(records),
        records=journal.stored_bytes(records),
        next_stack=next_stack_number(stack_folder, layout) if is_frame.any() else 0,
        journal_end=journal.HEADER_BYTES + len(records) * journal.RECORD_BYTES,
        index_end=index_end,
        payload_bytes=int(records["length"].sum()),
        summary=summary,
        stack_header=header if is_frame.any() else b"",
        counts=_counts(records, is_frame, gaps),
        axis_kinds=kinds,
    )


def _counts(records: NDArray[np.void], is_frame: NDArray[np.bool_], gaps: tuple[MissingFrames, ...]) -> ReceiptCounts:
    counts = ReceiptCounts()
    counts.published = journal.next_number(records)
    counts.stored = int(np.count_nonzero(is_frame))
    counts.refused = int(np.count_nonzero(records["flags"] == journal.HOLE))
    counts.skipped = counts.published - counts.stored - counts.refused
    counts.payload_bytes = int(records["length"].sum())
    counts.without_checksum = int(records["own_checksum"][is_frame].sum())
    counts.note_forced()
    numbers = records["number"][is_frame].astype(np.int64)
    counts.restore_gaps(list(itertools.islice(_gaps(numbers, counts.published, gaps), MAX_GAPS_NOTED)))
    return counts


def _gaps(numbers: NDArray[np.int64], end: int, known: tuple[MissingFrames, ...]) -> Iterator[MissingFrames]:
    """All ranges below `end` without pixels, in order: the known gaps, and those whose reason was lost.

    numbers are those of the frames.
    """
    gaps = deque(sorted(known, key=lambda gap: gap.first))
    bounds = np.concatenate([[-1], numbers, [end]])
    for place in np.flatnonzero(np.diff(bounds) > 1).tolist():
        first, stop = int(bounds[place]) + 1, int(bounds[place + 1])
        while gaps and gaps[0].first < stop:
            gap = gaps.popleft()
            if gap.first < first or gap.count < 1 or gap.first + gap.count > stop:
                continue  # not as the journal has it
            if gap.first > first:
                yield MissingFrames(first, gap.first - first, _LOST_REASON)
            yield gap
            first = gap.first + gap.count
        if first < stop:
            yield MissingFrames(first, stop - first, _LOST_REASON)


def _header(folder: str, name: str, *, is_needed: bool) -> tuple[dict[str, Any], bytes]:
    """Summary and header bytes that every further stack file repeats."""
    if not is_needed and not Path(folder, name).exists():
        return {}, b""
    with closing(ReadFile(Path(folder, name))) as file:
        header = parse_stack_header(file.read, file.size(), str(file.path))
        summary = dict(header.summary_metadata)
        if not summary.get("AxisOrder"):
            summary.pop("AxisOrder", None)  # frame 0 determines it
        return summary, file.read(0, header.first_directory)


def next_stack_number(folder: str, layout: NDTiffLayout) -> int:
    """Above every stack file there is, those put aside included."""
    stem = re.escape(layout.stack_name(0).removesuffix(".tif"))
    stack = re.compile(stem + r"(?:_([0-9]+))?\.tif(?:\..*)?")
    matches = [stack.fullmatch(name) for name in os.listdir(folder)]
    return 1 + max((int(match[1] or 0) for match in matches if match), default=-1)


@dataclass(frozen=True, slots=True)
class KeyPage:
    """keys are axes of frames in order of arrival; the page after this one begins at byte `next` of the index."""

    keys: tuple[Mapping[str, AxisValue], ...]
    next: int


def read_key_page(index_path: str, at: int) -> KeyPage:
    """The entries from byte `at` on, at most MAX_KEYS; empty at the end. Raises StorageError or CorruptDataset."""
    with closing(ReadFile(Path(index_path))) as file:
        data = file.read(at, PAGE_BYTES)
    entries = parse_entries(data, index_path, at, limit=MAX_KEYS)
    return KeyPage(tuple(entries.axes), at + entries.consumed)
