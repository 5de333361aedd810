"""Rows of frames by their places in a stored array, in chunks. It keeps the chunks that may still change.

A chunk is an array of int32, the row of the latest frame at each place, NO_ROW where no frame has come. Chunks that are
forgotten are rebuilt from the log when a late frame comes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import Position
from acqstream.mirrors.table_grid import TableGrid

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
