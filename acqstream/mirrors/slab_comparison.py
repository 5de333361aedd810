"""Compares slabs in the files with their frames, and the picture of a mosaic with its tiles."""

from __future__ import annotations

import itertools
import os
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import Position
from acqstream.errors import CorruptDataset
from acqstream.formats.chunk_reader import ChunkReader
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.frames.frame_indices import LogFrames
from acqstream.grid import kernels
from acqstream.mirrors.slab_grid import SlabGrid, slab_grids
from acqstream.model.axes import PICTURE_AXES

MAX_THREADS = 4


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """local is its position in the slab, region its place in the picture. items is None for a missing file, and empty
    for a chunk that cannot be decoded."""

    local: Position
    region: tuple[slice, ...]
    items: NDArray[Any] | None


@dataclass(frozen=True, slots=True)
class StoredSlab:
    """The chunks of a slab, read."""

    grid: SlabGrid
    chunks: Sequence[StoredChunk]

    def has(self, plane: int, frame: NDArray[Any]) -> bool:
        """Return whether that plane has this frame, whose axes are in the level's order."""
        grid = self.grid
        if (frame.shape, frame.dtype.newbyteorder("=")) != (grid.plane_shape, grid.spec.dtype):
            return False
        counts, inside = [0] * len(grid.counts), [0] * len(grid.counts)
        for axis, at in zip(grid.outer, grid.local(plane), strict=True):
            counts[axis], inside[axis] = divmod(at, grid.spec.chunk_shape[axis])
        index = tuple(inside[axis] if axis in grid.outer else slice(None) for axis in range(len(inside)))
        for chunk in self.chunks:
            if any(chunk.local[axis] != counts[axis] for axis in grid.outer):
                continue
            part = frame[chunk.region]
            if chunk.items is None:
                if part.any():  # a missing chunk reads as zeros
                    return False
            elif any(inside[axis] >= chunk.items.shape[axis] for axis in grid.outer):
                return False  # the array ends before
            elif not _is_equal(chunk.items[index], part):
                return False
        return True


def _is_equal(items: NDArray[Any], part: NDArray[Any]) -> bool:
    found = kernels.equal(items, part)
    return np.array_equal(items, part) if found is None else found


def compared_rows(
    reader: NDTiffReader, array: ChunkReader, frames: LogFrames, slabs: Mapping[Position, Mapping[int, int]]
) -> Iterator[tuple[int, bool]]:
    """Yield rows of the dataset, and whether the mirror has each. slabs: the rows to compare, by key and plane.

    Chunks are read and frames compared by several threads; one slab is in memory. Raises DatasetError and StorageError
    where frames or files cannot be read; a chunk that cannot be decoded counts as different.
    """
    (grid,) = slab_grids([array.spec])
    rows = np.array([row for planes in slabs.values() for row in planes.values()], np.int64)
    threads = min(MAX_THREADS, os.cpu_count() or 1)
    with (
        closing(reader.read_frames(rows)) as pixels,
        ThreadPoolExecutor(threads, thread_name_prefix="compare") as pool,
    ):
        for key, planes in slabs.items():
            slab = StoredSlab(grid, list(pool.map(partial(_read, array), grid.chunks(key))))
            under_way: deque[tuple[int, Future[bool]]] = deque()
            for plane, row in planes.items():
                frame = frames.plane(next(pixels)[1])
                under_way.append((row, pool.submit(slab.has, plane, frame)))
                if len(under_way) > threads:
                    first, is_equal = under_way.popleft()
                    yield first, is_equal.result()
            for last, is_equal in under_way:
                yield last, is_equal.result()
            del slab  # before the next one is read


