"""Reduces slabs of one level into slabs of the next."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from acqstream.arrays.array_spec import Position
from acqstream.grid.block_mean import BAND_BYTES, BlockMean
from acqstream.mirrors.level_extents import LevelExtents
from acqstream.mirrors.slab import SlabBuffer


class LevelReduction:
    """Geometry of slabs across levels, and the means themselves. `reduce` may be called from any thread."""

    def __init__(self, extents: LevelExtents) -> None:
        self._extents = extents
        self._grids = extents.grids
        self._means = BlockMean()

    def target(self, level: int, key: Position) -> Position:
        """Return the slab of the next level that a slab is reduced into."""
        grid = self._grids[level]
        first = [at * step // ratio for at, step, ratio in zip(key, grid.step, grid.outer_ratios, strict=True)]
        return self._grids[level + 1].locate(first)[0]

    def sources(self, level: int, key: Position) -> Iterator[Position]:
        """Yield the slabs of the level above that are reduced into this slab, in order."""
        above = self._grids[level - 1]
        sides = [
            range(at * size * ratio // depth, -(-(at + 1) * size * ratio // depth))
            for at, size, ratio, depth in zip(key, self._grids[level].step, above.outer_ratios, above.step, strict=True)
        ]
        return itertools.product(*sides)

    def planes(self, level: int, key: Position) -> Iterator[tuple[int, list[int]]]:
        """Yield the planes of the target slab that this slab contributes, each with the planes here to average."""
        if level + 1 == len(self._grids):
            return
        grid, below = self._grids[level], self._grids[level + 1]
        sizes, limits = self._extents.shape(level), self._extents.shape(level + 1)
        starts = [at * step for at, step in zip(key, grid.step, strict=True)]
        sides = [
            range(start // ratio, min((start + step) // ratio, limit))
            for start, step, ratio, limit in zip(starts, grid.step, grid.outer_ratios, limits, strict=True)
        ]
        for place in itertools.product(*sides):
            above = [
                range(at * ratio, min((at + 1) * ratio, size))
                for at, ratio, size in zip(place, grid.outer_ratios, sizes, strict=True)
            ]
            yield below.locate(place)[1], [grid.locate(source)[1] for source in itertools.product(*above)]

    def reduce(self, source: SlabBuffer, target: SlabBuffer, plane: int, sources: Sequence[int]) -> None:
        """Write the mean of source planes into a plane of the target.

        It goes in bands, so that each band stays in the processor's cache from block to block.
        """
        ratios, (height, *others) = source.grid.picture_ratios, target.grid.plane_shape
        row_bytes = math.prod(source.grid.plane_shape[1:]) * source.grid.spec.dtype.itemsize
        step = max(1, BAND_BYTES // max(1, row_bytes * ratios[0]))
        for first in range(0, height, step):
            count = min(step, height - first)
            rows = slice(first * ratios[0], (first + count) * ratios[0])
            band = self._means.mean([source.get(number, rows) for number in sources], ratios, (count, *others))
            target.put(plane, band, first)
