"""The frames of a folder of versions 0 and 1, from the index maps in its stack files.

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

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.errors import CorruptDataset
from acqstream.formats.ndtiff.folders import has_ndtiff_mark, level_of, overlap_in, stack_paths
from acqstream.formats.ndtiff.frame_table import FrameTable
from acqstream.formats.ndtiff.index_entries import NUMBERS, EntryBatch
from acqstream.formats.ndtiff.pages import StackPage, axes_in, hints_in, on_level, read_page
from acqstream.formats.ndtiff.stack_files import StackFiles
from acqstream.formats.ndtiff.stack_header import (
    INDEX_MAP_MAGIC,
    NDTIFF_MAGIC,
    SUMMARY_MAGIC,
    ByteOrder,
    ReadAt,
    byte_order_of,
    check_json_length,
    expect,
    parse_json_object,
)
from acqstream.model.axes import Axes, AxisValue
from acqstream.storage.files.read_file import ReadFile

_NUMBER = re.compile(r"(?P<base>.*?)(?:_(?P<number>[0-9]{1,9}))?\.tif", re.IGNORECASE)
_NOWHERE = 2**32 - 1  # beyond the end of any stack file
_MAX_METADATA_BYTES = 2**24

_DISPLAY_MAGIC = 483765892
_MAP_MAGIC = 3453623
_HEADER_BYTES = 40
_ENTRY = np.dtype([("channel", "<i4"), ("z", "<i4"), ("time", "<i4"), ("position", "<i4"), ("directory", "<u4")])
_MAX_ENTRIES = 2**14  # read at once

AXES_METADATA_NAME = "Axes_metedata"
MAX_AXES_METADATA_BYTES = 32 * 2**20  # 25 MiB are reserved by its writer
_NAME_KEY = "StorageSuperChannelName"
_OWN_AXES = ("z", "time", "position")  # of an entry
_AXIS = re.compile(r"Axis_(.+?)_(-?[0-9]{1,9})(?=Axis_|$)")
_MAX_CHANNELS = 2**20


class IndexMaps:
    """The index maps of all stack files of a folder, in order of their names. Not thread safe."""

    def __init__(self, folder: Path, container: Path) -> None:
        self.path = folder
        self._container = container
        self._taken: dict[str, int] = {}  # entries by stack file
        self._channels: SuperChannels | None = None
        self._last_page: StackPage | None = None

    def read_into(self, table: FrameTable, _confirms: object = None) -> None:
        """Add the new entries. A frame whose directory is damaged is listed, but cannot be read."""
        for path in sorted(filter(has_ndtiff_mark, stack_paths(self.path)), key=_order):
            file = ReadFile(path)
            header = parse_index_map_header(file.read, file.size(), str(path))
            taken = self._taken.setdefault(path.name, 0)
            # A growing file: entries follow those that were taken at the last look.
            while len(entries := read_map_entries(file.read, header, taken)):
                table.append(self._batch(file, header, entries, taken))
                taken = self._taken[path.name] = taken + len(entries)

    def check_in_place(self) -> None:
        """They are in the stack files themselves."""

    def is_finished(self, table: FrameTable, stacks: StackFiles) -> bool:
        """If every stack file was closed."""
        for name in table.stack_names:
            file, _ = stacks.get(name)
            if not parse_index_map_header(file.read, file.size(), str(file.path)).is_finished:
                return False
        return True

    def summary_of(self, file: ReadFile) -> dict[str, Any]:
        """From the header of a stack file. Raises CorruptDataset."""
        return parse_index_map_header(file.read, file.size(), str(file.path)).summary_metadata

    def close(self) -> None:
        """Nothing is kept open."""

    def _batch(self, file: ReadFile, header: IndexMapHeader, entries: Any, first: int) -> EntryBatch:
        channels = self._super_channels(header)
        axes, numbers = [], []
        for entry in entries:
            page = read_page(file.read, file.size(), int(entry["directory"]), header.byte_order)
            numbers.append(self._numbers(file, page, int(entry["directory"])))
            number = int(entry["channel"])
            metadata = _metadata(file, page) if page is not None and channels.needs_metadata(number) else {}
            own = {name: int(entry[name]) for name in _OWN_AXES}
            axes.append(channels.axes(number, own, metadata))
        offsets = [header.start + (first + i) * entries.dtype.itemsize for i in range(len(entries))]
        names = [file.path.name.encode()] * len(entries)
        return EntryBatch(axes, names, np.array(numbers, NUMBERS), offsets, 0, at_zeros=False)

    def _numbers(self, file: ReadFile, page: StackPage | None, directory: int) -> tuple[int, ...]:
        """As an index entry has them."""
        if page is None or not _is_possible(page):
            if self._last_page is None:
                raise CorruptDataset(
                    "no page directory where the index map names one", path=str(file.path), offset=directory
                )
            # A shape that readers can show; the place makes every read of its pixels fail.
            last = self._last_page
            return _NOWHERE, last.width, last.height, _pixel_type(last), 0, _NOWHERE, 1, 0
        self._last_page = page
        return page.pixels, page.width, page.height, _pixel_type(page), 0, page.metadata, page.metadata_bytes, 0

    def _super_channels(self, header: IndexMapHeader) -> SuperChannels:
        if self._channels is None:
            data = b""
            path = self._container / AXES_METADATA_NAME
            if path.is_file():
                data = ReadFile(path).read(0, MAX_AXES_METADATA_BYTES)
            tiled = overlap_in(header.summary_metadata) is not None
            self._channels = SuperChannels(data, is_tiled=tiled, level=level_of(self.path))
        return self._channels


def _order(path: Path) -> tuple[str, int]:
    """`a.tif`, `a_1.tif`, `a_2.tif` ... `a_10.tif`."""
    found = _NUMBER.fullmatch(path.name)
    return (found["base"], int(found["number"] or 0)) if found else (path.name, 0)


def _pixel_type(page: StackPage) -> int:
    if page.samples == 3:
        return 2
    return 0 if page.bits == 8 else 1


def _is_possible(page: StackPage) -> bool:
    sides = page.width > 0 and page.height > 0 and page.width * page.height <= _NOWHERE
    return sides and max(page.width, page.height, page.metadata_bytes) < 2**31


def _metadata(file: ReadFile, page: StackPage) -> dict[str, Any]:
    """Empty where they are damaged: reading the frame's metadata raises the error."""
    data = file.read(page.metadata, min(page.metadata_bytes, _MAX_METADATA_BYTES))
    try:
        return parse_json_object(data, str(file.path), page.metadata)
    except CorruptDataset:
        return {}


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
    expect(magic, INDEX_MAP_MAGIC, "the index map mark", path, 8)
    expect(summary_mark, SUMMARY_MAGIC, "the summary mark", path, 32)
    start = _HEADER_BYTES + length
    # Before the summary is read: a damaged length must not make a reader allocate gigabytes.
    if start + 8 > size:
        raise CorruptDataset(f"summary of {length} bytes ends beyond the file of {size}", path=path, offset=36)
    check_json_length(length, "a summary", path, 36)
    map_mark, count = struct.unpack(order + "2I", read(start, 8))
    expect(map_mark, _MAP_MAGIC, "the mark of the map's entries", path, start)
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


