"""One resolution level of a dataset as an array."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Sequence
from types import EllipsisType
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from acqstream.errors import DatasetError, FrameNotFound
from acqstream.formats.base import FrameReader
from acqstream.model.axes import Axes, AxisValue

Selector = slice | SupportsIndex | EllipsisType
Selection = Selector | tuple[Selector, ...]


class Level:
    """The frames of one level as an array: their axes, slowest first, then y, x and for RGB c.

    Along an axis of the frames the array has one position per value seen so far, in the order of `axis_values`.
    Frames that lack one of the axes are not part of the array.
    """

    def __init__(self, reader: FrameReader) -> None:
        self._reader = reader

    def axis_values(self) -> dict[str, list[AxisValue]]:
        """Values seen so far by axis, slowest axis first: by `AxisOrder` of the summary, else as they appeared."""
        values = self._reader.axis_values()
        order = self._reader.summary_metadata.get("AxisOrder")
        names = [name for name in order if isinstance(name, str)] if isinstance(order, list) else []
        return {name: values[name] for name in (*names, *values) if name in values}

    @property
    def axes(self) -> tuple[str, ...]:
        """Names, slowest first."""
        return (*self.axis_values(), *("y", "x", "c")[: len(self._frame_shape())])

    @property
    def shape(self) -> tuple[int, ...]:
        """Size along each of `axes`, by the shape of the first frame."""
        return (*(len(values) for values in self.axis_values().values()), *self._frame_shape())

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """dtype of the first frame. Raises DatasetError while there is none."""
        self._frame_shape()
        return self._reader.frame_dtype(0)

    def read(self, selection: Selection = ...) -> NDArray[Any]:
        """A part of the array, selected as in numpy with slices, integers and Ellipsis; a new array.

        Reads only the frames selected. Frames that are not there are zeros. Raises IndexError for a selection that
        does not fit, DatasetError naming a frame whose shape or dtype is another than that of the first frame.
        """
        axis_values = self.axis_values()
        frame_shape = self._frame_shape()
        shape = (*(len(values) for values in axis_values.values()), *frame_shape)
        selectors = _expand(selection, shape)
        outer, inner = selectors[: len(axis_values)], selectors[len(axis_values) :]
        chosen = [_choose(selector, values) for selector, values in zip(outer, axis_values.values(), strict=True)]
        inner_shape = _selected_shape(inner, frame_shape)
        expected = (frame_shape, self.dtype)
        array_shape = (*(len(values) for values in chosen), *inner_shape)
        array: NDArray[Any] | None = None  # until a frame was read: a damaged index may promise any shape
        for position, axes in _product(list(axis_values), chosen):
            frame = self._frame(axes, expected)
            if frame is not None:
                array = np.zeros(array_shape, expected[1]) if array is None else array
                array[position] = frame[inner]
        array = np.zeros(array_shape, expected[1]) if array is None else array
        drop = tuple(slice(None) if isinstance(selector, slice) else 0 for selector in outer)
        selected: NDArray[Any] = array[drop]
        return selected

    def _frame(self, axes: Axes, expected: tuple[tuple[int, ...], np.dtype[np.generic]]) -> NDArray[Any] | None:
        """The frame, or None if it is not there."""
        try:
            row = self._reader.row(axes)
        except FrameNotFound:
            return None
        found = (self._reader.frame_shape(row), self._reader.frame_dtype(row))
        if found != expected:
            raise DatasetError(
                f"{self._reader.path}: frame {dict(axes)} has shape {found[0]} and dtype {found[1]}, the first frame "
                f"{expected[0]} and {expected[1]}: read it with read_frame"
            )
        return self._reader.read_pixels(row)

    def _frame_shape(self) -> tuple[int, ...]:
        if not len(self._reader):
            raise DatasetError(f"{self._reader.path}: holds no frame yet, so shape and dtype are not known")
        return self._reader.frame_shape(0)


def _expand(selection: Selection, shape: tuple[int, ...]) -> tuple[slice | int, ...]:
    """One slice or integer (checked, not negative) per axis."""
    items = selection if isinstance(selection, tuple) else (selection,)
    ellipses = sum(item is Ellipsis for item in items)
    given = len(items) - ellipses
    if ellipses > 1 or given > len(shape):
        raise IndexError(f"selection {selection!r} does not fit an array of {len(shape)} dimensions")
    fill = (slice(None),) * (len(shape) - given)
    at = next((i for i, item in enumerate(items) if item is Ellipsis), None)
    full = (*items, *fill) if at is None else (*items[:at], *fill, *items[at + 1 :])
    return tuple(_selector(item, axis, size) for axis, (item, size) in enumerate(zip(full, shape, strict=True)))


def _selector(item: Selector, axis: int, size: int) -> slice | int:
    if isinstance(item, slice):
        return item
    if isinstance(item, EllipsisType):
        raise AssertionError("an Ellipsis was expanded before")
    index = operator.index(item)
    if not -size <= index < size:
        raise IndexError(f"index {index} is out of bounds for axis {axis} with size {size}")
    return index % size


def _choose(selector: slice | int, values: Sequence[AxisValue]) -> Sequence[AxisValue]:
    return values[selector] if isinstance(selector, slice) else [values[selector]]


def _selected_shape(selectors: tuple[slice | int, ...], shape: tuple[int, ...]) -> list[int]:
    return [
        len(range(*selector.indices(size)))
        for selector, size in zip(selectors, shape, strict=True)
        if isinstance(selector, slice)
    ]


def _product(names: list[str], chosen: list[Sequence[AxisValue]]) -> Iterator[tuple[tuple[int, ...], Axes]]:
    """Positions in the result with the axes of their frames, last axis fastest."""
    positions = itertools.product(*(range(len(values)) for values in chosen))
    for position, values in zip(positions, itertools.product(*chosen), strict=True):
        yield position, dict(zip(names, values, strict=True))
