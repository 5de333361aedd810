"""The index of a folder, `NDTiff.index`, as it grows: its entries are taken into a table of frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from acqstream.errors import CorruptDataset, DatasetError
from acqstream.formats.ndtiff.completion import FinishedSigns
from acqstream.formats.ndtiff.entry_walk import walk_entries
from acqstream.formats.ndtiff.frame_table import FrameTable
from acqstream.formats.ndtiff.index_block import parse_index
from acqstream.formats.ndtiff.index_entries import (
    INDEX_NAME,
    MAX_AXES_BYTES,
    MAX_ENTRY_BYTES,
    NUMBERS_BYTES,
    EntryBatch,
)
from acqstream.formats.ndtiff.stack_files import StackFiles
from acqstream.formats.ndtiff.stack_header import parse_stack_header
from acqstream.storage.files.read_file import ReadFile

_FIRST_WINDOW_BYTES = 128 * 1024
_WINDOW_BYTES = 4 * 1024 * 1024  # bounds what reading an index takes besides its frames
assert _FIRST_WINDOW_BYTES > MAX_ENTRY_BYTES  # so a cut entry at the end of a window is complete in the next


_ORDERS: tuple[Literal["little", "big"], ...] = ("little", "big")


Confirms = Callable[[bytes, np.void, Mapping[str, Any]], bool]
"""Whether an entry (name of the stack file, numbers, axes) is that of a frame in this folder."""


class IndexFile:
    """`NDTiff.index` of versions 2 and 3. Not thread safe."""

    def __init__(self, folder: Path) -> None:
        self._file = ReadFile(folder / INDEX_NAME)
        self.path = self._file.path
        self.consumed = 0  # bytes up to the first incomplete entry
        self._rest = b""  # what followed these bytes at the last look
        self._signs = FinishedSigns()
        self._is_big_endian: bool | None = None
        self._confirms: Confirms | None = None

    def read_into(self, table: FrameTable, confirms: Confirms | None = None) -> None:
        """Add the new complete entries. Raises CorruptDataset at a damaged one that frames follow.

        What stands behind the last frame is no entry: a power cut or a careless copy left it. `confirms` says whether
        an entry is that of a frame; with it, those at the end that are none are left out, too.
        """
        self.check_in_place()
        window = _FIRST_WINDOW_BYTES
        self._confirms = confirms
        while self._read_window(table, window):
            window = _WINDOW_BYTES

    def check_in_place(self) -> None:
        """Raises DatasetError if the index was removed, or replaced by another one."""
        if not self._file.is_in_place():
            raise DatasetError(f"{self.path}: the index was replaced or removed since it was opened; open it again")

    def is_finished(self, table: FrameTable, stacks: StackFiles) -> bool:
        """By the chain of pages in the last stack file, and if all of the index is read."""
        last = len(table) - 1
        file, byte_order = stacks.get(table.stack_names[table.stack(last)])
        finished = self._signs.is_finished(file, byte_order, int(table.numbers(last)["pixel_offset"]))
        # after the stack: an entry that came in between is seen as bytes not yet taken
        return finished and self._file.size() == self.consumed

    def summary_of(self, file: ReadFile) -> dict[str, Any]:
        """From the header of a stack file. Raises CorruptDataset."""
        return parse_stack_header(file.read, file.size(), str(file.path)).summary_metadata

    def close(self) -> None:
        """Close the file; again is harmless."""
        self._file.close()

    def _read_window(self, table: FrameTable, window: int) -> bool:
        """Take the complete entries of the next `window` bytes; True if there may be more."""
        size = self._file.size()
        if size < self.consumed:
            text = f"the index became shorter: {self.consumed} bytes were read, {size} are left; open it again"
            raise DatasetError(f"{self.path}: {text}")
        data = self._file.read(self.consumed, min(window, size - self.consumed))
        if data == self._rest:  # no entry came: most looks at a growing index end here
            return False
        if self._is_big_endian is None and len(data) >= 4:
            self._is_big_endian = _is_big_endian(data)
        before, at_zeros = self.consumed, False
        whole = _as_little_endian(data) if self._is_big_endian else data
        try:
            at_zeros = self._take(whole, before, table)
        except CorruptDataset as error:
            if error.offset is None:
                raise
            self._take(whole[: error.offset - before], before, table)
            if not len(table) or self._frames_follow(table):
                raise
            at_zeros = True
        self._rest = data[self.consumed - before :]
        if size - self.consumed > window and self.consumed > before:
            table.expect(len(table) * (size - self.consumed) // self.consumed)
        return len(data) == window and self.consumed > before and not at_zeros

    def _take(self, data: bytes, start: int, table: FrameTable) -> bool:
        """Add the entries of `data`, which is at byte `start`, from those on that were not taken; True before zeros."""
        at_zeros = False
        for part in parse_index(data[self.consumed - start :], str(self.path), self.consumed):
            kept = part
            if isinstance(part, EntryBatch) and not part.is_limited and self._confirms is not None:
                kept = self._without_strangers(part, table)
            table.append(kept)
            self.consumed += kept.consumed
            at_zeros = part.at_zeros
            if kept is not part:
                return True
        return at_zeros

    def _without_strangers(self, batch: EntryBatch, table: FrameTable) -> EntryBatch:
        """The last entries of an index, up to the last one that is confirmed; all where none is."""
        assert self._confirms is not None
        for last in reversed(range(len(batch.names))):
            if self._confirms(batch.names[last], batch.numbers[last], batch.axes[last]):
                break
        else:
            before = len(table) - 1
            if before < 0 or not len(batch.names):
                return batch
            name = table.stack_names[table.stack(before)].encode("utf-8", "surrogateescape")
            last = -1
            if not self._confirms(name, table.numbers(before), table.key(before)):
                return batch
        if last + 1 == len(batch.names):
            return batch
        count, end = last + 1, batch.offsets[last + 1] - self.consumed
        return EntryBatch(
            batch.axes[:count], batch.names[:count], batch.numbers[:count], batch.offsets[:count], end, at_zeros=True
        )

    def _frames_follow(self, table: FrameTable) -> bool:
        """Return True if entries of other frames come after bytes that are none: the damage lies between frames."""
        content = self._file.read(self.consumed, _WINDOW_BYTES)
        rest = walk_entries(_as_little_endian(content) if self._is_big_endian else content)
        known = {
            name: table.all_numbers["pixel_offset"][table.all_stacks == n] for n, name in enumerate(table.stack_names)
        }
        for row, (name, numbers) in enumerate(zip(rest.names, rest.numbers, strict=True)):
            raw = name.encode("utf-8", "surrogateescape")
            is_new = name not in known or not (known[name] == numbers["pixel_offset"]).any()
            if is_new and (self._confirms is None or self._confirms(raw, numbers, rest.axes(row))):
                return True
        return False


def _is_big_endian(data: bytes) -> bool:
    """True if the first length is plausible only as big-endian: Java writes in the byte order of its machine."""
    little, big = (int.from_bytes(data[:4], order) for order in _ORDERS)
    return little > MAX_AXES_BYTES >= big > 0


def _as_little_endian(data: bytes) -> bytes:
    """Big-endian entries converted to little-endian; incomplete entries stay as they are."""
    swapped = bytearray(data)
    position = 0
    while position + 4 <= len(data):
        name_at = position + 8 + _u32(data, position)
        if not name_at - 8 > position or name_at > len(data):
            break
        numbers_at = name_at + _u32(data, name_at - 4)
        if numbers_at + NUMBERS_BYTES > len(data):
            break
        for at in (position, name_at - 4, *range(numbers_at, numbers_at + NUMBERS_BYTES, 4)):
            swapped[at : at + 4] = data[at : at + 4][::-1]
        position = numbers_at + NUMBERS_BYTES
    return bytes(swapped[:position])


def _u32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "big")
