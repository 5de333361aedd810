"""Compares index entries with the pages of the stack files: a power cut may take the end of an unforced entry."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from acqstream.errors import StorageError
from acqstream.formats.ndtiff.layout import NEXT_POINTER
from acqstream.formats.ndtiff.pages import (
    IMAGE_LENGTH,
    IMAGE_WIDTH,
    MICRO_MANAGER_METADATA,
    STRIP_BYTE_COUNTS,
    STRIP_OFFSETS,
    StackPage,
    read_page,
)
from acqstream.formats.ndtiff.pixels import PIXEL_TYPES
from acqstream.log.journal import MAX_UNFORCED_BYTES, MAX_UNFORCED_ENTRIES
from acqstream.storage.read_file import ReadFile
from acqstream.storage.read_spans import read_spans

_READ_BYTES = 2**20
_MAX_GAP_BYTES = 4096
_TAGS = 13  # of a page that this writer makes
_ENTRY = np.dtype([("tag", "<u2"), ("kind", "<u2"), ("count", "<u4"), ("value", "<u4")])
_DIRECTORY = np.dtype([("count", "<u2"), ("tags", _ENTRY, (_TAGS,))])
assert _DIRECTORY.itemsize == NEXT_POINTER


def count_confirmed(records: NDArray[np.void], numbers: NDArray[np.void], open_stack: Callable[[int], ReadFile]) -> int:
    """How many entries, from the first on, hold: those that may not have been forced are compared with their pages.

    numbers are those of the entries, records the ones of their frames in the journal. open_stack opens a stack file by
    its number; where it raises StorageError none of its entries holds.
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
        if page is None or not is_entry_of(page, numbers[row]):
            return row
    return len(records)


def is_entry_of(page: StackPage, numbers: np.void) -> bool:
    """Whether a page says what an index entry says. Our pages count a NUL at the end of the metadata."""
    kind = PIXEL_TYPES.get(int(numbers["pixel_type"]))
    if kind is None or page.pixel_bytes != page.width * page.height * kind.pixel_bytes:
        return False  # damaged
    told = [int(numbers[name]) for name in ("pixel_offset", "width", "height", "metadata_offset", "metadata_length")]
    return told == [page.pixels, page.width, page.height, page.metadata, page.metadata_bytes - 1]


def payload_bytes(numbers: NDArray[np.void]) -> NDArray[np.int64]:
    """Pixel bytes of index entries."""
    bytes_per_pixel = np.select([numbers["pixel_type"] == 0, numbers["pixel_type"] == 2], [1, 3], 2)
    payload: NDArray[np.int64] = numbers["width"].astype(np.int64) * numbers["height"] * bytes_per_pixel
    return payload


def _first_unforced(lengths: NDArray[np.uint64]) -> int:
    first = max(0, len(lengths) - MAX_UNFORCED_ENTRIES)
    behind = np.cumsum(lengths[first:][::-1])
    return len(lengths) - int(np.searchsorted(behind, MAX_UNFORCED_BYTES, "right"))


def _agree(file: ReadFile, directories: NDArray[np.int64], numbers: NDArray[np.void]) -> NDArray[np.bool_]:
    """True where a page of ours says the same as the entry; False proves nothing."""
    pages = _read_directories(file, directories)
    tags = pages["tags"]
    agree: NDArray[np.bool_] = pages["count"] == _TAGS

    def compare(tag: int, field: str, told: NDArray[np.int64]) -> None:
        nonlocal agree
        column = int(np.argmax(tags["tag"][0] == tag))
        agree &= (tags["tag"][:, column] == tag) & (tags[field][:, column].astype(np.int64) == told)

    compare(STRIP_OFFSETS, "value", numbers["pixel_offset"].astype(np.int64))
    compare(IMAGE_WIDTH, "value", numbers["width"].astype(np.int64))
    compare(IMAGE_LENGTH, "value", numbers["height"].astype(np.int64))
    compare(STRIP_BYTE_COUNTS, "value", payload_bytes(numbers))
    compare(MICRO_MANAGER_METADATA, "value", numbers["metadata_offset"].astype(np.int64))
    compare(MICRO_MANAGER_METADATA, "count", numbers["metadata_length"].astype(np.int64) + 1)
    return agree


def _read_directories(file: ReadFile, directories: NDArray[np.int64]) -> NDArray[np.void]:
    """What stands there, zeros behind the end of the file."""
    rows = np.zeros((len(directories), NEXT_POINTER), np.uint8)
    bytes_of_one = np.arange(NEXT_POINTER)
    if (np.diff(directories) < NEXT_POINTER).any():
        return rows.view(_DIRECTORY).reshape(-1)  # not as this writer has made them
    for low, high in read_spans(directories, directories + NEXT_POINTER, _READ_BYTES, _MAX_GAP_BYTES):
        start, end = int(directories[low]), int(directories[high - 1]) + NEXT_POINTER
        data = file.read(start, end - start).ljust(end - start, b"\0")
        rows[low:high] = np.frombuffer(data, np.uint8)[(directories[low:high] - start)[:, None] + bytes_of_one]
    return rows.view(_DIRECTORY).reshape(-1)
