"""The interface through which a level reads. Frames and chunked arrays implement it.

`LevelLayout` describes the array of a level at one moment. A source also reads by an older layout: frames and chunks
published since then move nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import sub
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.selection import as_slice
from acqstream.description.space import Coordinates, Place
from acqstream.errors import DatasetError
from acqstream.model.axes import POSITION, AxisValue

Z, Y, X, C = "z", "y", "x", "c"
Missing = dict[str, AxisValue]
"""A frame, tile or chunk that is not stored, by axis: values of a frame or tile, or the grid position of a chunk."""


class Spacing(NamedTuple):
    """The centre of number n of an axis lies at start + n * step, in `unit`; "" where the distance is unknown."""

    start: float = 0.0
    step: float = 1.0
    unit: str = ""


class AxisCoordinates(NamedTuple):
    """axes: those that the coordinate depends on, an axis of `values` for each; NaN where it is not known."""

    axes: tuple[str, ...]
    values: NDArray[np.float64]
    unit: str


@dataclass(frozen=True, slots=True)
class LevelAxis:
    """One axis of a level.

    values are names or numbers, one per position; for the axes of the pixels, pixel numbers, which start at the origin
    of the canvas. numbers are the distances of the positions along the axis, in items; None for names.
    """

    name: str
    values: Sequence[AxisValue]
    numbers: Sequence[int] | None

    def centres(self, spacing: Spacing) -> NDArray[np.float64] | None:
        """Centre of each position in `spacing.unit`; None for names, which have no distance."""
        if self.numbers is None:
            return None
        return spacing.start + np.asarray(self.numbers, np.float64) * spacing.step

    def spacing(self, items: Spacing) -> Spacing:
        """That of its positions: where the first one lies, and the distance of neighbours, if it is one.

        items: that of numbers.
        """
        if not self.numbers:
            return Spacing()
        gaps = {self.numbers.step} if isinstance(self.numbers, range) else set(map(sub, self.numbers[1:], self.numbers))
        if len(gaps) > 1 or min(gaps, default=1) < 1:
            return Spacing()
        return Spacing(items.start + self.numbers[0] * items.step, min(gaps, default=1) * items.step, items.unit)


def pixel_axis(name: str, start: int, size: int) -> LevelAxis:
    """An axis of the pixels `start` .. `start + size - 1`."""
    numbers = range(start, start + size)
    return LevelAxis(name, numbers, numbers)


@dataclass(frozen=True, slots=True)
class LevelLayout:
    """The array of a level at one moment: `outer` axes, slowest first, then those of the `pixels`: y, x and for RGB c.

    An array that keeps its axes in another order, or lacks y or x, has outer axes only. chunk_shape is the best
    unit to read, an item per axis. frame_shape: of the whole frames that it shows parts of, (): as of the first frame.
    """

    outer: tuple[LevelAxis, ...]
    pixels: tuple[LevelAxis, ...]
    dtype: np.dtype[np.generic]
    chunk_shape: tuple[int, ...]
    is_stitched: bool = False
    frame_shape: tuple[int, ...] = ()

    @property
    def all_axes(self) -> tuple[LevelAxis, ...]:
        return (*self.outer, *self.pixels)

    @property
    def axes(self) -> tuple[str, ...]:
        """Names, slowest first."""
        return tuple(axis.name for axis in self.all_axes)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(axis.values) for axis in self.all_axes)

    @property
    def values(self) -> dict[str, Sequence[AxisValue]]:
        """Values of the outer axes, by name."""
        return {axis.name: axis.values for axis in self.outer}

    @property
    def origin(self) -> tuple[int, int]:
        """Pixel numbers (y, x) of position (0, 0)."""
        starts = {axis.name: axis.values[0] for axis in self.pixels if len(axis.values)}
        return int(starts.get(Y, 0)), int(starts.get(X, 0))

    def at(self, name: str, value: AxisValue) -> LevelLayout:
        """The layout of one value of an outer axis."""
        return replace(self, outer=tuple(_only(axis, value) if axis.name == name else axis for axis in self.outer))

    def in_level(self, lower: LevelLayout, factors: Mapping[str, int]) -> LevelLayout:
        """The part of a lower level that shows the same: its items cover `factors` of this layout's.

        Raises DatasetError if the lower level has other axes.
        """
        if lower.axes != self.axes:
            raise DatasetError(f"the level has the axes {list(lower.axes)}, the full resolution {list(self.axes)}")
        outer = tuple(
            own if factors.get(own.name, 1) == 1 else below for own, below in zip(self.outer, lower.outer, strict=True)
        )
        pixels = tuple(
            _reduced(own, below, factors.get(own.name, 1), is_open=lower.is_stitched)
            for own, below in zip(self.pixels, lower.pixels, strict=True)
        )
        return replace(lower, outer=outer, pixels=pixels)


class LevelSource(Protocol):
    """Reads one resolution level, finished or growing; from any thread. Errors are DatasetError or StorageError."""

    @property
    def path(self) -> Path:
        """The folder of the level or of its array."""

    @property
    def title(self) -> str:
        """Name of the dataset."""

    @property
    def address(self) -> LevelAddress:
        """The address by which another process opens the level."""

    @property
    def item_count(self) -> int:
        """Number of published frames or tiles, or items of an array. Changes whenever the level grows."""

    @property
    def is_settled(self) -> bool:
        """False while items may change without changing `item_count` or shape: for an array that grows."""

    @property
    def factors(self) -> Mapping[str, int]:
        """Items of the full resolution that one item covers, by axis; an axis that is absent has 1."""

    @property
    def attributes(self) -> dict[str, Any]:
        """Metadata, with `path`, `level` and `complete`."""

    @property
    def places(self) -> tuple[Place | None, ...]:
        """Places of the positions along `position`: (z, y, x) of the first item in um; None if unknown."""

    def place_of(self, values: Mapping[str, AxisValue]) -> Place | None:
        """The place of the image with these values along `position`, `row` and `column`; None if unknown."""

    @property
    def labels(self) -> Mapping[str, Sequence[str]]:
        """Names of the positions along an axis, where the format keeps them beside the values."""

    @property
    def evidence(self) -> Mapping[str, str]:
        """Who says what the distance along an axis is: "declared", "frames" or "summary"; "" where nothing is noted."""

    @property
    def doubts(self) -> tuple[str, ...]:
        """Wishes of declaration and summary that the frames contradict, with both numbers."""

    @property
    def bits(self) -> int:
        """Significant bits of the pixels; 0 for all of the dtype."""

    @property
    def z_direction(self) -> int:
        """-1 where planes run against the stage's z, else 1."""

    @property
    def missing_count(self) -> int:
        """Number of frames, tiles or chunks of the array that are not stored."""

    def layout(self) -> LevelLayout:
        """The array as it is now. Raises DatasetError while it has no item."""

    def fitted(self, layout: LevelLayout) -> LevelLayout:
        """A part of the layout with whole pictures, as large as those of its own first frame."""

    def axis_values(self) -> dict[str, Sequence[AxisValue]]:
        """Values of the outer axes so far; empty before the first item."""

    def spacing(self, axis: str, position: AxisValue | None = None) -> Spacing:
        """Distance of the numbers of an axis; of one position, which may have its own. May read metadata of frames."""

    def coordinates(self, layout: LevelLayout) -> Mapping[str, AxisCoordinates]:
        """Coordinates of outer axes by name, such as `time_s`: as measured, else as even as the axis is.

        May read metadata of many frames.
        """

    def metadata(self, layout: LevelLayout) -> Iterator[tuple[tuple[int, ...], dict[str, Any]]]:
        """Position along the outer axes and metadata of each frame of a layout; nothing for chunks and mosaics."""

    def read(self, layout: LevelLayout, ranges: Sequence[range]) -> NDArray[Any]:
        """A new array in C order of the positions `ranges` of a layout of this level, or of a part of one.

        Items that are not stored are zeros. Raises DatasetError if the level's axes have changed.
        """

    def missing(self, layout: LevelLayout, ranges: Sequence[range], limit: int | None) -> Sequence[Missing]:
        """Frames, tiles or chunks at these positions that are not stored; `limit` at most."""


