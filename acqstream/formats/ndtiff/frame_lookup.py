"""Finds the row of a frame by its axes, now or as it was when the table had fewer rows.

Every row has a 64-bit hash, the sum of one hash per axis value, so that axes that come later change no older hash: the
value's code times a random number, plus another one, both of the axis. Two keys have equal hashes by chance only.
Hashes lie in sorted runs, each at least twice as long as the next, which are merged as rows arrive: O(log n) to find,
O(new log n) to extend, 12 bytes per frame. Rows that come a few at a time wait in a dictionary for a run that is worth
array operations. Equal hashes are told apart by the columns themselves.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from acqstream.formats.ndtiff.frame_table import FrameTable, GrowingArray
from acqstream.formats.ndtiff.index_block import MISSING
from acqstream.model.axes import Axes, AxisValue

_MASK = 2**64 - 1

_BATCH_ROWS = 2**16  # sorted at once; bounds what that takes besides
_SMALL_BATCH_ROWS, _MAX_WAITING = 32, 1024

_Rows = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class _Run:
    """Rows sorted by hash, equal hashes by row. searched: the hashes, as Python integers when indexed."""

    hashes: NDArray[np.uint64]
    rows: _Rows
    searched: memoryview = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "searched", self.hashes.data)

    def span(self, value: np.uint64) -> _Rows:
        low = self.hashes.searchsorted(value)
        high = low + 1
        if high < len(self.rows) and self.hashes[high] == value:
            high = self.hashes.searchsorted(value, "right")
        return self.rows[low:high] if low < len(self.rows) and self.hashes[low] == value else self.rows[:0]


class RowLookup:
    """Finds rows by axes, among the rows that `table` has at each call."""

    def __init__(self, table: FrameTable) -> None:
        self._table = table
        self._factors: dict[str, tuple[int, int]] = {}  # random: no attacker can prepare many equal hashes
        self._runs: list[_Run] = []
        self._sorted = 0  # rows in runs
        self._waiting: dict[int, list[int]] = {}  # the rows after these, by hash
        self._repeats = GrowingArray("?")
        self._generation = table.generation

    def find(self, axes: Axes) -> int | None:
        """The last row with exactly these axes, or None."""
        self._extend()
        wanted = self._codes(axes)
        return None if wanted is None else self._last_row(wanted)

    def find_before(self, axes: Axes, stop: int) -> int | None:
        """The last row before `stop` with exactly these axes, or None. Takes time in proportion to the rows."""
        wanted = self._codes(axes)
        if wanted is None:
            return None
        same = np.ones(stop, np.bool_)
        for name, column in self._table.axes.items():
            same &= column.codes.values[:stop] == wanted.get(name, MISSING)
        rows = np.flatnonzero(same)
        return int(rows[-1]) if len(rows) else None

    def repeats(self, start: int, stop: int) -> NDArray[np.bool_]:
        """For rows start .. stop - 1: whether an earlier row has the same axes."""
        self._extend()
        return self._repeats.values[start:stop]

    def latest_rows(self) -> NDArray[np.int64]:
        """The rows whose axes no later row has, ascending."""
        self._extend()
        if not self._repeats.values.any():
            return np.arange(len(self._table))
        columns = [column.codes.values for column in self._table.axes.values()]
        columns = columns or [np.zeros(len(self._table), np.int32)]
        order = np.lexsort(columns)  # equal ones stay in order of rows
        is_latest = np.zeros(len(order), np.bool_)
        is_latest[-1] = True
        for codes in columns:
            is_latest[:-1] |= codes[order[1:]] != codes[order[:-1]]
        return np.sort(order[is_latest])

    def _codes(self, axes: Axes) -> dict[str, int] | None:
        """The codes of these values; None if no row can have them."""
        wanted: dict[str, int] = {}
        for name, value in axes.items():
            column = self._table.axes.get(name)
            code = column.code(value) if column is not None else None
            if code is None:
                return None
            wanted[name] = code
        return wanted

    def _last_row(self, codes: dict[str, int]) -> int | None:
        """The last row that has these codes and no others."""
        value = self._hash(codes)
        for row in reversed(self._waiting.get(value, ())):
            if self._has_codes(row, codes):
                return row
        for run in reversed(self._runs):
            at = bisect_right(run.searched, value) - 1  # half of the cost of `searchsorted` for one value
            while at >= 0 and run.searched[at] == value:
                row = run.rows.item(at)
                if self._has_codes(row, codes):
                    return row
                at -= 1
        return None

    def _has_codes(self, row: int, codes: dict[str, int]) -> bool:
        for name, column in self._table.axes.items():  # noqa: SIM110 - a generator takes twice as long
            if column.codes.item(row) != codes.get(name, MISSING):
                return False
        return True

    def _extend(self) -> None:
        if self._generation != self._table.generation:
            self._generation = self._table.generation
            self._runs, self._sorted, self._waiting = [], 0, {}
            self._repeats = GrowingArray("?")
        known, count = len(self._repeats), len(self._table)
        if known == count:
            return
        if count - known <= _SMALL_BATCH_ROWS and count - self._sorted <= _MAX_WAITING:
            for row in range(known, count):
                self._add_row(row)
            return
        self._waiting = {}
        for start in range(self._sorted, count, _BATCH_ROWS):
            self._add_run(start, min(start + _BATCH_ROWS, count))

    def _add_row(self, row: int) -> None:
        columns = self._table.axes.items()
        codes = {name: code for name, column in columns if (code := column.codes.item(row)) != MISSING}
        self._repeats.extend(np.array([self._last_row(codes) is not None]))
        self._waiting.setdefault(self._hash(codes), []).append(row)

    def _add_run(self, start: int, stop: int) -> None:
        hashes = self._hashes(start, stop)
        order = np.argsort(hashes)
        ordered = hashes[order]
        if (ordered[1:] == ordered[:-1]).any():  # a stable sort takes much longer
            order = np.argsort(hashes, kind="stable")
        run = _Run(ordered, (order + start).astype(np.uint32))
        self._repeats.extend(self._find_repeats(run, start)[len(self._repeats) - start :])
        self._runs.append(run)
        self._sorted = stop
        while len(self._runs) > 1 and len(self._runs[-2].rows) < 2 * len(self._runs[-1].rows):
            newer, older = self._runs.pop(), self._runs.pop()
            self._runs.append(_merge(older, newer))

    def _factors_of(self, name: str) -> tuple[int, int]:
        """Two numbers for the hashes of an axis, both below 2**64."""
        if name not in self._factors:
            both = os.urandom(16)
            self._factors[name] = int.from_bytes(both[:8], "little"), int.from_bytes(both[8:], "little")
        return self._factors[name]

    def _hash(self, codes: dict[str, int]) -> int:
        total = 0
        for name, code in codes.items():
            factor, term = self._factors_of(name)
            total += code * factor + term
        return total & _MASK

    def _hashes(self, start: int, stop: int) -> NDArray[np.uint64]:
        """As `_hash`, of rows start .. stop - 1."""
        total = np.zeros(stop - start, np.uint64)
        for name, column in self._table.axes.items():
            factor, term = self._factors_of(name)
            codes = column.codes.values[start:stop]
            terms = codes.astype(np.int64).view(np.uint64)  # arithmetic of uint64 is modulo 2**64, as in `_hash`
            terms *= np.uint64(factor)
            terms += np.uint64(term)
            terms[codes == MISSING] = 0
            total += terms
        return total

    def _find_repeats(self, run: _Run, start: int) -> NDArray[np.bool_]:
        """Which rows of the new run, start and later, have the axes of an earlier row; in order of rows."""
        found = np.zeros(len(run.rows), np.bool_)
        doubtful = np.zeros(len(run.rows), np.bool_)
        for other in (*self._runs, run):
            at = _first_equal(run.hashes) if other is run else np.searchsorted(other.hashes, run.hashes, "left")
            at[at == len(other.hashes)] = 0
            earlier = other.rows[at]
            candidates = np.flatnonzero((other.hashes[at] == run.hashes) & (earlier < run.rows))
            same = self._same_axes(run.rows[candidates], earlier[candidates])
            found[candidates[same]] = True
            doubtful[candidates[~same]] = True
        for i in np.flatnonzero(doubtful & ~found):  # equal hashes of different axes
            found[i] = self._has_earlier(int(run.rows[i]), run.hashes[i], run)
        result = np.empty(len(found), np.bool_)
        result[run.rows - np.uint32(start)] = found
        return result

    def _same_axes(self, rows: _Rows, others: _Rows) -> NDArray[np.bool_]:
        same = np.ones(len(rows), np.bool_)
        for column in self._table.axes.values():
            codes = column.codes.values
            same &= codes[rows] == codes[others]
        return same

    def _has_earlier(self, row: int, value: np.uint64, run: _Run) -> bool:
        for other in (*self._runs, run):
            earlier = other.span(value)
            earlier = earlier[earlier < row]
            if self._same_axes(np.full(len(earlier), row, np.uint32), earlier).any():
                return True
        return False


def _first_equal(values: NDArray[np.uint64]) -> NDArray[np.intp]:
    """For sorted values: where the first one stands that equals each."""
    firsts = np.flatnonzero(np.concatenate(([True], values[1:] != values[:-1])))
    return np.repeat(firsts, np.diff(firsts, append=len(values)))


def _merge(older: _Run, newer: _Run) -> _Run:
    """Both runs as one; all rows of `newer` are later than those of `older`."""
    count = len(older.rows) + len(newer.rows)
    at = np.searchsorted(older.hashes, newer.hashes, "right") + np.arange(len(newer.rows))
    from_older = np.ones(count, np.bool_)
    from_older[at] = False
    hashes, rows = np.empty(count, np.uint64), np.empty(count, np.uint32)
    hashes[at], hashes[from_older] = newer.hashes, older.hashes
    rows[at], rows[from_older] = newer.rows, older.rows
    return _Run(hashes, rows)


class RowHistory:
    """Questions about the rows before a given one, for snapshots of a growing dataset.

    Thread safe: shares the lock of its reader.
    """

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
