"""One resolution level of a dataset as an array."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.mosaic import Canvas, Run, Side
from acqstream.arrays.selection import Selection, as_numpy, as_slice, expand, positions
from acqstream.errors import DatasetError
from acqstream.formats.base import FrameReader
from acqstream.formats.space_evidence import SpaceWitnesses
from acqstream.model.axes import AxisValue
from acqstream.model.frame_space import UM, FrameSpace, Z, frame_space

if TYPE_CHECKING:
    import dask.array
    import xarray

_ROW, _COLUMN = "row", "column"
_ROWS = range(-(2**31), 2**31)  # of tiles


@dataclass(frozen=True, slots=True)
class _Plan:
    """What an array looks like at one moment: frame axes, canvas, and how many components a pixel has (1: no axis)."""

    values: dict[str, list[AxisValue]]
    canvas: Canvas
    is_stitched: bool
    frame_shape: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return (*map(len, self.values.values()), *self.canvas.shape, *self.frame_shape[2:])

    @property
    def axes(self) -> tuple[str, ...]:
        return (*self.values, *("y", "x", "c")[: len(self.frame_shape)])


class _Piece(NamedTuple):
    """The part of one frame or tile that a selection takes, and where it goes in the result."""

    key: dict[str, AxisValue]
    position: tuple[int, ...]  # along the frame axes
    y: Run
    x: Run


class Level:
    """The frames of one level as an array: their axes, slowest first, then y, x and for RGB c.

    Along an axis of the frames the array has one position per value seen so far, in the order of `axis_values`.
    Frames that lack one of the axes are not part of the array.

    The tiles of a tiled dataset make one picture (`is_stitched`): its axes are without row and column, y and x are the
    canvas from the lowest row and column to the highest. Single tiles are read with `Dataset.read_frame`.
    """

    def __init__(self, reader: FrameReader, full: FrameReader | None = None) -> None:
        """full: the reader of the full resolution, whose frames tell of space; else this one."""
        self._reader = reader
        self._full = full if full is not None else reader
        self._space: tuple[int, FrameSpace] | None = None  # with the number of frames it was found in

    @property
    def path(self) -> Path:
        """The folder of the level: what it can be opened with again."""
        return self._reader.path

    @property
    def frame_count(self) -> int:
        """Frames or tiles seen so far; one that was written again counts again."""
        return len(self._reader)

    def axis_values(self) -> dict[str, list[AxisValue]]:
        """Values seen so far of all axes but y, x and c, slowest axis first: by `AxisOrder`, else as they appeared."""
        values = ordered_axis_values(self._reader)
        if self._stitched_sides(values) is not None:
            del values[_ROW], values[_COLUMN]
        return values

    @property
    def axes(self) -> tuple[str, ...]:
        """Names, slowest first. Raises DatasetError while there is no frame, as all that follows."""
        return self._plan().axes

    @property
    def shape(self) -> tuple[int, ...]:
        """Size along each of `axes`, by the shape of the first frame."""
        return self._plan().shape

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """dtype of the first frame."""
        self._frame_shape()
        return self._reader.frame_dtype(0)

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        """What is best read at once, an item per axis: one frame, or the shown part of one tile.

        Chunks begin at multiples of it.
        """
        plan = self._plan()
        return (*(1 for _ in plan.values), plan.canvas.y.step, plan.canvas.x.step, *plan.frame_shape[2:])

    @property
    def is_stitched(self) -> bool:
        """Whether the array is put together from tiles."""
        return self._plan().is_stitched

    @property
    def origin(self) -> tuple[int, int]:
        """Canvas coordinates (y, x) of position (0, 0) in pixels of this level; (0, 0) without tiles.

        Pixel p of level n covers the pixels [p * 2^n, (p + 1) * 2^n) of the full resolution, in canvas coordinates.
        """
        canvas = self._plan().canvas
        return canvas.y.origin, canvas.x.origin

    @property
    def pixel_size_um(self) -> float | None:
        """Side of a pixel of this level in micrometres; None where neither summary nor frames tell it."""
        size = self.space.pixel_um
        return None if size is None else size * 2**self._reader.level

    @property
    def z_step_um(self) -> float | None:
        """Distance of two z positions in micrometres, negative where planes run against the stage's z.

        As it was declared, else from the summary, else from the stage positions of frames; else None.
        """
        distance, unit = self.space.distance(Z)
        return distance * self.space.z_direction if unit == UM else None

    @property
    def space(self) -> FrameSpace:
        """Distances, units and places of the frames: the same in all levels, and in mirrors of the dataset.

        Reads metadata of a few frames, again after the dataset has grown.
        """
        count = len(self._full)
        if self._space is None or self._space[0] != count:
            evidence = SpaceWitnesses(self._full, _integer).look(has_places=False)
            space = frame_space(self._full.declared_axes, self._full.summary_metadata, evidence)
            self._space = (count, space)
        return self._space[1]

    def read(self, selection: Selection = ...) -> NDArray[Any]:
        """A part of the array, selected as in numpy with slices, integers and Ellipsis; a new array.

        Reads only the frames and tiles selected, and of those the rows needed. What is not there is zeros: `missing`
        tells. Raises IndexError for a selection that does not fit, DatasetError naming a frame whose shape or dtype is
        another than that of the first frame.
        """
        plan = self._plan()
        selectors = expand(selection, plan.shape)
        taken = [positions(selector, size) for selector, size in zip(selectors, plan.shape, strict=True)]
        shape, dtype = tuple(map(len, taken)), self.dtype
        components: tuple[slice | EllipsisType, ...] = (
            ...,
            *(as_slice(chosen) for chosen in taken[len(plan.values) + 2 :]),
        )
        array: NDArray[Any] | None = None  # until something was read: a damaged index may promise any shape
        for piece in _pieces(plan, taken):
            part = self._read_part(piece, plan.frame_shape, dtype)
            if part is not None:
                array = np.zeros(shape, dtype) if array is None else array
                array[_place(piece)] = part if len(components) == 1 else part[components]
        array = np.zeros(shape, dtype) if array is None else array
        selected: NDArray[Any] = array[tuple(slice(None) if isinstance(item, slice) else 0 for item in selectors)]
        return selected

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return as_numpy(self.read, dtype, copy)

    def to_dask(self) -> dask.array.Array:
        """The array as it is now, as a lazy dask array, see `dask_arrays.to_dask`."""
        from acqstream.dataset.dask_arrays import to_dask

        return to_dask(self)

    def to_xarray(self) -> xarray.DataArray:
        """The same with named axes and coordinates, see `xarray_arrays.to_xarray`."""
        from acqstream.dataset.xarray_arrays import to_xarray

        return to_xarray(self)

    def missing(self, selection: Selection = ..., *, limit: int | None = None) -> list[dict[str, AxisValue]]:
        """The axes of the frames or tiles in a part of the array that are not there; no more than `limit`."""
        plan = self._plan()
        selectors = expand(selection, plan.shape)
        taken = [positions(selector, size) for selector, size in zip(selectors, plan.shape, strict=True)]
        absent = (piece.key for piece in _pieces(plan, taken) if self._reader.find(piece.key) is None)
        return list(itertools.islice(absent, limit))

    @property
    def missing_count(self) -> int:
        """How many frames or tiles of the whole array are not there."""
        plan = self._plan()
        tiles = plan.canvas.y.count * plan.canvas.x.count
        return math.prod(map(len, plan.values.values())) * tiles - self._reader.count_full_keys()

    @property
    def attributes(self) -> dict[str, Any]:
        """The summary metadata; and path of the dataset, level, whether it is complete, number of missing frames."""
        reader = self._reader
        return {
            **reader.summary_metadata,
            "path": str(reader.container),
            "level": reader.level,
            "complete": reader.complete and not reader.making_levels,
            "missing_frames": self.missing_count,
        }

    def __repr__(self) -> str:
        if not len(self._reader):
            return f"<Level {str(self.path)!r}, no frame yet>"
        return f"<Level {str(self.path)!r}, {', '.join(self.axes)}: {self.shape} {self.dtype}>"

    def _read_part(
        self, piece: _Piece, frame_shape: tuple[int, ...], dtype: np.dtype[np.generic]
    ) -> NDArray[Any] | None:
        """The pixels of a piece (Y, X[, 3]), or None if the frame is not there."""
        row = self._reader.find(piece.key)
        if row is None:
            return None
        found = (self._reader.frame_shape(row), self._reader.frame_dtype(row))
        if found != (frame_shape, dtype):
            raise DatasetError(
                f"{self._reader.path}: frame {piece.key} has shape {found[0]} and dtype {found[1]}, the first frame "
                f"{frame_shape} and {dtype}: read it with read_frame"
            )
        rows = piece.y
        if rows.stop - rows.first == frame_shape[0]:
            frame = self._reader.read_pixels(row)
        else:
            frame = self._reader.read_rows(row, rows.first, rows.stop)
        return frame[rows.inside, piece.x.source]

    def _plan(self) -> _Plan:
        frame_shape = self._frame_shape()
        values = ordered_axis_values(self._reader)
        sides = self._stitched_sides(values)
        if sides is None:
            return _Plan(values, Canvas(Side(frame_shape[0]), Side(frame_shape[1])), False, frame_shape)
        del values[_ROW], values[_COLUMN]
        return _Plan(values, sides, True, frame_shape)

    def _stitched_sides(self, values: Mapping[str, list[AxisValue]]) -> Canvas | None:
        """The canvas of tiles; None if frames are no tiles, or there is none yet."""
        overlap = self._reader.tile_overlap
        if overlap is None or not len(self._reader):
            return None
        sides: list[Side] = []
        for name, shared, length in zip((_ROW, _COLUMN), overlap, self._frame_shape(), strict=False):
            tiles = [value for value in values.get(name, ()) if isinstance(value, int) and value in _ROWS]
            if not tiles or len(tiles) != len(values[name]) or not 0 <= shared < length:
                return None
            sides.append(Side(length - shared, shared // 2, tiles[0], tiles[-1] - tiles[0] + 1))
        return Canvas(*sides)

    def _frame_shape(self) -> tuple[int, ...]:
        if not len(self._reader):
            raise DatasetError(f"{self._reader.path}: holds no frame yet, so shape and dtype are not known")
        return self._reader.frame_shape(0)


def ordered_axis_values(reader: FrameReader) -> dict[str, list[AxisValue]]:
    """Values seen so far by axis of the frames, slowest axis first: by `AxisOrder`, else as they appeared."""
    values = reader.axis_values()
    order = reader.summary_metadata.get("AxisOrder")
    names = [name for name in order if isinstance(name, str)] if isinstance(order, list) else []
    return {name: values[name] for name in (*names, *values) if name in values}


def _pieces(plan: _Plan, taken: list[range]) -> Iterator[_Piece]:
    """All that makes up the selected positions `taken`, last axis fastest."""
    count = len(plan.values)
    chosen = [[values[i] for i in some] for values, some in zip(plan.values.values(), taken, strict=False)]
    if not all(map(len, taken)):
        return
    down, across = plan.canvas.y.runs(taken[count]), plan.canvas.x.runs(taken[count + 1])
    y, x = next(down), next(across)
    found = zip(itertools.product(*(range(len(values)) for values in chosen)), itertools.product(*chosen), strict=True)
    for position, values in found:
        key: dict[str, AxisValue] = dict(zip(plan.values, values, strict=True))
        if not plan.is_stitched:
            yield _Piece(key, position, y, x)
            continue
        for y in plan.canvas.y.runs(taken[count]):
            for x in plan.canvas.x.runs(taken[count + 1]):
                yield _Piece({**key, _ROW: y.tile, _COLUMN: x.tile}, position, y, x)


def _place(piece: _Piece) -> tuple[int | slice, ...]:
    return (*piece.position, piece.y.target, piece.x.target)


def _integer(_axis: str, value: AxisValue) -> int | None:
    """Integers lie at their own values; names have no places."""
    return value if isinstance(value, int) else None
