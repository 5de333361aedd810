"""Gives frames, or rows of an index, their places in a stored array, and reads them as its planes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_plan import ArrayPlan
from acqstream.arrays.array_spec import ArraySpec
from acqstream.arrays.axis_index import MAX_POSITION, KeyColumn, StoredPlaces
from acqstream.arrays.mosaic import Canvas
from acqstream.errors import DatasetError
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.model.axes import COLUMN, PICTURE_AXES, ROW, TILE_AXES, Axes, AxisValue


class FramePlaces:
    """Places of frames along the axes of the stored array. Used by one thread.

    kinds are the sets of axes of the frames that came before.
    """

    def __init__(self, plan: ArrayPlan, kinds: Iterable[tuple[str, ...]] = ()) -> None:
        self._plan = plan
        self._axes = {axis.name: StoredPlaces(axis) for axis in plan.axes}
        self._names = tuple(self._axes)
        self._known = frozenset(self._axes)
        self._kinds = set(kinds)

    def take(self, key: Axes) -> tuple[int, ...]:
        """Return the place of a frame along each axis of the plan. Raises DatasetError for an axis that it has not."""
        if not self._known.issuperset(key):
            raise self._unknown_axis(next(name for name in key if name not in self._known), key)
        self._kinds.add(tuple(name for name in self._names if name in key))
        return tuple(places.take(key.get(name)) for name, places in self._axes.items())

    def take_columns(self, keys: Mapping[str, KeyColumn], count: int) -> NDArray[np.int64]:
        """As `take`, for `count` frames in order of arrival: their places, of shape (frames, axes of the plan).

        Raises DatasetError for an axis that the plan has not, before any frame has its place.
        """
        present = {name: column for name, column in keys.items() if any(value is not None for value in column.values)}
        if not self._known.issuperset(present):
            more = next(name for name in present if name not in self._known)
            raise self._unknown_axis(more, {name: _first(column) for name, column in present.items()})
        absent = KeyColumn((None,), np.zeros(count, np.int32))
        columns = [keys.get(name, absent) for name in self._names]
        self._add_kinds(columns, count)
        places = np.empty((count, len(columns)), np.int64)
        # A value keeps the place of its first frame, and axes are independent: distinct values in order are enough.
        for at, (axis, column) in enumerate(zip(self._axes.values(), columns, strict=True)):
            known = np.array([axis.take(value) for value in column.values], np.int64)
            places[:, at] = known[column.positions] if count else 0
        return places

    def keys_at(self, place: Sequence[int]) -> Iterator[dict[str, AxisValue]]:
        """Yield the keys that a frame at this place may have."""
        for kind in tuple(self._kinds):  # the web face takes frames in another thread meanwhile
            key: dict[str, AxisValue] = {}
            for (name, places), at in zip(self._axes.items(), place, strict=True):
                if name not in kind:
                    if not places.is_home(at):
                        break
                    continue
                key[name] = places.value(at)
            else:
                yield key

    def known(self) -> tuple[ArrayPlan, tuple[tuple[str, ...], ...]]:
        """Return the plan with all values so far, and the kinds, for another process."""
        return replace(self._plan, axes=tuple(axis.known() for axis in self._axes.values())), tuple(sorted(self._kinds))

    def labels(self) -> dict[str, list[str]]:
        """Return names of the places so far, of axes where some value is not its own place."""
        return {name: names for name, places in self._axes.items() if (names := places.names())}

    def shown_axes(self) -> tuple[str, ...]:
        """Return the axes that readers show, slowest first: those that frames have, then those of the pixels."""
        seen = {name for kind in self._kinds for name in kind}
        shown = [name for name in self._plan.order if name in seen]
        return (*shown, *PICTURE_AXES[: len(self._plan.frame_shape)])

    def axis_values(self) -> Mapping[str, Sequence[AxisValue | None]]:
        """Return the value of each place by axis, None for places without frames."""
        return {name: self._axes[name].listed() for name in self.shown_axes() if name in self._axes}

    def values_along(self, name: str) -> Sequence[AxisValue | None]:
        """Return the value of each place of an axis; empty for an axis that it has not."""
        return self._axes[name].listed() if name in self._axes else ()

    def with_values(self, levels: Sequence[ArraySpec]) -> tuple[ArraySpec, ...]:
        """Return these levels with the values of the places so far."""
        shown, values = self.shown_axes(), self.axis_values()
        return tuple(replace(level, shown_axes=shown, axis_values=values) for level in levels)

    def out_of_order(self) -> str:
        """Why frames do not lie in the order of their values, "" if they do."""
        axes = [name for name, places in self._axes.items() if not places.is_ordered]
        if not axes:
            return ""
        return f"frames came along {axes[0]} whose places were taken: declare `start` and `size` of the axis"

    @property
    def names(self) -> tuple[str, ...]:
        """The axes of the plan."""
        return self._names

    def value_at(self, name: str, at: int) -> AxisValue:
        """Return the value of frames at a place."""
        return self._axes[name].value(at)

    def index(self, name: str, value: AxisValue) -> int | None:
        """Return the place of a value; None for one that is unknown yet."""
        return self._axes[name].index(value) if name in self._axes else None

    def _add_kinds(self, columns: Sequence[KeyColumn], count: int) -> None:
        """Note the sets of axes that these frames have."""
        if not columns:
            self._kinds.add(())
            return
        kinds = np.zeros(count, np.uint64)  # a bit for each axis: at most 32 axes are read
        for bit, column in enumerate(columns):
            has = np.array([value is not None for value in column.values], np.uint64) << np.uint64(bit)
            kinds |= has[column.positions]
        for kind in np.unique(kinds).tolist():
            self._kinds.add(tuple(name for bit, name in enumerate(self._names) if kind >> bit & 1))

    def _unknown_axis(self, name: str, key: Axes) -> DatasetError:
        return DatasetError(
            f"a frame with {_words(key)} has the axis {name!r}, others have {', '.join(self._names) or 'none'}: "
            "declare all axes when the acquisition is opened, or make the mirror afterwards"
        )


def _first(column: KeyColumn) -> AxisValue:
    return next(value for value in column.values if value is not None)


def _words(key: Axes) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in key.items()) or "no axes"


_MAX_LISTED = 1_000_000


class LogFrames:
    """spec: of level 0, whose axes are those of the plan in any order, and others of extent 1. kinds: see
    FramePlaces. Raises DatasetError for a plan of another array.
    """

    def __init__(
        self, reader: NDTiffReader, plan: ArrayPlan, spec: ArraySpec, kinds: Iterable[tuple[str, ...]] = ()
    ) -> None:
        self.places = FramePlaces(plan, kinds)
        self.taken = 0  # rows before this one were taken
        self._reader = reader
        self._plan = plan
        names = tuple(axis.name for axis in plan.axes)
        outer = [name for name in spec.axes if name not in PICTURE_AXES]
        if not set(names) <= set(outer):
            raise DatasetError(f"the array has the axes {', '.join(spec.axes)}, the note about it {', '.join(names)}")
        self._to_level = [names.index(name) if name in names else None for name in outer]
        self._to_plan = [outer.index(name) for name in names]
        self._order = tuple(PICTURE_AXES.index(name) for name in spec.axes if name in PICTURE_AXES)
        self._mosaic = plan.mosaic

    @property
    def published(self) -> int:
        """Number of rows of the index."""
        return len(self._reader)

    def place(self, row: int) -> tuple[int, ...]:
        """Return the place of a frame along the outer axes of the levels, and of a tile its row and column.

        These are counted from the first ones of the picture. Raises DatasetError for a frame that has no place.
        """
        key = self._reader.key(row)
        mosaic = self._mosaic
        tile = () if mosaic is None else self._tile(row, key, mosaic)
        own = key if mosaic is None else {name: value for name, value in key.items() if name not in TILE_AXES}
        found = self.places.take(own)
        outer = tuple(0 if at is None else found[at] for at in self._to_level)
        return (*outer, *tile)

    def place_first(self, count: int) -> None:
        """Place the first `count` frames, at least one, so that our note has the values of their places."""
        for row in range(min(max(count, 1), len(self._reader))):
            self.place(row)

    def absent(self, shape: Sequence[int]) -> frozenset[tuple[int, ...]]:
        """Positions along the outer axes but the last one (z) where no frame lies in an array of this shape.

        None of mosaics, of arrays with another order of axes, and of more places than are worth a list.
        """
        count, places = len(self._reader), shape[: len(self._to_level) - 1]
        if self._mosaic is not None or self._order != (0, 1) or math.prod(places) > _MAX_LISTED or not places:
            return frozenset()
        found = self.places.take_columns(self._reader.key_columns(range(count)), count)
        has_frame = np.zeros(places, np.bool_)
        taken = [np.zeros(count, np.int64) if at is None else found[:, at] for at in self._to_level[:-1]]
        has_frame[tuple(taken)] = True
        return frozenset(tuple(at) for at in np.argwhere(~has_frame).tolist())

    def plane(self, pixels: NDArray[Any]) -> NDArray[Any]:
        """Return a frame, or the shown part of a tile, with its axes in the level's order, without a copy."""
        if self._mosaic is not None:
            pixels = pixels[self._mosaic.y.shown, self._mosaic.x.shown]
        return pixels.transpose(self._order)

    def why_before_origin(self, row: int) -> str:
        """Return why a tile has no place in a picture that grows: it lies before the first one; else ""."""
        if self._mosaic is None or not self._mosaic.is_open:
            return ""
        key = self._reader.key(row)
        for name, side in ((ROW, self._mosaic.y), (COLUMN, self._mosaic.x)):
            value = key.get(name)
            if side.is_open and isinstance(value, int) and value < side.first:
                return f"frame {row} is a tile of {name} {value}, and the picture begins at {name} {side.first}"
        return ""

    def check(self, row: int) -> None:
        """Raises DatasetError for a frame unlike the first one."""
        shape, dtype = self._reader.frame_shape(row), self._reader.frame_dtype(row).str
        if (shape, dtype) != (self._plan.frame_shape, self._plan.dtype):
            raise DatasetError(
                f"frame {row} has shape {shape} and dtype {dtype}, expected {self._plan.frame_shape} and "
                f"{self._plan.dtype} as of the frames before: the frames of an array are alike"
            )

    def read(self, place: Sequence[int]) -> NDArray[Any] | None:
        """See assembly.PlaneSource."""
        row = self.row([place[at] for at in self._to_plan], place[-2:])
        return None if row is None else self.plane(self._reader.read_pixels(row))

    def row(self, position: Sequence[int], tile: Sequence[int] = ()) -> int | None:
        """Return the row of the latest frame taken at this position along the axes of the plan.

        tile: row and column from the first ones of the picture, where there are tiles.
        """
        keys: list[Axes] = list(self.places.keys_at(position))
        if self._mosaic is not None:
            here = {ROW: self._mosaic.y.first + tile[0], COLUMN: self._mosaic.x.first + tile[1]}
            keys = [{**key, **here} for key in keys]
        rows = [row for key in keys if (row := self._reader.find(key)) is not None and row < self.taken]
        return max(rows, default=None)

    def places_of(self, rows: range) -> NDArray[np.int64]:
        """The places of these rows, of shape (rows, axes). Raises DatasetError for a frame that has no place."""
        return self.places.take_columns(self._reader.key_columns(rows), len(rows))

    def count_alike(self, rows: range) -> int:
        """Number of the first frames of these rows that the array can have, by reference.

        Raises DatasetError with the reason if it cannot have the first one.
        """
        entries = self._reader.entry_columns(rows)
        is_plain = entries.is_plain
        is_good = entries.are_like(self._plan.frame_shape, np.dtype(self._plan.dtype)) & is_plain
        for name, column in self._reader.key_columns(rows).items():
            if name not in self.places.names:
                is_good &= np.array([value is None for value in column.values], np.bool_)[column.positions]
        if not is_good[0]:
            self._refuse(rows.start, is_plain=bool(is_plain[0]))
        return len(rows) if is_good.all() else int(is_good.argmin())

    def _refuse(self, row: int, *, is_plain: bool) -> None:
        self.check(row)
        if not is_plain:
            raise DatasetError(
                f"frame {row} is stored compressed: a mirror by reference needs plain pixels; pixels=copy does not"
            )
        self.place(row)
        raise DatasetError(f"frame {row} is not like those before")

    @staticmethod
    def _tile(row: int, key: Axes, mosaic: Canvas) -> tuple[int, int]:
        found = []
        for name, side in ((ROW, mosaic.y), (COLUMN, mosaic.x)):
            value = key.get(name)
            count = side.count or MAX_POSITION
            if not isinstance(value, int) or not side.first <= value < side.first + count:
                planned = f"{side.first} to {side.first + count - 1}"
                raise DatasetError(
                    f"frame {row} ({key}) is no tile of the picture: {name} is {value!r}, planned were {planned}. Make "
                    "the mirror again after the run"
                )
            found.append(value - side.first)
        return found[0], found[1]
