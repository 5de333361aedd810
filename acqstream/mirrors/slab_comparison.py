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

from acqstream.arrays.array_spec import ArraySpec, Position
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
    reader: NDTiffReader, array: ChunkReader, frames: LogFrames, places: Mapping[Position, Mapping[int, int]]
) -> Iterator[tuple[int, bool]]:
    """Yield rows of the dataset, and whether the mirror has each. places: the row to compare at each, as `{0: row}`.

    A place ends with row and column of the tile. Raises DatasetError and StorageError where tiles or files cannot be
    read; a chunk that cannot be decoded counts as different.
    """
    boxes = ChunkBoxes(array, KEPT_BYTES)
    for place, rows in sorted(places.items()):
        tile = frames.plane(reader.read_pixels(rows[0]))
        yield rows[0], _has(boxes, array.spec, place, tile)


def _has(boxes: ChunkBoxes, spec: ArraySpec, place: Position, tile: NDArray[Any]) -> bool:
    """Return whether the picture has this tile. Its place ends with row and column."""
    sides = iter(tile.shape)
    starts = dict(zip((spec.axes.index("y"), spec.axes.index("x")), place[-2:], strict=True))
    outer = iter(place[:-2])
    box = []
    for axis, name in enumerate(spec.axes):
        size = next(sides) if name in PICTURE_AXES else 1
        start = starts.get(axis, 0) * size if name in PICTURE_AXES else next(outer)
        box.append(range(start, start + size))
    if any(part.stop > size for part, size in zip(box, spec.shape, strict=True)):
        return False
    try:
        found = boxes.read(box)
    except CorruptDataset:  # its tiles count as different; `verify` reports the cause
        return False
    return not tile.any() if found is None else np.array_equal(found.reshape(tile.shape), tile)


class ChunkBoxes:
    """Reads boxes of a stored array; the chunks read last stay in memory, up to `max_bytes`. Used by one thread."""

    def __init__(self, array: ChunkReader, max_bytes: int) -> None:
        self._array, self._max_bytes, self._kept_bytes = array, max_bytes, 0
        self._kept: OrderedDict[Position, NDArray[Any] | None] = OrderedDict()

    def read(self, box: Sequence[range]) -> NDArray[Any] | None:
        """The items in a box inside the array, zeros where no chunk is stored; None if none of its chunks is.

        Raises CorruptDataset, StorageError.
        """
        spec = self._array.spec
        sides = [
            range(part.start // size, -(-part.stop // size)) for part, size in zip(box, spec.chunk_shape, strict=True)
        ]
        found: NDArray[Any] | None = None
        for position in itertools.product(*sides):
            chunk = self._chunk(position)
            if chunk is None:
                continue
            if found is None:
                found = np.zeros([len(part) for part in box], spec.dtype)
            ours, theirs = [], []
            for part, number, size, length in zip(box, position, spec.chunk_shape, chunk.shape, strict=True):
                begin = number * size
                first = max(part.start, begin)
                stop = max(first, min(part.stop, begin + length))  # a chunk at the edge may be shorter
                ours.append(slice(first - part.start, stop - part.start))
                theirs.append(slice(first - begin, stop - begin))
            found[tuple(ours)] = chunk[tuple(theirs)]
        return found

    def _chunk(self, position: Position) -> NDArray[Any] | None:
        if position not in self._kept:
            chunk = self._kept[position] = self._array.read_chunk(position)
            self._kept_bytes += 0 if chunk is None else chunk.nbytes
            while self._kept_bytes > self._max_bytes and len(self._kept) > 1:
                _, dropped = self._kept.popitem(last=False)
                self._kept_bytes -= 0 if dropped is None else dropped.nbytes
        self._kept.move_to_end(position)
        return self._kept[position]
