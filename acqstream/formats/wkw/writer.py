"""An array written into WKW cubes, as webKNOSSOS datasets.

What is written in which order: the header of a new folder; cubes, forced; `acqstream-stored.json` and
`datasource-properties.json` of each dataset that changed; `acqstream-array.json`. So each of them speaks only of what
is there: the bounding box is the watermark for other software that looks on, `acqstream-stored.json` that for ours.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.errors import ConfigError, DatasetExists
from acqstream.formats.chunk_layout import Encoded
from acqstream.formats.wkw.array_file import ARRAY_NAME, StoredArray, encode_array, read_array
from acqstream.formats.wkw.axis_roles import CHANNEL, axis_roles, layer_names
from acqstream.formats.wkw.block_order import BlockOrder, block_order
from acqstream.formats.wkw.cube_paths import Cube, cube_path
from acqstream.formats.wkw.datasets import cube_folder, dataset_properties, whole_depths
from acqstream.formats.wkw.datasource import PROPERTIES_NAME, encode_properties
from acqstream.formats.wkw.encoding import encode_compressed, encode_raw, raw_runs
from acqstream.formats.wkw.header import HEADER_NAME, BlockType
from acqstream.formats.wkw.options import WkwOptions, header_for
from acqstream.formats.wkw.raw_cubes import RawCubes
from acqstream.formats.wkw.watermark import STORED_NAME, Dataset, Rows, Watermarks, encode_rows, read_depths
from acqstream.storage.atomic import TEMPORARY_SUFFIX
from acqstream.storage.disk import Disk
from acqstream.storage.folder_tree import FolderTree

_MOST_KNOWN = 100_000  # files that need not be written again


class WkwWriter:
    """A ChunkWriter; `create_writer` makes one."""

    def __init__(self, container: Path, levels: Sequence[ArraySpec], options: WkwOptions, disk: Disk) -> None:
        self._container = container
        self._header = header_for(levels[0], options)
        self._tree = FolderTree(str(container.absolute()), disk)
        self._raw = RawCubes(self._tree, self._header, disk)
        self._lock = threading.RLock()  # who comes second waits until the first is done; for `_array` and `_published`
        channels = axis_roles(levels[0].axes).layers(levels[0].shape)
        names = layer_names(levels[0].labels, max(channels, len(levels[0].labels.get(CHANNEL, ()))))
        self._array = StoredArray(tuple(levels), names, self._header, complete=False)
        self._published: dict[Dataset, tuple[int, ...]] = {}  # depths of the layers that its properties tell
        self._headers_lock = threading.Lock()
        self._headers: set[tuple[int, Dataset, int]] = set()  # level, dataset and layer of those written
        depth = self._array.roles.depth
        self._row_depths = [level.chunk_shape[depth] for level in levels]
        row_chunks = [math.prod(level.grid_shape[depth + 1 :]) for level in levels]
        self._marks = Watermarks(row_chunks, self._rows_there)
        self._has_begun = False

    def begin(self) -> None:
        """Make the container, or go on with the one that is there. Raises DatasetExists if that holds other data."""
        self._has_begun = True
        found = self._find()
        if found is not None:
            shapes = [level.shape for level in found.levels]
            if not found.complete:
                ours = [level.shape for level in self._array.levels]
                shapes = [tuple(map(max, *pair)) for pair in zip(shapes, ours, strict=True)]
            self._array = replace(self._array, layers=found.layers).with_shapes(shapes, complete=found.complete)
        if not self._array.complete:  # else it stays so until it grows: the same chunks may be stored again
            self._write_array(self._array)

    def encode(self, level: int, position: Position, chunk: NDArray[np.generic]) -> Encoded:
        """See ChunkWriter."""
        expected = self._array.levels[level].memory_shape
        if chunk.shape != expected:
            raise ValueError(f"a chunk of shape {chunk.shape} at {position} of level {level}, not {expected}")
        if self._header.block_type is BlockType.RAW:
            return [encode_raw(chunk)]
        return encode_compressed(chunk, self._header)

    def store(self, level: int, position: Position, encoded: Encoded) -> None:
        """See ChunkWriter."""
        place = self._array.roles.place(position)
        parts = self._need_header(level, place.dataset, place.layer)
        self._marks.begin(level, place)
        if self._header.block_type is BlockType.RAW:
            cube, order = self._raw_place(level, position)
            *folders, name = cube_path(cube).split("/")
            counts = self._array.roles.extent(self._array.levels[level].memory_shape)
            runs = raw_runs(encoded[0], counts, self._header, order)
            self._raw.write(self._tree.folder((*parts, *folders)), name, runs)
        else:
            *folders, name = cube_path(place.voxel).split("/")
            self._tree.put(self._tree.folder((*parts, *folders)), name, encoded)
        self._marks.end(level, place)

    def grow(self, level: int, shape: tuple[int, ...]) -> None:
        """See ChunkWriter."""
        with self._lock:
            shapes = [known.shape for known in self._array.levels]
            shapes[level] = tuple(map(max, shapes[level], shape))
            if self._array.roles.has_too_many(shapes[level]):
                raise ConfigError(f"WKW: {self._array.levels[0].axes} of {shape} are more than a million layers")
            array, rows = self._array.with_shapes(shapes), self._marks.all()
            if self._array.complete:
                for dataset in array.roles.datasets(self._array.levels[0].shape):
                    self._put_stored(dataset, self._all_rows())
            self._sync(array)
            self._announce(array, rows)
            self._write_array(array)

    def set_space(self, levels: Sequence[ArraySpec]) -> None:
        """See SpaceWriter. Datasets that an earlier process announced tell of it with their next planes."""
        with self._lock:
            moved = tuple(known.with_space(new) for known, new in zip(self._array.levels, levels, strict=True))
            if moved == self._array.levels or self._array.complete:
                return
            array, published = replace(self._array, levels=moved), dict(self._published)
            before = tuple(known.with_values(new) for known, new in zip(self._array.levels, moved, strict=True))
            if moved != before:  # values of places alone are no part of the properties
                self._published.clear()
                for dataset, depths in published.items():
                    self._put_properties(array, dataset, depths)
            self._write_array(array)

    def sync(self) -> None:
        """See ChunkWriter. Datasets of which more is whole are announced so, by the process that has begun."""
        with self._lock:
            if self._has_begun:
                self._sync(self._array)
            else:  # one of several, each with other rows: none of them knows what is whole
                self._force()

    def finish(self, levels: Sequence[ArraySpec]) -> None:
        """See ChunkWriter."""
        with self._lock:
            before = self._array
            described = [
                replace(known.with_space(final), labels=final.labels, attributes=final.attributes)
                for known, final in zip(before.levels, levels, strict=True)
            ]
            array = replace(before, levels=tuple(described))
            array = array.with_shapes([final.shape for final in levels], complete=True)
            self._published.clear()  # they may tell another voxel size
            self._force()
            self._announce_all(array, before)
            self._write_array(array)
            for dataset in before.roles.datasets(before.levels[0].shape):
                self._remove(dataset, STORED_NAME)
            self._tree.sync()

    def close(self) -> None:
        """No file is kept open."""

    def _find(self) -> StoredArray | None:
        """The array that is in the container: the same as ours; None in an empty one."""
        if not (self._container / ARRAY_NAME).exists():
            names = [entry.name for entry in self._container.iterdir()] if self._container.is_dir() else []
            if not all(name.endswith(TEMPORARY_SUFFIX) for name in names):  # left by a crash in the first moment
                raise DatasetExists(f"{self._container}: is there, and no WKW container of ours")
            return None
        found = read_array(self._container)
        if differences := list(_differences(found, self._array)):
            raise DatasetExists(f"{self._container}: is there, with {'; '.join(differences)}")
        return found

    def _rows_there(self, dataset: Dataset) -> Rows:
        """What an earlier process has announced of a dataset."""
        if self._array.complete:
            return self._all_rows()
        folder = self._container.joinpath(*_parts(self._array.roles.folder(dataset)))
        depths, sizes = read_depths(folder / STORED_NAME) or {}, dict(enumerate(self._row_depths))
        return {key: depth // sizes[key[0]] for key, depth in depths.items() if key[0] in sizes}

    def _all_rows(self) -> Rows:
        """Of a dataset of which everything is there."""
        roles = self._array.roles
        return {
            (level, layer): spec.grid_shape[roles.depth]
            for level, spec in enumerate(self._array.levels)
            for layer in range(roles.layers(spec.shape))
        }

    def _force(self) -> None:
        self._raw.sync()
        self._tree.sync()

    def _sync(self, array: StoredArray) -> None:
        raised = self._marks.take_raised()  # before: more may be stored meanwhile
        try:
            self._force()
            for dataset, rows in raised.items():
                self._put_stored(dataset, rows)
            self._announce(array, raised)
        except BaseException:
            self._marks.put_back(raised)
            raise

    def _announce(self, array: StoredArray, datasets: Mapping[Dataset, Rows]) -> None:
        """Tell in the properties of these datasets how much is whole; it is forced already."""
        roles, shape = array.roles, array.visible_shape()
        ends = [shape[axis] for axis in roles.folders]
        for dataset, rows in datasets.items():
            depths = whole_depths(array, rows)
            if any(depths) and all(at < end for at, end in zip(dataset, ends, strict=True)):
                self._put_properties(array, dataset, depths)
        self._tree.sync()

    def _announce_all(self, array: StoredArray, before: StoredArray) -> None:
        """Tell of every dataset that all of it is there; what was not stored is zeros. Those that could have been
        announced before, and will not come, are taken back.
        """
        roles, shape = array.roles, array.visible_shape()
        there = set() if 0 in shape else set(roles.datasets(shape))
        for dataset in there:
            self._put_properties(array, dataset, (shape[roles.depth],) * roles.layers(shape))
        self._tree.sync()
        for dataset in roles.datasets(before.levels[0].shape):
            if dataset not in there:
                self._remove(dataset, PROPERTIES_NAME)

    def _need_header(self, level: int, dataset: Dataset, layer: int) -> tuple[str, ...]:
        """The folder of the cubes of one level of one layer, with its header."""
        folder = cube_folder(self._array, level, dataset, layer)
        with self._headers_lock:
            if (level, dataset, layer) not in self._headers:
                if len(self._headers) >= _MOST_KNOWN:
                    self._headers.clear()
                self._put(folder, HEADER_NAME, self._header.encode(0))
                self._headers.add((level, dataset, layer))
        return folder

    def _put_stored(self, dataset: Dataset, rows: Rows) -> None:
        self._put(_parts(self._array.roles.folder(dataset)), STORED_NAME, encode_rows(rows, self._row_depths))

    def _put_properties(self, array: StoredArray, dataset: Dataset, depths: tuple[int, ...]) -> None:
        if self._published.get(dataset) != depths:
            properties = dataset_properties(array, dataset, self._container.name, depths)
            for level in range(len(array.levels)):  # every level of what it names has its header
                for layer, depth in enumerate(depths):
                    if depth:
                        self._need_header(level, dataset, layer)
            self._put(_parts(array.roles.folder(dataset)), PROPERTIES_NAME, encode_properties(properties))
            if len(self._published) >= _MOST_KNOWN:
                self._published.clear()
            self._published[dataset] = depths

    def _remove(self, dataset: Dataset, name: str) -> None:
        self._tree.remove("/".join((self._tree.root, *_parts(self._array.roles.folder(dataset)))), name)

    def _raw_place(self, level: int, position: Position) -> tuple[Cube, BlockOrder]:
        """The cube of a raw chunk, and the order of its blocks; those wholly beyond the plane are left out."""
        spec, header, roles = self._array.levels[level], self._header, self._array.roles
        extents = zip(
            roles.extent(position), roles.extent(spec.chunk_shape), (None, *roles.extent(spec.shape)[1:]), strict=True
        )
        cube, first, counts = [], [], []
        for at, size, end in extents:
            start, count = at * size // header.block_side, size // header.block_side
            if end is not None:
                count = min(count, -(-end // header.block_side) - start)
            cube.append(start // header.cube_blocks)
            first.append(start % header.cube_blocks)
            counts.append(count)
        return _three(cube), block_order(_three(first), _three(counts))

    def _write_array(self, array: StoredArray) -> None:
        self._put((), ARRAY_NAME, encode_array(array))
        self._tree.sync()
        self._array = array

    def _put(self, folder: tuple[str, ...], name: str, content: bytes) -> None:
        self._tree.put_new(self._tree.folder(folder), name, content)


def create_writer(container: Path, levels: Sequence[ArraySpec], options: WkwOptions, disk: Disk) -> WkwWriter:
    """A writer of the container, which is made or gone on with. levels are those of `plan_levels`.

    Raises DatasetExists if something else is there, CorruptDataset if what tells of it is damaged, StorageError.
    """
    writer = WkwWriter(container, levels, options, disk)
    writer.begin()
    return writer


def _differences(found: StoredArray, ours: StoredArray) -> Iterator[str]:
    """Why the array that is there cannot be gone on with as ours."""
    there, here = found.levels[0], ours.levels[0]
    if (there.axes, found.header) != (here.axes, ours.header):
        yield f"axes {there.axes} in {found.header}, expected {here.axes} in {ours.header}"
        return
    factors = [level.factors for level in found.levels], [level.factors for level in ours.levels]
    if factors[0] != factors[1]:
        yield f"levels {factors[0]}, expected {factors[1]}"
    planes = [array.roles.extent(array.levels[0].shape)[1:] for array in (found, ours)]
    if 0 not in planes[0] and planes[0] != planes[1]:
        yield f"planes of {planes[0]} pixels, expected {planes[1]}"


def _parts(folder: str) -> tuple[str, ...]:
    return (folder,) if folder else ()


def _three(items: list[int]) -> tuple[int, int, int]:
    z, y, x = items
    return z, y, x
