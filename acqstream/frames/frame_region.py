"""Reads the frames or tiles of one NDTiff level as an array; which frame lies where, and when each was taken."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import EllipsisType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.frame_array import FrameArray
from acqstream.arrays.level_layout import (
    AxisCoordinates,
    C,
    LevelAddress,
    LevelAxis,
    LevelLayout,
    Missing,
    Spacing,
    X,
    Y,
    Z,
    even_coordinates,
    pixel_axis,
    pixels_at,
    uneven_coordinates,
)
from acqstream.arrays.mosaic import Canvas, Side, TileRun
from acqstream.arrays.selection import as_slice
from acqstream.description.channels import CHANNEL, channel_name
from acqstream.description.image_positions import IMAGE_AXES
from acqstream.description.space import SECOND, UM, FrameSpace, ImageKey, Place, SpaceEvidence, frame_space
from acqstream.description.stage import stage_reading
from acqstream.errors import DatasetError
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.frames.frame_description import SpaceWitnesses
from acqstream.frames.frame_pixels import read_part
from acqstream.frames.frame_snapshot import array_of, tile_step
from acqstream.model.axes import COLUMN, POSITION, ROW, TILE_AXES, TIME, AxisValue

MAX_TIMES = 2**16  # frames whose metadata are read for their times
_MAX_EMPTY = 8  # places for each frame: of sparser runs no table of all places is made
_MANY_FRAMES = 16  # fewer are read one by one
_LOOKED_UP = 16  # a read of less than one frame in 16 looks up each; any other one makes a table of all places
_SMALL_FRAME_BYTES = 32 * 2**10  # of a larger frame only the selected rows are read
_LARGE_FRAME_BYTES = 32 * 2**20  # larger frames are read one by one
_TOGETHER_BYTES = 64 * 2**20  # read at once, where some have no frame or only parts are wanted
_MANY_PLACES, _MOST_PLACES = 4096, 2**28  # of a table of all frames that exist, a byte each


class _Piece(NamedTuple):
    """The part of one frame or tile that a selection takes, and where it goes in the result."""

    position: tuple[int, ...]  # along the outer axes
    y: TileRun
    x: TileRun
    tile: tuple[int, int] | None


class _RowsByPlace:
    """Which row of the index lies at which place of an array of frames. As thread safe as the reader."""

    def __init__(self, reader: NDTiffReader) -> None:
        self._reader = reader

    def row(self, array: FrameArray, position: Sequence[int], tile: tuple[int, int] | None) -> int | None:
        """The row of the frame or tile at a position; the last one where frames with other axes lie there too."""
        rows = (self._reader.find(key) for key in array.keys_at(position, tile))
        return max((row for row in rows if row is not None), default=None)

    def rows(self, array: FrameArray, ranges: Sequence[range]) -> NDArray[np.int64]:
        """The row of the frame at each position, the last axis fastest; -1 where there is none."""
        n_frames, places = math.prod(map(len, ranges)), math.prod(map(len, array.values.values()))
        if n_frames * _LOOKED_UP >= len(self._reader) and places <= max(_MANY_PLACES, _MAX_EMPTY * len(self._reader)):
            rows = np.full([len(values) for values in array.values.values()], -1, np.int64)
            at, own = self._places(array)
            rows[at] = own  # ascending: the last one counts
            return rows[np.ix_(*ranges)].ravel() if ranges else rows.ravel()
        found = (self.row(array, position, None) for position in itertools.product(*ranges))
        return np.fromiter((-1 if row is None else row for row in found), np.int64, n_frames)

    def absent(self, array: FrameArray, ranges: Sequence[range]) -> Iterator[Missing]:
        """The axes of the places without a frame, found by columns: a byte a place, and no look-up for each."""
        is_there = np.zeros([len(values) for values in array.values.values()], np.bool_)
        is_there[self._places(array)[0]] = True
        absent = ~is_there[np.ix_(*ranges)]
        for flat in np.flatnonzero(absent).tolist():
            position = np.unravel_index(flat, absent.shape)
            picked = zip(array.values.items(), ranges, position, strict=True)
            yield {name: values[chosen[int(at)]] for (name, values), chosen, at in picked}

    def _places(self, array: FrameArray) -> tuple[tuple[NDArray[np.int64], ...], NDArray[np.int64]]:
        """The rows that have a place in this array, ascending: the places along each axis, and the rows."""
        count = len(self._reader)  # asked once: another thread may refresh meanwhile
        columns = self._reader.key_columns(range(count))
        places, has_place = [], np.ones(count, np.bool_)
        for name, values in array.values.items():
            at, home = {value: place for place, value in enumerate(values)}, array.homes.get(name)
            of_value = [at.get(home if value is None else value, -1) for value in columns[name].values]  # type: ignore[arg-type]
            places.append(np.array(of_value, np.int64)[columns[name].positions])
            has_place &= places[-1] >= 0
        for name in columns.keys() - array.values.keys():  # an axis that came after the array was made
            is_absent = np.array([value is None for value in columns[name].values], np.bool_)
            has_place &= is_absent[columns[name].positions]
        return tuple(place[has_place] for place in places), np.flatnonzero(has_place)


class FrameLevel:
    """A LevelSource over the frames or tiles of one level. `full` is the reader of the full resolution.

    Frames are found by the values of their axes, tiles by pixel numbers on the canvas. So a frame in between, or a tile
    left of the first one, moves nothing.
    """

    def __init__(
        self, reader: NDTiffReader, full: NDTiffReader, *, follows_links: bool, is_stitched: bool = True
    ) -> None:
        self.reader = reader
        self._rows = _RowsByPlace(reader)
        self._full = full
        self._follows_links = follows_links
        self._is_stitched = is_stitched
        self._array: tuple[int, FrameArray] | None = None  # with the number of frames it was made of
        self._space: tuple[int, FrameSpace] | None = None  # likewise

    @property
    def path(self) -> Path:
        return self.reader.path

    @property
    def title(self) -> str:
        return self.reader.container.name

    @property
    def address(self) -> LevelAddress:
        return LevelAddress(str(self.path.absolute()), 0, self._follows_links, self._is_stitched)

    @property
    def item_count(self) -> int:
        """Frames or tiles seen so far; one that was written again counts again."""
        return len(self.reader)

    @property
    def is_settled(self) -> bool:
        return True

    @property
    def factors(self) -> Mapping[str, int]:
        return {Y: 2**self.reader.level, X: 2**self.reader.level}

    @property
    def attributes(self) -> dict[str, Any]:
        """The summary metadata, with `path` of the dataset, `level`, `complete` and `missing_frames`."""
        reader = self.reader
        return {
            **reader.summary_metadata,
            "path": str(reader.container),
            "level": reader.level,
            "complete": reader.complete and not reader.making_levels,
            "missing_frames": self.missing_count,
        }

    @property
    def labels(self) -> Mapping[str, Sequence[str]]:
        channels = self.axis_values().get(CHANNEL, ())
        names = [channel_name(value, self._full.summary_metadata) for value in channels]
        return {CHANNEL: names} if names != [str(value) for value in channels] else {}

    @property
    def places(self) -> tuple[Place | None, ...]:
        positions = self.axis_values().get(POSITION)
        if positions is None:
            return ()
        places = self._places(self._space_of(SpaceWitnesses(self._full).evidence()))
        return tuple(places.get((value,)) for value in positions)

    def place_of(self, values: Mapping[str, AxisValue]) -> Place | None:
        has_tiles = not TILE_AXES.isdisjoint(self.axis_values())
        axes = IMAGE_AXES if has_tiles else (POSITION,)
        if any(axis not in values for axis in axes if axis in self.axis_values()):
            return None
        step = tile_step(self._full) if has_tiles else None
        space = self._space_of(SpaceWitnesses(self._full, axes).evidence(), step)
        return self._places(space).get(tuple(values.get(axis) for axis in axes))

    def _places(self, space: FrameSpace) -> Mapping[ImageKey, Place]:
        canvas = self.frame_array().canvas
        return space.places_from(canvas.y.origin * self.factors[Y], canvas.x.origin * self.factors[X])

    @property
    def evidence(self) -> Mapping[str, str]:
        return self._frame_space().evidence

    @property
    def doubts(self) -> tuple[str, ...]:
        return self._frame_space().warnings

    @property
    def bits(self) -> int:
        kind = self._full.stored_frame(0)[1].pixel_type if len(self._full) else None
        return kind.bits if kind is not None and kind.bits < 8 * kind.sample_bytes else 0

    @property
    def z_direction(self) -> int:
        return self._frame_space().z_direction

    @property
    def missing_count(self) -> int:
        """Places without a frame or tile; once the dataset is complete, planned ones too."""
        array = self.frame_array()
        return (array.with_plan() if self.reader.complete else array).place_count - self._count_places()

    def layout(self) -> LevelLayout:
        array = self.frame_array()
        canvas = array.canvas
        samples = array.frame_shape[2:]
        return LevelLayout(
            outer=tuple(LevelAxis(name, values, _numbers(values)) for name, values in array.values.items()),
            pixels=(
                pixel_axis(Y, canvas.y.origin, canvas.y.size),
                pixel_axis(X, canvas.x.origin, canvas.x.size),
                *(pixel_axis(C, 0, size) for size in samples),
            ),
            dtype=self.reader.frame_dtype(0),
            chunk_shape=(*(1 for _ in array.values), canvas.y.step, canvas.x.step, *samples),
            is_stitched=array.is_stitched,
        )

    def fitted(self, layout: LevelLayout) -> LevelLayout:
        rows = {} if layout.is_stitched else self.frame_rows(layout)
        if not rows:
            return layout
        row = rows[min(rows)]
        shape, dtype = self.reader.frame_shape(row), self.reader.frame_dtype(row)
        sides = tuple(pixel_axis(name, 0, size) for name, size in zip((Y, X, C), shape, strict=False))
        chunk = (*layout.chunk_shape[: len(layout.outer)], *shape)
        return replace(layout, pixels=sides, dtype=dtype, chunk_shape=chunk, frame_shape=shape)

    def frame_array(self) -> FrameArray:
        """The array of the frames seen so far. Raises DatasetError before the first one."""
        count = len(self.reader)
        if self._array is None or self._array[0] != count:
            self._array = (count, array_of(self.reader, is_stitched=self._is_stitched))
        return self._array[1]

    def frame_rows(self, layout: LevelLayout) -> dict[tuple[int, ...], int]:
        """Rows by position. Where frames of several keys share one, the last one that arrived counts, as in reading."""
        rows: dict[tuple[int, ...], int] = {}
        for at, row, _ in self.stored_frames(layout):
            rows[at] = max(row, rows.get(at, -1))
        return rows

    def stored_frames(self, layout: LevelLayout) -> Iterator[tuple[tuple[int, ...], int, dict[str, AxisValue]]]:
        """Position, row and axes of each frame, in order of arrival; the last row of one that was written again."""
        array, keys = self._array_of(layout), self.reader.keys()
        for key in keys:
            at, row = array.place(key), self.reader.find(key)
            if at is not None and row is not None:
                yield at, row, key

    def axis_values(self) -> dict[str, Sequence[AxisValue]]:
        return self.layout().values if len(self.reader) else {}

    def spacing(self, axis: str, position: AxisValue | None = None) -> Spacing:
        """See LevelSource. The centre of the first pixel, or plane, is 0 or its stage place, as in mirrors."""
        space = self._frame_space()
        own = {} if position is None else space.own.get(position, {})
        distance, unit = space.distance(axis)
        if axis in own or (axis not in (Y, X) and unit != UM):
            return Spacing(*own.get(axis, (space.starts.get(axis, 0.0), distance, unit)))
        layout = self.layout() if len(self.reader) else None
        has_many_places = layout is not None and (layout.is_stitched or not set(IMAGE_AXES).isdisjoint(layout.values))
        first = None if has_many_places else next(iter(space.places.values()), None)
        z_um, y_um, x_um = first or (space.starts.get(Z, 0.0), 0.0, 0.0)
        if axis in (Y, X):
            pixel, factor = space.pixel_um or 1.0, self.factors[axis]
            start = (y_um if axis == Y else x_um) + (factor - 1) / 2 * pixel
            return Spacing(start, factor * pixel, UM if space.pixel_um else "")
        return Spacing(z_um if axis == Z else space.starts.get(axis, 0.0), distance, unit)

    def coordinates(self, layout: LevelLayout) -> Mapping[str, AxisCoordinates]:
        known = uneven_coordinates(layout, self._frame_space().coordinates, self.axis_values())
        found = even_coordinates(layout, self.spacing) | known
        times = None
        if not layout.is_stitched:
            times = _measured_times(self.reader, self.frame_rows(layout), layout)
        if times is not None and TIME in layout.values:
            found[f"{TIME}_{SECOND}"] = AxisCoordinates(*times, SECOND)
        return found

    def metadata(self, layout: LevelLayout) -> Iterator[tuple[tuple[int, ...], dict[str, Any]]]:
        if not layout.is_stitched:
            for position, row in self.frame_rows(layout).items():
                yield position, self.reader.read_metadata(row)

    def read(self, layout: LevelLayout, ranges: Sequence[range]) -> NDArray[Any]:
        """See LevelSource. Raises DatasetError naming a frame whose shape or dtype is not that of the layout."""
        array = self._array_of(layout)
        if (pixels := self._read_together(array, layout, ranges)) is not None:
            return pixels
        shape, count = tuple(map(len, ranges)), len(layout.outer)
        samples: tuple[slice | EllipsisType, ...] = (..., *map(as_slice, ranges[count + 2 :]))
        # No memory until a frame was read: a damaged index may promise any shape
        for piece in _pieces(array, layout, ranges):
            part = self._read_part(array, piece, ranges, layout.dtype)
            if part is not None:
                pixels = np.zeros(shape, layout.dtype) if pixels is None else pixels
                place: tuple[int | slice, ...] = (*piece.position, piece.y.target, piece.x.target)
                pixels[place] = part if len(samples) == 1 else part[samples]
        return np.zeros(shape, layout.dtype) if pixels is None else pixels

    def _read_together(self, array: FrameArray, layout: LevelLayout, ranges: Sequence[range]) -> NDArray[Any] | None:
        """Many frames in few large reads; None where they are few, tiles, parts of large ones, or not of one kind."""
        count, shape = len(layout.outer), tuple(map(len, ranges))
        frame_bytes = math.prod(array.frame_shape) * layout.dtype.itemsize
        is_small = frame_bytes <= (_LARGE_FRAME_BYTES if shape[count:] == array.frame_shape else _SMALL_FRAME_BYTES)
        if array.is_stitched or not is_small or not all(shape) or math.prod(shape[:count]) < _MANY_FRAMES:
            return None
        rows = self._rows.rows(array, ranges[:count])
        found = np.flatnonzero(rows >= 0)
        if not self.reader.entry_columns(rows[found]).are_like(array.frame_shape, layout.dtype).all():
            return None
        inside = (slice(None), *map(as_slice, map(pixels_at, layout.pixels, ranges[count:])))
        pixels: NDArray[Any] | None = None  # until frames were read: a damaged index may promise any shape
        step = max(1, _TOGETHER_BYTES // frame_bytes)
        for places in (found[start : start + step] for start in range(0, len(found), step)):
            part = self.reader.read_together(rows[places], is_cached=True)[inside]
            if len(places) == len(rows):
                return part.reshape(shape)
            pixels = np.zeros((len(rows), *shape[count:]), layout.dtype) if pixels is None else pixels
            pixels[places] = part
        return np.zeros(shape, layout.dtype) if pixels is None else pixels.reshape(shape)

    def missing(self, layout: LevelLayout, ranges: Sequence[range], limit: int | None) -> Sequence[Missing]:
        """The axes of frames or tiles; for all of a complete dataset, planned ones too."""
        array = self._array_of(layout)
        if [*map(len, ranges)] == [*layout.shape] and self.reader.complete:
            array = array.with_plan()
            ranges = [*(range(len(values)) for values in array.values.values()), *ranges[len(layout.outer) :]]
        return list(itertools.islice(self._absent(array, layout, ranges), limit))

    def _absent(self, array: FrameArray, layout: LevelLayout, ranges: Sequence[range]) -> Iterator[Missing]:
        outer, places = ranges[: len(layout.outer)], math.prod(map(len, array.values.values()))
        is_many = math.prod(map(len, outer)) > _MANY_PLACES and places <= _MOST_PLACES and all(map(len, ranges))
        if is_many and not array.is_stitched:
            yield from self._rows.absent(array, outer)
            return
        for piece in _pieces(array, layout, ranges):
            position = _position(piece, ranges)
            if self._rows.row(array, position, piece.tile) is None:
                names = zip(array.values.items(), position, strict=True)
                tile = {} if piece.tile is None else {ROW: piece.tile[0], COLUMN: piece.tile[1]}
                yield {**{name: values[at] for (name, values), at in names}, **tile}

    def _read_part(
        self, array: FrameArray, piece: _Piece, ranges: Sequence[range], dtype: np.dtype[np.generic]
    ) -> NDArray[Any] | None:
        """The pixels of a piece (Y, X[, 3]), or None if the frame is not stored."""
        row = self._rows.row(array, _position(piece, ranges), piece.tile)
        if row is None:
            return None
        expected = (array.frame_shape, dtype)
        actual = (self.reader.frame_shape(row), self.reader.frame_dtype(row))
        if actual != expected:
            raise DatasetError(
                f"{self.path}: frame {self.reader.key(row)} has shape {actual[0]} and dtype {actual[1]}, the first "
                f"frame {expected[0]} and {expected[1]}: read it with read_frame"
            )
        return read_part(self.reader, row, piece.y, piece.x)

    def _array_of(self, layout: LevelLayout) -> FrameArray:
        """The array of a layout, which may have other values than the frames have now, but no other axes."""
        array = self.frame_array()
        if [*array.values] != [*layout.values]:
            raise DatasetError(
                f"{self.path}: axes changed from {list(layout.values)} to {list(array.values)} since the array was made"
            )
        array = replace(array, values=layout.values)
        if layout.frame_shape in ((), array.frame_shape):
            return array
        height, width, *_ = layout.frame_shape
        return replace(array, canvas=Canvas(Side(height), Side(width)), frame_shape=layout.frame_shape)

    def _count_places(self) -> int:
        """Number of places that have a frame or tile."""
        array = self.frame_array()
        if not array.homes:
            return self.reader.count_full_keys()
        keys = self.reader.keys()  # frames that lack an axis may share a place with others
        places = ((array.place(key), key.get(ROW), key.get(COLUMN)) for key in keys)
        return len({place if array.is_stitched else place[0] for place in places if place[0] is not None})

    def _frame_space(self) -> FrameSpace:
        """Distances, units and the first place: the same in all levels, and in mirrors of the dataset.

        Reads metadata of a few frames, again after the dataset has grown.
        """
        count = len(self._full)
        if self._space is None or self._space[0] != count:
            self._space = (count, self._space_of(SpaceWitnesses(self._full).evidence(has_places=False)))
        return self._space[1]

    def _space_of(self, evidence: SpaceEvidence, step: Sequence[int] | None = None) -> FrameSpace:
        return frame_space(self._full.declared_axes, self._full.summary_metadata, evidence, step, self.axis_values())


def _pieces(array: FrameArray, layout: LevelLayout, ranges: Sequence[range]) -> Iterator[_Piece]:
    """The parts of frames or tiles that fill the positions `ranges`, last axis fastest."""
    if not all(map(len, ranges)):
        return
    count, canvas = len(layout.outer), array.canvas
    side_y, side_x = Side(canvas.y.step, canvas.y.crop), Side(canvas.x.step, canvas.x.crop)
    y_axis, x_axis = layout.pixels[:2]
    down, across = pixels_at(y_axis, ranges[count]), pixels_at(x_axis, ranges[count + 1])
    for position in itertools.product(*(range(len(positions)) for positions in ranges[:count])):
        for y in side_y.runs(down):
            for x in side_x.runs(across):
                if array.is_stitched:
                    yield _Piece(position, y, x, (y.tile, x.tile))
                elif y.tile == x.tile == 0:
                    yield _Piece(position, y, x, None)


def _position(piece: _Piece, ranges: Sequence[range]) -> tuple[int, ...]:
    """Position of the frame of a piece along the outer axes of the layout."""
    return tuple(positions[at] for positions, at in zip(ranges, piece.position, strict=False))


def _numbers(values: Sequence[AxisValue]) -> Sequence[int] | None:
    """Frames that lie side by side are one item apart, whatever their integers; names have no distance."""
    return range(len(values)) if all(isinstance(value, int) for value in values) else None


def _measured_times(
    reader: NDTiffReader, rows: Mapping[tuple[int, ...], int], layout: LevelLayout
) -> tuple[tuple[str, ...], NDArray[np.float64]] | None:
    """The axes that the times of frames depend on, and a time in s for each place along them; NaN without a frame.

    Times are those of the acquisition program, else of capture since the first frame: two clocks are never mixed. None
    where a frame has none, or where there are too many frames or places.
    """
    shape = tuple(len(axis.values) for axis in layout.outer)
    if not rows or not shape or len(rows) > MAX_TIMES or math.prod(shape) > _MAX_EMPTY * len(rows):
        return None
    try:
        readings = {at: stage_reading(reader.read_metadata(row)) for at, row in rows.items()}
    except DatasetError:  # the frame itself says what is wrong when it is read
        return None
    elapsed = {at: seen.time_s for at, seen in readings.items() if seen.time_s is not None}
    captured = {at: seen.capture_s for at, seen in readings.items() if seen.capture_s is not None}
    is_program = len(elapsed) == len(rows)
    known = elapsed if is_program else captured
    if len(known) < len(rows):
        return None
    start = 0.0 if is_program else min(known.values())
    times = np.full(shape, np.nan)
    for at, time_s in known.items():
        times[at] = round(time_s - start, 9)
    return _reduced(times, tuple(axis.name for axis in layout.outer))


def _reduced(times: NDArray[np.float64], axes: tuple[str, ...]) -> tuple[tuple[str, ...], NDArray[np.float64]]:
    """Without the axes along which times are the same."""
    for at in reversed(range(len(axes))):
        low, high = np.fmin.reduce(times, axis=at), np.fmax.reduce(times, axis=at)
        if times.ndim > 1 and np.array_equal(low, high, equal_nan=True):
            times, axes = low, axes[:at] + axes[at + 1 :]
    return axes, times
