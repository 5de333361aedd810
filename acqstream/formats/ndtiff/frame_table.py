"""The frames of an index as columns: no Python object is kept per frame."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.errors import CorruptDataset, UnsupportedFeature
from acqstream.formats.ndtiff.index_block import MISSING, AxisCodes, EntryBlock
from acqstream.formats.ndtiff.index_entries import NUMBERS, EntryBatch, plain_name
from acqstream.model.axes import AxisValue

MAX_AXIS_NAMES = 32  # every name costs a column over all frames
_MAX_EXPECTED = 2**20  # rows; an index may promise any number
_INT32_MAX = 2**31 - 1
_ABSENT = object()


class GrowingArray:
    """A numpy array that is appended to; grows by a quarter, so that little is unused."""

    __slots__ = ("_data", "_length")

    def __init__(self, dtype: np.dtype[Any] | str) -> None:
        self._data: NDArray[Any] = np.empty(0, dtype)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def extend(self, values: NDArray[Any]) -> None:
        end = self._length + len(values)
        if end > len(self._data):
            self.reserve(max(end, len(self._data) * 5 // 4))
        self._data[self._length : end] = values
        self._length = end

    def reserve(self, length: int) -> None:
        """Have room for so many items in all; what is not used takes addresses, but no memory."""
        if length > len(self._data):
            grown = np.empty(length, self._data.dtype)
            grown[: self._length] = self.values
            self._data = grown

    def item(self, position: int) -> Any:
        """One item as a Python value; position is below the length."""
        return self._data.item(position)

    @property
    def values(self) -> NDArray[Any]:
        """All items so far, a view."""
        return self._data[: self._length]


class AxisColumn:
    """The values of one axis, an int32 code per frame.

    The code is the value itself while all are integers. With strings (or integers that do not fit) the code is the
    position in a table of values in order of first appearance.
    """

    def __init__(self, frames: int) -> None:
        self.codes = GrowingArray("<i4")
        self.codes.extend(np.full(frames, MISSING, np.int32))
        self._table: list[AxisValue] | None = None
        self._code_of: dict[AxisValue, int] = {}
        self._distinct: NDArray[Any] = np.empty(0, np.int32)
        self._distinct_rows = 0

    def extend(self, axis: AxisCodes) -> bool:
        """Append values; True if older codes changed."""
        codes, changed = axis.codes, False
        # Integers are their own codes for as long as possible: no table, and old codes stay valid.
        if axis.table is not None and self._table is None:
            changed = self._become_table()
        if self._table is not None:
            values = axis.table
            if values is None:
                values, codes = _numbered(codes)
            in_table = np.array([*map(self._add_to_table, values), MISSING], np.int32)
            codes = in_table[np.maximum(codes, -1)]
        self.codes.extend(codes)
        return changed

    def value(self, row: int) -> AxisValue | None:
        """The value of a frame, None if it has none on this axis."""
        code: int = self.codes.item(row)
        if code == MISSING:
            return None
        return code if self._table is None else self._table[code]

    def values(self, rows: NDArray[np.int64]) -> list[AxisValue | None]:
        """As `value`, of many frames."""
        codes = self.codes.values[rows]
        if self._table is not None:
            table = [*self._table, None]  # the last one is for frames without a value
            return [table[code] for code in np.maximum(codes, -1).tolist()]
        values: list[AxisValue | None] = codes.tolist()
        return [None if code == MISSING else code for code in values] if (codes == MISSING).any() else values

    def code(self, value: AxisValue) -> int | None:
        """The code of a value, None if no frame can have it."""
        if self._table is not None:
            return self._code_of.get(value)
        return value if isinstance(value, int) and MISSING < value <= _INT32_MAX else None

    def distinct(self) -> list[AxisValue]:
        """The values seen: integers ascending, then strings in order of first appearance."""
        if self._table is not None:
            integers = sorted(value for value in self._table if isinstance(value, int))
            return [*integers, *(value for value in self._table if isinstance(value, str))]
        # Only rows that came since the last call: a growing dataset asks for this often.
        new = self.codes.values[self._distinct_rows :]
        if len(new):
            self._distinct_rows += len(new)
            self._distinct = _ascending(np.concatenate((self._distinct, new[new != MISSING])))
        values: list[AxisValue] = self._distinct.tolist()
        return values

    def numbered(self, start: int, stop: int) -> tuple[list[AxisValue | None], NDArray[np.int32]]:
        """The values of rows start .. stop - 1 in order of first appearance, and the position of each row's value.

        Rows without a value have None.
        """
        # Sorted by code, then put in order of first appearance: O(rows log rows), without a Python object per row.
        codes, first, which = np.unique(self.codes.values[start:stop], return_index=True, return_inverse=True)
        order = np.argsort(first)
        rank = np.empty(len(order), np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        found = codes[order].tolist()
        values = [None if code == MISSING else code if self._table is None else self._table[code] for code in found]
        return values, rank[which]

    def _become_table(self) -> bool:
        """Codes from now on are positions in a table; True if there were values before."""
        old = self.codes.values
        present = old != MISSING
        _, first, inverse = np.unique(old[present], return_index=True, return_inverse=True)
        order = np.argsort(first)  # of first appearance
        self._table = [int(old[present][first[i]]) for i in order]
        self._code_of = {value: code for code, value in enumerate(self._table)}
        rank = np.empty(len(order), np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        old[present] = rank[inverse]
        return bool(present.any())

    def _add_to_table(self, value: Any) -> int:
        assert self._table is not None
        code = self._code_of.setdefault(value, len(self._table))
        if code == len(self._table):
            self._table.append(value)
        return code


def _ascending(values: NDArray[Any]) -> NDArray[Any]:
    """The distinct values. `np.unique` without positions loads numpy.ma: a fifth of the time of `acqstream info`."""
    ordered = np.sort(values)
    return ordered[np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])] if len(ordered) else ordered


def _fits(values: Sequence[object]) -> bool:
    return all(value is _ABSENT or MISSING < value <= _INT32_MAX for value in values)  # type: ignore[operator]


def _numbered(codes: NDArray[np.int32]) -> tuple[Sequence[AxisValue], NDArray[np.int32]]:
    """Integers in order of first appearance, and their positions in that list, -1 for MISSING."""
    values, first, which = np.unique(codes, return_index=True, return_inverse=True)
    present = np.flatnonzero(values != MISSING)
    order = present[np.argsort(first[present])]
    rank = np.full(len(values), -1, np.int32)
    rank[order] = np.arange(len(order))
    return values[order].tolist(), rank[which]


class FrameTable:
    """All frames of an index: numbers, stack file and axes, a row per frame in order of arrival."""

    def __init__(self, path: str = "") -> None:
        self._path = path
        self._numbers = GrowingArray(NUMBERS)
        self._stacks = GrowingArray("<i4")
        self._stack_of: dict[bytes, int] = {}
        self.stack_names: list[str] = []
        self.axes: dict[str, AxisColumn] = {}
        self._kinds: dict[int, None] = {}  # sets of axes that frames have, a bit per axis
        self._kinds_rows = 0  # rows whose sets are known
        self.generation = 0  # counts how often the codes of old rows changed

    def __len__(self) -> int:
        return len(self._stacks)

    def append(self, part: EntryBatch | EntryBlock) -> None:
        """Add entries; nothing is added if one of them is bad, which raises CorruptDataset."""
        if not len(part.numbers):
            return
        columns = self._columns(part)
        if isinstance(part, EntryBatch):
            stacks = self._stack_numbers(part.names, part.offsets)
        else:
            names, counts, offsets = zip(*part.names, strict=True)
            stacks = np.repeat(self._stack_numbers(names, offsets), counts)
        for name, codes in columns.items():
            column = self.axes.get(name)
            if column is None:
                column = self.axes[name] = AxisColumn(len(self))
            self.generation += column.extend(codes)
        self._numbers.extend(part.numbers)
        self._stacks.extend(stacks)  # last: it is what `len` counts

    def expect(self, rows: int) -> None:
        """So many rows are likely to follow: take room for them, within bounds."""
        room = len(self) + min(rows, max(_MAX_EXPECTED, len(self) // 4))
        for array in (self._numbers, self._stacks, *(column.codes for column in self.axes.values())):
            array.reserve(room)

    def forget_numbers(self) -> None:
        """Keep axes and stack files only, of the rows so far."""
        self._numbers = GrowingArray(NUMBERS)

    @property
    def all_numbers(self) -> NDArray[np.void]:
        """The numbers of all entries (dtype NUMBERS), a view."""
        return self._numbers.values

    @property
    def all_stacks(self) -> NDArray[np.int32]:
        """Position in `stack_names` of each entry; a view."""
        return self._stacks.values

    def numbers(self, row: int) -> np.void:
        """The numbers of an entry (dtype NUMBERS)."""
        numbers: np.void = self._numbers.values[row]
        return numbers

    def entry(self, row: int) -> tuple[int, ...]:
        """The numbers of an entry, in the order of NUMBERS."""
        numbers: tuple[int, ...] = self._numbers.item(row)
        return numbers

    def stack(self, row: int) -> int:
        """Position in `stack_names` of the file that holds the frame."""
        stack: int = self._stacks.item(row)
        return stack

    def key(self, row: int) -> dict[str, AxisValue]:
        """The axes of a frame, in order of their first appearance in the index."""
        return {name: value for name, column in self.axes.items() if (value := column.value(row)) is not None}

    def keys(self, rows: NDArray[np.int64]) -> list[dict[str, AxisValue]]:
        """As `key`, of many frames."""
        if not self.axes:
            return [{} for _ in rows]
        columns = [column.values(rows) for column in self.axes.values()]
        named = map(zip, repeat(tuple(self.axes)), zip(*columns, strict=True))
        if any(None in values for values in columns):
            return [{name: value for name, value in pairs if value is not None} for pairs in named]
        return list(map(dict, named))

    def key_kinds(self) -> list[tuple[str, ...]]:
        """Return the sets of axes that frames have, each once, in no particular order."""
        first, count = self._kinds_rows, len(self)
        if first < count:
            # One bit per axis fits 32 bits, as MAX_AXIS_NAMES is 32.
            bits = np.zeros(count - first, np.uint32)
            for bit, column in enumerate(self.axes.values()):
                bits |= (column.codes.values[first:count] != MISSING).astype(np.uint32) << np.uint32(bit)
            self._kinds.update(dict.fromkeys(_ascending(bits).tolist()))
            self._kinds_rows = count
        return [tuple(name for bit, name in enumerate(self.axes) if kind >> bit & 1) for kind in self._kinds]

    def _stack_numbers(self, names: Sequence[bytes], offsets: Sequence[int]) -> NDArray[np.int32]:
        return np.fromiter(map(self._stack_number, names, offsets), np.int32, len(names))

    def _stack_number(self, name: bytes, offset: int) -> int:
        number = self._stack_of.get(name)
        if number is None:
            text = plain_name(name, self._path, offset)
            number = self._stack_of[name] = len(self.stack_names)
            self.stack_names.append(text)
        return number

    def _columns(self, part: EntryBatch | EntryBlock) -> dict[str, AxisCodes]:
        """The axes of the part, and the axes that it lacks."""
        names: dict[str, object] = dict.fromkeys(self.axes)
        for axes in part.axes if isinstance(part, EntryBatch) else (part.axes,):
            if not axes.keys() <= names.keys():
                names.update(dict.fromkeys(axes))
        if len(names) > MAX_AXIS_NAMES:
            raise UnsupportedFeature(f"{self._path}: {len(names)} different axes; at most {MAX_AXIS_NAMES} are read")
        if isinstance(part, EntryBatch):
            return {name: self._codes(part, name) for name in names}
        absent = AxisCodes(np.full(len(part), MISSING, np.int32), None)
        return {name: part.axes.get(name, absent) for name in names}

    def _codes(self, batch: EntryBatch, name: str) -> AxisCodes:
        """The values of one axis in a batch."""
        values: list[Any] = [axes.get(name, _ABSENT) for axes in batch.axes]
        if not set(map(type, values)) <= {int, str, object}:
            values = [
                value if value is _ABSENT else self._axis_value(value, name, offset)
                for value, offset in zip(values, batch.offsets, strict=True)
            ]
        table: dict[AxisValue, int] | None = None
        if not (set(map(type, values)) <= {int, object} and _fits(values)):
            table = {}
            values = [value if value is _ABSENT else table.setdefault(value, len(table)) for value in values]
        codes = np.array([MISSING if value is _ABSENT else value for value in values], np.int32)
        return AxisCodes(codes, None if table is None else [*table])

    def _axis_value(self, value: object, name: str, offset: int) -> AxisValue:
        """Writers in other languages may spell an integer as 1.0 or true; the reference readers take both."""
        if isinstance(value, (int, str)) or (isinstance(value, float) and value.is_integer()):
            return value if isinstance(value, str) else int(value)
        raise CorruptDataset(
            f"axis {name!r}: {value!r:.60} must be an integer or a string", path=self._path, offset=offset
        )
