"""Rows of frames by their places in a stored array, in chunks, with the numbers of their metadata as columns.

A chunk is an array of int32, the row of the latest frame at each place, NO_ROW where no frame has come. Chunks that are
forgotten are rebuilt from the log when a late frame comes.
"""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.description.stage import StageReading, stage_reading
from acqstream.errors import CorruptDataset, UnsupportedFeature
from acqstream.formats.hsds.reference_layout import COLUMN_UNITS
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.mirrors.slab_grid import growing_axis, slab_grids
from acqstream.model.axes import PICTURE_AXES
from acqstream.model.metadata import TIME_KEY

MAX_ENTRIES = 1024  # of a table chunk: 10 s of a camera at 100 frames per second
_UNKNOWN_STEP = 16  # entries along an axis whose size was not declared


@dataclass(frozen=True, slots=True)
class TableGrid:
    """axes are those of the frames, slowest first, sizes their planned sizes, 0 for an unknown one. steps: entries of a
    chunk along each axis. growing: the position of the axis that the array grows along; None for a single frame.
    """

    axes: tuple[str, ...]
    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    growing: int | None

    @property
    def entries(self) -> int:
        """Entries of a chunk."""
        return math.prod(self.steps)

    @property
    def planned(self) -> int:
        """Planned frames of one index of the growing axis; 0 if unknown."""
        return math.prod(size for axis, size in enumerate(self.sizes) if axis != self.growing)

    def first_index(self, chunk: Position) -> int:
        """The first index of the growing axis that a chunk has entries of."""
        return 0 if self.growing is None else chunk[self.growing] * self.steps[self.growing]

    def complete_size(self, size: int) -> int:
        """The largest size along the growing axis, at most this one, that ends with a chunk or with the plan."""
        if self.growing is None or size == self.sizes[self.growing]:
            return size
        return size - size % self.steps[self.growing]


def table_grid(
    spec: ArraySpec, seen: Mapping[str, int] | None = None, steps: tuple[int, ...] | None = None
) -> TableGrid:
    """The grid for the frames of an array, whose y and x (and c) belong to each frame. spec has chunk_shape.

    seen: numbers of values of the frames so far, which stand for unknown sizes. steps: those of an existing table.
    """
    (slabs,) = slab_grids([spec])
    at = growing_axis(slabs)
    growing = None if at is None else slabs.outer.index(at)
    outer = [axis for axis, name in enumerate(spec.axes) if name not in PICTURE_AXES]
    sizes = [spec.shape[axis] for axis in outer]
    axes = tuple(spec.axes[axis] for axis in outer)
    expected = [size or _expected((seen or {}).get(name, 0)) for name, size in zip(axes, sizes, strict=True)]
    if growing is not None and not sizes[growing]:
        expected[growing] = MAX_ENTRIES
    return TableGrid(axes, tuple(sizes), steps or _steps(expected, growing), growing)


def _expected(seen: int) -> int:
    """The likely size of an axis with an unknown one: a single value shows nothing yet."""
    return seen if seen > 1 else _UNKNOWN_STEP


