"""Reduces slabs of one level into slabs of the next."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from acqstream.arrays.array_spec import Position
from acqstream.grid import kernels
from acqstream.grid.block_mean import BlockMean
from acqstream.grid.block_sizes import BAND_BYTES
from acqstream.mirrors.level_extents import LevelExtents
from acqstream.mirrors.slab import SlabBuffer
from acqstream.mirrors.slab_grid import Piece


class ReducedPart(NamedTuple):
    """planes of a slab are averaged into this piece of the next level."""

    piece: Piece
    planes: Sequence[int]


class LevelReduction:
    """Geometry of slabs across levels, and the means themselves. `reduce` may be called from any thread."""

    def __init__(self, extents: LevelExtents) -> None:
        self._extents = extents
        self._grids = extents.grids
        self._means = BlockMean()

    def target(self, level: int, key: Position) -> Position | None:
        """Return the slab of the next level that a slab is reduced into; None for a last strip of less than a block."""
        grid = self._grids[level]
        first = [at * step // ratio for at, step, ratio in zip(key, grid.step, grid.outer_ratios, strict=False)]
        pieces = self._grids[level + 1].pieces_of((*first, *key[len(grid.outer) :]))
        return pieces[0].key if pieces else None

    def chain(self, key: Position) -> Iterator[Position]:
        """Yield a slab of level 0, and level by level the one that it is reduced into."""
        below: Position | None = key
        for level in range(len(self._grids)):
            if below is None:
                return
            yield below
            below = self.target(level, below) if level + 1 < len(self._grids) else None

    def sources(self, level: int, key: Position) -> Iterator[Position]:
        """Yield the slabs of the level above that are reduced into this slab, in order."""
        above, grid = self._grids[level - 1], self._grids[level]
        sides = [
            range(at * size * ratio // depth, -(-(at + 1) * size * ratio // depth))
            for at, size, ratio, depth in zip(
                grid.outer_key(key), grid.step, above.outer_ratios, above.step, strict=True
            )
        ]
        places = key[len(grid.outer) :]
        pieces = [[span.tile for span in cut.in_slab(at)] for cut, at in zip(grid.cuts, places, strict=True)]
        return itertools.product(*sides, *pieces)

    def parts(self, level: int, key: Position) -> Iterator[ReducedPart]:
        """Yield what this slab contributes to the next level, plane by plane of the target slab."""
        if level + 1 == len(self._grids):
            return
        grid, below = self._grids[level], self._grids[level + 1]
        sizes, limits = self._extents.shape(level), self._extents.shape(level + 1)
        starts = [at * step for at, step in zip(grid.outer_key(key), grid.step, strict=True)]
        sides = [
            range(start // ratio, min((start + step) // ratio, limit))
            for start, step, ratio, limit in zip(starts, grid.step, grid.outer_ratios, limits, strict=True)
        ]
        for place in itertools.product(*sides):
            above = [
                range(at * ratio, min((at + 1) * ratio, size))
                for at, ratio, size in zip(place, grid.outer_ratios, sizes, strict=True)
            ]
            for piece in below.pieces_of((*place, *key[len(grid.outer) :])):  # one; none beyond the picture
                yield ReducedPart(piece, [grid.locate(source)[1] for source in itertools.product(*above)])

    def reduce(self, source: SlabBuffer, target: SlabBuffer, part: ReducedPart) -> None:
        """Write the mean of source planes into a plane of the target, or into a piece of it.

        numpy does it in bands, so that each band stays in the processor's cache from block to block.
        """
        grid, (_, _, plane, place, spans) = source.grid, part.piece
        ratios, limits, target_box = grid.picture_ratios, list(grid.plane_shape), [*map(slice, target.grid.plane_shape)]
        if spans:
            y, x = (slice(span.first, span.stop) for span in spans)
            target_box = list(target.grid.box(y, x))
            inside = [slice(cut.inside(at)) for cut, at in zip(grid.cuts, place[-2:], strict=True)]
            limits = [part.stop for part in grid.box(*inside)]
        begins = begin, *others = [part.start or 0 for part in target_box]
        shape = height, *sizes = [part.stop - (part.start or 0) for part in target_box]
        places = [source.plane(number) for number in part.planes]
        if kernels.reduce(
            places, limits, target.plane(plane), begins, shape, ratios=ratios, is_past_cache=target.is_past_cache
        ):
            return
        wholes = [
            slice(0, min(size * ratio, end)) for size, ratio, end in zip(sizes, ratios[1:], limits[1:], strict=True)
        ]
        row_bytes = math.prod(grid.plane_shape[1:]) * grid.spec.dtype.itemsize
        step = max(1, BAND_BYTES // max(1, row_bytes * ratios[0]))
        for first in range(0, height, step):
            count = min(step, height - first)
            rows = slice(first * ratios[0], min((first + count) * ratios[0], limits[0]))
            means = [source.get(number, (rows, *wholes)) for number in part.planes]
            target.put(plane, self._means.mean(means, ratios, (count, *sizes)), (begin + first, *others))
