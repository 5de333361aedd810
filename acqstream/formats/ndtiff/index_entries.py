"""Entries of NDTiff.index, from bytes to batches.

Source: NDTiff specification, "NDTiff.index file". No header, order = order of arrival.

size  type    field
4     u32 LE  K
K     bytes   axes: JSON object, UTF-8 (Latin-1 from some Java writers)
4     u32     N
N     bytes   name of the stack file, without folder
32    u32/i32 see NUMBERS

Published when: all bytes of the entry are in the file.

"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.errors import CorruptDataset
from acqstream.formats.ndtiff.pages import StackPage
from acqstream.formats.ndtiff.stack_header import decode_text
from acqstream.storage.files.read_file import ReadFile
from acqstream.storage.platform.capabilities import has_drives

INDEX_NAME = "NDTiff.index"

NUMBERS = np.dtype(
    [
        ("pixel_offset", "<u4"),
        ("width", "<i4"),
        ("height", "<i4"),
        ("pixel_type", "<i4"),
        ("pixel_compression", "<i4"),
        ("metadata_offset", "<u4"),
        ("metadata_length", "<i4"),
        ("metadata_compression", "<i4"),
    ]
)
NUMBERS_BYTES = NUMBERS.itemsize
assert NUMBERS_BYTES == 32

MAX_AXES_BYTES = 64 * 1024  # far above 16 axes of 128 characters; a larger count is damage, not a torn entry
MAX_NAME_BYTES = 4096  # no file system has longer names
_WINDOW_BYTES = 4 * 1024 * 1024
MAX_ENTRY_BYTES = 4 + MAX_AXES_BYTES + 4 + MAX_NAME_BYTES + NUMBERS_BYTES
_MAX_FRAME_BYTES = 2**32  # a stack file ends there: its offsets are u32

_U32 = struct.Struct("<I")
_NUMBERS = struct.Struct("<IiiiiIii")
_SIZE_AND_METADATA = struct.Struct("<4xii8xI8x")  # of the numbers: width, height, metadata offset
assert _SIZE_AND_METADATA.size == NUMBERS_BYTES
_decode_json = json.JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True)
class EntryBatch:
    """Whole entries that followed one another in the index.

    axes, names (as stored) and numbers (dtype NUMBERS) have one item per entry that is kept; offsets are where those
    entries begin in the index file. consumed counts the bytes of all complete entries, dropped ones included. at_zeros
    means that a zero length follows: the reserved tail of an unfinished index. is_limited: more entries may follow.
    """

    axes: list[dict[str, Any]]
    names: list[bytes]
    numbers: NDArray[np.void]
    offsets: list[int]
    consumed: int
    at_zeros: bool
    is_limited: bool = False


def parse_entries(
    data: bytes, path: str = "", start: int = 0, *, begin: int = 0, limit: int = sys.maxsize
) -> EntryBatch:
    """The complete entries from byte `begin` of `data` on. `data` is at byte `start` of the index file `path`.

    Ends after `limit` entries, at the first one that is certainly complete.
    Entries with impossible numbers are dropped. An entry that is cut, or half zeros (its writer is at it, or its block
    was lost), ends the batch. Raises CorruptDataset for anything else that is not an entry.
    """
    axes: list[dict[str, Any]] = []
    names: list[bytes] = []
    offsets: list[int] = []
    numbers: list[bytes] = []
    position, end, at_zeros, is_limited = begin, len(data), False, False
    while position + 4 <= end:
        axes_bytes = _U32.unpack_from(data, position)[0]
        if axes_bytes == 0:
            at_zeros = True
            break
        if axes_bytes > MAX_AXES_BYTES:
            raise CorruptDataset(f"axes of {axes_bytes} bytes in an index entry", path=path, offset=start + position)
        name_at = position + 8 + axes_bytes
        if name_at > end:  # the entry is cut: its writer may still complete it
            break
        name_bytes = _U32.unpack_from(data, name_at - 4)[0]
        if name_bytes > MAX_NAME_BYTES:
            raise CorruptDataset(f"file name of {name_bytes} bytes", path=path, offset=start + name_at - 4)
        numbers_at = name_at + name_bytes
        if numbers_at + NUMBERS_BYTES > end:
            break
        text = data[position + 4 : name_at - 4]
        name = data[name_at:numbers_at]
        if not name or b"\0" in text or b"\0" in name:  # zeros of a block that is not written yet
            break
        axes.append(_parse_axes(text, path, start + position + 4))
        names.append(name)
        numbers.append(data[numbers_at : numbers_at + NUMBERS_BYTES])
        offsets.append(start + position)
        position = numbers_at + NUMBERS_BYTES
        # The entry after it may show later that this one is half zeros, so the batch ends at a certain one.
        if len(numbers) >= limit and not _half_written(numbers[-1], at_zeros=True):
            is_limited = True
            break
    if numbers and _half_written(numbers[-1], at_zeros=at_zeros):
        position = offsets.pop() - start
        del axes[-1], names[-1], numbers[-1]
    return _without_impossible(
        EntryBatch(
            axes, names, np.frombuffer(b"".join(numbers), NUMBERS), offsets, position - begin, at_zeros, is_limited
        )
    )


def read_entries(path: Path) -> Iterator[EntryBatch]:
    """All complete entries of an index file, as `parse_entries` of its content, in batches of bounded memory.

    Bytes that are no entry end them. Raises StorageError.
    """
    with closing(ReadFile(path)) as file:
        position, is_last = 0, False
        while not is_last:
            data = file.read(position, _WINDOW_BYTES)
            try:
                batch = parse_entries(data, str(path), position)
            except CorruptDataset as error:
                if error.offset is None:
                    raise
                data = data[: error.offset - position]
                batch = parse_entries(data, str(path), position)
            yield batch
            position += batch.consumed
            is_last = len(data) < _WINDOW_BYTES or not batch.consumed or batch.at_zeros


def encode_entry(axes: bytes, stack_name: str, page: StackPage, pixel_type: int, metadata_bytes: int) -> bytes:
    """The entry of the frame of `page`. axes is its JSON, metadata_bytes counts no closing NUL.

    Raises struct.error for the impossible numbers of a damaged page.
    """
    name = stack_name.encode("utf-8", "surrogateescape")
    numbers = _NUMBERS.pack(page.pixels, page.width, page.height, pixel_type, 0, page.metadata, metadata_bytes, 0)
    return _U32.pack(len(axes)) + axes + _U32.pack(len(name)) + name + numbers


def plain_name(name: bytes, path: str, offset: int) -> str:
    """A stack file's name as text. Raises CorruptDataset if it could lead out of the dataset's folder."""
    text = decode_text(name)
    drive = has_drives() and ":" in text
    if text in ("", ".", "..") or "/" in text or "\\" in text or "\0" in text or drive:
        raise CorruptDataset(f"{text!r} is not a plain file name", path=path, offset=offset)
    return text


def _half_written(numbers: bytes, *, at_zeros: bool) -> bool:
    """True if the last entry ends in zeros that its writer will fill. Other writers reserve the index so."""
    width, height, metadata_offset = _SIZE_AND_METADATA.unpack(numbers)
    return width == 0 or height == 0 or (at_zeros and metadata_offset == 0)


def _parse_axes(data: bytes, path: str, offset: int) -> dict[str, Any]:
    try:
        text = decode_text(data).strip(" \t\r\n")
        axes, end = _decode_json(text)
    except (ValueError, RecursionError) as error:
        raise CorruptDataset(f"axes of an index entry are not JSON: {error}", path=path, offset=offset) from error
    if type(axes) is not dict or end != len(text):
        raise CorruptDataset(f"axes must be one JSON object, not {text!r:.60}", path=path, offset=offset)
    return axes


def are_possible(numbers: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which numbers (dtype NUMBERS) can be those of a frame."""
    width, height = numbers["width"].astype(np.int64), numbers["height"].astype(np.int64)
    good: NDArray[np.bool_] = (width > 0) & (height > 0) & (numbers["metadata_length"] >= 0)
    # A division, as the product of two hostile numbers may wrap.
    good &= width <= _MAX_FRAME_BYTES // np.maximum(height, 1)
    return good


def _without_impossible(batch: EntryBatch) -> EntryBatch:
    good = are_possible(batch.numbers)
    if good.all():
        return batch
    kept = np.flatnonzero(good).tolist()
    return replace(
        batch,
        axes=[batch.axes[i] for i in kept],
        names=[batch.names[i] for i in kept],
        numbers=batch.numbers[good],
        offsets=[batch.offsets[i] for i in kept],
    )