def _steps(sizes: Sequence[int], growing: int | None) -> tuple[int, ...]:
    steps, left = [1] * len(sizes), MAX_ENTRIES
    # The growing axis last: a chunk has few indices of it, so it is complete early.
    for axis in sorted(range(len(sizes)), key=lambda axis: (axis == growing, -axis)):
        steps[axis] = _step(sizes[axis], left)
        left = max(1, left // steps[axis])
    return tuple(steps)


def _step(size: int, max_step: int) -> int:
    """The step that cuts `size` into the fewest parts of about the same length."""
    return -(-size // -(-size // max_step))


NO_ROW = -1
MAX_CHUNKS = 4096  # in memory: 16 MiB of rows
MAX_CHANGED = 3072  # chunks that are not stored; after these no frame is taken until some are

Rows = NDArray[np.int32]


class PlaceTable:
    """Used by one thread. find_row returns the row of the latest frame taken at a place, None without one."""

    def __init__(self, grid: TableGrid, find_row: Callable[[tuple[int, ...]], int | None]) -> None:
        self._grid = grid
        self._find_row = find_row
        self._chunks: OrderedDict[Position, Rows] = OrderedDict()  # the one used last at the end
        self._known: set[Position] = set()  # chunks with frames
        self._changed: dict[Position, None] = {}  # since they were stored, in order of the first change
        self.sizes = [0] * len(grid.axes)  # one more than the last place along each axis

    @property
    def changed(self) -> Iterable[Position]:
        """Chunks that changed since they were stored, in order of the first change."""
        return self._changed.keys()

    @property
    def is_full(self) -> bool:
        """True if chunks must be stored before frames are added."""
        return len(self._changed) >= MAX_CHANGED

    def add(self, places: NDArray[np.int64], first_row: int) -> NDArray[np.bool_]:
        """Add frames in order of arrival; places has shape (frames, axes). Returns which came to an empty place."""
        is_first = np.zeros(len(places), np.bool_)
        for chunk, members, inside in self._grouped(places):
            rows = self.chunk(chunk)
            empty = np.flatnonzero(rows.reshape(-1)[inside] == NO_ROW)
            is_first[members[empty[np.unique(inside[empty], return_index=True)[1]]]] = True
            rows.reshape(-1)[inside] = members + first_row  # of several frames at a place the last one is kept
            self._changed[chunk] = None
        self._forget()
        return is_first

    def add_earlier(self, places: NDArray[np.int64], first_row: int, unstored: frozenset[Position]) -> None:
        """As `add`, for frames that an earlier process took: rows are kept of the unstored chunks alone."""
        for chunk, members, inside in self._grouped(places):
            self._known.add(chunk)
            if chunk in unstored:
                rows = self._chunks.setdefault(chunk, np.full(self._grid.steps, NO_ROW, np.int32))
                rows.reshape(-1)[inside] = members + first_row
                self._changed[chunk] = None

    def chunk(self, chunk: Position) -> Rows:
        """The rows of a chunk, of the shape of the grid's steps."""
        rows = self._chunks.get(chunk)
        if rows is None:
            rows = self._rebuilt(chunk) if chunk in self._known else np.full(self._grid.steps, NO_ROW, np.int32)
            self._known.add(chunk)
            self._chunks[chunk] = rows
        self._chunks.move_to_end(chunk)
        return rows

    def mark_stored(self, chunk: Position) -> None:
        """Note that the files have a chunk as it is."""
        self._changed.pop(chunk, None)

    def count_at(self, axis: int, index: int) -> int:
        """Number of places with frames at one index of an axis."""
        number, inside = divmod(index, self._grid.steps[axis])
        here = [chunk for chunk in self._known if chunk[axis] == number]
        return sum(int((self.chunk(chunk).take(inside, axis) != NO_ROW).sum()) for chunk in here)

    def _grouped(self, places: NDArray[np.int64]) -> Iterator[tuple[Position, NDArray[np.int64], NDArray[np.int64]]]:
        """Yield chunks, the positions of their frames in `places`, ascending, and their places inside the chunk."""
        if not len(places):
            return
        steps = np.array(self._grid.steps, np.int64)
        for axis, end in enumerate((places.max(0) + 1).tolist()):
            self.sizes[axis] = max(self.sizes[axis], end)
        numbers, inside = np.divmod(places, steps) if len(steps) else (places, places)
        strides = np.array([*np.cumprod(steps[:0:-1])[::-1], 1][: len(steps)], np.int64)
        flat = inside @ strides if len(steps) else np.zeros(len(places), np.int64)
        # Frames mostly come in order, so a chunk is a few runs of rows: sorting is stable and keeps their order.
        order = np.lexsort(numbers.T[::-1]) if len(steps) else np.arange(len(places))
        ordered = numbers[order]
        starts = np.flatnonzero(np.concatenate(([True], (ordered[1:] != ordered[:-1]).any(1))))
        for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(order)], strict=True):
            members = order[start:stop]
            yield tuple(ordered[start].tolist()), members, flat[members]

    def _rebuilt(self, chunk: Position) -> Rows:
        rows = np.full(self._grid.steps, NO_ROW, np.int32)
        first = [number * step for number, step in zip(chunk, self._grid.steps, strict=True)]
        for inside in np.ndindex(rows.shape):
            row = self._find_row(tuple(start + at for start, at in zip(first, inside, strict=True)))
            rows[inside] = NO_ROW if row is None else row
        return rows

    def _forget(self) -> None:
        """Drop the chunks that were used least recently and are stored."""
        if len(self._chunks) <= MAX_CHUNKS:
            return
        stored = [chunk for chunk in self._chunks if chunk not in self._changed]
        for chunk in stored[: len(self._chunks) - MAX_CHUNKS]:
            del self._chunks[chunk]