def _read(array: ChunkReader, chunk: tuple[Position, Position, int]) -> StoredChunk:
    position, local, _ = chunk
    spec = array.spec
    region = tuple(part for part, name in zip(spec.region(position), spec.axes, strict=True) if name in PICTURE_AXES)
    if any(at >= size for at, size in zip(position, spec.grid_shape, strict=True)):
        return StoredChunk(local, region, None)
    try:
        return StoredChunk(local, region, array.read_chunk(position))
    except CorruptDataset:  # its frames count as different; `verify` reports the cause
        return StoredChunk(local, region, np.empty((0,) * len(spec.axes), spec.dtype))


KEPT_BYTES = 256 * 2**20  # of chunks: the tiles beside share them


def compared_tiles(
    reader: NDTiffReader, array: ChunkReader, frames: LogFrames, rows: Mapping[tuple[int, ...], int]
) -> Iterator[tuple[int, bool]]:
    """Yield rows of the dataset, and whether the mirror has each. rows: the one to compare at each place.

    A place ends with row and column of the tile. Raises DatasetError and StorageError where tiles or files cannot be
    read; a chunk that cannot be decoded counts as different.
    """
    chunks = _Chunks(array)
    for place, row in sorted(rows.items()):
        tile = frames.plane(reader.read_pixels(row))
        yield row, chunks.has(place, tile)


class _Chunks:
    """Chunks of a picture, of which the last ones stay in memory."""

    def __init__(self, array: ChunkReader) -> None:
        spec = array.spec
        self._array = array
        self._outer = [axis for axis, name in enumerate(spec.axes) if name not in PICTURE_AXES]
        self._picture = [axis for axis, name in enumerate(spec.axes) if name in PICTURE_AXES]
        self._most = max(1, KEPT_BYTES // max(1, spec.chunk_bytes))
        self._kept: OrderedDict[Position, NDArray[Any] | None] = OrderedDict()

    def has(self, place: Position, tile: NDArray[Any]) -> bool:
        """Return whether the picture has this tile. Its place ends with row and column."""
        spec = self._array.spec
        position, index = [0] * len(spec.axes), [slice(None)] * len(spec.axes)
        for axis, at in zip(self._outer, place[:-2], strict=True):
            position[axis], inside = divmod(at, spec.chunk_shape[axis])
            index[axis] = slice(inside, inside + 1)
        numbers_of = dict(zip((spec.axes.index("y"), spec.axes.index("x")), place[-2:], strict=True))
        starts = [numbers_of.get(axis, 0) * size for axis, size in zip(self._picture, tile.shape, strict=True)]
        ends = [start + size for start, size in zip(starts, tile.shape, strict=True)]
        sides = [
            range(start // spec.chunk_shape[axis], -(-end // spec.chunk_shape[axis]))
            for axis, start, end in zip(self._picture, starts, ends, strict=True)
        ]
        for numbers in itertools.product(*sides):
            part: list[slice] = []
            for axis, number, start, end in zip(self._picture, numbers, starts, ends, strict=True):
                size = spec.chunk_shape[axis]
                position[axis] = number
                first, stop = max(start, number * size), min(end, (number + 1) * size)
                index[axis] = slice(first - number * size, stop - number * size)
                part.append(slice(first - start, stop - start))
            if not self._is_equal(tuple(position), tuple(index), tile[tuple(part)]):
                return False
        return True

    def _is_equal(self, position: Position, index: tuple[slice, ...], part: NDArray[Any]) -> bool:
        try:
            chunk = self._read(position)
        except CorruptDataset:  # its tiles count as different; `verify` reports the cause
            return False
        if chunk is None:  # a missing chunk reads as zeros
            return not part.any()
        return bool(np.array_equal(chunk[index].reshape(part.shape), part)) if chunk[index].size == part.size else False

    def _read(self, position: Position) -> NDArray[Any] | None:
        if any(at >= size for at, size in zip(position, self._array.spec.grid_shape, strict=True)):
            return None
        if position not in self._kept:
            while len(self._kept) >= self._most:
                self._kept.popitem(last=False)
            self._kept[position] = self._array.read_chunk(position)
        self._kept.move_to_end(position)
        return self._kept[position]
