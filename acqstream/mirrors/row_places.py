"""Places of rows of an index in a stored array, many at once, and checks that their frames are alike."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_plan import ArrayPlan
from acqstream.arrays.array_spec import ArraySpec
from acqstream.errors import DatasetError
from acqstream.formats.ndtiff.pixels import PIXEL_TYPES
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.frames.frame_indices import FramePlaces
from acqstream.mirrors.log_frames import LogFrames


class RowPlaces:
    """spec: the array, whose axes are those of the plan, in their order, then y and x. Used by one thread."""

    def __init__(self, reader: NDTiffReader, plan: ArrayPlan, spec: ArraySpec) -> None:
        self._reader = reader
        self._frames = LogFrames(reader, plan, spec)
        self._frames.place_first(1)
        self._axes = frozenset(axis.name for axis in plan.axes)
        self._height, self._width = plan.frame_shape[:2]
        self._codes = [
            code
            for code, pixels in PIXEL_TYPES.items()
            if pixels.numpy_dtype.str == plan.dtype
            and pixels.shape(self._height, self._width) == tuple(plan.frame_shape)
        ]

    @property
    def published(self) -> int:
        """Number of rows of the index."""
        return len(self._reader)

    @property
    def axes(self) -> FramePlaces:
        """Places along the axes, and their values."""
        return self._frames.places

    @property
    def taken(self) -> int:
        """Rows before this one were taken: `row` finds no others."""
        return self._frames.taken

    @taken.setter
    def taken(self, rows: int) -> None:
        self._frames.taken = rows

    def row(self, place: tuple[int, ...]) -> int | None:
        """The row of the latest frame taken at a place; None without one."""
        return self._frames.row(place)

    def places(self, rows: range) -> NDArray[np.int64]:
        """The places of these rows, of shape (rows, axes). Raises DatasetError for a frame that has no place."""
        return self.axes.take_columns(self._reader.key_columns(rows), len(rows))

    def count_alike(self, rows: range) -> int:
        """Number of the first frames of these rows that the array can have, by reference.

        Raises DatasetError with the reason if it cannot have the first one.
        """
        entries = self._reader.entry_columns(rows)
        numbers, is_plain = entries.numbers, entries.is_plain
        is_good = (numbers["height"] == self._height) & (numbers["width"] == self._width) & is_plain
        is_good &= np.isin(numbers["pixel_type"], self._codes)
        for name, column in self._reader.key_columns(rows).items():
            if name not in self._axes:
                is_good &= np.array([value is None for value in column.values], np.bool_)[column.positions]
        if not is_good[0]:
            self._refuse(rows.start, is_plain=bool(is_plain[0]))
        return len(rows) if is_good.all() else int(is_good.argmin())

    def _refuse(self, row: int, *, is_plain: bool) -> None:
        self._frames.check(row)
        if not is_plain:
            raise DatasetError(
                f"frame {row} is stored compressed: a mirror by reference needs plain pixels; pixels=copy does not"
            )
        self._frames.place(row)
        raise DatasetError(f"frame {row} is not like those before")
