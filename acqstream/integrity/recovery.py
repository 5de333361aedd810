"""Recovery: puts a dataset whose daemon died while writing it into order. Automatic and idempotent.

An index entry was written after its stack was forced and its journal record written. So every entry that agrees with
its record is good. Records without an entry are rolled forward if the pixels match their checksum. Entries after the
journal's end count if a page of their stack confirms them. Everything after the last published frame is cut. Pixels are
never rewritten. Order of steps: stacks, index, journal, state; after a crash in between the next recovery resumes.
"""

from __future__ import annotations

import dataclasses
import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from acqstream.errors import CorruptDataset, DatasetLocked, ProtocolError, StorageError
from acqstream.formats.ndtiff import layout as ndtiff
from acqstream.formats.ndtiff.folders import parse_stack_name
from acqstream.formats.ndtiff.index import (
    NUMBERS_BYTES,
    EntryBatch,
    encode_entry,
    parse_entries,
    plain_name,
    read_entries,
)
from acqstream.formats.ndtiff.pages import StackPage, read_page
from acqstream.formats.ndtiff.pixels import payload_bytes
from acqstream.formats.ndtiff.placement import align_up
from acqstream.formats.ndtiff.stack_header import parse_stack_header
from acqstream.integrity.facts.entries import count_confirmed, own_entry_agrees
from acqstream.integrity.facts.stacks import KEPT_SUFFIX, OpenStacks, finish_stack, stored_checksum
from acqstream.log import journal
from acqstream.log.growing_journal import GrowingJournal
from acqstream.log.journal_file import read_journal
from acqstream.log.state_file import DatasetState, read_state, remove_receipt, write_state
from acqstream.model.axes import axes_json, check_axes
from acqstream.model.state import AcquisitionState
from acqstream.storage.append_file import AppendFile
from acqstream.storage.disk import Disk, LocalDisk
from acqstream.storage.read_file import ReadFile
from acqstream.storage.stack_file import PRIVATE_SUFFIX, finish_file

_NOT_OURS = (ValueError, KeyError, TypeError, RecursionError, ProtocolError, struct.error)  # last: a damaged page


@dataclass(slots=True)
class RecoveryReport:
    """The actions of one recovery: counts of frames, and file names."""

    folder: str
    published: int = 0
    rolled_forward: int = 0
    records_added: int = 0
    records_cut: int = 0
    finished_stacks: tuple[str, ...] = ()
    put_aside: tuple[str, ...] = ()