class LevelAddress(NamedTuple):
    """Level `number` of the dataset at `path`. is_stitched: tiles make up one picture."""

    path: str
    number: int
    follows_links: bool
    is_stitched: bool = True


def even_coordinates(
    layout: LevelLayout, spacing: Callable[[str, AxisValue | None], Spacing]
) -> dict[str, AxisCoordinates]:
    """Those of the outer axes that have one distance, or one for each position: `z_um`, `time_s`."""
    found: dict[str, AxisCoordinates] = {}
    for axis in layout.outer:
        space, axes = spacing(axis.name, None), [axis.name]
        centres = axis.centres(space) if space.unit else None
        own = [] if space.unit else [spacing(axis.name, value) for value in layout.values.get(POSITION, ())]
        if unit := next((one.unit for one in own if one.unit), ""):
            space, axes = Spacing(unit=unit), [POSITION, axis.name]
            nothing = np.full(len(axis.values), np.nan)
            rows = [axis.centres(one) if one.unit else nothing for one in own]
            centres = None if axis.numbers is None else np.array(rows, np.float64)
        if centres is not None:
            found[f"{axis.name}_{space.unit}"] = AxisCoordinates(tuple(axes), centres, space.unit)
    return found


def uneven_coordinates(
    layout: LevelLayout, coordinates: Mapping[str, Coordinates], values: Mapping[str, Sequence[AxisValue | None]]
) -> dict[str, AxisCoordinates]:
    """Those of axes without one distance. values: of the places that `coordinates` are for."""
    found: dict[str, AxisCoordinates] = {}
    for axis in layout.outer:
        if axis.name in coordinates:
            unit, listed = coordinates[axis.name]
            known = dict(zip(values.get(axis.name, ()), listed, strict=False))
            centres = [known.get(value) for value in axis.values]
            numbers = np.array([np.nan if centre is None else centre for centre in centres], np.float64)
            found[f"{axis.name}_{unit}"] = AxisCoordinates((axis.name,), numbers, unit)
    return found


def numbers_at(axis: LevelAxis, positions: range) -> Sequence[int]:
    """The numbers at these positions; a range where the axis has one."""
    return (axis.numbers or ())[as_slice(positions)]


def pixels_at(axis: LevelAxis, positions: range) -> range:
    """The pixel numbers at these positions."""
    numbers = numbers_at(axis, positions)
    return numbers if isinstance(numbers, range) else range(0)


def _only(axis: LevelAxis, value: AxisValue) -> LevelAxis:
    at = axis.values.index(value)
    return LevelAxis(axis.name, [value], None if axis.numbers is None else [axis.numbers[at]])


def _reduced(own: LevelAxis, below: LevelAxis, factor: int, *, is_open: bool) -> LevelAxis:
    """The pixels of `below` that cover those of `own`, at least one; is_open: also pixels beyond its end."""
    first, size = int(own.values[0]), len(own.values)
    start, end = first // factor, max(-(-(first + size) // factor), first // factor + 1)
    if not is_open and len(below.values):
        end = min(end, int(below.values[0]) + len(below.values))
    return pixel_axis(own.name, start, max(end - start, 1))
