"""The index of a folder, `NDTiff.index`, as it grows: its entries are taken into a table of frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Protocol

from acqstream.errors import DatasetError
from acqstream.formats.ndtiff.columns import FrameTable
from acqstream.formats.ndtiff.completion import FinishedSigns
from acqstream.formats.ndtiff.entry_block import parse_index
from acqstream.formats.ndtiff.index import INDEX_NAME, MAX_AXES_BYTES, MAX_ENTRY_BYTES, NUMBERS_BYTES
from acqstream.formats.ndtiff.stack_files import StackFiles
from acqstream.formats.ndtiff.stack_header import parse_stack_header
from acqstream.storage.read_file import ReadFile

_FIRST_WINDOW_BYTES = 128 * 1024
_WINDOW_BYTES = 4 * 1024 * 1024  # bounds what reading an index takes besides its frames
assert _FIRST_WINDOW_BYTES > MAX_ENTRY_BYTES  # so a cut entry at the end of a window is complete in the next


_ORDERS: tuple[Literal["little", "big"], ...] = ("little", "big")


class FrameIndex(Protocol):
    """Source of the frames of a folder and their places."""

    path: Path

    def read_into(self, table: FrameTable) -> None:
        """Add the frames that are new since the last call."""

    def check_in_place(self) -> None:
        """Raises DatasetError if another dataset came in this one's place: its files have the same names."""

    def is_finished(self, table: FrameTable, stacks: StackFiles) -> bool:
        """True if nothing announces more frames. The table has at least one."""

    def summary_of(self, file: ReadFile) -> dict[str, Any]:
        """The summary metadata in a stack file. Raises CorruptDataset."""

    def close(self) -> None: ...


class IndexFile:
    """`NDTiff.index` of versions 2 and 3. Not thread safe."""

    def __init__(self, folder: Path) -> None:
        self._file = ReadFile(folder / INDEX_NAME)
        self.path = self._file.path
        self.consumed = 0  # bytes up to the first incomplete entry
        self._rest = b""  # what followed these bytes at the last look
        self._signs = FinishedSigns()
        self._is_big_endian: bool | None = None

    def read_into(self, table: FrameTable) -> None:
        """Add the new complete entries. Raises CorruptDataset at the first damaged one."""
        self.check_in_place()
        window = _FIRST_WINDOW_BYTES
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
        for part in parse_index(whole, str(self.path), before):
            table.append(part)
            self.consumed += part.consumed
            at_zeros = part.at_zeros
        self._rest = data[self.consumed - before :]
        if size - self.consumed > window and self.consumed > before:
            table.expect(len(table) * (size - self.consumed) // self.consumed)
        return len(data) == window and self.consumed > before and not at_zeros


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
