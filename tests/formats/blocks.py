"""Chunks as the engine hands them over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def in_blocks(array: NDArray[Any], block_shape: Sequence[int]) -> NDArray[Any]:
    """The grid of blocks of an array, then what is in a block; no blocks: the array."""
    if not block_shape:
        return array
    split = [part for size, block in zip(array.shape, block_shape, strict=True) for part in (size // block, block)]
    order = [axis for kind in range(2) for axis in range(kind, len(split), 2)]
    return np.ascontiguousarray(array.reshape(split).transpose(order))
