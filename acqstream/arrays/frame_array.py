"""The array that frames make up: the one rule for readers, mirrors and the web. Pure.

docs/arrays.md states the rule with examples. A `FrameArray` is the array at one moment, made from the values seen so
far; a growing reader makes another one when its number of frames has changed. Along an axis integers come first, in
numerical order. Names follow: declared ones in the order of their declaration, others in order of first appearance.
"""

from __future__ import annotations

import itertools
import math
import operator
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from acqstream.arrays.mosaic import Canvas, Side
from acqstream.model.axes import COLUMN, PICTURE_AXES, ROW, Axes, AxisValue, axis_order

MAX_PLANNED = 10_000_000  # values along an axis; a damaged file may declare any size


@dataclass(frozen=True, slots=True)
class AxisPlan:
    """The plan of one axis: names of its values, its size (0: unknown) and its first integer, as declared."""

    labels: tuple[str, ...] = ()
    size: int = 0
    start: int = 0

    def home(self, seen: Sequence[AxisValue]) -> AxisValue:
        """Return the value that a frame without this axis counts as: 0, or the first name of an axis with names."""
        if any(isinstance(value, int) for value in seen):
            return 0
        return self.labels[0] if self.labels else next(iter(seen), 0)

    def ordered(self, seen: Sequence[AxisValue]) -> list[AxisValue]:
        """Return each of these values once, in the order of their places."""
        kinds = set(map(type, seen))
        if kinds == {int} and all(map(operator.lt, seen, itertools.islice(seen, 1, None))):
            return list(seen)  # a million time points are not sorted again whenever one is added
        integers = sorted({value for value in seen if isinstance(value, int)})
        names = dict.fromkeys(value for value in seen if isinstance(value, str))
        return [*integers, *dict.fromkeys([*(label for label in self.labels if label in names), *names])]

    def with_planned(self, values: Sequence[AxisValue]) -> Sequence[AxisValue] | None:
        """Return ordered values together with all planned ones; None if every planned value is among them."""
        if self.labels and not (values and isinstance(values[0], int)):
            return None if set(self.labels) <= set(values) else self.ordered([*values, *self.labels])
        if any(isinstance(value, str) for value in values[-1:]) or not self.size:
            return None
        planned = range(self.start, self.start + self.size)
        first, stop = bisect_left(values, planned.start), bisect_left(values, planned.stop)
        if stop - first == self.size:
            return None
        if stop - first == len(values):
            return planned
        return [*values[:first], *planned, *values[stop:]]


def axis_plan(axis: Mapping[str, Any]) -> AxisPlan:
    """Return the plan of an axis of a request (an item of `axes` in acqstream.json)."""
    labels, size = axis.get("labels"), axis.get("size")
    names = [label for label in labels if isinstance(label, str)] if isinstance(labels, list | tuple) else []
    planned = min(size, MAX_PLANNED) if isinstance(size, int) and size > 0 else 0
    start = axis.get("start")
    return AxisPlan(tuple(dict.fromkeys(names)), planned, start if type(start) is int else 0)


def axis_plans(declared: Sequence[Mapping[str, Any]]) -> dict[str, AxisPlan]:
    """Return the plans of all axes of a request by name."""
    return {str(axis["name"]): axis_plan(axis) for axis in declared if isinstance(axis.get("name"), str)}


_NO_PLAN = AxisPlan()
_TILES = range(-(2**31), 2**31)  # rows and columns


