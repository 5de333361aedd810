"""Recovery: puts a dataset whose daemon died while writing it into order. Automatic and idempotent.

An index entry was written after its stack was forced and its journal record written. So every entry that agrees with
its record is good, from the first one on. From the first that does not, or the first damaged record on, each frame is
settled by itself (settlement.py). Everything after the last published frame is cut. Pixels are never rewritten. Order
of steps: stacks, index, journal, state; records that only the index proves are written before it. After a crash in
between the next recovery resumes.

"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from acqstream.errors import CorruptDataset, DatasetLocked, StorageError
from acqstream.formats.ndtiff.entry_walk import walk_entries
from acqstream.formats.ndtiff.frame_table import FrameTable
from acqstream.formats.ndtiff.index_entries import (
    INDEX_NAME,
    NUMBERS_BYTES,
    EntryBatch,
    parse_entries,
    plain_name,
    read_entries,
)
from acqstream.formats.ndtiff.index_file import IndexFile
from acqstream.formats.ndtiff.layout import NDTiffLayout, align_up
from acqstream.formats.ndtiff.pages import StackPage, read_page
from acqstream.formats.ndtiff.pixels import payload_bytes
from acqstream.formats.ndtiff.stack_header import parse_stack_header
from acqstream.integrity.facts import KEPT_SUFFIX, OpenStacks, count_confirmed, finish_stack
from acqstream.integrity.settlement import Settlement, axes_in, own_number
from acqstream.log import journal
from acqstream.log.dataset_files import GrowingJournal
from acqstream.log.journal_file import JournalContent, read_journal
from acqstream.log.state_file import DatasetState, read_state, remove_receipt, write_state
from acqstream.model.state import AcquisitionState
from acqstream.model.units import count_text
from acqstream.storage.append_file import AppendFile
from acqstream.storage.disk import Disk, LocalDisk
from acqstream.storage.read_file import ReadFile
from acqstream.storage.stack_file import PRIVATE_SUFFIX, finish_file

_RESUMABLE = (AcquisitionState.FAILED, AcquisitionState.INTERRUPTED)
MAX_DAMAGED_RECORDS = 2**20  # 64 MiB of the journal; what comes after more than that is not looked for
_MAX_REST_BYTES = 2**30  # of an index behind its good entries


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
    journal_file = GrowingJournal(disk, path, create=False)
    journal_file.dataset_id = state.dataset_id
    try:
        journal_file.lock()
        return _Recovery(disk, str(folder), state, journal_file).run()
    except DatasetLocked:
        return None  # a living writer holds it
    finally:
        journal_file.close()


class _Recovery:
    """One recovery, step by step."""

    def __init__(self, disk: Disk, folder: str, state: DatasetState, journal_file: GrowingJournal) -> None:
        self._disk = disk
        self._folder = folder
        self._stack_folder = state.stack_folder(folder)
        self._state = state
        self._journal = journal_file
        self._layout = NDTiffLayout(state.name, {})
        self._stacks = OpenStacks(Path(self._stack_folder))
        self._names: dict[str, None] = {}  # of axes, in the order of entries
        self.report = RecoveryReport(folder)

    def run(self) -> RecoveryReport:
        try:
            content = self._read_records()
            records = content.prefix
            entries = self._read_index()
            names = [plain_name(name, INDEX_NAME, at) for name, at in zip(entries.names, entries.offsets, strict=True)]
            frames = records[records["flags"] == journal.FRAME]
            indexed = min(_count_matching(frames, entries, names, self._layout), self._count_complete(entries, names))
            # Equal numbers prove no page: after a power cut those that were not forced may be missing.
            indexed = count_confirmed(
                frames[:indexed], entries.numbers[:indexed], lambda stack: self._stacks.get(self._stack_name(stack))
            )
            indexed = self._count_named(entries, names, indexed)
            new_entries, index_end = b"", self._end_of_entry(entries, indexed)
            rest = self._index_from(index_end)
            self._names = dict.fromkeys(itertools.chain.from_iterable(entries.axes[:indexed]))
            if indexed < len(frames) or len(records) < len(content.records) or rest.strip(b"\0"):
                records, new_entries = self._settle(content, _records_of_first_frames(records, indexed), rest)
            unforced = entries.offsets[max(0, indexed - journal.MAX_UNFORCED_ENTRIES)] if indexed else 0
            last_pages = self._last_pages(records)
        finally:
            self._stacks.close()
        self._finish_stacks(last_pages)
        self._journal.sync()  # first: it may hold gaps that only the page cache has, before frames that are indexed now
        # A record that comes from the index alone is written before the index is; one that goes, after its entry went.
        is_added = self.report.records_added > 0 and not self.report.lost
        if is_added:
            self._write_journal(content.records, records)
        self._write_index(unforced, index_end, new_entries)
        if not is_added:
            self._write_journal(content.records, records)
        self.report.published = journal.next_number(records)
        # The state last: if this is cut short before, it still says "running", and recovery starts again.
        reason = "the writer died" if self._state.state.writing else self._state.reason
        if self._state.state is not AcquisitionState.INTERRUPTED:
            reason += f"; {count_text(self.report.published, 'frame', 'were')} published"
        remove_receipt(self._disk, self._folder)
        write_state(
            self._disk,
            self._folder,
            dataclasses.replace(self._state, state=AcquisitionState.INTERRUPTED, reason=reason),
        )
        return self.report

    def _stack_name(self, number: int) -> str:
        return self._layout.stack_name(number)

    def _read_records(self) -> JournalContent:
        content = read_journal(Path(self._journal.path), max_damaged=MAX_DAMAGED_RECORDS)
        if os.path.getsize(self._journal.path) < journal.HEADER_BYTES:  # died while creating the dataset
            self._journal.mark(clean=False)
        else:
            content.checked_header()
        return content

    def _read_index(self) -> EntryBatch:
        """The entries before the first bytes that are none."""
        path = os.path.join(self._stack_folder, INDEX_NAME)
        if not os.path.lexists(path):
            return parse_entries(b"", path)
        return read_entries(Path(path), ends_at_damage=True)

    def _index_from(self, start: int) -> bytes:
        """The bytes of the index from `start` on."""
        path = Path(self._stack_folder, INDEX_NAME)
        if not os.path.lexists(path):
            return b""
        file = ReadFile(path)
        try:
            return file.read(start, min(file.size() - start, _MAX_REST_BYTES))
        finally:
            file.close()

    def _count_complete(self, entries: EntryBatch, names: list[str]) -> int:
        """The number of entries, from the first on, with all their bytes: in a copy the index may be younger."""
        numbers = entries.numbers
        pixels_end = numbers["pixel_offset"].astype(np.int64) + payload_bytes(numbers)
        metadata_end = numbers["metadata_offset"].astype(np.int64) + numbers["metadata_length"]
        sizes = {name: self._stacks.size(name) for name in dict.fromkeys(names)}
        bounds = np.fromiter((sizes[name] for name in names), np.int64, len(names))
        is_complete = np.maximum(pixels_end, metadata_end) <= bounds
        return len(names) if is_complete.all() else int(np.argmin(is_complete))

    def _count_named(self, entries: EntryBatch, names: list[str], count: int) -> int:
        """The number of the first `count` entries, up to one with the place of a frame and the axes of another."""
        for row in range(max(0, count - journal.MAX_UNFORCED_ENTRIES), count):
            numbers = entries.numbers[row]
            file = self._stacks.get(names[row])
            axes = axes_in(file.read(int(numbers["metadata_offset"]), int(numbers["metadata_length"])))
            if axes is not None and axes != entries.axes[row]:
                return row
        return count

    def _end_of_entry(self, entries: EntryBatch, count: int) -> int:
        """End of the first `count` entries. The entry after them may be too damaged to be parsed."""
        if count == 0:
            return 0
        file = ReadFile(Path(self._stack_folder, INDEX_NAME))
        try:
            start = entries.offsets[count - 1]
            # Length of the axes (uint32, little-endian), axes, length of the name (uint32), name, numbers.
            axes_bytes = int.from_bytes(file.read(start, 4), "little")
            return start + 8 + axes_bytes + len(entries.names[count - 1]) + NUMBERS_BYTES
        finally:
            file.close()

    def _settle(self, content: JournalContent, kept: NDArray[np.void], rest: bytes) -> tuple[NDArray[np.void], bytes]:
        """All records, of which the first `kept` stay, and the entries of the frames after these."""
        settled = Settlement(content, len(kept), walk_entries(rest), self._stacks, self._layout)
        settled.names |= self._names
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
            name = self._stack_name(stack)
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

    def _finish_stacks(self, last_pages: dict[str, tuple[StackPage | None, int]]) -> None:
        finished = []
        for name, (page, end) in last_pages.items():
            if page is not None and finish_stack(self._disk, os.path.join(self._stack_folder, name), page, end):
                finished.append(name)
        self.report.finished_stacks = tuple(finished)
        try:
            self.report.put_aside = tuple(self._put_aside_unpublished(set(last_pages)))
        except OSError as error:
            raise StorageError.wrap(error, self._stack_folder, "cannot put unpublished stack files aside") from error

    def _put_aside_unpublished(self, published: set[str]) -> list[str]:
        """Remove prepared stack files; rename our later ones without a published frame, so that no reader opens them.

        Without any published frame the first stack stays, as its header: readers take the summary from it.
        """
        put_aside = []
        first, last = self._stack_name(0), max((own_number(self._layout, name) or 0 for name in published), default=0)
        if not published and os.path.exists(os.path.join(self._stack_folder, first)):
            self._cut_to_header(os.path.join(self._stack_folder, first))
            published.add(first)
        for name in sorted(os.listdir(self._stack_folder)):
            path = os.path.join(self._stack_folder, name)
            if name.endswith(PRIVATE_SUFFIX):
                self._disk.unlink(path)
            # Renamed, not removed: its frames were never published, but an operator may want to see them.
            elif published and name not in published and (own_number(self._layout, name) or 0) > last:
                finish_file(self._disk, path, (), os.path.getsize(path))  # free the space reserved after its end
                self._disk.replace(path, path + KEPT_SUFFIX)
                put_aside.append(name)
        return put_aside

    def _cut_to_header(self, path: str) -> None:
        file = ReadFile(Path(path))
        header = parse_stack_header(file.read, file.size(), path)
        file.close()
        finish_file(self._disk, path, self._layout.finish(None)[0], align_up(header.end))

    def _write_index(self, unforced: int, end: int, new_entries: bytes) -> None:
        """Write the entries from byte `unforced` on again: after a failed sync a lost one can still be read."""
        path = os.path.join(self._stack_folder, INDEX_NAME)
        index = AppendFile(self._disk, path, create=not os.path.exists(path), end=end)
        try:
            index.cut(end)
            if unforced < end:
                file = ReadFile(Path(path))
                index.rewrite(unforced, file.read(unforced, end - unforced))
                file.close()
            if new_entries:
                index.append(new_entries)
            index.sync()
        finally:
            index.close()

    def _write_journal(self, old: NDArray[np.void], records: NDArray[np.void]) -> None:
        """Only the end and what differs is written: a crash in between must not lose the records that are good.

        See `_write_index` for `unforced`.
        """
        common, size = min(len(old), len(records)), journal.RECORD_BYTES
        unforced = max(0, common - journal.MAX_UNFORCED_ENTRIES)
        before, after = (rows[:unforced].view(f"V{size}") for rows in (old, records))
        for position in np.flatnonzero(before != after).tolist():
            stored = journal.stored_bytes(records[position : position + 1])
            self._journal.rewrite(journal.HEADER_BYTES + position * size, stored)
        self._journal.cut(journal.HEADER_BYTES + common * size)
        self._journal.rewrite(journal.HEADER_BYTES + unforced * size, journal.stored_bytes(records[unforced:common]))
        self._journal.append(journal.stored_bytes(records[common:]))
        self._journal.mark(clean=True)
        self._journal.sync()


def _count_matching(frames: NDArray[np.void], entries: EntryBatch, names: list[str], layout: NDTiffLayout) -> int:
    """The number of entries, from the first on, that agree with the journal's frames."""
    count = min(len(frames), len(names))
    numbers = entries.numbers[:count]
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
