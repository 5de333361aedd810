"""Reads the frames of a dataset as planes of its array, and checks that they are alike."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_plan import ArrayPlan
from acqstream.arrays.array_spec import ArraySpec
from acqstream.arrays.axis_index import MAX_POSITION
from acqstream.arrays.mosaic import Canvas
from acqstream.errors import DatasetError
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.frames.frame_indices import FramePlaces
from acqstream.model.axes import COLUMN, PICTURE_AXES, ROW, TILE_AXES, Axes

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
