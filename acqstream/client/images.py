"""Images as callers have them, and their copy as the wire wants it: C order, little-endian."""

from __future__ import annotations

import functools
from mmap import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.model.pixel_type import PixelType, pixel_type_of

_MAX_DIMENSIONS = 3


def as_image(image: object) -> NDArray[Any]:
    """`image` as an array (Y, X) or (Y, X, 3), without a copy where it is one or offers its memory."""
    return image if type(image) is np.ndarray else np.asarray(image)


def pixel_type_of_image(image: NDArray[Any], bits: int | None) -> PixelType:
    """How the image is stored. Raises ValueError that says what is supported."""
    if image.ndim > _MAX_DIMENSIONS:
        raise ValueError(f"shape {image.shape} must be (Y, X), or (Y, X, 3) for RGB")
    return _pixel_type(image.dtype.str, image.shape, bits)


@functools.lru_cache(maxsize=256)
def _pixel_type(dtype: str, shape: tuple[int, ...], bits: int | None) -> PixelType:
    little_endian = "<u2" if dtype == ">u2" else dtype  # the copy swaps the bytes
    return pixel_type_of(little_endian, shape, bits)


def copy_pixels(image: NDArray[Any], pixel_type: PixelType, memory: mmap, start: int) -> None:
    """Write the pixels at `start` of `memory`, C order, in the byte order of `pixel_type`."""
    target: NDArray[Any] = np.ndarray(image.shape, pixel_type.dtype, memory, start)
    np.copyto(target, image, casting="equiv")
