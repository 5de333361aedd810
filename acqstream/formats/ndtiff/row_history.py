"""The frames of a reader as they were when it had fewer rows: for snapshots of a growing dataset."""

from __future__ import annotations

import threading

import numpy as np

from acqstream.formats.ndtiff.axes_texts import MISSING
from acqstream.formats.ndtiff.columns import FrameTable
from acqstream.formats.ndtiff.lookup import RowLookup
from acqstream.model.axes import Axes, AxisValue


class RowHistory:
    """Questions about the rows before a given one, in order of arrival. Thread safe: shares the lock of its reader."""

    def __init__(self, table: FrameTable, lookup: RowLookup, lock: threading.RLock) -> None:
        self._table = table
        self._lookup = lookup
        self._lock = lock

    def names(self, stop: int) -> tuple[str, ...]:
        """The axes that some row before `stop` has, in order of first appearance in the index."""
        with self._lock:
            columns = self._table.axes.items()
            return tuple(name for name, column in columns if bool((column.codes.values[:stop] != MISSING).any()))

    def find(self, axes: Axes, stop: int) -> int | None:
        """The last row before `stop` with exactly these axes; None if there is none."""
        with self._lock:
            row = self._lookup.find(axes)
            return row if row is None or row < stop else self._lookup.find_before(axes, stop)

    def values(self, name: str, stop: int) -> list[AxisValue]:
        """The values of an axis in the rows before `stop`, each once, in no particular order."""
        with self._lock:
            column = self._table.axes.get(name)
            if column is None:
                return []
            codes = column.codes.values[:stop]
            rows = np.unique(codes, return_index=True)[1].tolist()
            found = [column.value(row) for row in rows]
        return [value for value in found if value is not None]

    def count_keys(self, name: str, value: AxisValue, stop: int) -> int:
        """Number of different keys in the rows before `stop` that have this value on an axis."""
        with self._lock:
            column = self._table.axes.get(name)
            code = None if column is None else column.code(value)
            if column is None or code is None:
                return 0
            has_value = column.codes.values[:stop] == code
            return int(np.count_nonzero(has_value & ~self._lookup.repeats(0, stop)))