def recover(folder: Path, disk: Disk | None = None, *, is_failed: bool = False) -> RecoveryReport | None:
    """Put one dataset in order; None if that is not needed, or if it is being written now.

    is_failed: also one that has failed, so that it can be resumed.

    Raises CorruptDataset if journal or state are not ours, StorageError if the disk fails.
    """
    disk = disk or LocalDisk()
    state = read_state(str(folder))
    if not (state.state.writing or (is_failed and state.state is AcquisitionState.FAILED)):
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
        self._layout = ndtiff.NDTiffLayout(state.name, {})
        self._stacks = OpenStacks(Path(self._stack_folder))
        self.report = RecoveryReport(folder)

    def run(self) -> RecoveryReport:
        try:
            old_records = records = self._read_records()
            entries = self._read_index()
            names = [
                plain_name(name, ndtiff.INDEX_NAME, at) for name, at in zip(entries.names, entries.offsets, strict=True)
            ]
            frames = records[records["flags"] == journal.FRAME]
            indexed = min(_count_matching(frames, entries, names, self._layout), self._count_complete(entries, names))
            # Equal numbers prove no page: after a power cut those that were not forced may be missing.
            indexed = count_confirmed(
                frames[:indexed], entries.numbers[:indexed], lambda stack: self._stacks.get(self._stack_name(stack))
            )
            new_entries = b""
            # Either file may be ahead of the other. An index ahead gives records, a journal ahead gives entries.
            if indexed == len(frames) and indexed < len(names):
                records = self._records_for(entries, names, indexed, records)
                indexed += self.report.records_added
            else:
                new_entries, records = self._roll_forward(records, indexed)
            index_end = self._end_of_entry(entries, indexed)
            unforced = entries.offsets[max(0, indexed - journal.MAX_UNFORCED_ENTRIES)] if indexed else 0
            last_pages = self._last_pages(records)
        finally:
            self._stacks.close()
        self._finish_stacks(last_pages)
        self._journal.sync()  # first: it may hold gaps that only the page cache has, before frames that are indexed now
        self._write_index(unforced, index_end, new_entries)
        self._write_journal(old_records, records)
        self.report.published = journal.next_number(records)
        # The state last: if this is cut short before, it still says "running", and recovery starts again.
        why = "the writer died" if self._state.state.writing else self._state.reason
        reason = f"{why}; {self.report.published} frames were published"
        remove_receipt(self._disk, self._folder)
        write_state(
            self._disk,
            self._folder,
            dataclasses.replace(self._state, state=AcquisitionState.INTERRUPTED, reason=reason),
        )
        return self.report

    def _stack_name(self, number: int) -> str:
        return self._layout.stack_name(number)

    def _read_records(self) -> NDArray[np.void]:
        content = read_journal(Path(self._journal.path))
        if os.path.getsize(self._journal.path) < journal.HEADER_BYTES:  # died while creating the dataset
            self._journal.mark(clean=False)
        else:
            self._journal.version = content.checked_header().version
        return content.prefix

    def _read_index(self) -> EntryBatch:
        path = os.path.join(self._stack_folder, ndtiff.INDEX_NAME)
        if not os.path.lexists(path):
            return parse_entries(b"", path)
        return read_entries(Path(path))

    def _count_complete(self, entries: EntryBatch, names: list[str]) -> int:
        """The number of entries, from the first on, with all their bytes: in a copy the index may be younger."""
        numbers = entries.numbers
        pixels_end = numbers["pixel_offset"].astype(np.int64) + payload_bytes(numbers)
        metadata_end = numbers["metadata_offset"].astype(np.int64) + numbers["metadata_length"]
        sizes = {name: self._stacks.size(name) for name in dict.fromkeys(names)}
        bounds = np.fromiter((sizes[name] for name in names), np.int64, len(names))
        is_complete = np.maximum(pixels_end, metadata_end) <= bounds
        return len(names) if is_complete.all() else int(np.argmin(is_complete))

    def _end_of_entry(self, entries: EntryBatch, count: int) -> int:
        """End of the first `count` entries. The entry after them may be too damaged to be parsed."""
        if count == 0:
            return 0
        file = ReadFile(Path(self._stack_folder, ndtiff.INDEX_NAME))
        try:
            start = entries.offsets[count - 1]
            # Length of the axes (uint32, little-endian), axes, length of the name (uint32), name, numbers.
            axes_bytes = int.from_bytes(file.read(start, 4), "little")
            return start + 8 + axes_bytes + len(entries.names[count - 1]) + NUMBERS_BYTES
        finally:
            file.close()

    def _roll_forward(self, records: NDArray[np.void], indexed: int) -> tuple[bytes, NDArray[np.void]]:
        """Entries for frames that have a record but no entry, as long as their pixels match."""
        new_entries: list[bytes] = []
        seen = 0
        for position, record in enumerate(records):
            if record["flags"] != journal.FRAME:
                continue
            seen += 1
            if seen <= indexed:
                continue
            entry = self._entry_for(record)
            if entry is None:
                self.report.records_cut = len(records) - position
                return b"".join(new_entries), records[:position]
            new_entries.append(entry)
            self.report.rolled_forward += 1
        return b"".join(new_entries), records

    def _entry_for(self, record: np.void) -> bytes | None:
        name = self._stack_name(int(record["stack"]))
        try:
            file = self._stacks.get(name)
            checksum = stored_checksum(file, int(record["offset"]), int(record["length"]))
            page = read_page(file.read, file.size(), int(record["directory"]))
        except (OSError, StorageError, CorruptDataset):
            return None  # the stack does not reach that far: the frame was never published
        if checksum != int(record["checksum"]) or page is None or page.pixels != int(record["offset"]):
            return None
        metadata = file.read(page.metadata, page.metadata_bytes - 1)  # without the zero byte at the end of a TIFF text
        if xxhash.xxh3_64_intdigest(metadata) != int(record["metadata_checksum"]):
            return None
        try:
            axes = axes_json(check_axes(json.loads(metadata)["Axes"]))
            return encode_entry(axes, name, page, int(record["pixel_type"]), page.metadata_bytes - 1)
        except _NOT_OURS:
            return None

    def _records_for(
        self, entries: EntryBatch, names: list[str], matching: int, records: NDArray[np.void]
    ) -> NDArray[np.void]:
        """Records for entries that have none: the journal lost its end in a power cut."""
        kept = _records_of_first_frames(records, matching)
        added: list[bytes] = []
        lengths = payload_bytes(entries.numbers)
        for position in range(matching, len(names)):
            name, numbers = names[position], entries.numbers[position]
            offset, length = int(numbers["pixel_offset"]), int(lengths[position])
            page = self._stacks.pages(name).get(offset)
            # Frames are published in order: after the first one in doubt, none counts as published.
            if page is None or not own_entry_agrees(numbers, page):
                break
            file = self._stacks.get(name)
            checksum = stored_checksum(file, offset, length)
            if checksum is None:
                break
            metadata = file.read(int(numbers["metadata_offset"]), int(numbers["metadata_length"]))
            record = journal.encode_frame(
                journal.next_number(kept) + len(added),
                stack=(parse_stack_name(name) or (name, 0))[1],
                offset=offset,
                length=length,
                checksum=checksum,
                directory=page.directory,
                pixel_type=int(numbers["pixel_type"]),
                own_checksum=True,
                metadata_checksum=xxhash.xxh3_64_intdigest(metadata),
            )
            added.append(record)
        self.report.records_added = len(added)
        return np.frombuffer(kept.tobytes() + b"".join(added), journal.RECORD_DTYPE)

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
        """Remove prepared stack files; rename others without a published frame, so that no reader opens them.

        Without any published frame the first stack stays, as its header: readers take the summary from it.
        """
        put_aside = []
        first = self._stack_name(0)
        if not published and os.path.exists(os.path.join(self._stack_folder, first)):
            self._cut_to_header(os.path.join(self._stack_folder, first))
            published.add(first)
        for name in sorted(os.listdir(self._stack_folder)):
            path = os.path.join(self._stack_folder, name)
            if name.endswith(PRIVATE_SUFFIX):
                self._disk.unlink(path)
            # Renamed, not removed: its frames were never published, but an operator may want to see them.
            elif name.endswith(".tif") and published and name not in published:
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
        path = os.path.join(self._stack_folder, ndtiff.INDEX_NAME)
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
        """Only the end changes: a crash in between must not lose good records. See `_write_index` for `unforced`."""
        # Records that both have are not touched. Only at the end do the two differ.
        kept = min(len(old), len(records))
        while old[:kept].tobytes() != records[:kept].tobytes():
            kept -= 1
        self._journal.cut(journal.HEADER_BYTES + kept * journal.RECORD_BYTES)
        unforced = max(0, kept - journal.MAX_UNFORCED_ENTRIES)
        self._journal.rewrite(journal.HEADER_BYTES + unforced * journal.RECORD_BYTES, records[unforced:kept].tobytes())
        self._journal.append(records[kept:].tobytes())
        self._journal.mark(clean=True)
        self._journal.sync()


def _count_matching(
    frames: NDArray[np.void], entries: EntryBatch, names: list[str], layout: ndtiff.NDTiffLayout
) -> int:
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
