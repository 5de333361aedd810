"""A second way to make a pyramid, slow and plain: each tile through all levels, as in Java."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Key = tuple[tuple[tuple[str, Any], ...], int, int]
"""Other axes in order of their names, row, column."""

Image = NDArray[Any]


def reduced(source: Image, origin: tuple[int, int], limits: tuple[int, int], inner: tuple[int, int]) -> Image:
    """Means of 2 x 2 pixels: origin, limits and inner are (y, x), as the Java writer names them."""
    (oy, ox), (limit_y, limit_x), (h, w) = origin, limits, inner
    samples = source.reshape(*source.shape[:2], -1).astype(np.int64)
    ys, xs = np.arange(0, h, 2), np.arange(0, w, 2)
    total = np.zeros((len(ys), len(xs), samples.shape[2]), np.int64)
    pixels = np.zeros((len(ys), len(xs), 1), np.int64)
    for below in (False, True):
        for right in (False, True):
            there_y = (ys < limit_y - 1) | (not below)
            there_x = (xs < limit_x - 1) | (not right)
            y, x = np.flatnonzero(there_y), np.flatnonzero(there_x)
            total[np.ix_(y, x)] += samples[np.ix_(oy + ys[y] + below, ox + xs[x] + right)]
            pixels[np.ix_(y, x)] += 1
    out = total // pixels
    return out.astype(source.dtype).reshape(*out.shape[:2], *source.shape[2:])


def key_of(axes: Mapping[str, Any]) -> Key:
    rest = sorted((name, value) for name, value in axes.items() if name not in ("row", "column"))
    return tuple(rest), axes["row"], axes["column"]


class ReferencePyramid:
    """All levels at every moment: each arriving tile goes through the whole chain at once."""

    def __init__(self, levels: int, overlap: tuple[int, int] = (0, 0)) -> None:
        self.levels: list[dict[Key, Image]] = [{} for _ in range(levels + 1)]
        self._overlap = overlap

    def add(self, axes: Mapping[str, Any], image: Image) -> None:
        height, width = image.shape[:2]
        oy, ox = self._overlap
        inner = height - oy, width - ox
        rest, row, column = key_of(axes)
        self.levels[0][rest, row, column] = image
        source, origin, limits = image, (oy // 2, ox // 2), (height, width)
        for level in self.levels[1:]:
            half = reduced(source, origin, limits, inner)
            key = rest, row // 2, column // 2
            tile = level.setdefault(key, np.zeros((*inner, *image.shape[2:]), image.dtype))
            top, left = row % 2 * inner[0] // 2, column % 2 * inner[1] // 2
            tile[top : top + half.shape[0], left : left + half.shape[1]] = half
            source, origin, limits = tile, (0, 0), inner
            row, column = row // 2, column // 2


def reference_of(
    frames: Iterable[tuple[Mapping[str, Any], Image]], levels: int, overlap: tuple[int, int] = (0, 0)
) -> list[dict[Key, Image]]:
    """The levels, full resolution first, of frames in order of arrival."""
    pyramid = ReferencePyramid(levels, overlap)
    for axes, image in frames:
        pyramid.add(axes, image)
    return pyramid.levels
