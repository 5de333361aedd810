"""Axes of the n-th frame: counting through named axes, the last one fastest, or going over a grid of tiles."""

from __future__ import annotations

import math
from collections.abc import Iterator
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


@dataclass(frozen=True, slots=True)
class TileScan:
    """Rows of tiles, each from left to right, or to and fro with `snake`. overlap is (y, x) in pixels."""

    rows: int
    columns: int
    overlap: tuple[int, int]
    snake: bool = False

    @property
    def count(self) -> int:
        return self.rows * self.columns

    def cell(self, number: int) -> tuple[int, int]:
        """(row, column) of tile `number`; the scan begins again after the last one."""
        row, column = divmod(number % self.count, self.columns)
        return row, self.columns - 1 - column if self.snake and row % 2 else column

    def origin(self, cell: tuple[int, int], shape: tuple[int, ...]) -> tuple[int, int]:
        """(y, x) of the first pixel of a tile of this shape in the stitched picture."""
        return cell[0] * (shape[0] - self.overlap[0]), cell[1] * (shape[1] - self.overlap[1])

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """All cells in the order of the scan."""
        return map(self.cell, range(self.count))


def parse_grid(text: str) -> tuple[int, int]:
    """Rows and columns from "5x7". Raises ValueError."""
    rows, _, columns = text.partition("x")
    if not (rows.isdecimal() and columns.isdecimal() and int(rows) and int(columns)):
        raise ValueError(f"{text!r} must be ROWSxCOLUMNS, e.g. 5x7")
    return int(rows), int(columns)


def parse_overlap(text: str, shape: tuple[int, ...]) -> tuple[int, int]:
    """(y, x) from "64,64" for frames of this shape. Raises ValueError."""
    y, _, x = text.partition(",")
    if not (y.isdecimal() and x.isdecimal()):
        raise ValueError(f"{text!r} must be Y,X in pixels, e.g. 64,64")
    if int(y) >= shape[0] or int(x) >= shape[1]:
        raise ValueError(f"{text!r} must be less than the frame, which has {shape[0]},{shape[1]} pixels")
    return int(y), int(x)
