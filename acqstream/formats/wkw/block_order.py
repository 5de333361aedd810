"""The order of blocks in a cube file, and voxels moved out of it. Pure.

Source: webknossos-wrap, format description version 1. Blocks follow the Morton curve; a block is a C-order array (z,
y, x) or (z, y, x, c).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from acqstream.grid.morton import morton_code


@dataclass(frozen=True, slots=True)
class BlockOrder:
    """The blocks of a box in a cube, in the order of the file.

    codes are their numbers in the cube file; z, y, x their places in the box, in blocks. runs are those that lie one
    after the other in the file, as (first code, count).
    """

    codes: NDArray[np.int64]
    z: NDArray[np.int64]
    y: NDArray[np.int64]
    x: NDArray[np.int64]
    runs: tuple[tuple[int, int], ...]

    def __len__(self) -> int:
        return len(self.codes)


@lru_cache(maxsize=1024)
def block_order(first: tuple[int, int, int], counts: tuple[int, int, int]) -> BlockOrder:
    """The order of the box of `counts` (z, y, x) blocks that begins at block `first` (z, y, x) of the cube."""
    places = np.indices(counts).reshape(3, -1)
    z, y, x = (places[axis] + first[axis] for axis in range(3))
    codes = morton_code(x, y, z)
    order = np.argsort(codes)
    codes, places = codes[order], places[:, order]
    starts = np.flatnonzero(np.diff(codes, prepend=-2) != 1)
    lengths = np.diff(starts, append=len(codes))
    runs = tuple(zip(codes[starts].tolist(), lengths.tolist(), strict=True))
    return BlockOrder(codes, places[0], places[1], places[2], runs)


def scatter_blocks(blocks: NDArray[np.generic], order: BlockOrder, voxels: NDArray[np.generic]) -> None:
    """Put blocks (block, z, y, x[, c]), in the order of the file, to their places in `voxels` (z, y, x[, c]).

    Both are in C order and of the same dtype.
    """
    rows = _rows(voxels, blocks.shape[1])
    for block, place in zip(_rows_of_blocks(blocks), _places(order), strict=True):
        rows[place] = block


def _places(order: BlockOrder) -> list[tuple[int, int, int]]:
    return list(zip(order.z.tolist(), order.y.tolist(), order.x.tolist(), strict=True))


# A row of a block as one item: numpy copies 64 bytes at a time so, in less than half the time that 32 items take.


def _rows(voxels: NDArray[np.generic], side: int) -> NDArray[np.void]:
    """A view (block z, block y, block x, z, y) of an array (z, y, x[, c]) of whole blocks."""
    z, y, x = voxels.shape[:3]
    rows = _as_rows(voxels, side * math.prod(voxels.shape[3:])).reshape(z // side, side, y // side, side, x // side)
    return rows.transpose(0, 2, 4, 1, 3)


def _rows_of_blocks(blocks: NDArray[np.generic]) -> NDArray[np.void]:
    """A view (block, z, y) of blocks (block, z, y, x[, c])."""
    return _as_rows(blocks, math.prod(blocks.shape[3:])).reshape(blocks.shape[:3])


def _as_rows(array: NDArray[np.generic], items: int) -> NDArray[np.void]:
    if not array.flags.c_contiguous:
        raise AssertionError("voxels must be in C order: the rows would be those of a copy")
    return array.reshape(-1).view(np.dtype((np.void, items * array.itemsize)))
