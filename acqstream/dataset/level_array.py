"""A resolution level at one moment, as an array that is read where it is indexed: what array libraries hold.

`Level` grows; arrays of dask, xarray and napari keep their shape. Frames are therefore asked for by the values of their
axes, and pixels by their place on the canvas: a value that appears in between, or a tile left of the first one, moves
nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.selection import Selection, as_numpy, as_slice, expand, positions
from acqstream.dataset.reopened import reopened
from acqstream.errors import DatasetError
from acqstream.model.axes import AxisValue

if TYPE_CHECKING:
    from acqstream.dataset.level import Level

Segment = tuple[slice, slice]
"""Where some positions lie in the result, and where in the level."""


@dataclass(frozen=True, slots=True)
class Window:
    """A rectangle of a level: its first pixel on the canvas, and its size; both (y, x) in pixels of the level."""

    start: tuple[int, int]
    size: tuple[int, int]

    def reduced(self, factor: int) -> Window:
        """What this rectangle covers in a level with `factor` times larger pixels, at least one pixel."""
        start = [first // factor for first in self.start]
        ends = [-(-(first + size) // factor) for first, size in zip(self.start, self.size, strict=True)]
        size = [end - first for first, end in zip(start, ends, strict=True)]
        return Window((start[0], start[1]), (size[0], size[1]))


@dataclass(frozen=True, slots=True)
class View:
    """What a `LevelArray` shows: the values of the frame axes, slowest first, and a rectangle of the canvas.

    fixed are the values of axes that the array does not have.
    """

    values: Mapping[str, Sequence[AxisValue]]
    window: Window
    fixed: Mapping[str, AxisValue] = field(default_factory=dict)

    def at(self, axis: str, value: AxisValue) -> View:
        """The view of one value of an axis."""
        others = {name: values for name, values in self.values.items() if name != axis}
        return View(others, self.window, {**self.fixed, axis: value})

    def reduced(self, factor: int) -> View:
        """The same in a level with `factor` times larger pixels."""
        return replace(self, window=self.window.reduced(factor))


def view_of(level: Level) -> View:
    """All that the level shows now. Raises DatasetError while there is no frame."""
    values = level.axis_values()
    rows, columns = level.shape[len(values) : len(values) + 2]
    return View(values, Window(level.origin, (rows, columns)))


class LevelArray:
    """One level of a dataset as an array of fixed shape: the frame axes, then y, x and for RGB c.

    Pixels are read when it is indexed (slices and integers, one per axis, or fewer, with Ellipsis), from any thread;
    what is not there is zeros. Pickled, it goes by the path, and the process that gets it opens the dataset itself.
    A dataset that was closed raises DatasetError.
    """

    def __init__(self, level: Level, view: View | None = None) -> None:
        self.view = view_of(level) if view is None else view
        self.axes = tuple(name for name in level.axes if name not in self.view.fixed)
        self.dtype = level.dtype
        samples = level.shape[len(level.axis_values()) + 2 :]
        self.shape = (*(len(values) for values in self.view.values.values()), *self.view.window.size, *samples)
        self._level: Level | None = level
        self._path = str(level.path.absolute())
        self._frame_count = level.frame_count
        self._places: dict[str, dict[AxisValue, int]] = {}

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def __dask_tokenize__(self) -> tuple[object, ...]:
        values = [tuple(values) for values in self.view.values.values()]
        return (self._path, self._frame_count, values, self.view.fixed, self.view.window.start, self.shape)

    def __getitem__(self, selection: Selection) -> NDArray[Any]:
        selectors = expand(selection, self.shape)
        array = self._read([positions(selector, size) for selector, size in zip(selectors, self.shape, strict=True)])
        selected: NDArray[Any] = array[tuple(slice(None) if isinstance(item, slice) else 0 for item in selectors)]
        return selected

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return as_numpy(lambda: self[...], dtype, copy)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_level": None, "_places": {}}

    def __repr__(self) -> str:
        return f"<LevelArray {self._path!r}, {self.shape} {self.dtype}>"

    def _read(self, taken: Sequence[range]) -> NDArray[Any]:
        level = self._level or reopened(self._path, self._frame_count)
        while True:
            before = (level.shape, level.origin)
            array = self._read_level(level, taken)
            if (level.shape, level.origin) == before:
                return array  # else another thread refreshed it: the positions may have moved under the reading

    def _read_level(self, level: Level, taken: Sequence[range]) -> NDArray[Any]:
        now, count = level.axis_values(), len(self.view.values)
        if [name for name in now if name not in self.view.fixed] != list(self.view.values):
            raise DatasetError(f"{self._path}: the axes are {list(now)} by now, no more {list(self.view.values)}")
        chosen: dict[str, Sequence[AxisValue]] = {name: [value] for name, value in self.view.fixed.items()}
        for (name, values), some in zip(self.view.values.items(), taken, strict=False):
            chosen[name] = [values[position] for position in some]
        array = np.zeros([*(len(chosen[name]) for name in now), *map(len, taken[count:])], self.dtype)
        segments: list[list[Segment]] = []
        for name, values in now.items():
            places = self._places_of(name, values)
            segments.append(list(_runs([places.get(value, -1) for value in chosen[name]])))
        shifts = [first - origin for first, origin in zip(self.view.window.start, level.origin, strict=True)]
        for some, shift, size in zip(taken[count:], [*shifts, 0], level.shape[len(now) :], strict=False):
            segments.append(_inside(some, shift, size))
        for parts in itertools.product(*segments):
            array[tuple(target for target, _ in parts)] = level.read(tuple(source for _, source in parts))
        return array.reshape([len(some) for some in taken])

    def _places_of(self, name: str, values: Sequence[AxisValue]) -> dict[AxisValue, int]:
        """Positions in the level by value; made again when there are more values."""
        places = self._places.get(name)
        if places is None or len(places) != len(values):
            places = self._places[name] = {value: position for position, value in enumerate(values)}
        return places


def _runs(places: Sequence[int]) -> Iterator[Segment]:
    """Runs of ascending places in the level; -1 is nowhere."""
    first = 0
    for at in range(1, len(places) + 1):
        if at == len(places) or places[at] != places[at - 1] + 1 or places[at - 1] < 0:
            if places[first] >= 0:
                yield slice(first, at), slice(places[first], places[first] + at - first)
            first = at


def _inside(taken: range, shift: int, size: int) -> list[Segment]:
    """The positions that lie in the level's `size` pixels, once shifted: one segment or none."""
    inside = [at for at, position in enumerate(taken) if 0 <= position + shift < size]
    if not inside:
        return []
    part = taken[inside[0] : inside[-1] + 1]
    return [(slice(inside[0], inside[-1] + 1), as_slice(range(part.start + shift, part.stop + shift, part.step)))]
