"""An unbounded procedural picture; each frame is a crop of it. Computed, so that stitching can be proved.

Every pixel follows from its place in the picture and the number of the picture; all in integers, the same everywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_PERIODS_PX = (97, 131)  # of the slopes, (y, x)
_SHIFT_PX = 29  # from picture to picture, and from colour to colour


def window(
    top: int, left: int, shape: tuple[int, ...], dtype: str, *, bits: int | None = None, picture: int = 0
) -> NDArray[Any]:
    """Pixels [top, top + Y) x [left, left + X) of a picture, shape (Y, X) or (Y, X, 3), dtype "uint8" or "uint16".

    bits are the significant bits, default all. The picture is unbounded in all directions, also below 0.
    """
    if len(shape) == 3:
        grey = [window(top, left, shape[:2], dtype, bits=bits, picture=3 * picture + n) for n in range(shape[2])]
        return np.stack(grey, axis=-1)
    kind = np.dtype(dtype)
    max_value = 2 ** (bits or 8 * kind.itemsize) - 1
    y = np.arange(top, top + shape[0], dtype=np.int64)[:, np.newaxis] + picture * _SHIFT_PX
    x = np.arange(left, left + shape[1], dtype=np.int64)[np.newaxis, :]
    bright = _slope(y, _PERIODS_PX[0]) * (max_value - max_value // 8) // _PERIODS_PX[0]
    share = _slope(x, _PERIODS_PX[1]) * 256 // _PERIODS_PX[1]
    plane = bright.astype(np.uint32) * share.astype(np.uint32) >> 8
    noise = (40_503 * y + 2_246_822_519).astype(np.uint32) * x.astype(np.uint32)  # 32 bits of it: faster than 64
    noise += (2_654_435_761 * y).astype(np.uint32)
    plane += (noise >> 9) & (max_value // 8)
    image: NDArray[Any] = plane.astype(kind)
    return image


def _slope(places: NDArray[np.int64], period: int) -> NDArray[np.int64]:
    """Up to `period` and down to 0 again, in turn."""
    slope: NDArray[np.int64] = np.abs(places % (2 * period) - period)
    return slope
