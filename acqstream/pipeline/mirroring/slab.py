"""A slab in memory: its chunks, each whole and one behind the other, in the byte order of the files."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from acqstream.formats.chunk_format import Position
from acqstream.pipeline.mirroring.slab_grid import SlabGrid
from acqstream.storage.memory import PageMemory

ByteOrder = Literal["<", ">"]
_Part = tuple[slice, slice, slice, int]  # chunks, inside of them, of the plane, how many chunks


class SlabBuffer:
    """Memory for a slab of one level, zeroed and touched once. What lies beyond the edges of the array stays zeros."""

    def __init__(self, grid: SlabGrid, byte_order: ByteOrder) -> None:
        self.grid = grid
        dtype = grid.spec.dtype.newbyteorder(byte_order)
        memory = np.frombuffer(PageMemory(max(1, grid.slab_bytes)).view, np.uint8)[: grid.slab_bytes]
        self.chunks: NDArray[Any] = memory.view(dtype).reshape((*grid.counts, *grid.spec.chunk_shape))
        """Shape: the counts of chunks along each axis, then their shape."""
        self._parts = [list(_parts(grid.spec.shape[axis], grid.spec.chunk_shape[axis])) for axis in grid.picture]

    def chunk(self, local: Position) -> NDArray[Any]:
        """A chunk by its position in the slab: no copy."""
        found: NDArray[Any] = self.chunks[local]
        return found

    def put(self, plane: int, pixels: NDArray[Any]) -> None:
        """Write a plane; pixels has its axes in the order of the level's, and may have any byte order."""
        for ours, theirs in self._regions(plane, pixels):
            ours[...] = theirs

    def get(self, plane: int) -> NDArray[Any]:
        """A plane as a new array, in the byte order of this machine."""
        pixels = np.empty(self.grid.plane_shape, self.grid.spec.dtype)
        for ours, theirs in self._regions(plane, pixels):
            theirs[...] = ours
        return pixels

    def clear(self, planes: int) -> None:
        """Zeros in these planes (bits)."""
        for plane in _bits(planes):
            self._plane(plane)[...] = 0

    def _plane(self, plane: int) -> NDArray[Any]:
        """(counts of the picture axes, extents of a chunk along them): no copy."""
        grid = self.grid
        counts: list[int | slice] = [slice(None)] * len(grid.counts)
        inside: list[int | slice] = [slice(None)] * len(grid.counts)
        for axis, at in zip(grid.outer, grid.local(plane), strict=True):
            counts[axis], inside[axis] = divmod(at, grid.spec.chunk_shape[axis])
        found: NDArray[Any] = self.chunks[(*counts, *inside)]
        return found

    def _regions(self, plane: int, pixels: NDArray[Any]) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """The same items in the chunks and in a plane, as arrays of one shape: whole chunks, then edges."""
        place, ndim = self._plane(plane), pixels.ndim
        order = (*range(0, 2 * ndim, 2), *range(1, 2 * ndim, 2))
        for parts in itertools.product(*self._parts):
            ours = place[(*(part[0] for part in parts), *(part[1] for part in parts))]
            region = pixels[tuple(part[2] for part in parts)]
            split = tuple(
                size for part, length in zip(parts, region.shape, strict=True) for size in (part[3], length // part[3])
            )
            yield ours, region.reshape(split).transpose(order)


@dataclass(slots=True, eq=False)
class Slab:
    """A slab on its way. filled: the planes that are in it, as bits. waiting: tasks of the workers that read it,
    arriving: tasks that write it. Once it is leaving it does not change any more."""

    level: int
    key: Position
    buffer: SlabBuffer
    filled: int = 0
    used: int = 0  # when it was used last, by number of use
    is_leaving: bool = False
    waiting: int = 0
    arriving: int = 0


def _parts(size: int, chunk: int) -> Iterator[_Part]:
    whole, rest = divmod(size, chunk)
    if whole:
        yield slice(0, whole), slice(None), slice(0, whole * chunk), whole
    if rest:
        yield slice(whole, whole + 1), slice(0, rest), slice(whole * chunk, size), 1


def _bits(planes: int) -> Iterator[int]:
    while planes:
        low = planes & -planes
        yield low.bit_length() - 1
        planes ^= low
