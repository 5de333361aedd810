"""Cuts a level into slabs: the chunks that share their frames. Pure geometry.

A slab has all of y, x and c, and is as deep along the other axes as a chunk; deeper if the next level averages more
positions than a chunk has. So it can be reduced by itself. A plane is the part of a slab that one frame fills.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.grid.block_mean import reduced_size

PICTURE = ("y", "x", "c")
_TRIMMED = frozenset({"time", "z"})  # a run that ended early has less of these; the others keep what was declared


@dataclass(frozen=True, slots=True)
class SlabGrid:
    """The slabs of one level. outer and picture are indices of its axes; step is the depth of a slab along the outer
    axes; ratios are the numbers of items that are averaged into one of the next level, per axis (1 on the last level).
    """

    spec: ArraySpec
    outer: tuple[int, ...]
    picture: tuple[int, ...]
    step: tuple[int, ...]
    ratios: tuple[int, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of chunks of a slab along each axis."""
        found = list(self.spec.grid_shape)
        for axis, step in zip(self.outer, self.step, strict=True):
            found[axis] = step // self.spec.chunk_shape[axis]
        return tuple(found)

    @property
    def slab_bytes(self) -> int:
        return math.prod(self.counts) * self.spec.chunk_bytes

    @property
    def planes(self) -> int:
        """Number of planes of a slab."""
        return math.prod(self.step)

    @property
    def plane_shape(self) -> tuple[int, ...]:
        """Shape of a plane, its axes in the level's order."""
        return tuple(self.spec.shape[axis] for axis in self.picture)

    @property
    def outer_ratios(self) -> tuple[int, ...]:
        return tuple(self.ratios[axis] for axis in self.outer)

    @property
    def picture_ratios(self) -> tuple[int, ...]:
        return tuple(self.ratios[axis] for axis in self.picture)

    def locate(self, place: Sequence[int]) -> tuple[Position, int]:
        """The slab, and the number of the plane in it, at a place along the outer axes."""
        key = tuple(at // step for at, step in zip(place, self.step, strict=True))
        number = 0
        for at, step in zip(place, self.step, strict=True):
            number = number * step + at % step
        return key, number

    def place(self, key: Position, plane: int) -> tuple[int, ...]:
        """The place along the outer axes: the inverse of `locate`."""
        local = self.local(plane)
        return tuple(at * step + more for at, step, more in zip(key, self.step, local, strict=True))

    def local(self, plane: int) -> tuple[int, ...]:
        """The place of a plane in its slab."""
        return tuple(map(int, np.unravel_index(plane, self.step))) if self.step else ()

    def expected(self, key: Position, shape: Sequence[int]) -> int:
        """The planes, as bits, that lie inside `shape`: sizes along the outer axes, 0 for one that is not known."""
        sides = [
            range(step if not size else max(0, min(step, size - at * step)))
            for at, step, size in zip(key, self.step, shape, strict=True)
        ]
        if all(len(side) == step for side, step in zip(sides, self.step, strict=True)):
            return (1 << self.planes) - 1
        return sum(1 << self._number(local) for local in itertools.product(*sides))

    def chunks(self, key: Position) -> Iterator[tuple[Position, Position, int]]:
        """The chunks of a slab: position in the level's grid, position in the slab, and its planes as bits."""
        for local in itertools.product(*map(range, self.counts)):
            position = list(local)
            sides = []
            for axis, at, step in zip(self.outer, key, self.step, strict=True):
                depth = self.spec.chunk_shape[axis]
                position[axis] += at * (step // depth)
                sides.append(range(local[axis] * depth, (local[axis] + 1) * depth))
            planes = sum(1 << self._number(places) for places in itertools.product(*sides))
            yield tuple(position), local, planes

    def _number(self, local: Sequence[int]) -> int:
        number = 0
        for at, step in zip(local, self.step, strict=True):
            number = number * step + at
        return number


def slab_grids(levels: Sequence[ArraySpec]) -> tuple[SlabGrid, ...]:
    """Cut all levels of an array, level 0 first."""
    axes = levels[0].axes
    outer = tuple(n for n, name in enumerate(axes) if name not in PICTURE)
    picture = tuple(n for n, name in enumerate(axes) if name in PICTURE)
    grids: list[SlabGrid] = []
    before: tuple[int, ...] = (1,) * len(outer)  # what the slabs of the level above become here
    for number, level in enumerate(levels):
        ratios = (1,) * len(axes)
        if number + 1 < len(levels):
            ratios = tuple(below // here for below, here in zip(levels[number + 1].factors, level.factors, strict=True))
        step = tuple(
            math.lcm(level.chunk_shape[axis], ratios[axis], depth) for axis, depth in zip(outer, before, strict=True)
        )
        grids.append(SlabGrid(level, outer, picture, step, ratios))
        before = tuple(depth // ratios[axis] for axis, depth in zip(outer, step, strict=True))
    return tuple(grids)


def level_sizes(grids: Sequence[SlabGrid], level: int, sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes of a level along the outer axes for these sizes of level 0."""
    full, here = grids[0], grids[level].spec
    return tuple(
        here.shape[axis] if size == full.spec.shape[axis] else reduced_size(size, here.factors[axis])
        for axis, size in zip(full.outer, sizes, strict=True)
    )


def level_shapes(grids: Sequence[SlabGrid], sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the shapes of all levels for these sizes of level 0 along the outer axes."""
    shapes = []
    for level, grid in enumerate(grids):
        shape = list(grid.spec.shape)
        for axis, size in zip(grid.outer, level_sizes(grids, level, sizes), strict=True):
            shape[axis] = size
        shapes.append(tuple(shape))
    return shapes


def final_sizes(grid: SlabGrid, planned: Sequence[int], extents: Sequence[int]) -> list[int]:
    """Return the sizes of level 0 along the outer axes after the run. extents: the sizes that frames have reached."""
    return [
        come if grid.spec.axes[axis] in _TRIMMED else size
        for axis, size, come in zip(grid.outer, planned, extents, strict=True)
    ]
