"""The array that readers show of a stored one: axes in order, places without frames hidden. Pure.

Our note in a mirror describes it: `shown_axes` and `axis_values` of ArraySpec. Without it readers show the stored one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec
from acqstream.arrays.frame_array import AxisPlan
from acqstream.arrays.mosaic import Side
from acqstream.grid.block_sizes import reduced_size
from acqstream.model.axes import PICTURE_AXES, AxisValue

_MAX_COUNT = 2**31
_NO_PLAN = AxisPlan()


@dataclass(frozen=True, slots=True)
class ShownAxis:
    """An axis of the shown array.

    stored is the position of the axis in the stored array. places are the stored places in the order in which they are
    shown, values the coordinates of frames there; both are as long as the axis. numbers are distances from the first
    stored place, in items of the level; None where values have names.
    """

    name: str
    stored: int
    places: Sequence[int]
    values: Sequence[AxisValue]
    numbers: Sequence[int] | None

    def places_of(self, values: Sequence[AxisValue]) -> Sequence[int]:
        """Return the stored places of these values; -1 for values that the axis does not have."""
        if isinstance(self.values, range):  # integers that are their own places
            own = self.values
            return values if isinstance(values, range) else [at if at in own else -1 for at in values]  # type: ignore[misc]
        known = dict(zip(self.values, self.places, strict=True))
        return [known.get(value, -1) for value in values]


def shown_axes(spec: ArraySpec) -> tuple[ShownAxis, ...]:
    """Return the axes of a level as readers show them, slowest first.

    Without noted values, labels stand for them if every place has one, else numbers. On a lower level a place is
    shown if it covers a shown one of level 0, whose first value it has.
    """
    names = spec.shown_axes or spec.axes
    found = []
    for name in names:
        at = spec.axes.index(name)
        size, factor = spec.shape[at], spec.factors[at]
        values = spec.axis_values.get(name)
        if values is None or name in PICTURE_AXES:
            texts, places = spec.labels.get(name, ()), range(size)
            found.append(ShownAxis(name, at, places, list(texts) if len(texts) == size else places, places))
        elif isinstance(values, range) and factor == 1:
            shown = range(min(size, len(values)))
            found.append(ShownAxis(name, at, shown, shown, shown))
        else:
            found.append(_ordered(name, at, values, size, factor))
    return tuple(found)


def _ordered(name: str, at: int, values: Sequence[AxisValue | None], size: int, factor: int) -> ShownAxis:
    """Places with frames, in the order of their values."""
    kept = reduced_size(len(values), factor) if factor > 1 else len(values)
    first: dict[int, AxisValue] = {}  # by place of this level
    place_of: dict[AxisValue, int] = {}
    for place, value in enumerate(values):
        here = min(place // factor, max(kept - 1, 0))
        if value is not None and here < size and here not in first:
            first[here] = value
            place_of[value] = here
    ordered = _NO_PLAN.ordered(list(place_of))
    places = [place_of[value] for value in ordered]
    has_names = any(isinstance(value, str) for value in ordered)
    return ShownAxis(name, at, places, ordered, None if has_names else places)


Part = tuple[int, slice | list[int], slice | list[int]]
"""A chunk along one axis: its number, the positions in the result that it fills, and those in it that are taken."""


def parts_along(places: Sequence[int], size: int, step: int) -> list[Part]:
    """Return the chunks of `step` items that hold these stored places, each once. Places beyond `size` are left out."""
    if isinstance(places, range):
        inside = [at for at in (0, len(places) - 1) if places and 0 <= places[at] < size]
        if len(inside) == 2 or not places:
            return [(run.tile, run.target, run.source) for run in Side(step).runs(places)]
    chunks: dict[int, tuple[list[int], list[int]]] = {}
    for at, place in enumerate(places):
        if 0 <= place < size:
            targets, sources = chunks.setdefault(place // step, ([], []))
            targets.append(at)
            sources.append(place % step)
    return [(chunk, targets, sources) for chunk, (targets, sources) in sorted(chunks.items())]


def copy_part(
    target: NDArray[Any],
    at: Sequence[slice | list[int]],
    source: NDArray[Any],
    taken: Sequence[slice | list[int]],
) -> None:
    """Copy the taken positions of one array to positions of another one; an item per axis."""
    if all(isinstance(item, slice) for item in (*at, *taken)):
        target[tuple(at)] = source[tuple(taken)]
    else:
        target[_grid(at, target.shape)] = source[_grid(taken, source.shape)]


def _grid(items: Sequence[slice | list[int]], shape: Sequence[int]) -> tuple[NDArray[Any], ...]:
    """Positions along each axis, as numpy takes them together."""
    return np.ix_(
        *(np.arange(size)[item] if isinstance(item, slice) else item for item, size in zip(items, shape, strict=True))
    )


def in_stored_order(shown: NDArray[Any], axes: Sequence[ShownAxis], ndim: int) -> NDArray[Any]:
    """Return a view of a shown array with the axes of the stored one, hidden axes included."""
    order = sorted(range(len(axes)), key=lambda at: axes[at].stored)
    hidden = sorted(set(range(ndim)).difference(axis.stored for axis in axes))
    return np.expand_dims(shown.transpose(order), hidden)


def note_of_values(shown: Sequence[str], axis_values: Mapping[str, Sequence[AxisValue | None]]) -> dict[str, Any]:
    """Return our note of the shown array, as JSON; an axis with the values 0 to n - 1 is the number n."""
    if not shown:
        return {}
    values = {name: len(values) if isinstance(values, range) else [*values] for name, values in axis_values.items()}
    return {"shown_axes": [*shown], "axis_values": values}


def read_note_of_values(
    note: Mapping[str, Any], axes: Sequence[str]
) -> tuple[tuple[str, ...], dict[str, Sequence[AxisValue | None]]]:
    """Return `shown_axes` and `axis_values` of a note in JSON; nothing where they are missing or damaged."""
    shown, given = note.get("shown_axes"), note.get("axis_values")
    if not isinstance(shown, list) or not all(isinstance(name, str) and name in axes for name in shown):
        return (), {}
    hidden = set(axes).difference(shown)
    if len(set(shown)) < len(shown) or hidden & set(PICTURE_AXES) or not isinstance(given, dict):
        return (), {}
    found: dict[str, Sequence[AxisValue | None]] = {}
    for name, values in given.items():
        if isinstance(values, int) and not isinstance(values, bool) and 0 <= values < _MAX_COUNT:
            found[name] = range(values)
        elif isinstance(values, list) and all(value is None or type(value) in (int, str) for value in values):
            found[name] = tuple(values)
        else:
            return (), {}
    return tuple(shown), found
