"""Test images whose every pixel follows from the frame number and the position.

A frame is a slice of one fixed noise sequence plus its number, wrapping at the number of significant bits. Number,
shape and dtype prove each pixel of a stored frame.
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
