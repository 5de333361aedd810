"""Orders the values along an axis of frames. Pure.

Integers come first, in numerical order. Names follow: declared ones in the order of their declaration, others in
order of first appearance.
"""

from __future__ import annotations

import itertools
import operator
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from acqstream.model.axes import AxisValue

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
