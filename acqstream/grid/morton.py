"""Morton codes in three dimensions: the bits of x, y and z taken in turn, x lowest (x0 y0 z0 x1 y1 z1 ...)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

COORDINATE_BITS = 21  # three of them fill 63 bits

# Each step moves the upper half of every group of bits to its place; the mask is applied after the OR.
_STEPS = (
    (32, 0x001F00000000FFFF),
    (16, 0x001F0000FF0000FF),
    (8, 0x100F00F00F00F00F),
    (4, 0x10C30C30C30C30C3),
    (2, 0x1249249249249249),
)


def morton_code(x: ArrayLike, y: ArrayLike, z: ArrayLike) -> NDArray[np.int64]:
    """The codes of coordinates (integers of 0 to 2^21 - 1; arrays broadcast against each other)."""
    return np.asarray(_spread(x) | _spread(y) << np.uint64(1) | _spread(z) << np.uint64(2)).astype(np.int64)


def _spread(coordinate: ArrayLike) -> NDArray[np.uint64]:
    bits = np.asarray(coordinate, np.uint64)
    if bits.size and int(bits.max()) >> COORDINATE_BITS:
        raise ValueError(f"coordinate {int(bits.max())} has more than {COORDINATE_BITS} bits")
    for shift, mask in _STEPS:
        bits = (bits | bits << np.uint64(shift)) & np.uint64(mask)
    return bits
