"""A slab in memory: its chunks one after the other, in the byte order of the files; and the buffers that slabs share.

Frames are scattered to the places of their items in the blocks of the files, so no byte is moved again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import Position
from acqstream.grid import kernels
from acqstream.mirrors.slab_grid import Piece, SlabGrid
from acqstream.storage.page_memory import MemoryAhead, fresh_bytes

ByteOrder = Literal["<", ">"]

SlabKey = tuple[int, Position]
"""Level, and position in the grid of its slabs."""


class _Part(NamedTuple):
    """A range along one axis, as slices of chunks, blocks and items, as items of a plane, and the number of each."""

    within: tuple[slice, slice, slice]
    items: slice
    split: tuple[int, int, int]


class SlabBuffer:
    """Memory for a slab of one level, zeroed and touched once. Items beyond the edges of the array stay zeros.

    It is in layers, see SlabGrid. is_empty: `add` brings the memory; otherwise all of it is taken here. Methods need
    that of the planes and chunks they name.
    """

    def __init__(self, grid: SlabGrid, byte_order: ByteOrder, *, is_empty: bool = False) -> None:
        self.grid = grid
        spec = grid.spec
        self._block_shape = spec.block_shape or spec.chunk_shape
        self._byte_order = byte_order
        self._layer_of = [grid.layer_of(plane) for plane in range(grid.planes)]
        self._memory: list[NDArray[np.uint8] | None] = [None] * grid.layers
        self._items: list[NDArray[Any]] = [np.empty(0, spec.dtype)] * grid.layers
        self.is_past_cache = grid.layer_bytes >= kernels.PAST_CACHE_BYTES
        self._whole = [
            list(self._parts(axis, 0, size)) for axis, size in zip(grid.picture, grid.plane_shape, strict=True)
        ]
        for layer in () if is_empty else range(grid.layers):
            self.add(layer, fresh_bytes(grid.layer_bytes))

    @property
    def memory(self) -> list[NDArray[np.uint8]]:
        """The memory of all layers that have it."""
        return [memory for memory in self._memory if memory is not None]

    def has(self, plane: int) -> bool:
        """Return whether the layer of a plane has memory."""
        return self._memory[self._layer_of[plane]] is not None

    def missing(self, plane: int | None = None) -> list[int]:
        """The layers without memory: of all, or of this plane alone."""
        layers = range(len(self._memory)) if plane is None else [self._layer_of[plane]]
        return [layer for layer in layers if self._memory[layer] is None]

    def add(self, layer: int, memory: NDArray[np.uint8]) -> None:
        """Give a layer its memory, `grid.layer_bytes` long: zeros, or pixels of another slab (see `clear`)."""
        spec = self.grid.spec
        counts = [1 if axis in self.grid.outer else count for axis, count in enumerate(self.grid.counts)]
        blocks = [size // block for size, block in zip(spec.chunk_shape, self._block_shape, strict=True)]
        items = memory.view(spec.dtype.newbyteorder(self._byte_order))
        # the counts of chunks along each axis, those of blocks in a chunk, and the shape of a block
        self._items[layer] = items.reshape((*counts, *blocks, *self._block_shape))
        self._memory[layer] = memory

    def chunk(self, local: Position) -> NDArray[Any]:
        """Return a chunk by its position in the slab, of shape `memory_shape`, without a copy."""
        outer = self.grid.outer
        layer = self.grid.chunk_layer([local[axis] for axis in outer])
        within = tuple(0 if axis in outer else at for axis, at in enumerate(local))
        found: NDArray[Any] = self._items[layer][within].reshape(self.grid.spec.memory_shape)
        return found

    def put(self, plane: int, pixels: NDArray[Any], begin: Sequence[int] = ()) -> None:
        """Write a part of a plane that begins at these items, by default at its first ones.

        pixels has its axes in the order of the level's, and may have any byte order.
        """
        begins = [*begin, *[0] * (pixels.ndim - len(begin))]
        if kernels.put(self.plane(plane), pixels, begins, is_past_cache=self.is_past_cache):
            return
        for ours, theirs in self._regions(plane, pixels, begins):
            ours[...] = theirs

    def get(self, plane: int, box: Sequence[slice] = ()) -> NDArray[Any]:
        """Return a part of a plane, or all of it, as a new array in the byte order of this machine."""
        parts = zip((*box, *[slice(None)] * len(self.grid.plane_shape)), self.grid.plane_shape, strict=False)
        ranges = [range(*part.indices(size)) for part, size in parts]
        pixels = np.empty([len(part) for part in ranges], self.grid.spec.dtype)
        for ours, theirs in self._regions(plane, pixels, [part.start for part in ranges]):
            theirs[...] = ours
        return pixels

    def clear(self, key: Position, filled: int) -> None:
        """Zero what these planes and pieces, given as bits, do not fill: the memory may be that of another slab."""
        grid = self.grid
        for plane in range(grid.planes):
            bits = filled >> plane * grid.pieces & (1 << grid.pieces) - 1
            if not bits:
                self.plane(plane)[...] = 0
            elif grid.cuts:
                self._clear_around(key, plane, bits)

    def _clear_around(self, key: Position, plane: int, bits: int) -> None:
        """Zero the pieces of a plane that are not in `bits`, and what lies beyond the picture."""
        (y, x), (at_y, at_x) = self.grid.cuts, key[-2:]
        blank = [
            (in_y.first, in_y.stop, in_x.first, in_x.stop)
            for in_y, in_x in itertools.product(y.in_slab(at_y), x.in_slab(at_x))
            if not bits >> in_y.piece * x.most + in_x.piece & 1
        ]
        blank += [(y.inside(at_y), y.side, 0, x.side), (0, y.side, x.inside(at_x), x.side)]
        for top, bottom, left, right in blank:
            if bottom > top and right > left:
                box = self.grid.box(slice(top, bottom), slice(left, right))
                shape = [part.stop - part.start for part in box]
                self.put(plane, np.zeros(shape, self.grid.spec.dtype), [part.start for part in box])

    def plane(self, plane: int) -> NDArray[Any]:
        """Return a plane without a copy. Its axes are chunks, blocks in them and items, each along all picture axes.

        So a plane with n axes has 3n dimensions; kernels call such an array a place.
        """
        grid = self.grid
        index: list[list[int | slice]] = [[slice(None)] * len(grid.counts) for _ in range(3)]
        chunks, blocks, inside = index
        for axis, at in zip(grid.outer, grid.local(plane), strict=True):
            chunks[axis], rest = 0, at % grid.spec.chunk_shape[axis]
            blocks[axis], inside[axis] = divmod(rest, self._block_shape[axis])
        found: NDArray[Any] = self._items[self._layer_of[plane]][(*chunks, *blocks, *inside)]
        return found

    def _regions(
        self, plane: int, pixels: NDArray[Any], begin: Sequence[int]
    ) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Yield pairs of arrays of one shape: items in the blocks, and the same items in a part of a plane."""
        grid, place, ndim = self.grid, self.plane(plane), pixels.ndim
        order = [at for first in range(3) for at in range(first, 3 * ndim, 3)]
        sides = [
            whole if not first and size == all_items else list(self._parts(axis, first, first + size))
            for axis, whole, first, size, all_items in zip(
                grid.picture, self._whole, begin, pixels.shape, grid.plane_shape, strict=True
            )
        ]
        for parts in itertools.product(*sides):
            ours = place[tuple(part.within[kind] for kind in range(3) for part in parts)]
            split = [size for part in parts for size in part.split]
            yield ours, pixels[tuple(part.items for part in parts)].reshape(split).transpose(order)

    def _parts(self, axis: int, first: int, end: int) -> Iterator[_Part]:
        """Split the items from `first` to `end` along an axis into complete chunks, else blocks, else items."""
        chunk, block = self.grid.spec.chunk_shape[axis], self._block_shape[axis]
        at = first
        while at < end:
            number, rest = divmod(at, chunk)
            block_number, inside = divmod(rest, block)
            here = slice(number, number + 1), slice(block_number, block_number + 1)
            if not rest and (count := (end - at) // chunk):
                within = slice(number, number + count), slice(None), slice(None)
                split = count, chunk // block, block
            elif not inside and (count := min(chunk - rest, end - at) // block):
                within = here[0], slice(block_number, block_number + count), slice(None)
                split = 1, count, block
            else:
                split = 1, 1, min(block - inside, end - at)
                within = *here, slice(inside, inside + split[2])
            length = split[0] * split[1] * split[2]
            yield _Part(within, slice(at - first, at - first + length), split)
            at += length


@dataclass(slots=True, eq=False)
class Slab:
    """A slab in memory. filled: its planes, or pieces of them, with pixels, as bits. waiting: the number of tasks that
    read it; arriving: the number of tasks that write it. It does not change once it is leaving."""

    level: int
    key: Position
    buffer: SlabBuffer
    filled: int = 0
    last_use: int = 0  # by number of use, for the order in which slabs leave
    is_leaving: bool = False
    waiting: int = 0
    arriving: int = 0

    def put(self, piece: Piece, pixels: NDArray[Any]) -> None:
        """Write what a frame has of this slab. pixels: the frame, or the shown part of a tile, in the level's order."""
        if not piece.spans:
            self.buffer.put(piece.plane, pixels)
            return
        y, x = piece.spans
        grid = self.buffer.grid
        theirs = grid.box(*(slice(side.inside, side.inside + side.stop - side.first) for side in (y, x)))
        ours = grid.box(slice(y.first, y.stop), slice(x.first, x.stop))
        self.buffer.put(piece.plane, pixels[theirs], [part.start for part in ours])

    def clear_unfilled(self) -> None:
        """Zero the planes without pixels: the buffer may come from another slab."""
        self.buffer.clear(self.key, self.filled)


class SlabBuffers:
    """Memory of one mirror's slabs, by level: taken once, used again until the mirror is closed. Used by one thread.

    byte_order, head_bytes: see ChunkFormat. full: slabs of level 0 that may be stored while one is filled. Their
    memory is taken in the background, that of lower levels when it is needed: it is less, and comes later.
    """

    def __init__(self, grids: Sequence[SlabGrid], byte_order: ByteOrder, *, head_bytes: int = 0, full: int = 1) -> None:
        self._grids = grids
        self._byte_order: ByteOrder = byte_order
        self._head_bytes = head_bytes
        self._full = full
        self._free: list[list[NDArray[np.uint8]]] = [[] for _ in grids]
        layers = grids[0].layers
        self._ahead = MemoryAhead(self._piece_bytes(0), ahead=layers, max_pieces=(full + 1) * layers)

    def has_free(self, level: int) -> bool:
        """Return True if a layer needs no new memory."""
        return bool(self._free[level])

    def max_full(self, level: int) -> int:
        """How many full slabs of a level are no reason to wait: none of a lower level, which leave soon."""
        return 0 if level else self._full

    def take(self, level: int, plane: int | None = None) -> SlabBuffer:
        """Return a buffer with memory for the layer of a plane, or for all layers. See `complete`."""
        buffer = SlabBuffer(self._grids[level], self._byte_order, is_empty=True)
        self.complete(level, buffer, plane)
        return buffer

    def complete(self, level: int, buffer: SlabBuffer, plane: int | None = None) -> None:
        """Give memory to the layer of a plane, or to all layers: with pixels of earlier slabs, or zeros.

        Raises MemoryError or OSError if the system has none.
        """
        for layer in buffer.missing(plane):
            free = self._free[level]
            if free:
                memory = free.pop()
            elif level or self._ahead.is_spent:
                memory = fresh_bytes(self._piece_bytes(level))[self._head_bytes :]
            else:
                memory = self._ahead.take()[self._head_bytes :]
            buffer.add(layer, memory)

    def give_back(self, level: int, buffer: SlabBuffer) -> None:
        """Have the memory of a buffer used by other slabs of its level; the buffer is not used any more."""
        self._free[level] += buffer.memory

    def close(self) -> None:
        """Drop the free memory, and end the thread that takes it. That of a slab is free when its last view is gone."""
        self._free = [[] for _ in self._grids]
        self._ahead.close()

    def _piece_bytes(self, level: int) -> int:
        return self._head_bytes + self._grids[level].layer_bytes
