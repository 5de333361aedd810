"""Prepared camera-like frames, which a benchmark sends at no cost of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_BACKGROUND = 100.0  # camera offset, counts
_SPACING_PX = 64  # of the bright spots


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
