"""Prepared camera-like frames, handed out in turn: what a benchmark sends, at no cost of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

STAMP_PIXELS = 8
_BACKGROUND = 100.0  # camera offset, counts
_SPACING_PX = 64  # of the bright spots


class FramePool:
    """A rotating set of frames of shape (Y, X) or (Y, X, 3), with the number stamped into the first samples.

    The pool owns the arrays: what `take` returned changes with the `count`-th `take` after it.
    """

    def __init__(self, shape: tuple[int, ...], dtype: str, *, count: int = 8, bits: int | None = None) -> None:
        self._frames = camera_frames(count, shape, dtype, bits)

    def __len__(self) -> int:
        return len(self._frames)

    def take(self, number: int) -> NDArray[Any]:
        """The frame for this number, stamped."""
        image = self._frames[number % len(self._frames)]
        stamp(image, number)
        return image


def camera_frames(count: int, shape: tuple[int, ...], dtype: str, bits: int | None = None) -> list[NDArray[Any]]:
    """Frames as of a camera: bright spots on a slope, Poisson noise; C order, each its own array.

    All but the first are the first one drifted, noise included: drawing noise for each would take seconds.
    """
    kind = np.dtype(dtype)
    top = 2 ** (bits or kind.itemsize * 8) - 1
    rng = np.random.default_rng(5271)
    rows, columns = np.ogrid[: shape[0], : shape[1]]
    spots = np.sin(np.pi * rows / _SPACING_PX) ** 8 * np.sin(np.pi * columns / _SPACING_PX) ** 8
    light = 0.1 + 0.2 * columns / shape[1] + 0.6 * spots
    scale = min(top / 2, 2000.0)
    mean = _BACKGROUND * scale / 2000.0 + scale * light
    if len(shape) == 3:
        mean = np.repeat(mean[:, :, np.newaxis], shape[2], axis=2)
    first = np.minimum(rng.poisson(mean), top).astype(kind)
    return [np.roll(first, (37 * index, 61 * index), axis=(0, 1)) for index in range(count)]


def stamp(image: NDArray[Any], number: int) -> None:
    """Write `number` into the first samples, eight bits in each, lowest first."""
    flat = image.reshape(-1)[:STAMP_PIXELS]
    flat[:] = np.frombuffer(number.to_bytes(STAMP_PIXELS, "little"), dtype=np.uint8)[: flat.size]


def read_stamp(image: NDArray[Any]) -> int:
    """The number that `stamp` wrote (its low bytes, for an image of less than eight samples)."""
    return int.from_bytes(image.reshape(-1)[:STAMP_PIXELS].astype(np.uint8).tobytes(), "little")
