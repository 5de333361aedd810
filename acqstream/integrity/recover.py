"""Recovery: puts a dataset whose daemon died while writing it into order. Automatic and idempotent.

An index entry was written after its stack was forced and its journal record written. So every entry that agrees with
its record is good, from the first one on. From the first that does not, or the first damaged record on, each frame is
settled by itself (`settlement`). Everything after the last published frame is cut. Pixels are never rewritten. Order
of steps: stacks, index, journal, state; records that only the index proves are written before it. After a crash in
between the next recovery resumes.

"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from acqstream.errors import CorruptDataset, DatasetLocked
from acqstream.formats.ndtiff.entry_walk import EntryFacts, walk_entries
from acqstream.formats.ndtiff.frame_table import FrameTable
from acqstream.formats.ndtiff.index_entries import INDEX_NAME, NUMBERS_BYTES, plain_name
from acqstream.formats.ndtiff.index_file import IndexFile
from acqstream.formats.ndtiff.layout import NDTiffLayout, align_up
from acqstream.formats.ndtiff.page_walk import find_data_end
from acqstream.formats.ndtiff.pages import StackPage, read_page
from acqstream.formats.ndtiff.pixels import payload_bytes
from acqstream.formats.ndtiff.stack_header import parse_stack_header
from acqstream.integrity.changes import (
    Change,
    Finish,
    Force,
    PutAside,
    Regrow,
    Remove,
    Replace,
    apply_changes,
    finish_stack,
)
from acqstream.integrity.facts import OpenStacks, count_confirmed
from acqstream.integrity.settlement import Settlement, axes_in, own_number
from acqstream.log import journal
from acqstream.log.journal_file import JournalContent, read_journal
from acqstream.log.state_file import RECEIPT_NAME, STATE_NAME, DatasetState, read_state, state_bytes
from acqstream.model.state import AcquisitionState
from acqstream.model.units import count_text
from acqstream.storage.files.append_file import AppendFile
from acqstream.storage.files.disk import Disk, LocalDisk
from acqstream.storage.files.read_file import ReadFile, data_runs
from acqstream.storage.files.stack_file import PRIVATE_SUFFIX

_RESUMABLE = (AcquisitionState.FAILED, AcquisitionState.INTERRUPTED)
MAX_DAMAGED_RECORDS = 2**20  # 64 MiB of the journal; what comes after more than that is not looked for
_MAX_REST_BYTES, _MAX_ENTRY_BYTES = 2**30, 256  # of the index, and more for each record; the rest is made anew


@dataclass(slots=True)
class RecoveryReport:
    """The actions of one recovery: counts of frames, and file names. lost are frame numbers."""

    folder: str
    published: int = 0
    rolled_forward: int = 0
    records_added: int = 0
    records_cut: int = 0
    finished_stacks: tuple[str, ...] = ()
    put_aside: tuple[str, ...] = ()
    lost: list[int] = field(default_factory=list)


def is_in_order(folder: Path, state: DatasetState) -> bool:
    """Whether journal and index end with the last frame, and have as many frames.

    A power cut or a careless copy may leave bytes behind them after recovery, too. Raises CorruptDataset, StorageError.
    """
    content, table = read_journal(folder / journal.JOURNAL_NAME), FrameTable()
    stack_folder = Path(state.stack_folder(str(folder)))
    if not os.path.lexists(stack_folder / INDEX_NAME):
        return False
    try:
        with contextlib.closing(IndexFile(stack_folder)) as index:
            index.read_into(table)
            is_whole = index.consumed == os.path.getsize(index.path)
    except CorruptDataset:
        return False
    return is_whole and not content.problem and len(table) == np.count_nonzero(content.is_frame)


def recover(folder: Path, disk: Disk | None = None, *, is_resumed: bool = False) -> RecoveryReport | None:
    """Put one dataset in order; None if that is not needed, or if it is being written now.

    is_resumed: also one that was interrupted or has failed.

    Raises CorruptDataset if journal or state are not ours, StorageError if the disk fails.
    """
    disk = disk or LocalDisk()
    state = read_state(str(folder))
    if not (state.state.writing or (is_resumed and state.state in _RESUMABLE)):
        return None
    path = str(folder / journal.JOURNAL_NAME)
    if not os.path.exists(path):
        raise CorruptDataset("the journal is missing", path=path)
    journal_file = AppendFile(disk, path, create=False)
    try:
        journal_file.lock()
        recovery = _Recovery(str(folder), state, journal_file)
        apply_changes(recovery.judge(), disk)
        return recovery.report
    except DatasetLocked:
        return None  # a living writer holds it
    finally:
        journal_file.close()


class _Recovery:
    """The verdict of one recovery: what was published, and the changes that put the dataset in order."""

    def __init__(self, folder: str, state: DatasetState, journal_file: AppendFile) -> None:
        self._folder = folder
        self._stack_folder = state.stack_folder(folder)
        self._index_path = os.path.join(self._stack_folder, INDEX_NAME)
        self._state = state
        self._journal = journal_file
        self._layout = NDTiffLayout(state.name, {})
        self._stacks = OpenStacks(Path(self._stack_folder))
        self.report = RecoveryReport(folder)

    def judge(self) -> list[Change]:
        """The changes, in order; `report` names them. Reads only."""
        try:
            content = self._read_records()
            records = content.prefix
            index = walk_entries(self._read_index(len(content.records)))
            numbers = index.numbers[: index.unbroken]
            names = index.names[: index.unbroken]
            first_rows: dict[str, int] = {}
            for row, name in enumerate(names):
                first_rows.setdefault(name, row)
            for name, row in first_rows.items():
                plain_name(name.encode(), INDEX_NAME, index.starts[row])
            frames = records[records["flags"] == journal.FRAME]
            indexed = min(_count_matching(frames, numbers, names, self._layout), self._count_complete(numbers, names))
            # Equal numbers prove no page: after a power cut those that were not forced may be missing.
            indexed = count_confirmed(
                frames[:indexed], numbers[:indexed], lambda stack: self._stacks.get(self._layout.stack_name(stack))
            )
            indexed = self._count_named(index, indexed)
            new_entries, index_end = b"", index.ends[indexed - 1] if indexed else 0
            has_more = len(index) > indexed or index.damage
            if indexed < len(frames) or len(records) < len(content.records) or has_more:
                records, new_entries = self._settle(content, _records_of_first_frames(records, indexed), index, indexed)
            unforced = index.starts[max(0, indexed - journal.MAX_UNFORCED_ENTRIES)] if indexed else 0
            last_pages = self._last_pages(records)
        finally:
            self._stacks.close()
        self.report.published = journal.next_number(records)
        change = Regrow(self._index_path, index_end, index.content[unforced:index_end], new_entries)
        tails = [change, self._change_of_journal(content, records)]
        # A record that comes from the index alone is written before the index is; one that goes, after its entry went.
        if self.report.records_added > 0 and not self.report.lost:
            tails.reverse()
        return [
            *self._finish_stacks(last_pages),
            *self._put_aside_unpublished(set(last_pages)),
            # It may hold gaps that only the page cache has, before frames that are indexed now.
            Force(self._journal),
            *tails,
            Remove(os.path.join(self._folder, RECEIPT_NAME)),
            # The state last: if this is cut short before, it still says "running", and recovery starts again.
            Replace(os.path.join(self._folder, STATE_NAME), state_bytes(self._interrupted())),
        ]

    def _interrupted(self) -> DatasetState:
        reason = "the writer died" if self._state.state.writing else self._state.reason
        if self._state.state is not AcquisitionState.INTERRUPTED:
            reason += f"; {count_text(self.report.published, 'frame', 'were')} published"
        return dataclasses.replace(self._state, state=AcquisitionState.INTERRUPTED, reason=reason)

    def _read_records(self) -> JournalContent:
        content = read_journal(Path(self._journal.path), max_damaged=MAX_DAMAGED_RECORDS)
        if os.path.getsize(self._journal.path) >= journal.HEADER_BYTES:  # else it died while creating the dataset
            content.checked_header()
        return content

    def _read_index(self, n_records: int) -> bytes:
        """The index without the zeros after its last entry; empty where it is missing."""
        if not os.path.lexists(self._index_path):
            return b""
        with contextlib.closing(ReadFile(Path(self._index_path))) as file:
            end = find_data_end(file, data_runs(file.path)) + NUMBERS_BYTES  # these may end with zeros
            return file.read(0, min(end, _MAX_REST_BYTES + n_records * _MAX_ENTRY_BYTES))

    def _count_complete(self, numbers: NDArray[np.void], names: list[str]) -> int:
        """The number of entries, from the first on, with all their bytes: in a copy the index may be younger."""
        pixels_end = numbers["pixel_offset"].astype(np.int64) + payload_bytes(numbers)
        metadata_end = numbers["metadata_offset"].astype(np.int64) + numbers["metadata_length"]
        sizes = {name: self._stacks.size(name) for name in dict.fromkeys(names)}
        bounds = np.fromiter((sizes[name] for name in names), np.int64, len(names))
        is_complete = np.maximum(pixels_end, metadata_end) <= bounds
        return len(names) if is_complete.all() else int(np.argmin(is_complete))

    def _count_named(self, index: EntryFacts, count: int) -> int:
        """The number of the first `count` entries, up to one with the place of a frame and the axes of another."""
        for row in range(max(0, count - journal.MAX_UNFORCED_ENTRIES), count):
            numbers = index.numbers[row]
            file = self._stacks.get(index.names[row])
            axes = axes_in(file.read(int(numbers["metadata_offset"]), int(numbers["metadata_length"])))
            if axes is not None and axes != index.axes(row):
                return row
        return count

    def _settle(
        self, content: JournalContent, kept: NDArray[np.void], index: EntryFacts, indexed: int
    ) -> tuple[NDArray[np.void], bytes]:
        """All records, of which `kept` stay, and the entries of the frames after the first `indexed`."""
        settled = Settlement(content, len(kept), index.after(indexed), self._stacks, self._layout)
        settled.names.update((name, None) for name, row in index.axes_at.items() if row < indexed)
        settled.run()
        self.report.rolled_forward, self.report.records_added = settled.rolled_forward, settled.records_added
        self.report.records_cut, self.report.lost = len(settled.lost), settled.lost
        records = np.frombuffer(kept.tobytes() + b"".join(settled.records), journal.RECORD_DTYPE)
        return records, b"".join(settled.entries)

    def _last_pages(self, records: NDArray[np.void]) -> dict[str, tuple[StackPage | None, int]]:
        """For every stack with published frames: its last page (None if already finished) and exact length."""
        frames = records[records["flags"] == journal.FRAME]
        # Stack numbers ascend: the last record of a file is where the next one has another number.
        last = {int(record["stack"]): record for record in frames[np.flatnonzero(np.diff(frames["stack"], append=-1))]}
        pages: dict[str, tuple[StackPage | None, int]] = {}
        for stack, record in last.items():
            name = self._layout.stack_name(stack)
            file = self._stacks.get(name)
            directory = int(record["directory"])
            page = read_page(file.read, file.size(), directory) if directory else None
            if page is not None:
                # Pixels come before metadata or after them, as the layout packs them.
                end = max(int(record["offset"]) + int(record["length"]), page.metadata + page.metadata_bytes)
                pages[name] = (page, end)
            else:
                pages[name] = (None, file.size())
        return pages

    def _finish_stacks(self, last_pages: dict[str, tuple[StackPage | None, int]]) -> Iterator[Change]:
        for name, (page, end) in last_pages.items():
            if page is not None and (change := finish_stack(os.path.join(self._stack_folder, name), page, end)):
                self.report.finished_stacks += (name,)
                yield change

    def _put_aside_unpublished(self, published: set[str]) -> Iterator[Change]:
        """Remove prepared stack files; rename our later ones without a published frame, so that no reader opens them.

        Without any published frame the first stack stays, as its header: readers take the summary from it.
        """
        first = self._layout.stack_name(0)
        last = max((own_number(self._layout, name) or 0 for name in published), default=0)
        path = os.path.join(self._stack_folder, first)
        if not published and os.path.exists(path):
            with contextlib.closing(ReadFile(Path(path))) as file:
                header = parse_stack_header(file.read, file.size(), path)
            yield Finish(path, self._layout.finish(None)[0], align_up(header.end))
            published = {first}
        for name in sorted(os.listdir(self._stack_folder)):
            path = os.path.join(self._stack_folder, name)
            if name.endswith(PRIVATE_SUFFIX):
                yield Remove(path)
            elif published and name not in published and (own_number(self._layout, name) or 0) > last:
                self.report.put_aside += (name,)
                yield PutAside(path, os.path.getsize(path))

    def _change_of_journal(self, content: JournalContent, records: NDArray[np.void]) -> Regrow:
        """Only the end and what differs is written: a crash in between must not lose the records that are good."""
        old, size, start = content.records, journal.RECORD_BYTES, journal.HEADER_BYTES
        common = min(len(old), len(records))
        unforced = max(0, common - journal.MAX_UNFORCED_ENTRIES)
        before, after = (rows[:unforced].view(f"V{size}") for rows in (old, records))
        patches = [
            (start + position * size, journal.stored_bytes(records[position : position + 1]))
            for position in np.flatnonzero(before != after).tolist()
        ]
        headers = [journal.encode_journal_header(self._state.dataset_id, clean=is_clean) for is_clean in (False, True)]
        return Regrow(
            self._journal.path,
            start + common * size,
            kept=journal.stored_bytes(records[unforced:common]),
            added=journal.stored_bytes(records[common:]),
            # A journal without a header gets one first: zeros in its place would be damage.
            patches=patches if content.header is not None else [(0, headers[0]), *patches],
            header=headers[1],
            held=self._journal,
        )


def _count_matching(frames: NDArray[np.void], numbers: NDArray[np.void], names: list[str], layout: NDTiffLayout) -> int:
    """The number of entries, from the first on, that agree with the journal's frames."""
    count = min(len(frames), len(names))
    numbers = numbers[:count]
    same = frames["offset"][:count] == numbers["pixel_offset"]
    same &= frames["pixel_type"][:count] == numbers["pixel_type"]
    same &= frames["length"][:count].astype(np.int64) == payload_bytes(numbers)
    stack_names = {int(stack): layout.stack_name(int(stack)) for stack in np.unique(frames["stack"][:count])}
    same &= np.array([stack_names[int(s)] for s in frames["stack"][:count]], dtype=object) == np.array(
        names[:count], dtype=object
    )
    return count if same.all() else int(np.argmin(same))


def _records_of_first_frames(records: NDArray[np.void], count: int) -> NDArray[np.void]:
    """The records up to and including the frame number `count` in order, gaps before it included."""
    frames = np.flatnonzero(records["flags"] == journal.FRAME)
    if count >= len(frames):
        return records
    return records[: frames[count]]
