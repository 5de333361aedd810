"""Compares slabs in the files with their frames."""

from __future__ import annotations

import os
from collections import deque
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
from acqstream.formats.chunk_format import ChunkArrayReader
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.grid import kernels
from acqstream.mirrors.log_frames import LogFrames
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
    reader: NDTiffReader, array: ChunkArrayReader, frames: LogFrames, slabs: Mapping[Position, Mapping[int, int]]
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


def _read(array: ChunkArrayReader, chunk: tuple[Position, Position, int]) -> StoredChunk:
    position, local, _ = chunk
    spec = array.spec
    region = tuple(part for part, name in zip(spec.region(position), spec.axes, strict=True) if name in PICTURE_AXES)
    if any(at >= size for at, size in zip(position, spec.grid_shape, strict=True)):
        return StoredChunk(local, region, None)
    try:
        return StoredChunk(local, region, array.read_chunk(position))
    except CorruptDataset:  # its frames count as different; `verify` reports the cause
        return StoredChunk(local, region, np.empty((0,) * len(spec.axes), spec.dtype))
