"""Planes of an array with lower resolution levels, in bands of rows, so that memory does not grow with a plane.

A lower level comes from the dataset if that has one of half the size, else it is the mean of 2 x 2 pixels of the level
above, rounded half up: the rule of mirrors (docs/mirrors.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.dataset.level_array import LevelArray
from acqstream.grid.block_mean import BlockMean
from acqstream.grid.block_sizes import reduced_shape

MAX_BYTES = 256 * 2**20
"""Of planes that are kept as a whole while their levels are made; of larger ones, of the rows read at once."""

SMALLEST_SIDE = 512  # levels are made until the longer side is not above it


@dataclass(slots=True)
class PlaneLevels:
    """Planes (Y, X) or (Y, X, 3) of `full` with `count` levels, the full resolution included.

    stored: arrays of the dataset's own lower levels by level number, with the axes of `full`. For use by one thread.
    """

    full: LevelArray
    count: int
    stored: dict[int, LevelArray] = field(default_factory=dict)
    max_bytes: int = MAX_BYTES
    _mean: BlockMean = field(default_factory=BlockMean)
    _kept: tuple[tuple[int, ...], list[NDArray[Any]]] | None = None
    _slab: tuple[tuple[int, ...], NDArray[Any]] | None = None

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of a plane in each level."""
        shapes = [self.full.shape[len(self.full.outer) :]]
        for level in range(1, self.count):
            stored = self.stored.get(level)
            own = reduced_shape(shapes[-1], _ratios(shapes[-1]))
            shapes.append(own if stored is None else stored.shape[len(stored.outer) :])
        return shapes

    def bands(self, position: Sequence[int], level: int, rows: int) -> Iterator[NDArray[Any]]:
        """The plane at `position` along the outer axes, in bands of `rows` rows; the last one may have fewer."""
        height = self.shapes[level][0]
        for top in range(0, height, rows):
            yield self._rows(tuple(position), level, top, min(top + rows, height))

    def _rows(self, position: tuple[int, ...], level: int, top: int, stop: int) -> NDArray[Any]:
        array = self.stored.get(level, self.full if level == 0 else None)
        plane_bytes = int(np.prod(self.shapes[0])) * self.full.dtype.itemsize
        if plane_bytes <= self.max_bytes:
            return self._plane(position, level)[top:stop]
        if array is not None:
            return array[(*position, slice(top, stop))]
        base = max((own for own in self.stored if own < level), default=0)
        source, factor = self.stored.get(base, self.full), 2 ** (level - base)
        height, width = source.shape[len(source.outer) :][:2]
        row_bytes = width * int(np.prod(self.shapes[0][2:])) * self.full.dtype.itemsize
        step = max(1, self.max_bytes // (row_bytes * factor))  # rows of this level that are read at once
        parts = []
        for first in range(top, stop, step):
            last = min(first + step, stop)
            part = source[(*position, slice(first * factor, min(last * factor, height)))]
            parts.append(self._reduced(part, level - base))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _plane(self, position: tuple[int, ...], level: int) -> NDArray[Any]:
        if self._kept is None or self._kept[0] != position:
            self._kept = (position, [self._full_plane(position)])
        planes = self._kept[1]
        while len(planes) <= level:
            stored = self.stored.get(len(planes))
            planes.append(self._reduced(planes[-1], 1) if stored is None else stored[position])
        return planes[level]

    def _full_plane(self, position: tuple[int, ...]) -> NDArray[Any]:
        """A plane of the full resolution. Planes of a layer of chunks are read at once: each chunk is decoded once."""
        depth = self.full.layout.chunk_shape[len(position) - 1] if position else 1
        plane_bytes = int(np.prod(self.shapes[0])) * self.full.dtype.itemsize
        if depth == 1 or depth * plane_bytes > self.max_bytes:
            return self.full[position]
        start = position[-1] // depth * depth
        corner = (*position[:-1], start)
        if self._slab is None or self._slab[0] != corner:
            self._slab = (corner, self.full[(*position[:-1], slice(start, start + depth))])
        plane: NDArray[Any] = self._slab[1][position[-1] - start]
        return plane

    def _reduced(self, plane: NDArray[Any], times: int) -> NDArray[Any]:
        for _ in range(times):
            ratios = _ratios(plane.shape)
            plane = self._mean.mean([plane], ratios, reduced_shape(plane.shape, ratios))
        return plane


def level_count(shape: Sequence[int]) -> int:
    """Number of levels of a picture of this shape (Y, X, ...), the full resolution included."""
    longer, count = max(shape[:2]), 1
    while longer > SMALLEST_SIDE:
        longer, count = longer // 2, count + 1
    return count


def _ratios(shape: Sequence[int]) -> tuple[int, ...]:
    return (2, 2, *(1 for _ in shape[2:]))
