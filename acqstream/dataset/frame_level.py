"""Reads the frames or tiles of one NDTiff level as an array."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import EllipsisType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.mosaic import Canvas, Run, Side
from acqstream.arrays.selection import as_slice
from acqstream.dataset.source import (
    LevelAddress,
    LevelAxis,
    LevelLayout,
    Missing,
    Spacing,
    X,
    Y,
    Z,
    empty_error,
    numbers_taken,
    pixel_axis,
)
from acqstream.errors import DatasetError
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.formats.space_evidence import POSITION, SpaceWitnesses
from acqstream.model.axes import AxisValue
from acqstream.model.frame_space import UM, FrameSpace, Place, frame_space

_ROW, _COLUMN = "row", "column"
_ROWS = range(-(2**31), 2**31)  # of tiles


class _Piece(NamedTuple):
    """The part of one frame or tile that a selection takes, and where it goes in the result."""

    key: dict[str, AxisValue]
    position: tuple[int, ...]  # along the outer axes
    y: Run
    x: Run


class FrameLevel:
    """A LevelSource over the frames or tiles of one level. `full` is the reader of the full resolution.

    Frames are found by the values of their axes, tiles by pixel numbers on the canvas: what comes in between, or left
    of the first tile, moves nothing. Frames that lack one of the axes are not part of the array.
    """

    def __init__(self, reader: NDTiffReader, full: NDTiffReader, *, follows_links: bool) -> None:
        self.reader = reader
        self._full = full
        self._follows_links = follows_links
        self._layout: tuple[int, LevelLayout] | None = None  # with the number of frames it was made of
        self._space: tuple[int, FrameSpace] | None = None  # likewise

    @property
    def path(self) -> Path:
        return self.reader.path

    @property
    def title(self) -> str:
        return self.reader.container.name

    @property
    def address(self) -> LevelAddress:
        return LevelAddress(str(self.path.absolute()), 0, self._follows_links)

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
        """The summary metadata; and path of the dataset, level, whether it is complete, number of missing frames."""
        reader = self.reader
        return {
            **reader.summary_metadata,
            "path": str(reader.container),
            "level": reader.level,
            "complete": reader.complete and not reader.making_levels,
            "missing_frames": self.missing_count,
        }

    @property
    def places(self) -> tuple[Place | None, ...]:
        positions = self.axis_values().get(POSITION)
        if positions is None:
            return ()
        evidence = SpaceWitnesses(self._full, _integer).look()
        found = frame_space(self._full.declared_axes, self._full.summary_metadata, evidence).places
        return tuple(found.get(value) for value in positions)

    @property
    def z_direction(self) -> int:
        return self._known_space().z_direction

    @property
    def missing_count(self) -> int:
        layout = self.layout()
        tiles = [
            len(axis.values) // max(side.step, 1)
            for axis, side in zip(layout.pixels, self._sides(layout), strict=False)
        ]
        return math.prod(map(len, layout.values.values())) * math.prod(tiles) - self.reader.count_full_keys()

    def layout(self) -> LevelLayout:
        count = len(self.reader)
        if self._layout is None or self._layout[0] != count:
            self._layout = (count, self._make_layout())
        return self._layout[1]

    def axis_values(self) -> dict[str, Sequence[AxisValue]]:
        return self.layout().values if len(self.reader) else {}

    def spacing(self, axis: str) -> Spacing:
        """See LevelSource. The centre of the first pixel, or plane, is 0 or its stage place, as in mirrors."""
        space = self._known_space()
        layout = self.layout() if len(self.reader) else None
        has_many_places = layout is not None and (layout.is_stitched or POSITION in layout.values)
        z_um, y_um, x_um = next(iter(space.places.values()), (0.0,) * 3) if not has_many_places else (0.0,) * 3
        if axis in (Y, X):
            pixel, factor = space.pixel_um or 1.0, self.factors[axis]
            start = (y_um if axis == Y else x_um) + (factor - 1) / 2 * pixel
            return Spacing(start, factor * pixel, UM if space.pixel_um else "")
        distance, unit = space.distance(axis)
        return Spacing(z_um if axis == Z and unit else 0.0, distance, unit)

    def read(self, layout: LevelLayout, taken: Sequence[range]) -> NDArray[Any]:
        """See LevelSource. Raises DatasetError naming a frame whose shape or dtype is not that of the first one."""
        now = self.layout()
        if now.values.keys() != layout.values.keys():
            raise DatasetError(f"{self.path}: the axes are {list(now.values)} by now, no more {list(layout.values)}")
        shape, count = tuple(map(len, taken)), len(layout.outer)
        samples: tuple[slice | EllipsisType, ...] = (..., *(as_slice(chosen) for chosen in taken[count + 2 :]))
        array: NDArray[Any] | None = None  # until something was read: a damaged index may promise any shape
        for piece in self._pieces(layout, taken):
            part = self._read_part(piece)
            if part is not None:
                array = np.zeros(shape, layout.dtype) if array is None else array
                place: tuple[int | slice, ...] = (*piece.position, piece.y.target, piece.x.target)
                array[place] = part if len(samples) == 1 else part[samples]
        return np.zeros(shape, layout.dtype) if array is None else array

    def missing(self, layout: LevelLayout, taken: Sequence[range], limit: int | None) -> Sequence[Missing]:
        """The axes of frames or tiles."""
        absent = (piece.key for piece in self._pieces(layout, taken) if self.reader.find(piece.key) is None)
        return list(itertools.islice(absent, limit))

    def _read_part(self, piece: _Piece) -> NDArray[Any] | None:
        """The pixels of a piece (Y, X[, 3]), or None if the frame is not stored."""
        row = self.reader.find(piece.key)
        if row is None:
            return None
        first = (self.reader.frame_shape(0), self.reader.frame_dtype(0))
        found = (self.reader.frame_shape(row), self.reader.frame_dtype(row))
        if found != first:
            raise DatasetError(
                f"{self.path}: frame {piece.key} has shape {found[0]} and dtype {found[1]}, the first frame "
                f"{first[0]} and {first[1]}: read it with read_frame"
            )
        rows = piece.y
        if rows.stop - rows.first == first[0][0]:
            frame = self.reader.read_pixels(row)
        else:
            frame = self.reader.read_rows(row, rows.first, rows.stop)
        return frame[rows.inside, piece.x.source]

    def _pieces(self, layout: LevelLayout, taken: Sequence[range]) -> Iterator[_Piece]:
        """All that makes up the positions `taken`, last axis fastest."""
        if not all(map(len, taken)):
            return
        count = len(layout.outer)
        side_y, side_x = self._sides(layout)
        down, across = (
            numbers_taken(axis.numbers or (), some)
            for axis, some in zip(layout.pixels[:2], taken[count:], strict=False)
        )
        assert isinstance(down, range) and isinstance(across, range)  # noqa: PT018 - as pixel axes always are
        chosen = [[axis.values[at] for at in some] for axis, some in zip(layout.outer, taken, strict=False)]
        places = itertools.product(*(range(len(values)) for values in chosen))
        for position, values in zip(places, itertools.product(*chosen), strict=True):
            key: dict[str, AxisValue] = dict(zip(layout.values, values, strict=True))
            for y in side_y.runs(down):
                for x in side_x.runs(across):
                    if layout.is_stitched:
                        yield _Piece({**key, _ROW: y.tile, _COLUMN: x.tile}, position, y, x)
                    elif y.tile == x.tile == 0:
                        yield _Piece(key, position, y, x)

    def _make_layout(self) -> LevelLayout:
        if not len(self.reader):
            raise empty_error(self.path)
        height, width, *samples = self.reader.frame_shape(0)
        values = ordered_axis_values(self.reader)
        canvas = self._mosaic(values, (height, width))
        if canvas is not None:
            del values[_ROW], values[_COLUMN]
        y, x = (Side(height), Side(width)) if canvas is None else (canvas.y, canvas.x)
        outer = tuple(LevelAxis(name, some, _numbers(some)) for name, some in values.items())
        return LevelLayout(
            outer=outer,
            pixels=(
                pixel_axis(Y, y.origin, y.size),
                pixel_axis(X, x.origin, x.size),
                *(pixel_axis("c", 0, size) for size in samples),
            ),
            dtype=self.reader.frame_dtype(0),
            chunk_shape=(*(1 for _ in outer), y.step, x.step, *samples),
            is_stitched=canvas is not None,
        )

    def _mosaic(self, values: Mapping[str, Sequence[AxisValue]], frame: tuple[int, int]) -> Canvas | None:
        """What all tiles cover; None if frames are no tiles."""
        overlap = self.reader.tile_overlap
        if overlap is None:
            return None
        sides: list[Side] = []
        for name, shared, length in zip((_ROW, _COLUMN), overlap, frame, strict=True):
            tiles = [value for value in values.get(name, ()) if isinstance(value, int) and value in _ROWS]
            if not tiles or len(tiles) != len(values[name]) or not 0 <= shared < length:
                return None
            sides.append(Side(length - shared, shared // 2, tiles[0], tiles[-1] - tiles[0] + 1))
        return Canvas(*sides)

    def _sides(self, layout: LevelLayout) -> tuple[Side, Side]:
        """Where the shown part of a frame or tile lies; tiles are counted from the origin of the canvas."""
        height, width = self.reader.frame_shape(0)[:2]
        overlap = self.reader.tile_overlap if layout.is_stitched else None
        down, across = overlap or (0, 0)
        return Side(height - down, down // 2), Side(width - across, across // 2)

    def _known_space(self) -> FrameSpace:
        """Distances, units and the first place: the same in all levels, and in mirrors of the dataset.

        Reads metadata of a few frames, again after the dataset has grown.
        """
        count = len(self._full)
        if self._space is None or self._space[0] != count:
            evidence = SpaceWitnesses(self._full, _integer).look(has_places=False)
            self._space = (count, frame_space(self._full.declared_axes, self._full.summary_metadata, evidence))
        return self._space[1]


def ordered_axis_values(reader: NDTiffReader) -> dict[str, Sequence[AxisValue]]:
    """Values seen so far by axis of the frames, slowest axis first: by `AxisOrder`, else as they appeared."""
    values = reader.axis_values()
    order = reader.summary_metadata.get("AxisOrder")
    names = [name for name in order if isinstance(name, str)] if isinstance(order, list) else []
    return {name: values[name] for name in (*names, *values) if name in values}


def _numbers(values: Sequence[AxisValue]) -> Sequence[int] | None:
    numbers = [value for value in values if isinstance(value, int)]
    return numbers if len(numbers) == len(values) else None


def _integer(_axis: str, value: AxisValue) -> int | None:
    """Integers lie at their own values; names have no places."""
    return value if isinstance(value, int) else None
