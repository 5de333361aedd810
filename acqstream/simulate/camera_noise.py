"""Noise of a camera: of reading, and of the light itself. It follows from the seed, the picture and the place."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_SIDE_PX = 1024
_READ_NOISE = 4.0  # counts
_COUNTS_PER_ELECTRON = 2.0


def add_noise(counts: NDArray[np.float32], top: int, left: int, *, seed: int, picture: int) -> None:
    """Add noise to counts of shape (Y, X), whose first pixel is at (top, left) of its picture.

    A pixel of a picture has the same noise in every window. Pictures of other numbers have other noise.
    """
    table = _table(seed)
    # Another part of the table for each picture, with large odd steps: neighbours have nothing in common.
    first_row, first_column = top + 389 * picture, left + 661 * picture
    height, width = counts.shape
    strength = np.sqrt(np.maximum(counts, 0) * np.float32(_COUNTS_PER_ELECTRON) + np.float32(_READ_NOISE**2))
    row = 0
    while row < height:
        from_row = (first_row + row) % _SIDE_PX
        rows = min(_SIDE_PX - from_row, height - row)
        column = 0
        while column < width:
            from_column = (first_column + column) % _SIDE_PX
            columns = min(_SIDE_PX - from_column, width - column)
            part = slice(row, row + rows), slice(column, column + columns)
            strength[part] *= table[from_row : from_row + rows, from_column : from_column + columns]
            column += columns
        row += rows
    counts += strength


@lru_cache(maxsize=2)
def _table(seed: int) -> NDArray[np.float32]:
    """Values with mean 0 and standard deviation 1, shape (_SIDE_PX, _SIDE_PX): sums of eight random bytes."""
    raw = np.random.PCG64(seed).random_raw(_SIDE_PX * _SIDE_PX).astype("<u8", copy=False)
    sums = raw.view(np.uint8).reshape(_SIDE_PX, _SIDE_PX, 8).sum(axis=2, dtype=np.int32)
    spread = np.float32(math.sqrt(8 * (256 * 256 - 1) / 12))
    table: NDArray[np.float32] = (sums - 1020).astype(np.float32) / spread
    table.flags.writeable = False
    return table
