"""Reads one level of an array in an N5 container, block by block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.errors import CorruptDataset, DatasetError, FileMissing
from acqstream.formats.n5.attributes import DatasetAttributes, is_dataset, parse_dataset
from acqstream.formats.n5.codec import BlockHeader, decode_block, max_file_bytes, parse_header
from acqstream.formats.n5.folders import (
    attributes_path,
    below,
    container_of,
    read_attributes,
    readable_attributes,
    upwards,
)
from acqstream.formats.n5.groups import FoundArray, find_array, several_arrays
from acqstream.formats.n5.space import Attributes, read_space
from acqstream.storage.files.boundary import Boundary
from acqstream.storage.stores.data_path import ReadPlace

_HEADER_BYTES = 512  # more than any header has


class N5Array:
    """A ChunkArrayReader. One dataset, or several of the same kind, by their position along the first axes.

    path is the folder that was opened; fallback holds what is known of it besides, as attributes of a group. No file is
    kept open, and the array may be sent to another process.
    """

    def __init__(self, path: ReadPlace, level: int, fallback: Attributes, boundary: Boundary | None = None) -> None:
        self.path = path
        self._level = level
        self._fallback = fallback
        self._boundary = boundary_of(path) if boundary is None else boundary
        self.refresh()

    def refresh(self) -> None:
        """See ChunkArrayReader. Raises DatasetError if the array no longer exists or is no longer a single one.

        Then, and for who reads meanwhile, all is as it was.
        """
        with self._boundary.inside():
            self._refresh()

    def _refresh(self) -> None:
        found = find_array(self.path)
        if self._level not in found.levels:
            raise DatasetError(f"{self.path}: level {self._level} no longer exists")
        folder = _level_folder(found.first, found.levels[self._level])
        attributes = _dataset_attributes(folder)
        own = parse_dataset(attributes, attributes_path(folder))
        if found.notes is None:
            self._check_members(found, own)
        spec = self._make_spec(found, own, attributes)
        self._found, self._attributes, self.complete, self.spec = found, own, found.complete, spec

    @property
    def attributes(self) -> DatasetAttributes:
        """The mandatory attributes of its datasets, as last read."""
        return self._attributes

    def read_chunk(self, position: Position) -> NDArray[np.generic] | None:
        """See ChunkArrayReader."""
        path = self.block_path(position)
        if path is None:
            return None
        try:
            with self._boundary.inside():
                file = path.open()
        except FileMissing:
            return None
        try:
            size, most = file.size(), max_file_bytes(self._attributes)
            if size > most:
                raise CorruptDataset(f"has {size} bytes, a block at most {most}", path=str(path), offset=most)
            data = file.read(0, size)
        finally:
            file.close()
        crop = tuple(part.stop - part.start for part in self.spec.region(position))
        leading = len(self._found.groups.axes)
        return decode_block(data, self._attributes, crop[leading:], str(path)).reshape(crop)

    def read_header(self, path: ReadPlace) -> BlockHeader:
        """The header of a block file. Raises as `read_chunk`."""
        with self._boundary.inside():
            file = path.open()
        try:
            return parse_header(file.read(0, _HEADER_BYTES), self._attributes, str(path))
        finally:
            file.close()

    def block_path(self, position: Position) -> ReadPlace | None:
        """Of a block file: the folder of its dataset, and its position there, x first; None without such a dataset."""
        grid = self.spec.grid_shape
        if len(position) != len(grid) or not all(0 <= at < size for at, size in zip(position, grid, strict=True)):
            raise IndexError(f"{self.path}: no chunk {position} in a grid of {grid}")
        leading = len(self._found.groups.axes)
        folder = self._dataset_folder(position[:leading])
        return None if folder is None else below(folder, map(str, reversed(position[leading:])))

    def stored(self) -> Iterator[Position]:
        """See ChunkArrayReader."""
        grid = self.spec.grid_shape
        for position in self.block_files():
            if all(at < size for at, size in zip(position, grid, strict=True)):
                yield position

    def block_files(self) -> Iterator[Position]:
        """Positions of all files that have the name of a block, also outside the grid."""
        ndim = len(self._attributes.dimensions)
        for member in self._found.groups.positions():
            folder = self._dataset_folder(member)
            stack: list[tuple[ReadPlace, tuple[int, ...]]] = [] if folder is None else [(folder, ())]
            while stack:
                place, above = stack.pop()
                for number in _numbers_in(place):
                    if len(above) + 1 < ndim:
                        stack.append((place / str(number), (number, *above)))
                    else:
                        yield (*member, number, *above)

    def close(self) -> None:
        """No file is kept open."""

    def _dataset_folder(self, member: Position) -> ReadPlace | None:
        return self._folder_in(self._found, member)

    def _folder_in(self, found: FoundArray, member: Position) -> ReadPlace | None:
        group = found.groups.get(member)
        return None if group is None else _level_folder(group, found.levels[self._level])

    def _check_members(self, found: FoundArray, own: DatasetAttributes) -> None:
        """Check that all datasets of this level are of one kind. Raises DatasetError that lists them."""
        for member in found.groups.positions():
            folder = self._folder_in(found, member)
            if folder is not None and parse_dataset(_dataset_attributes(folder), attributes_path(folder)) != own:
                raise several_arrays(self.path)

    def _make_spec(self, found: FoundArray, own: DatasetAttributes, attributes: dict[str, Any]) -> ArraySpec:
        """Spec of the array, from the attributes of its first dataset."""
        above = (*_attributes_above(_level_folder(found.first, found.levels[self._level])), self._fallback)
        space = read_space(attributes, above, len(own.dimensions), self._level)
        leading = found.groups.axes
        ones = (1,) * len(leading)
        spec = ArraySpec(
            axes=(*leading, *space.axes),
            shape=(*found.groups.shape, *own.shape),
            dtype=own.dtype,
            chunk_shape=(*ones, *own.chunk_shape),
            factors=(*ones, *space.factors),
            scale=(*map(float, ones), *space.scale),
            units=(*("" for _ in leading), *space.units),
            translation=(*(0.0 for _ in leading), *space.translation),
            attributes=attributes,
        )
        return spec if found.notes is None else _with_notes(spec, found)


def open_levels(path: ReadPlace, fallback: Attributes) -> list[N5Array]:
    """The levels of the array that a folder of a container means. Raises DatasetError and what belongs to it."""
    boundary = boundary_of(path)
    with boundary.inside():
        levels = list(find_array(path).levels)
    return [N5Array(path, level, fallback, boundary) for level in levels]


def boundary_of(folder: ReadPlace) -> Boundary:
    """Around the container that a folder lies in."""
    return container_of(folder).boundary()


def _with_notes(spec: ArraySpec, found: FoundArray) -> ArraySpec:
    """The same with what our writer has noted: names, sizes and places along all axes."""
    notes = found.notes
    if notes is None or len(notes.axes) != len(spec.axes):
        return spec
    return replace(
        notes.full.reduced(spec.factors),
        shape=spec.shape,
        dtype=spec.dtype,
        chunk_shape=spec.chunk_shape,
        block_shape=spec.block_shape,
        shard_shape=spec.shard_shape,
    )


def _level_folder(group: ReadPlace, name: str) -> ReadPlace:
    return group / name if name else group


def _dataset_attributes(folder: ReadPlace) -> dict[str, Any]:
    attributes = read_attributes(folder)
    if attributes is None or not is_dataset(attributes):
        raise DatasetError(f"{folder}: no N5 dataset here")
    return attributes


def _attributes_above(folder: ReadPlace) -> list[Attributes]:
    """Those of the folders above a dataset, up to the container, nearest first."""
    container, own = container_of(folder).absolute(), folder.absolute()
    found: list[Attributes] = []
    for place in upwards(folder):
        if place != own:
            found.append(readable_attributes(place) or {})
        if place == container:
            break
    return found


def _numbers_in(folder: ReadPlace) -> Iterator[int]:
    """Items with the name of a block, or of a folder of blocks, a plain decimal."""
    try:
        names = folder.names()
    except FileMissing:
        return  # not there, or a file where a folder would be: no block
    for name in names:
        if name.isascii() and name.isdecimal() and (name == "0" or not name.startswith("0")) and len(name) < 20:
            yield int(name)
