"""Levels as dask arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from acqstream.dataset.level_array import LevelArray
from acqstream.dataset.optional import needed

if TYPE_CHECKING:
    import dask.array

    from acqstream.dataset.level import Level

CHUNK_BYTES = 16 * 1024 * 1024
"""Small frames are read so many at a time: enough that dask's own work per task does not show."""


def to_dask(level: Level) -> dask.array.Array:
    """A level as it is now, as a dask array over `Level.axes`; nothing is read before it is computed.

    A chunk is one frame (one tile of a stitched level), or as many neighbours along the fastest axes as make up
    CHUNK_BYTES. Frames that are not there are zeros. Works with any scheduler: other processes open the dataset by its
    path. Growing datasets: `refresh`, and ask again. Raises ConfigError without dask, DatasetError while there is no
    frame.
    """
    array = LevelArray(level)
    return dask_array_of(array, chunk_shape(array, level.chunk_shape))


def dask_array_of(array: LevelArray, chunks: Sequence[int]) -> dask.array.Array:
    """A `LevelArray` in chunks of this shape. Raises ConfigError without dask."""
    da = needed("dask.array", "dask")
    meta = np.empty((0,) * array.ndim, array.dtype)
    made: dask.array.Array = da.from_array(array, chunks=tuple(chunks), meta=meta)
    return made


def chunk_shape(array: LevelArray, unit: Sequence[int]) -> tuple[int, ...]:
    """`unit`, what is read at once, times as many neighbours along the frame axes, the fastest first, as fit."""
    chunk = [min(unit_side, side) for unit_side, side in zip(unit, array.shape, strict=True)]
    room = CHUNK_BYTES // max(1, math.prod(chunk) * array.dtype.itemsize)
    for axis in reversed(range(len(array.view.values))):
        chunk[axis] = max(1, min(array.shape[axis], room))
        if chunk[axis] < array.shape[axis]:
            break
        room //= chunk[axis]
    return tuple(chunk)
