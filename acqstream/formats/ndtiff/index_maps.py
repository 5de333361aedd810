"""The frames of a folder of versions 0 and 1, from the index maps in its stack files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from acqstream.errors import CorruptDataset
from acqstream.formats.ndtiff.columns import FrameTable
from acqstream.formats.ndtiff.folders import has_ndtiff_mark, level_of, overlap_in, stack_paths
from acqstream.formats.ndtiff.index import NUMBERS, EntryBatch
from acqstream.formats.ndtiff.index_map import IndexMapHeader, parse_index_map_header, read_map_entries
from acqstream.formats.ndtiff.pages import StackPage, read_page
from acqstream.formats.ndtiff.stack_files import StackFiles
from acqstream.formats.ndtiff.stack_header import parse_json_object
from acqstream.formats.ndtiff.super_channels import AXES_METADATA_NAME, MAX_AXES_METADATA_BYTES, SuperChannels
from acqstream.storage.files.read_file import ReadFile

_NUMBER = re.compile(r"(?P<base>.*?)(?:_(?P<number>[0-9]{1,9}))?\.tif", re.IGNORECASE)
_NOWHERE = 2**32 - 1  # beyond the end of any stack file
_MAX_METADATA_BYTES = 2**24


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
            own = {name: int(entry[name]) for name in ("z", "time", "position")}
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
