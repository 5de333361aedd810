"""The facts that recovery and repair judge: stack files, their pages and stored bytes, and index entries against pages.

`verify` compares whole page chains by columns and reports each difference (formats/ndtiff/check.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from acqstream.errors import StorageError
from acqstream.formats.ndtiff.page_walk import PageChain
from acqstream.formats.ndtiff.pages import (
    DIRECTORY_BYTES,
    IMAGE_LENGTH,
    IMAGE_WIDTH,
    MICRO_MANAGER_METADATA,
    STRIP_BYTE_COUNTS,
    STRIP_OFFSETS,
    TAGS,
    StackPage,
    directory_dtype,
    read_page,
)
from acqstream.formats.ndtiff.pixels import PIXEL_TYPES, payload_bytes
from acqstream.log.journal import MAX_UNFORCED_BYTES, MAX_UNFORCED_ENTRIES
from acqstream.storage.files.read_file import ReadFile, read_spans

_PIECE_BYTES = 4 * 2**20

_READ_BYTES = 2**20
_MAX_GAP_BYTES = 4096
_PLACE = ("pixel_offset", "width", "height", "metadata_offset")


class OpenStacks:
    """Opens each stack file of a folder once. Raises StorageError where a file is missing or cannot be read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, ReadFile] = {}
        self._pages: dict[str, dict[int, StackPage]] = {}

    def get(self, name: str) -> ReadFile:
        if name not in self._files:
            self._files[name] = ReadFile(self._folder / name)
        return self._files[name]

    def size(self, name: str) -> int:
        """Length in bytes; 0 for a file that cannot be read."""
        with contextlib.suppress(StorageError):
            return self.get(name).size()
        return 0

    def pages(self, name: str) -> dict[int, StackPage]:
        """The pages of an intact chain by pixel offset; empty for a file that cannot be read."""
        if name not in self._pages:
            # A missing file has no pages: recovery then cuts what was said to lie in it.
            pages: list[StackPage] = []
            with contextlib.suppress(StorageError):
                file = self.get(name)
                pages += PageChain(file, int.from_bytes(file.read(4, 4), "little")).pages()
            self._pages[name] = {page.pixels: page for page in pages}
        return self._pages[name]

    def close(self) -> None:
        for file in self._files.values():
            file.close()


def stored_checksum(file: ReadFile, offset: int, length: int) -> int | None:
    """XXH3-64 of the bytes [offset, offset + length), read in pieces; None where the file ends before.

    A damaged length costs no memory. Raises StorageError.
    """
    end = offset + length
    if file.size() < end:
        return None
    digest = xxhash.xxh3_64()  # fed in pieces: a record of a damaged journal may claim gigabytes
    while offset < end:
        piece = file.read(offset, min(_PIECE_BYTES, end - offset))
        if not piece:
            return None  # cut meanwhile
        digest.update(piece)
        offset += len(piece)
    return digest.intdigest()


def entry_agrees(
    numbers: np.void, page: StackPage, metadata_lengths: Collection[int], *, is_compressed: bool = False
) -> bool:
    """Return True if the numbers of an index entry (dtype NUMBERS) describe the frame of this page.

    metadata_lengths are the lengths of the metadata that count as equal, in bytes.
    """
    if [int(numbers[name]) for name in _PLACE] != [page.pixels, page.width, page.height, page.metadata]:
        return False
    code = int(numbers["pixel_type"])
    if int(numbers["metadata_length"]) not in metadata_lengths or code not in PIXEL_TYPES:
        return False
    return is_compressed or has_pixel_type(page, code, page.pixel_bytes)


def has_pixel_type(page: StackPage, code: int, length: int) -> bool:
    """Return True if the page has `length` bytes of pixels, as its size takes in this pixel type of the index."""
    pixel_type = PIXEL_TYPES.get(code)
    needed = page.width * page.height * pixel_type.pixel_bytes if pixel_type is not None else -1
    return page.pixel_bytes == length == needed


