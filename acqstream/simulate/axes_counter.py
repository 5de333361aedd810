"""Axes of the n-th frame: counting through named axes, the last one fastest."""

from __future__ import annotations

import math
from dataclasses import dataclass

from acqstream.errors import ProtocolError
from acqstream.model.axes import Axes, AxisValue, check_axes


@dataclass(frozen=True, slots=True)
class CountedAxis:
    """One axis: `size` values 0, 1, 2 ..., or the `labels` in turn. size None (first axis only): as many as needed."""

    name: str
    size: int | None = None
    labels: tuple[str, ...] = ()

    def value(self, index: int) -> AxisValue:
        return self.labels[index] if self.labels else index


@dataclass(frozen=True, slots=True)
class AxesCounter:
    """Gives frame number n its axes."""

    axes: tuple[CountedAxis, ...]

    @property
    def count(self) -> int | None:
        """Number of positions; None if the first axis is unbounded."""
        sizes = [axis.size for axis in self.axes]
        return math.prod(size for size in sizes if size is not None) if None not in sizes else None

    def at(self, number: int) -> dict[str, AxisValue]:
        """The axes of frame `number`. Raises IndexError after the last position."""
        values: dict[str, AxisValue] = {}
        remainder = number
        for axis in reversed(self.axes):
            remainder, index = divmod(remainder, axis.size) if axis.size is not None else (0, remainder)
            values[axis.name] = axis.value(index)
        if remainder:
            raise IndexError(f"frame {number} is after the last of {self.count} positions")
        return {axis.name: values[axis.name] for axis in self.axes}


def parse_axes(text: str) -> AxesCounter:
    """The counter that `text` describes, e.g. "time=10,channel=DAPI|FITC,z=5" or "time,z=5".

    An axis has a size, or names separated by "|". The first axis may stand without: it counts as long as needed.
    Raises ValueError.
    """
    axes = tuple(_parse_axis(part.strip(), position) for position, part in enumerate(text.split(",")))
    names = [axis.name for axis in axes]
    if len(set(names)) != len(names):
        raise ValueError(f"axes {text!r} name an axis twice")
    counter = AxesCounter(axes)
    first: Axes = counter.at(0)
    try:
        check_axes(first)
    except ProtocolError as error:
        raise ValueError(str(error)) from error
    return counter


def _parse_axis(part: str, position: int) -> CountedAxis:
    name, _, value = part.partition("=")
    if not value:
        if position > 0:
            raise ValueError(f"axis {name!r} needs a size or names, e.g. {name}=5; only the first axis may go without")
        return CountedAxis(name)
    if value.isascii() and value.isdigit():
        if int(value) == 0:
            raise ValueError(f"axis {name!r} has size 0")
        return CountedAxis(name, int(value))
    labels = tuple(value.split("|"))
    if not all(labels) or len(set(labels)) != len(labels):
        raise ValueError(f"axis {name!r}: names in {value!r} must not be empty or equal")
    return CountedAxis(name, len(labels), labels)
