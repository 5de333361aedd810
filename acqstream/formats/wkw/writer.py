"""An array written into WKW cubes, as webKNOSSOS datasets.

What is written in which order: cubes, forced; headers of new folders; `datasource-properties.json` of each dataset that
changed; `acqstream-array.json`. So each of them speaks only of what is there.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from acqstream.errors import DatasetExists
from acqstream.formats.chunk_format import ArraySpec, Encoded, Position
from acqstream.formats.wkw.array_file import ARRAY_NAME, StoredArray, encode_array, read_array
from acqstream.formats.wkw.axis_roles import CHANNEL, axis_roles, layer_names
from acqstream.formats.wkw.block_order import BlockOrder, block_order
from acqstream.formats.wkw.cube_paths import Cube, cube_path
from acqstream.formats.wkw.datasets import cube_folder, dataset_properties
from acqstream.formats.wkw.datasource import PROPERTIES_NAME, encode_properties
from acqstream.formats.wkw.encoding import encode_compressed, encode_raw, raw_memory_bytes, raw_runs
from acqstream.formats.wkw.header import HEADER_NAME, BlockType
from acqstream.formats.wkw.options import WkwOptions, header_for
from acqstream.formats.wkw.raw_cubes import RawCubes
from acqstream.storage.atomic import TEMPORARY_SUFFIX
from acqstream.storage.block_file import BlockMemory
from acqstream.storage.disk import Disk
from acqstream.storage.folder_tree import FolderTree

_KEPT_RUNS = 4  # when nobody uses them: as many as a mirror has threads


class WkwWriter:
    """A ChunkWriter; `create_writer` makes one."""

    def __init__(self, container: Path, levels: Sequence[ArraySpec], options: WkwOptions, disk: Disk) -> None:
        self._container = container
        self._header = header_for(levels[0], options)
        self._tree = FolderTree(str(container.absolute()), disk)
        self._raw = RawCubes(self._tree, self._header, disk)
        # of runs of blocks on their way; new pages would cost as much as the copying
        self._memory = BlockMemory(raw_memory_bytes(self._header), _KEPT_RUNS)
        self._syncing = threading.Lock()
        self._lock = threading.Lock()  # for all that follows
        channels = axis_roles(levels[0].axes).layers(levels[0].shape)
        names = layer_names(levels[0].labels, max(channels, len(levels[0].labels.get(CHANNEL, ()))))
        self._array = StoredArray(tuple(levels), names, self._header, complete=False)
        self._headers: set[tuple[int, tuple[int, ...], int]] = set()  # level, dataset and layer of those written
        self._published: dict[tuple[int, ...], object] = {}  # by dataset: what its properties were made from

    def begin(self) -> None:
        """Make the container, or go on with the one that is there. Raises DatasetExists if that holds other data."""
        found = self._find()
        if found is None:
            depth = self._array.roles.depth
            nothing = [(*level.shape[:depth], 0, *level.shape[depth + 1 :]) for level in self._array.levels]
            self._write_array(self._array.with_shapes(nothing))
        else:
            pairs = zip(found.levels, self._array.levels, strict=True)
            shapes = [tuple(map(max, there.shape, here.shape)) for there, here in pairs]
            self._array = replace(self._array, layers=found.layers).with_shapes(shapes)
        self._publish(self._array)

    def encode(self, level: int, position: Position, chunk: NDArray[np.generic]) -> Encoded:
        """See ChunkWriter."""
        expected = self._array.levels[level].chunk_shape
        if chunk.shape != expected:
            raise ValueError(f"a chunk of shape {chunk.shape} at {position} of level {level}, not {expected}")
        voxels = self._array.roles.as_voxels(chunk)
        if self._header.block_type is BlockType.RAW:
            return [encode_raw(voxels)]  # its blocks are gathered when they are written
        return encode_compressed(voxels, self._header)

    def store(self, level: int, position: Position, encoded: Encoded) -> None:
        """See ChunkWriter."""
        place = self._array.roles.place(position)
        parts = cube_folder(self._array, level, place.dataset, place.layer)
        if self._header.block_type is not BlockType.RAW:
            *folders, name = cube_path(place.voxel).split("/")
            self._tree.put(self._tree.folder((*parts, *folders)), name, encoded)
            return
        cube, order = self._raw_place(level, position)
        *folders, name = cube_path(cube).split("/")
        memory = self._memory.take(raw_memory_bytes(self._header))
        chunk_shape = self._array.levels[level].chunk_shape
        shape = (*self._array.roles.extent(chunk_shape), *self._header.block_shape[3:])
        runs = raw_runs(encoded[0], shape, self._header, order, memory)
        self._raw.write(self._tree.folder((*parts, *folders)), name, runs)

    def grow(self, level: int, shape: tuple[int, ...]) -> None:
        """See ChunkWriter."""
        with self._lock:
            shapes = [known.shape for known in self._array.levels]
            shapes[level] = tuple(map(max, shapes[level], shape))
            self._publish(self._array.with_shapes(shapes))

    def sync(self) -> None:
        """See ChunkWriter."""
        with self._syncing:  # who comes second waits until the first is done
            self._raw.sync()
            self._tree.sync()

    def finish(self, levels: Sequence[ArraySpec]) -> None:
        """See ChunkWriter."""
        with self._lock:
            described = [
                replace(known, labels=final.labels, attributes=final.attributes)
                for known, final in zip(self._array.levels, levels, strict=True)
            ]
            array = replace(self._array, levels=tuple(described))
            self._publish(array.with_shapes([final.shape for final in levels], complete=True))

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

    def _publish(self, array: StoredArray) -> None:
        """Make everything on disk say what `array` says."""
        self.sync()
        roles, shape = array.roles, array.visible_shape()
        for level, spec in enumerate(array.levels):
            for dataset in roles.datasets(spec.shape):
                for layer in range(roles.layers(spec.shape)):
                    if (level, dataset, layer) not in self._headers:
                        self._put(cube_folder(array, level, dataset, layer), HEADER_NAME, self._header.encode(0))
                        self._headers.add((level, dataset, layer))
        datasets = list(roles.datasets(shape)) if 0 not in shape else []
        made_from = (roles.extent(shape), roles.layers(shape))
        for dataset in datasets:
            if self._published.get(dataset) != made_from:
                content = encode_properties(dataset_properties(array, dataset, self._container.name))
                self._put(_parts(roles.folder(dataset)), PROPERTIES_NAME, content)
                self._published[dataset] = made_from
        self.sync()
        for dataset in self._published.keys() - set(datasets):  # they were announced, and will not come
            self._tree.remove(self._tree.folder(_parts(roles.folder(dataset))), PROPERTIES_NAME)
            del self._published[dataset]
        self._write_array(array)
        self._array = array

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

    def _put(self, folder: tuple[str, ...], name: str, content: bytes) -> None:
        self._tree.put(self._tree.folder(folder), name, [content])


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
