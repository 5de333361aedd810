"""Header and index map of a stack file of versions 0 and 1. Pure.

Source: files of the Java writer of these versions. The byte order is that of the TIFF header.

offset  size  value
0       8     TIFF header
8       4     54773648
12      4     offset of the index map, 40 + L
16      4     483765892, 0 if the file is unfinished
24      4     483729 in version 1
28      4     major version 1
32      4     2355492
36      4     L
40      L     summary metadata, JSON
40 + L  4     3453623
44 + L  4     n
48 + L  20 n  entries: super channel, z, time, position (i32), offset of the directory (u32); 0: no more
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.errors import CorruptDataset
from acqstream.formats.ndtiff.stack_header import (
    INDEX_MAP_MAGIC,
    NDTIFF_MAGIC,
    SUMMARY_MAGIC,
    ByteOrder,
    ReadAt,
    byte_order_of,
    check_json_length,
    parse_json_object,
)

_DISPLAY_MAGIC = 483765892
_MAP_MAGIC = 3453623
_HEADER_BYTES = 40
_ENTRY = np.dtype([("channel", "<i4"), ("z", "<i4"), ("time", "<i4"), ("position", "<i4"), ("directory", "<u4")])
_MAX_ENTRIES = 2**14  # read at once


@dataclass(frozen=True, slots=True)
class IndexMapHeader:
    """Header before the index map. start: offset of the first entry; count: capacity in entries."""

    major: int
    byte_order: ByteOrder
    is_finished: bool
    summary_metadata: dict[str, Any]
    start: int
    count: int


def parse_index_map_header(read: ReadAt, size: int, path: str) -> IndexMapHeader:
    """The header of a stack file of `size` bytes that `read` reads. Raises CorruptDataset with the offending byte."""
    order = byte_order_of(read, path)
    head = read(0, _HEADER_BYTES)
    if len(head) < _HEADER_BYTES:
        raise CorruptDataset("the file ends inside its header", path=path, offset=len(head))
    fields: tuple[int, ...] = struct.unpack_from(order + "8I", head, 8)
    magic, _, display, _, version_mark, version, summary_mark, length = fields
    _expect(magic, INDEX_MAP_MAGIC, "the index map mark", path, 8)
    _expect(summary_mark, SUMMARY_MAGIC, "the summary mark", path, 32)
    start = _HEADER_BYTES + length
    # Before the summary is read: a damaged length must not make a reader allocate gigabytes.
    if start + 8 > size:
        raise CorruptDataset(f"summary of {length} bytes ends beyond the file of {size}", path=path, offset=36)
    check_json_length(length, "a summary", path, 36)
    map_mark, count = struct.unpack(order + "2I", read(start, 8))
    _expect(map_mark, _MAP_MAGIC, "the mark of the map's entries", path, start)
    return IndexMapHeader(
        major=version if version_mark == NDTIFF_MAGIC else 0,
        byte_order=order,
        is_finished=display == _DISPLAY_MAGIC,
        summary_metadata=parse_json_object(read(_HEADER_BYTES, length), path, _HEADER_BYTES),
        start=start + 8,
        # The file may have been cut: entries beyond its end cannot be read.
        count=min(count, (size - start - 8) // _ENTRY.itemsize),
    )


def read_map_entries(read: ReadAt, header: IndexMapHeader, first: int) -> NDArray[np.void]:
    """Entries from number `first` on: channel, z, time, position, directory. None without further entries."""
    count = max(0, min(_MAX_ENTRIES, header.count - first))
    data = read(header.start + first * _ENTRY.itemsize, count * _ENTRY.itemsize)
    kind = _ENTRY.newbyteorder(header.byte_order)
    entries = np.frombuffer(data, kind, len(data) // _ENTRY.itemsize)
    # No directory can lie at byte 0, so 0 marks the unused rest of the map.
    ends = np.flatnonzero(entries["directory"] == 0)
    return entries[: ends[0]] if len(ends) else entries


def _expect(value: int, expected: int, name: str, path: str, offset: int) -> None:
    if value != expected:
        raise CorruptDataset(f"{value} where {name} {expected} was expected", path=path, offset=offset)