class IndexCount:
    """Counts the indices of the growing axis that other software may see: those that no further frame is due for.

    An index is complete when it has all planned frames, or when a frame of a later index has come. planned: frames of
    one index; 0 if unknown.
    """

    def __init__(self, planned: int) -> None:
        self._planned = planned
        self.last = -1  # index of any frame
        self._at_last = 0  # places with frames at it

    def add(self, indices: NDArray[np.int64], is_first: NDArray[np.bool_]) -> None:
        """Note frames; is_first: those that came to an empty place."""
        last = int(indices.max(initial=self.last))
        if last > self.last:
            self.last, self._at_last = last, 0
        self._at_last += int(np.count_nonzero(is_first & (indices == last)))

    def resume(self, last: int, at_last: int) -> None:
        """Continue after frames of an earlier process."""
        self.last, self._at_last = last, at_last

    @property
    def ready(self) -> int:
        """Number of complete indices."""
        return self.last + 1 if self._planned and self._at_last >= self._planned else max(self.last, 0)


FIRST_FRAMES = 64  # frames that names are chosen from
MAX_COLUMNS = 32
_MAX_NAME_CHARACTERS = 80


def choose_numbers(reader: NDTiffReader, count: int) -> tuple[str, ...]:
    """Names of the numbers in the first frames, in order of appearance, at most MAX_COLUMNS.

    Without capture times: the columns are doubles, which would change them.

    count: frames that may be read. Raises StorageError.
    """
    names: dict[str, None] = {}
    first = stage_reading(_metadata(reader, 0) if count else {})
    found = [_metadata(reader, row) for row in range(min(count, FIRST_FRAMES))]
    for metadata in (*(_said(one, first) for one in found), *found):
        for name, value in metadata.items():
            if name != TIME_KEY and _is_number(value) and 0 < len(name) <= _MAX_NAME_CHARACTERS and name.isprintable():
                names.setdefault(name)
    return tuple(names)[:MAX_COLUMNS]


def read_numbers(reader: NDTiffReader, rows: NDArray[np.int32], names: Sequence[str]) -> NDArray[np.float64]:
    """The numbers of these rows, of shape (names, *rows.shape); NaN where a frame has none, or where no frame is.

    Metadata that cannot be read count as empty: `acqstream verify` reports them. Raises StorageError.
    """
    found = np.full((len(names), rows.size), np.nan)
    first = stage_reading(_metadata(reader, 0) if names and len(reader) else {})
    for at, row in enumerate(rows.reshape(-1).tolist() if names else ()):
        if row < 0:
            continue
        metadata = _metadata(reader, row)
        metadata = {**metadata, **_said(metadata, first)}
        for column, name in enumerate(names):
            value = metadata.get(name)
            if _is_number(value):
                found[column, at] = _as_float(value)
    return found.reshape(len(names), *rows.shape)


def _said(metadata: Mapping[str, Any], first: StageReading) -> dict[str, float]:
    """What a frame says of time, exposure and stage. first: of the first frame, whose clock is that of all."""
    seen = stage_reading(metadata)
    time_s = seen.time_s
    if first.time_s is None:
        has_both = seen.capture_s is not None and first.capture_s is not None
        time_s = round(seen.capture_s - first.capture_s, 9) if has_both else None  # type: ignore[operator]
    found = zip(COLUMN_UNITS, (time_s, seen.exposure_ms, seen.x_um, seen.y_um, seen.z_um), strict=True)
    return {name: value for name, value in found if value is not None}


def _metadata(reader: NDTiffReader, row: int) -> Mapping[str, Any]:
    try:
        found = json.loads(reader.metadata_bytes(row))
    except (CorruptDataset, UnsupportedFeature, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_number(value: object) -> bool:
    return type(value) in (int, float)  # True and False are no numbers here


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer beyond 1.8e308
        return float("nan")