class SuperChannels:
    """All axes of a frame but z, time and position, as one number in an index map. level is that of the frames.

    Source: files of the Java writer. Their names, like `Axis_exposure_0Axis_channel_1`, stand in the file
    `Axes_metedata` (spelled so) of libraries 1.4 and 1.5, and in the metadata of every frame.

    `Axes_metedata` is records of: i32 number, or -1; then, after -1, i32 channel number, i32 length, name of the
    channel; after a number i32 length, name of the super channel. Names are Latin-1. A length of 0 ends it.
    """

    def __init__(self, axes_metadata: bytes, *, is_tiled: bool, level: int) -> None:
        self._names = parse_axes_metadata(axes_metadata)
        self._axes: dict[int, Axes] = {}
        self._is_tiled = is_tiled
        self._level = level

    def needs_metadata(self, number: int) -> bool:
        """True if this frame's metadata must be read: the first frame of its super channel, and every tile."""
        return self._is_tiled or number not in self._axes

    def axes(self, number: int, entry: Mapping[str, int], metadata: Mapping[str, Any]) -> dict[str, AxisValue]:
        """The axes of a frame; entry has its z, time and position. metadata may be empty if they are not needed."""
        if number not in self._axes:
            if len(self._axes) >= _MAX_CHANNELS:
                self._axes.clear()
            self._axes[number] = self._first_axes(number, entry, metadata)
        axes = {name: entry.get(name, value) for name, value in self._axes[number].items()}
        if self._is_tiled:
            place = {name: value for name, value in hints_in(metadata).items() if name in ("row", "column")}
            if len(place) == 2:
                axes.pop("position", None)
                axes |= on_level(place, self._level)
        return axes

    def _first_axes(self, number: int, entry: Mapping[str, int], metadata: Mapping[str, Any]) -> Axes:
        """The axes of the first frame of a super channel."""
        told = axes_in(metadata)
        if told is not None:
            return {name: value for name, value in told.items() if name not in ("row", "column") or not self._is_tiled}
        name = self._names.get(number) or metadata.get(_NAME_KEY)
        axes: dict[str, AxisValue] = dict(parse_name(name)) if isinstance(name, str) else {}
        if not axes and number:
            axes["channel"] = number
        return axes | {name: entry[name] for name in _OWN_AXES}


def parse_name(name: str) -> dict[str, int]:
    """The axes in the name of a super channel."""
    return {axis: int(value) for axis, value in _AXIS.findall(name)}


def parse_axes_metadata(data: bytes) -> dict[int, str]:
    """Names of super channels by number, up to the first incomplete record."""
    names: dict[int, str] = {}
    position = 0
    while position + 8 <= len(data):
        (flag,) = struct.unpack_from("<i", data, position)
        position += 8 if flag == -1 else 4  # after -1 the number of a channel, which no frame needs
        if position + 4 > len(data):
            break
        (length,) = struct.unpack_from("<i", data, position)
        position += 4
        if length <= 0 or position + length > len(data):
            break
        if flag >= 0:
            names[flag] = data[position : position + length].decode("latin-1")
        position += length
    return names