def own_entry_agrees(numbers: np.void, page: StackPage) -> bool:
    """As `entry_agrees`, for our own writer: its pages count a NUL at the end of the metadata."""
    return entry_agrees(numbers, page, (page.metadata_bytes - 1,))


def count_confirmed(records: NDArray[np.void], numbers: NDArray[np.void], open_stack: Callable[[int], ReadFile]) -> int:
    """The number of entries, from the first on, that hold after a power cut.

    Entries that may not have been forced are compared with their pages. numbers are those of the entries, records the
    journal's records of the same frames. open_stack opens a stack file by its number; where it raises StorageError no
    entry of that file holds.
    """
    first = _first_unforced(records["length"])
    agree = np.zeros(len(records) - first, np.bool_)
    stacks = records["stack"][first:]
    for stack in np.unique(stacks).tolist():
        rows = first + np.flatnonzero(stacks == stack)
        with contextlib.suppress(StorageError):
            agree[rows - first] = _agree(open_stack(stack), records["directory"][rows].astype(np.int64), numbers[rows])
    for row in (first + np.flatnonzero(~agree)).tolist():  # torn, or of a page that another writer has made
        try:
            file = open_stack(int(records["stack"][row]))
        except StorageError:
            return row
        page = read_page(file.read, file.size(), int(records["directory"][row]))
        if page is None or not own_entry_agrees(numbers[row], page):
            return row
    return len(records)


def _first_unforced(lengths: NDArray[np.uint64]) -> int:
    first = max(0, len(lengths) - MAX_UNFORCED_ENTRIES)
    # The committer forces before either bound is reached, so what lies before both was forced.
    bytes_to_end = np.cumsum(lengths[first:][::-1])
    return len(lengths) - int(np.searchsorted(bytes_to_end, MAX_UNFORCED_BYTES, "right"))


def _agree(file: ReadFile, directories: NDArray[np.int64], numbers: NDArray[np.void]) -> NDArray[np.bool_]:
    """True where a page of our own writer equals the entry; False proves nothing."""
    pages = _read_directories(file, directories)
    tags = pages["tags"]
    agree: NDArray[np.bool_] = (pages["entries"] == len(TAGS)) & (tags["tag"] == np.array(TAGS)).all(axis=1)
    for tag, field, expected in (
        (STRIP_OFFSETS, "value", numbers["pixel_offset"]),
        (IMAGE_WIDTH, "value", numbers["width"]),
        (IMAGE_LENGTH, "value", numbers["height"]),
        (STRIP_BYTE_COUNTS, "value", payload_bytes(numbers)),
        (MICRO_MANAGER_METADATA, "value", numbers["metadata_offset"]),
        (MICRO_MANAGER_METADATA, "count", numbers["metadata_length"].astype(np.int64) + 1),
    ):
        agree &= tags[field][:, TAGS.index(tag)].astype(np.int64) == expected
    return agree


def _read_directories(file: ReadFile, directories: NDArray[np.int64]) -> NDArray[np.void]:
    """The directories at these offsets; zeros beyond the end of the file."""
    rows = np.zeros((len(directories), DIRECTORY_BYTES), np.uint8)
    row_bytes = np.arange(DIRECTORY_BYTES)
    if (np.diff(directories) < DIRECTORY_BYTES).any():
        return rows.view(directory_dtype()).reshape(-1)  # another writer's
    for low, high in read_spans(directories, directories + DIRECTORY_BYTES, _READ_BYTES, _MAX_GAP_BYTES):
        # One read for directories that lie side by side, as those of packed frames do.
        start, end = int(directories[low]), int(directories[high - 1]) + DIRECTORY_BYTES
        data = file.read(start, end - start).ljust(end - start, b"\0")
        rows[low:high] = np.frombuffer(data, np.uint8)[(directories[low:high] - start)[:, None] + row_bytes]
    return rows.view(directory_dtype()).reshape(-1)
