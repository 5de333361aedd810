"""Test images whose every pixel follows from the frame number and the position.

A frame is a slice of one fixed noise sequence plus its number, wrapping at the number of significant bits. Number,
shape and dtype prove each pixel of a stored frame. A tile is a window of a procedural, unbounded picture, so stitching
can be proved: every pixel follows from its position and the number of the picture, in integers, the same everywhere.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SEED = 5271
_SHIFTS = 4096  # numbers that are equal in their low bits take another slice of the sequence


def frame(number: int, shape: tuple[int, ...], dtype: str, bits: int | None = None) -> NDArray[Any]:
    """The image of frame `number`, of shape (Y, X) or (Y, X, 3), dtype "uint8" or "uint16".

    Two numbers below 2**20 differ in every pixel or in nearly every one. bits are the significant bits, default all.
    """
    out = np.empty(shape, dtype=dtype)
    fill(out, number, bits)
    return out


def fill(out: NDArray[Any], number: int, bits: int | None = None) -> None:
    """Write `frame(number, out.shape, out.dtype, bits)` into the C-contiguous array `out`."""
    kind = _kind(out.dtype)
    width = bits or kind.itemsize * 8
    if not 1 <= width <= kind.itemsize * 8:
        raise ValueError(f"{width} significant bits do not fit {kind}")
    if not out.flags.c_contiguous:
        raise ValueError("a frame is filled in place only if its array is C-contiguous")
    size = math.prod(out.shape)
    start = (number >> width) % _SHIFTS
    step = kind.type(number & (2**width - 1))
    flat = out.reshape(-1)
    np.add(_noise(size, kind.str)[start : start + size], step, out=flat)
    if width < kind.itemsize * 8:
        np.bitwise_and(flat, kind.type(2**width - 1), out=flat)


def _kind(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype not in (np.dtype("uint8"), np.dtype("<u2")):
        raise ValueError(f"the pattern has uint8 and uint16 images, not {dtype}")
    return dtype


@lru_cache(maxsize=4)
def _noise(size: int, dtype: str) -> NDArray[Any]:
    """`size` + _SHIFTS values, shape (N,); the raw PCG64 stream is the same in every numpy version."""
    kind = np.dtype(dtype)
    total = size + _SHIFTS
    words = -(-total * kind.itemsize // 8)
    raw = np.random.PCG64(_SEED).random_raw(words).astype("<u8", copy=False)
    noise: NDArray[Any] = raw.view(kind)[:total]
    noise.flags.writeable = False
    return noise


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


def _slope(positions: NDArray[np.int64], period: int) -> NDArray[np.int64]:
    """Up to `period` and down to 0 again, in turn."""
    slope: NDArray[np.int64] = np.abs(positions % (2 * period) - period)
    return slope


_ROWS = (  # of the digits 0 to 9, five pixels each, the highest bit left
    (14, 17, 19, 21, 25, 17, 14),
    (4, 12, 4, 4, 4, 4, 14),
    (14, 17, 1, 2, 4, 8, 31),
    (31, 2, 4, 2, 1, 17, 14),
    (2, 6, 10, 18, 31, 2, 2),
    (31, 16, 30, 1, 1, 17, 14),
    (6, 8, 16, 30, 17, 17, 14),
    (31, 1, 2, 4, 8, 8, 8),
    (14, 17, 17, 14, 17, 17, 14),
    (14, 17, 17, 15, 1, 2, 12),
)
_HEIGHT, _WIDTH = 7, 5


def burn_number(image: NDArray[Any], number: int, value: int) -> None:
    """Write `number` into the upper left corner, in pixels of `value` on a box of zeros.

    image: shape (Y, X) or (Y, X, 3), changed in place. What does not fit into a small image is cut off.
    """
    digits = [_ROWS[int(digit)] for digit in str(number)]
    mask = np.zeros((_HEIGHT + 2, len(digits) * (_WIDTH + 1) + 1), bool)
    for index, rows in enumerate(digits):
        for row, bits in enumerate(rows):
            for column in range(_WIDTH):
                # bit 4 is the leftmost pixel
                mask[row + 1, index * (_WIDTH + 1) + column + 1] = bits >> (_WIDTH - 1 - column) & 1
    scale = max(1, image.shape[0] // 110)
    large = mask.repeat(scale, 0).repeat(scale, 1)[: image.shape[0], : image.shape[1]]
    corner = image[: large.shape[0], : large.shape[1]]
    corner[...] = 0
    corner[large] = value
