"""Units: the smallest pieces of an array that can be mirrored by themselves, with all lower levels. Pure geometry.

Two units share no slab of any level, and no file. So different processes can make them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from acqstream.arrays.array_spec import Position
from acqstream.mirrors.slab_grid import SlabGrid

UnitRun = tuple[int, int]
"""The first number of a run, and one after its last."""


def unit_depth(grids: Sequence[SlabGrid]) -> tuple[int, ...]:
    """Return the depth of a unit along the outer axes, in items of level 0."""
    full = grids[0]
    depths = []
    for outer, axis in enumerate(full.outer):
        steps = [math.lcm(grid.step[outer], grid.spec.object_shape[axis]) * grid.spec.factors[axis] for grid in grids]
        depths.append(math.lcm(*steps))
    return tuple(depths)


def unit_of(grids: Sequence[SlabGrid], depth: Sequence[int], level: int, key: Position) -> Position:
    """Return the unit of a slab."""
    grid = grids[level]
    factors = (grid.spec.factors[axis] for axis in grid.outer)
    starts = (at * step * factor for at, step, factor in zip(key, grid.step, factors, strict=True))
    return tuple(start // size for start, size in zip(starts, depth, strict=True))


def runs_of(weights: Sequence[int], least: int) -> list[UnitRun]:
    """Cut a sequence into runs whose weights add up to `least` or more, but for the last one."""
    runs: list[UnitRun] = []
    first = total = 0
    for number, weight in enumerate(weights):
        total += weight
        if total >= least:
            runs.append((first, number + 1))
            first, total = number + 1, 0
    return runs if first == len(weights) else [*runs, (first, len(weights))]


def subtract_runs(runs: Sequence[UnitRun], done: Sequence[UnitRun]) -> list[UnitRun]:
    """Return the parts of the runs that are outside of `done`."""
    left = list(runs)
    for begin, end in done:
        kept: list[UnitRun] = []
        for first, stop in left:
            kept += [(first, min(stop, begin)), (max(first, end), stop)]
        left = [(first, stop) for first, stop in kept if first < stop]
    return left


def joined_runs(runs: Sequence[UnitRun]) -> list[UnitRun]:
    """Return the same numbers in as few runs as possible, in order."""
    found: list[UnitRun] = []
    for first, stop in sorted(runs):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], stop))
        else:
            found.append((first, stop))
    return found