@dataclass(frozen=True)  # no slots: `_places` is cached in the instance
class FrameArray:
    """The array of all frames at one moment: axes of frames, then y and x, then c for RGB.

    values are those of each axis of the frames, slowest axis first: the value at a position is its coordinate. canvas
    is what y and x cover. frame_shape is (Y, X) or (Y, X, 3). homes are the values that frames without an axis
    count as, of axes that some frames lack. kinds are the sets of axes that frames have. planned are all values of
    a plan, for axes of which some have no frame yet.
    """

    values: Mapping[str, Sequence[AxisValue]]
    canvas: Canvas
    frame_shape: tuple[int, ...]
    is_stitched: bool = False
    homes: Mapping[str, AxisValue] = field(default_factory=dict)
    kinds: tuple[tuple[str, ...], ...] = ()
    planned: Mapping[str, Sequence[AxisValue]] = field(default_factory=dict)
    _places: dict[str, dict[AxisValue, int]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def axes(self) -> tuple[str, ...]:
        """Names, slowest first."""
        return (*self.values, *PICTURE_AXES[: len(self.frame_shape)])

    @property
    def shape(self) -> tuple[int, ...]:
        """Size along each of `axes`."""
        return (*map(len, self.values.values()), *self.canvas.shape, *self.frame_shape[2:])

    @property
    def place_count(self) -> int:
        """Number of places for frames; of a mosaic, for tiles."""
        return math.prod(map(len, self.values.values())) * self.canvas.y.count * self.canvas.x.count

    def place(self, key: Axes) -> tuple[int, ...] | None:
        """Return the position of a frame along `values`; None for a frame that has no place in this array.

        A frame that lacks an axis counts as having its home value. A tile lies at the position of its mosaic.
        """
        position = []
        for name in self.values:
            value = key.get(name, self.homes.get(name))
            at = None if value is None else self._places_of(name).get(value)
            if at is None:
                return None
            position.append(at)
        return tuple(position)

    def keys_at(self, position: Sequence[int], tile: tuple[int, int] | None = None) -> Iterator[dict[str, AxisValue]]:
        """Yield the keys that a frame at this position may have; there are several where some frames lack an axis.

        tile is its (row, column) in a mosaic. If frames of several keys exist, the last one that arrived counts.
        """
        full = {name: values[at] for (name, values), at in zip(self.values.items(), position, strict=True)}
        if tile is not None:
            full[ROW], full[COLUMN] = tile
        if not self.homes:
            yield full
            return
        for kind in self.kinds:
            if all(name in kind or self.homes.get(name) == value for name, value in full.items()):
                yield {name: value for name, value in full.items() if name in kind}

    def with_plan(self) -> FrameArray:
        """Return the array that this becomes if every planned frame arrives: its empty places count as missing."""
        return replace(self, values={name: self.planned.get(name, values) for name, values in self.values.items()})

    def _places_of(self, name: str) -> dict[AxisValue, int]:
        places = self._places.get(name)
        if places is None:
            places = self._places[name] = {value: at for at, value in enumerate(self.values[name])}
        return places


def frame_array(
    seen: Mapping[str, Sequence[AxisValue]],
    frame_shape: Sequence[int],
    *,
    order: Iterable[str] = (),
    plans: Mapping[str, AxisPlan] | None = None,
    kinds: Iterable[Sequence[str]] = (),
    overlap: tuple[int, int] | None = None,
) -> FrameArray:
    """Return the array of the frames seen so far.

    seen are their values by axis: axes in order of first appearance, names too, integers in any order. order are the
    axes whose order was declared. kinds are the sets of axes that frames have (default: all have all). overlap is
    that of tiles, (y, x) in pixels; None without tiles.
    """
    plans = plans or {}
    sets = tuple(tuple(kind) for kind in kinds)
    values: dict[str, Sequence[AxisValue]] = {}
    homes: dict[str, AxisValue] = {}
    planned: dict[str, Sequence[AxisValue]] = {}
    canvas = _mosaic(seen, frame_shape, overlap)
    is_stitched = canvas is not None
    for name in axis_order(seen, order):
        if is_stitched and name in (ROW, COLUMN):
            continue
        plan, arrived = plans.get(name, _NO_PLAN), seen[name]
        if any(name not in kind for kind in sets):
            homes[name] = plan.home(arrived)
            arrived = [*arrived, homes[name]]
        values[name] = plan.ordered(arrived)
        more = plan.with_planned(values[name])
        if more is not None:
            planned[name] = more
    if canvas is None:
        canvas = Canvas(Side(frame_shape[0]), Side(frame_shape[1]))
    return FrameArray(values, canvas, tuple(frame_shape), is_stitched, homes, sets, planned)


def _mosaic(
    seen: Mapping[str, Sequence[AxisValue]], frame_shape: Sequence[int], overlap: tuple[int, int] | None
) -> Canvas | None:
    """The picture of all tiles; None for frames that are not tiles, or rows and columns that are not integers."""
    if overlap is None:
        return None
    sides: list[Side] = []
    for name, shared, length in zip((ROW, COLUMN), overlap, frame_shape, strict=False):
        tiles = [value for value in seen.get(name, ()) if isinstance(value, int) and value in _TILES]
        if not tiles or len(tiles) != len(seen[name]) or not 0 <= shared < length:
            return None
        first = min(tiles)
        sides.append(Side(length - shared, shared // 2, first, max(tiles) - first + 1))
    return Canvas(*sides)
