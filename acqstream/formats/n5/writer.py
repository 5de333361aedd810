"""Writes an N5 container: blocks and attributes appear whole, by rename."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.errors import ConfigError, DatasetExists
from acqstream.formats.chunk_format import Encoded
from acqstream.formats.n5 import notes
from acqstream.formats.n5.attributes import ATTRIBUTES_NAME, is_dataset, parse_dataset, read_attributes
from acqstream.formats.n5.bdv_xml import make_xml, xml_path
from acqstream.formats.n5.block import encode_items, make_header
from acqstream.formats.n5.documents import Documents, make_documents
from acqstream.formats.n5.layouts import (
    TIME,
    folder_axes,
    group_folder,
    has_too_many,
    level_folder,
    may_grow,
    members,
    numbering_of,
    too_many_text,
)
from acqstream.formats.n5.options import N5Options
from acqstream.grid.block_mean import reduced_shape
from acqstream.storage.atomic import ensure_file
from acqstream.storage.disk import Disk
from acqstream.storage.folder_tree import FolderTree

_XML_BEHIND = 32  # the part of the time points that the XML file may lack between two syncs
_SPARE_BYTES = 65536  # what a codec may add to a block that it cannot shrink


def encode_bytes(spec: ArraySpec, options: N5Options) -> int:
    """The most memory that encoding a chunk takes: its items in big-endian, what the codec takes and what it makes."""
    swapped = spec.chunk_bytes if spec.dtype.itemsize > 1 else 0
    if options.compression.type == "raw":
        return swapped
    return swapped + 2 * spec.chunk_bytes + _SPARE_BYTES + options.compression.working_bytes


class N5Writer:
    """A ChunkWriter; `create` makes one.

    All blocks are written in full size, those at the end padded with zeros: an array becomes longer without any block
    written again. The attributes of a member (see layouts) are written before its first block, those of the container,
    and the XML file of BigDataViewer, when a level grows: after the blocks that they announce.
    """

    def __init__(self, folder: Path, levels: Sequence[ArraySpec], options: N5Options, disk: Disk) -> None:
        self._folder = folder
        self._levels = list(levels)
        self._options = options
        self._disk = disk
        self._tree = FolderTree(str(folder), disk)
        self._lock = threading.Lock()  # for all that follows
        self._members: dict[tuple[int, ...], tuple[str, ...]] = {}  # those that were begun, with their folders
        self._written: dict[tuple[str, ...], bytes] = {}
        self._is_unsure = False  # who wrote the attributes of members and root may have died, or failed, in between
        self._listed: ArraySpec | None = None  # what the XML file lists
        self._is_settled = False  # it was complete, and nothing was stored since
        self._numbering = numbering_of(options.layout, levels[0].axes, levels[0].shape)
        self._documents = self._make_documents(complete=False)
        leading = folder_axes(options.layout, levels[0].axes)
        self._headers = [make_header(level.chunk_shape[leading:]) for level in levels]

    def begin(self) -> None:
        """Make the container, or go on with the one that is there. Raises DatasetExists if that holds other data."""
        self._is_settled = self._take_over()
        self._documents = self._make_documents(complete=False)
        self._tree.folder(())
        for member in members(self._options.layout, self._levels[0].axes, self._levels[0].shape):
            parts = self._documents.of_member(self._group_folder(member))[-1][0]  # what is written last
            if parts and self._folder.joinpath(*parts, ATTRIBUTES_NAME).exists():
                self._members[member] = self._group_folder(member)
        self._is_unsure = bool(self._members)
        if self._is_settled:
            return  # it stays so until something is stored
        self._begin_member((0,) * folder_axes(self._options.layout, self._levels[0].axes))  # so that it can be opened
        self._write_root()

    def encode(self, level: int, position: Position, chunk: NDArray[np.generic]) -> Encoded:
        """See ChunkWriter. Chunks in big-endian are not copied."""
        spec = self._levels[level]
        if chunk.shape != spec.chunk_shape:
            raise ValueError(f"a chunk of shape {chunk.shape} at {position} of level {level}, not {spec.chunk_shape}")
        return self._headers[level], memoryview(
            self._options.compression.encode(encode_items(chunk), spec.dtype.itemsize)
        )

    def store(self, level: int, position: Position, encoded: Encoded) -> None:
        """See ChunkWriter."""
        self._is_settled = False
        leading = folder_axes(self._options.layout, self._levels[level].axes)
        group = self._begin_member(position[:leading])
        *folders, name = [str(index) for index in reversed(position[leading:])]
        self._tree.put(self._tree.folder((*group, level_folder(level), *folders)), name, encoded)

    def grow(self, level: int, shape: tuple[int, ...]) -> None:
        """See ChunkWriter. Raises ConfigError for an axis that cannot grow in this layout."""
        with self._lock:
            spec = self._levels[level]
            grown = tuple(max(before, after) for before, after in zip(spec.shape, shape, strict=True))
            self._check_inside(spec.shape, grown)
            if grown != spec.shape or self._is_unsure:
                self._levels[level] = replace(spec, shape=grown)
                self._write_documents(complete=False)

    def set_space(self, levels: Sequence[ArraySpec]) -> None:
        """See SpaceWriter. The XML file is brought up to date at once; that of a complete container stays."""
        with self._lock:
            before = self._levels
            self._levels = [level.with_space(other) for level, other in zip(before, levels, strict=True)]
            if self._levels != before and not self._is_settled:
                self._write_documents(complete=False)

    def sync(self) -> None:
        """See ChunkWriter. Brings the XML file up to date, too."""
        self._tree.sync()
        with self._lock:
            self._write_xml(most_behind=0)

    def finish(self, levels: Sequence[ArraySpec]) -> None:
        """See ChunkWriter."""
        with self._lock:
            self._levels = [
                replace(level.with_space(final), shape=final.shape, labels=final.labels, attributes=final.attributes)
                for level, final in zip(self._levels, levels, strict=True)
            ]
            self._write_documents(complete=self._is_settled)
        for member in members(self._options.layout, levels[0].axes, levels[0].shape):
            self._begin_member(member)
        self._tree.sync()
        with self._lock:
            self._write_documents(complete=True)

    def close(self) -> None:
        """No file is kept open."""

    def _check_inside(self, shape: Sequence[int], grown: Sequence[int]) -> None:
        """Whether the first axes may get as long as that. Raises ConfigError."""
        axes, layout = self._levels[0].axes, self._options.layout
        if has_too_many(layout, axes, grown):
            raise ConfigError(too_many_text(layout))
        for axis, (before, after) in enumerate(zip(shape, grown, strict=False)):
            if after > before and not may_grow(layout, axes, axis, self._numbering):
                text = f"N5 layout {layout} cannot get longer along {axes[axis]!r}: it was declared with {before}"
                raise ConfigError(f"{text}, and setups are numbered by that. Made again afterwards the mirror has all")

    def _make_documents(self, *, complete: bool) -> Documents:
        return make_documents(self._levels, self._options, self._numbering, complete=complete)

    def _group_folder(self, member: Sequence[int]) -> tuple[str, ...]:
        full = self._levels[0]
        return group_folder(self._options.layout, full.axes, full.shape, member, self._numbering)

    def _begin_member(self, member: tuple[int, ...]) -> tuple[str, ...]:
        """The folders of a member; its attributes are there when this returns."""
        with self._lock:
            group = self._members.get(member)
            if group is None:
                shape = self._levels[0].shape
                self._check_inside(shape, [max(size, at + 1) for size, at in zip(shape, member, strict=False)])
                group = self._group_folder(member)
                self._write_member(group)
                self._members[member] = group
        return group

    def _write_documents(self, *, complete: bool) -> None:
        before, self._documents = self._documents, self._make_documents(complete=complete)
        is_unsure, self._is_unsure = self._is_unsure, True
        if is_unsure or before.datasets != self._documents.datasets:
            for group in self._members.values():
                self._write_member(group)
        if is_unsure or before.root != self._documents.root:
            self._write_root()
        self._is_unsure = False

    def _write_member(self, group: tuple[str, ...]) -> None:
        for parts, content in self._documents.of_member(group):
            if self._written.get(parts) != content:
                self._tree.put_new(self._tree.folder(parts), ATTRIBUTES_NAME, content)
                self._written[parts] = content

    def _write_root(self) -> None:
        ensure_file(self._disk, str(self._folder / ATTRIBUTES_NAME), self._documents.root)
        # The file lists every view: written at each time point, it would cost more the longer it gets.
        self._write_xml(most_behind=self._levels[0].shape[0] // _XML_BEHIND)

    def _write_xml(self, most_behind: int) -> None:
        """Unless there is none in this layout, or it is behind by no more than so many positions of the first axis."""
        full = self._levels[0]
        listed = self._listed
        if self._options.layout != "bdv" or listed == full:
            return
        if self._is_settled and xml_path(self._folder).exists():
            return  # programs note in it how the views are registered
        is_longer = listed is not None and replace(listed, shape=(full.shape[0], *listed.shape[1:])) == full
        if listed is not None and is_longer and 0 < full.shape[0] - listed.shape[0] <= most_behind:
            return
        self._write_setups(full)
        ensure_file(self._disk, str(xml_path(self._folder)), make_xml(full, self._folder.name, self._numbering))
        self._listed = full

    def _write_setups(self, full: ArraySpec) -> None:
        """BigDataViewer looks into the folder of every setup that the XML file lists."""
        shape = [1 if axis == TIME else size for axis, size in zip(full.axes, full.shape, strict=True)]
        for member in members(self._options.layout, full.axes, shape):
            parts = self._group_folder(member)[:1]
            if self._written.get(parts) != self._documents.setup:
                self._tree.put_new(self._tree.folder(parts), ATTRIBUTES_NAME, self._documents.setup)
                self._written[parts] = self._documents.setup

    def _take_over(self) -> bool:
        """Look at the container that is there: it must be ours and of this kind; it may have grown further.

        Whether it is complete.
        """
        attributes = read_attributes(self._folder)
        if attributes is None:
            if self._folder.is_dir() and any(self._folder.iterdir()):
                raise DatasetExists(f"{self._folder}: is there, and no N5 container of ours")
            return False
        found = notes.parse_notes(attributes)
        full = self._levels[0]
        if found is None or (found.layout, found.axes) != (self._options.layout, full.axes):
            text = f"no N5 container of ours with layout {self._options.layout} and axes {full.axes}"
            raise DatasetExists(f"{self._folder}: is there, and {text}")
        self._check_blocks(found)
        self._numbering = found.numbering
        for number, level in enumerate(self._levels):
            there = reduced_shape(found.shape, level.factors)
            shape = there if found.complete else tuple(map(max, there, level.shape))
            self._levels[number] = replace(level, shape=shape)
        return found.complete

    def _check_blocks(self, found: notes.Notes) -> None:
        """Whether the first member's blocks are cut and encoded as ours will be. Raises DatasetExists."""
        leading = folder_axes(found.layout, found.axes)
        group = group_folder(found.layout, found.axes, found.shape, (0,) * leading)
        for number, level in enumerate(self._levels):
            folder = self._folder.joinpath(*group, level_folder(number))
            attributes = read_attributes(folder)
            if attributes is None or not is_dataset(attributes):
                continue
            there = parse_dataset(attributes, folder)
            here = (level.chunk_shape[leading:], level.dtype)
            if (there.chunk_shape, there.dtype) != here or attributes[
                "compression"
            ] != self._options.compression.to_json():
                text = (
                    f"blocks of {there.chunk_shape} of {there.dtype}, {attributes['compression']}, expected {here[0]}"
                )
                raise DatasetExists(f"{folder}: holds {text} of {here[1]}, {self._options.compression.to_json()}")


def create(folder: Path, levels: Sequence[ArraySpec], options: N5Options, disk: Disk) -> N5Writer:
    """A writer of the container at `folder`, which is made or gone on with. levels are those of `plan`.

    Raises DatasetExists if something else is there, CorruptDataset if its attributes are damaged, StorageError.
    """
    writer = N5Writer(folder, levels, options, disk)
    writer.begin()
    return writer
