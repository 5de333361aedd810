"""Levels as dask arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from acqstream.arrays.level_layout import LevelSource
from acqstream.dataset.level_array import LevelArray, import_optional
from acqstream.errors import UnsupportedFeature

if TYPE_CHECKING:
    import dask.array

CHUNK_BYTES = 16 * 1024 * 1024
"""Bytes of a dask chunk of small frames or chunks: enough that dask's own work per task does not count."""

MAX_LISTED = 10_000_000
"""Of an axis: dask has lists as long, whatever the array has stored."""


def to_dask(source: LevelSource) -> dask.array.Array:
    """A level as it is now, as a dask array over `Level.axes`; nothing is read before it is computed.

    A chunk is one frame (one tile of a stitched level, one chunk of a chunk format), or as many neighbours along the
    outer axes, the fastest first, as make up CHUNK_BYTES. Frames and chunks that are not stored are zeros. Works
    with any scheduler: other processes open the dataset by its path. For a growing dataset `refresh` and call again.
    Raises ConfigError without dask, DatasetError before the first frame.
    """
    return dask_array_of(LevelArray(source))


def dask_array_of(array: LevelArray) -> dask.array.Array:
    """A `LevelArray` in chunks of `chunk_shape`. Raises ConfigError without dask, UnsupportedFeature for too many."""
    da = import_optional("dask.array", "dask")
    meta = np.empty((0,) * array.ndim, array.dtype)
    chunks = chunk_shape(array)
    n_outer = len(array.outer)
    parts = [size // max(1, step) for size, step in zip(array.shape[n_outer:], chunks[n_outer:], strict=True)]
    if max((*array.shape[:n_outer], *parts), default=0) > MAX_LISTED:
        text = f"an axis may have {MAX_LISTED:,} places, or chunks along y and x"
        raise UnsupportedFeature(f"dask lists the places of {array.shape} in chunks of {chunks}: {text}")
    lazy: dask.array.Array = da.from_array(array, chunks=chunks, meta=meta)
    return lazy


def chunk_shape(array: LevelArray) -> tuple[int, ...]:
    """The best unit to read, with as many neighbours along the outer axes, the fastest first, as CHUNK_BYTES hold."""
    units: Sequence[int] = array.layout.chunk_shape
    chunk = [min(unit, side) for unit, side in zip(units, array.shape, strict=True)]
    capacity = CHUNK_BYTES // max(1, math.prod(chunk) * array.dtype.itemsize)
    for axis in reversed(range(len(array.outer))):
        chunk[axis] = max(1, min(array.shape[axis], units[axis] * max(1, capacity)))
        if chunk[axis] < array.shape[axis]:
            break
        capacity //= -(-chunk[axis] // units[axis])
    return tuple(chunk)
