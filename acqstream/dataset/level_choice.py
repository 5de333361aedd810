"""Arrays of all levels for one view, and the choice of a level for a small picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from acqstream.dataset.dataset import Dataset
from acqstream.dataset.level import Level
from acqstream.dataset.level_array import LevelArray
from acqstream.dataset.source import X, Y
from acqstream.model.axes import AxisValue

MIN_SIDE = 240
"""Pixels of the longer side of a picture that a small picture is made of, at least."""


def level_arrays(dataset: Dataset, fixed: Mapping[str, AxisValue]) -> list[LevelArray]:
    """The full resolution, and the same part of the levels below that have its axes; `fixed` axes have one value."""
    full = dataset.levels[0]
    layout = full.source.layout()
    for name, value in fixed.items():
        layout = layout.at(name, value)
    arrays = [LevelArray(full.source, layout, fixed)]
    for level in dataset.levels[1:]:
        if not level.item_count or level.axes != layout.axes:
            break
        lower = layout.in_level(level.source.layout(), factors_between(full, level))
        arrays.append(LevelArray(level.source, lower, fixed))
    return arrays


def small_array(dataset: Dataset, fixed: Mapping[str, AxisValue], min_side: int = MIN_SIDE) -> LevelArray:
    """The part that the full resolution shows, from the lowest level with `min_side` pixels and all outer positions."""
    arrays = level_arrays(dataset, fixed)
    return arrays[_small_level(arrays, min_side)]


def small_factors(dataset: Dataset, min_side: int) -> dict[str, int]:
    """Items of the full resolution that an item of `small_array` covers, by axis; nothing is fixed."""
    level = _small_level(level_arrays(dataset, {}), min_side)
    return factors_between(dataset.levels[0], dataset.levels[level])


def _small_level(arrays: Sequence[LevelArray], min_side: int) -> int:
    for number in reversed(range(len(arrays))):
        sides = [len(axis.values) for axis in arrays[number].layout.pixels[:2]]
        if max(sides, default=0) >= min_side and arrays[number].values == arrays[0].values:
            return number
    return 0


def factors_between(full: Level, level: Level) -> dict[str, int]:
    """Items of one level that an item of another one covers, by axis."""
    above, below = full.source.factors, level.source.factors
    return {name: below.get(name, 1) // above.get(name, 1) for name in {*above, *below, Y, X}}
