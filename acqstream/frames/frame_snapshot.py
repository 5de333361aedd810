"""The array of frames: of those that are published now, and as it was at any count of frames.

`array_of` numbers the positions in the order of their values, as readers see them. In a `FrameHistory` a place never
moves: it is given when its first frame arrives, by the rule for stored arrays (docs/arrays.md). So a snapshot of an
earlier count has the same places, fewer of them, and the shape that may be announced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_plan import ArrayPlan, announced_size, growing_axis, plan_array
from acqstream.arrays.frame_array import FrameArray, axis_plans, frame_array
from acqstream.arrays.mosaic import Canvas, Side
from acqstream.errors import DatasetError
from acqstream.formats.ndtiff.frame_table import GrowingArray
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.frames.frame_indices import FramePlaces
from acqstream.model.axes import COLUMN, ROW, TILE_AXES, AxisValue


def array_of(reader: NDTiffReader, *, is_stitched: bool = True) -> FrameArray:
    """Return the array of all frames published so far. It takes time in proportion to the values of the axes.

    is_stitched: tiles make up one picture; else row and column are axes.

    Raises DatasetError while the dataset has no frame.
    """
    if not len(reader):
        raise DatasetError(f"{reader.path}: holds no frame yet, so shape and dtype are not known")
    return frame_array(
        reader.axis_values(),
        reader.frame_shape(0),
        order=reader.declared_order,
        plans=axis_plans(reader.declared_axes),
        kinds=reader.key_kinds(),
        overlap=reader.tile_overlap if is_stitched else None,
    )


def tile_step(reader: NDTiffReader) -> tuple[int, int]:
    """Return the distance (y, x) of neighbouring tiles in pixels."""
    (height, width, *_), overlap = reader.frame_shape(0), reader.tile_overlap or (0, 0)
    return height - overlap[0], width - overlap[1]


_MAX_EPOCHS = 4  # of sets of axes; most datasets have one
_ROWS_AT_ONCE = 2**18
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class PlacedArray:
    """The array of the first `count` frames.

    plan has the axes in stored order, without those of tiles in a mosaic. sizes are the announced ones, planned the
    declared ones, 0 for unknown; both by axis of the plan. mosaic: the picture of the tiles. values and labels are
    those of the announced places by axis, see ArraySpec.
    """

    count: int
    plan: ArrayPlan
    places: FramePlaces
    sizes: tuple[int, ...]
    mosaic: Canvas | None
    values: Mapping[str, Sequence[AxisValue | None]]

    @property
    def names(self) -> tuple[str, ...]:
        """Axes of the plan."""
        return self.places.names


class _AxisGrowth:
    """When each place along one axis was used first, and how long the axis was at each row."""

    def __init__(self) -> None:
        self._first_rows = GrowingArray("<i8")  # by place
        self._rows = GrowingArray("<i8")  # those that made the axis longer
        self._sizes = GrowingArray("<i8")  # how long it was then

    @property
    def first_rows(self) -> NDArray[np.int64]:
        """The first row at each place, _NEVER where no frame lies."""
        return self._first_rows.values

    def add(self, first: int, places: NDArray[np.int64]) -> None:
        """The places of the next rows, from row `first` on, at least one."""
        used, rows = np.unique(places, return_index=True)
        missing = int(used[-1]) + 1 - len(self._first_rows)
        self._first_rows.extend(np.full(max(0, missing), _NEVER))
        self.first_rows[used] = np.minimum(self.first_rows[used], rows + first)
        before = self._sizes.item(len(self._sizes) - 1) if len(self._sizes) else 0
        ends = np.maximum(np.maximum.accumulate(places) + 1, before)
        longer = np.flatnonzero(np.diff(ends, prepend=before))
        self._rows.extend(longer + first)
        self._sizes.extend(ends[longer])

    def size(self, count: int) -> int:
        """One more than the last place that a frame before `count` has."""
        at = int(np.searchsorted(self._rows.values, count))
        return int(self._sizes.item(at - 1)) if at else 0


class FrameHistory:
    """Made once for an open dataset; `at` gives its array at any count. Used by one thread at a time."""

    def __init__(self, reader: NDTiffReader) -> None:
        self._reader = reader
        self._epoch = lru_cache(_MAX_EPOCHS)(partial(_Epoch, reader))

    def at(self, count: int, *, is_final: bool, in_order: bool = False) -> PlacedArray | None:
        """The array of the first `count` frames; None while it has no complete index.

        is_final: no other frame will come, so all that came is announced; in_order: in the order of their values, not
        of their arrival. Raises DatasetError.
        """
        if not 0 < count <= len(self._reader):
            return None
        names = self._reader.history.names(count)
        found = self._epoch(names, in_order=False).at(count, is_final=is_final)
        if found is not None and in_order and found.places.out_of_order():
            return self._epoch(names, in_order=True).at(count, is_final=is_final)
        return found


class _Epoch:
    """The frames before another axis appeared."""

    def __init__(self, reader: NDTiffReader, names: Sequence[str], *, in_order: bool) -> None:
        self._reader = reader
        overlap = reader.tile_overlap
        tiles = [reader.history.values(name, len(reader)) for name in (ROW, COLUMN)]
        is_mosaic = overlap is not None and all(
            values and all(isinstance(value, int) for value in values) for values in tiles
        )
        self._overlap = overlap if is_mosaic else None
        own = [name for name in names if not (is_mosaic and name in TILE_AXES)]
        first = {name: value for name, value in reader.key(0).items() if name in own}
        self.plan = plan_array(
            first,
            reader.frame_shape(0),
            reader.frame_dtype(0).str,
            declared=[axis for axis in reader.declared_axes if not (is_mosaic and axis.get("name") in TILE_AXES)],
            seen={
                name: reader.history.values(name, len(reader)) if in_order else ()
                for name in own
                if in_order or name not in first
            },
            is_final=in_order,
            order=reader.declared_order,
            summary=reader.summary_metadata,
        )
        self.places = FramePlaces(self.plan)
        self._rows = 0
        self._growth = {axis.name: _AxisGrowth() for axis in self.plan.axes}

    def at(self, count: int, *, is_final: bool) -> PlacedArray | None:
        """See FrameHistory."""
        self._extend(count)
        seen = {name: growth.size(count) for name, growth in self._growth.items()}
        mosaic = self._canvas(count)
        sizes = self._announced(seen, count, mosaic, is_final=is_final)
        if 0 in sizes:
            return None
        values: dict[str, Sequence[AxisValue | None]] = {}
        for name, size in zip(seen, sizes, strict=True):
            if name in self.places.axis_values():
                values[name] = self._values(name, size, count)
        return PlacedArray(count, self.plan, self.places, sizes, mosaic, values)

    def _extend(self, stop: int) -> None:
        """Place the frames before `stop`."""
        while self._rows < stop:
            rows = range(self._rows, min(self._rows + _ROWS_AT_ONCE, stop))
            keys = self._reader.key_columns(rows)
            own = {name: column for name, column in keys.items() if name in self._growth}
            places = self.places.take_columns(own, len(rows))
            for name, along in zip(self.places.names, places.T, strict=True):
                self._growth[name].add(rows.start, along)
            self._rows = rows.stop

    def _values(self, name: str, size: int, count: int) -> Sequence[AxisValue | None]:
        values, first_rows = self.places.axis_values()[name], self._growth[name].first_rows
        came = first_rows[:size] < count
        if isinstance(values, range) and size <= len(values) and len(came) == size and came.all():
            return values[:size]
        return [value if has_come else None for value, has_come in zip(values[:size], came.tolist(), strict=False)]

    def _announced(
        self, seen: Mapping[str, int], count: int, mosaic: Canvas | None, *, is_final: bool
    ) -> tuple[int, ...]:
        """The sizes along the axes of the plan that other software may see now."""
        planned = {axis.name: axis.size for axis in self.plan.axes}
        axis = growing_axis({name: max(seen[name], planned[name]) if planned[name] else 0 for name in seen})
        if is_final or axis is None:
            return tuple(seen.values())
        last = seen[axis] - 1
        needed = 1 if mosaic is None else self._tiles_of(mosaic)
        for name, size in seen.items():
            needed *= 1 if name == axis else max(size, planned[name])
        came = self._reader.history.count_keys(axis, self.places.value_at(axis, last), count)
        return tuple(announced_size(size, came, needed) if name == axis else size for name, size in seen.items())

    def _canvas(self, count: int) -> Canvas | None:
        """The picture of the tiles that came. Declared rows and columns begin at 0, so it does not move."""
        if self._overlap is None:
            return None
        sides = []
        declared = {axis.get("name") for axis in self._reader.declared_axes if axis.get("size")}
        for name, shared, length in zip((ROW, COLUMN), self._overlap, self.plan.frame_shape, strict=False):
            tiles = [value for value in self._reader.history.values(name, count) if isinstance(value, int)]
            first = min(*tiles, 0) if name in declared else min(tiles)
            step = length - shared
            sides.append(Side(step, shared // 2, first, max(tiles) - first + 1))
        return Canvas(*sides)

    def _tiles_of(self, mosaic: Canvas) -> int:
        sizes = {axis.get("name"): axis.get("size") for axis in self._reader.declared_axes}
        rows, columns = (sizes.get(name) for name in (ROW, COLUMN))
        if isinstance(rows, int) and isinstance(columns, int):
            return rows * columns
        return mosaic.y.count * mosaic.x.count
