"""Many entries of an index at once, as columns: no Python object per frame.

`parse_index` gives what `parse_entries` gives. It reads regular entries with array operations: axes as `AxesTexts`
reads them, names of stack files that stay the same for a while, numbers that are plausible and not zero. All other
entries, and the end of the bytes, are left to `parse_entries`.

A writer puts the axes of all its frames the same way: texts of one length mostly differ in digits and in strings at
the same places. The first text defines these places (its layout); array operations read all texts that have the same
layout, then the next layout is taken. What is read is what a JSON parser reads; texts with anything else (escapes,
other types, large integers, no UTF-8) are not read by columns.

"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from acqstream.formats.ndtiff.index_entries import NUMBERS, NUMBERS_BYTES, EntryBatch, are_possible, parse_entries
from acqstream.model.axes import AxisValue

_MAX_NAME_BYTES = 255
_MIN_AT_ONCE, _MAX_AT_ONCE = 256, 2**15  # entries of a block: bounds the memory that reading takes
_MIN_BYTES = 4096  # fewer are not worth the array operations
_FIRST_REACH, _LONGEST_REACH = 2**13, 2**19  # bytes in which a name is looked for at once
_MIN_BY_ONE, _MAX_BY_ONE = 4, 4096
_U32 = struct.Struct("<I")

MISSING = -(2**31)
"""Code of a frame that has no value on an axis."""

MAX_TEXT_BYTES = 255  # of texts read here; our own are far shorter
_MAX_LAYOUTS = 64  # tried for the texts of one length; bounds the work on texts that have nothing in common
_SPACE = rb"[ \t\r\n]*"
_STRING = rb'"([^"\\\x00-\x1f]*)"'
_INTEGER = rb"(-?)(0|[1-9][0-9]{0,8})"  # fits an int32 code
_OPEN = re.compile(_SPACE + rb"\{")
_PAIR = re.compile(_SPACE + _STRING + _SPACE + b":" + _SPACE + b"(?:" + _INTEGER + b"|" + _STRING + b")" + _SPACE)
_CLOSE = re.compile(rb"\}" + _SPACE)
_CONTENT = re.compile(_STRING[1:-1])

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class EntryBlock:
    """Regular entries that followed one another in the index, at least one.

    names are those of their stack files, each with the number of entries that follow one another with it, and the
    offset of the first in the index file. numbers (dtype NUMBERS) and the codes of every axis have an item per entry.
    """

    names: list[tuple[bytes, int, int]]
    numbers: NDArray[np.void]
    axes: dict[str, AxisCodes]
    consumed: int
    at_zeros: ClassVar[bool] = False

    def __len__(self) -> int:
        return len(self.numbers)


def parse_index(data: bytes, path: str = "", start: int = 0) -> Iterator[EntryBlock | EntryBatch]:
    """The complete entries at the beginning of `data`, in parts; the last part has `at_zeros`.

    Arguments and errors as `parse_entries`.
    """
    position, at_once, by_one = 0, _MAX_AT_ONCE, _MIN_BY_ONE
    while True:
        block = _parse_block(data, position, start, at_once)
        if block is not None:
            yield block
            position += block.consumed
        if block is not None and 2 * len(block) >= at_once:
            at_once, by_one = min(2 * at_once, _MAX_AT_ONCE), _MIN_BY_ONE
        else:  # where irregular entries are frequent, little is tried in vain
            at_once, by_one = _MIN_AT_ONCE, min(2 * by_one, _MAX_BY_ONE)
        if len(data) - position < _MIN_BYTES:
            by_one = len(data)
        batch = parse_entries(data, path, start, begin=position, limit=by_one)
        position += batch.consumed
        yield batch
        if not batch.is_limited:
            return


@dataclass(frozen=True, slots=True)
class _Frames:
    """Byte offsets of the entries of a block. names as in EntryBlock; starts, lengths of axes and of names by row."""

    names: list[tuple[bytes, int, int]]
    starts: Rows
    text_bytes: Rows
    name_bytes: Rows


def _parse_block(data: bytes, position: int, start: int, most: int) -> EntryBlock | None:
    frames = _find_frames(data, position, start, most)
    if frames is None:
        return None
    texts = AxesTexts(data, frames.starts + 4, frames.text_bytes)
    numbers_at = frames.starts + frames.text_bytes + frames.name_bytes + 8
    numbers = gather(data, numbers_at, NUMBERS_BYTES // 8).view(NUMBERS).reshape(-1)
    # A metadata offset of 0 may be an entry that its writer has not completed: `parse_entries` decides.
    texts.count = _first_false(are_possible(numbers) & (numbers["metadata_offset"] != 0))
    axes = texts.read()
    if not texts.count:
        return None
    end = int(numbers_at[texts.count - 1]) + NUMBERS_BYTES
    return EntryBlock(_first_names(frames.names, texts.count), numbers[: texts.count], axes, end - position)


def _find_frames(data: bytes, position: int, start: int, most: int) -> _Frames | None:
    """Entries from `position` on, for as long as their lengths are regular; about `most`."""
    names: list[tuple[bytes, int, int]] = []
    parts: list[Rows] = []
    count = 0
    while count < most and len(data) - position >= _MIN_BYTES:
        field = _name_field(data, position)
        found, following = _with_same_name(data, position, field, most - count) if field else ([], position)
        if not found:
            break
        parts += found
        entries = sum(map(len, found))
        names.append((field[4:], entries, start + position))
        position, count = following, count + entries
    if not parts:
        return None
    starts = np.concatenate(parts)
    name_bytes = np.repeat([len(name) for name, _, _ in names], [entries for _, entries, _ in names])
    return _Frames(names, starts, np.frombuffer(data, np.uint8)[starts].astype(np.int64), name_bytes)


def _name_field(data: bytes, position: int) -> bytes:
    """Length and name of the stack file in the entry at `position`, empty if they are not regular."""
    text_bytes = _U32.unpack_from(data, position)[0]
    at = position + 4 + text_bytes
    if not 0 < text_bytes <= MAX_TEXT_BYTES or at + 4 > len(data):
        return b""
    name_bytes = _U32.unpack_from(data, at)[0]
    field = data[at : at + 4 + name_bytes]
    is_regular = 0 < name_bytes <= _MAX_NAME_BYTES and len(field) == 4 + name_bytes and b"\0" not in field[4:]
    return field if is_regular else b""


def _with_same_name(data: bytes, position: int, field: bytes, most: int) -> tuple[list[Rows], int]:
    """The starts of the entries from `position` on that name the same stack file, and where the next one starts."""
    found: list[Rows] = []
    count, reach = 0, _FIRST_REACH
    # A search for the rarest byte of the name compares the fewest places in vain.
    rarest = _rarest_byte(data[position : position + _FIRST_REACH], field)
    while count < most:
        names_at = _find_all(data, position, position + reach, field, rarest)
        # The numbers follow the name, and the next entry follows the numbers.
        starts = np.concatenate((np.full(1, position), names_at + len(field) + NUMBERS_BYTES))
        lengths = gather(data, starts[:-1], 1)[:, 0] & np.uint64(2**32 - 1)
        # The stored length of the axes must reach exactly to the name; else the name occurs inside other text.
        good = (lengths == (names_at - starts[:-1] - 4).view(np.uint64)) & (lengths > 0) & (lengths <= MAX_TEXT_BYTES)
        regular = _first_false(good)
        if regular:
            found.append(starts[:regular])
        position, count = int(starts[regular]), count + regular
        if regular < len(good) or not len(good):
            break
        reach = min(2 * reach, _LONGEST_REACH)
    return found, position


def _rarest_byte(sample: bytes, field: bytes) -> int:
    """Index in `field` of the byte that is rarest in the sample."""
    counts = np.bincount(np.frombuffer(sample, np.uint8), minlength=256)
    return int(np.argmin(counts[np.frombuffer(field, np.uint8)]))


def _find_all(data: bytes, begin: int, end: int, field: bytes, mark: int) -> Rows:
    """Offsets of `field` in data[begin:end] that the numbers and 8 more bytes follow."""
    end = min(end, len(data) - NUMBERS_BYTES - 8)
    octets = np.frombuffer(data, np.uint8)[begin + mark : max(begin, end - len(field)) + mark]
    at = np.flatnonzero(octets == field[mark]) + begin
    return at[equal_to(gather(data, at, -(-len(field) // 8)), field, np.ones(len(field), np.bool_))]


def _first_false(values: NDArray[np.bool_]) -> int:
    return len(values) if values.all() else int(np.argmin(values))


def _first_names(names: list[tuple[bytes, int, int]], count: int) -> list[tuple[bytes, int, int]]:
    """The names of the first `count` entries."""
    kept: list[tuple[bytes, int, int]] = []
    for name, entries, offset in names:
        if count > 0:
            kept.append((name, min(entries, count), offset))
        count -= entries
    return kept


@dataclass(slots=True)
class AxisCodes:
    """Values of one axis, an int32 code per row: the integer, or a position in `table`; MISSING where there is none.

    table: the values in order of first appearance; None where all are integers that fit a code.
    """

    codes: NDArray[np.int32]
    table: Sequence[AxisValue] | None


@dataclass(frozen=True, slots=True)
class _Value:
    """Place of a value in a layout: bytes [start, end) of the text, without sign or quotes."""

    axis: str
    start: int
    end: int
    is_string: bool
    is_negative: bool


@dataclass(slots=True)
class _Column:
    """An axis while it is collected. first: row and place in the text where it first came; firsts: rows by string."""

    codes: NDArray[np.int32]
    is_string: bool
    first: tuple[int, int]
    code_of: dict[str, int] = field(default_factory=dict)
    firsts: list[int] = field(default_factory=list)


def gather(data: bytes, starts: Rows, lanes: int) -> NDArray[np.uint64]:
    """The `lanes` x 8 bytes after each start, little-endian, of shape (starts, lanes); all must lie in `data`."""
    size = 8 * lanes
    everywhere: NDArray[Any] = np.ndarray((max(0, len(data) - size + 1),), f"V{size}", data, strides=(1,))
    return everywhere[starts].view("<u8").reshape(-1, lanes)


def equal_to(found: NDArray[np.uint64], wanted: bytes, is_checked: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which rows of `found` (from `gather`) have the bytes `wanted` wherever `is_checked`; both as long as those."""
    size = 8 * found.shape[1]
    target = np.frombuffer(wanted.ljust(size, b"\0"), "<u8")
    mask = np.frombuffer((is_checked * np.uint8(255)).tobytes().ljust(size, b"\0"), "<u8")
    same = np.ones(len(found), np.bool_)
    for lane in np.flatnonzero(mask):
        same &= ((found[:, lane] ^ target[lane]) & mask[lane]) == 0
    return same


class AxesTexts:
    """JSON texts in `data`: where each starts, and its length in bytes, 1 to MAX_TEXT_BYTES.

    `read` gives the axes of the first `count` of them, in order of first appearance; the next text is none that can be
    read here. data must continue for 8 bytes after every text.
    """

    def __init__(self, data: bytes, starts: Rows, lengths: Rows) -> None:
        self._data = data
        self._starts = starts
        self._lengths = lengths
        self._columns: dict[str, _Column] = {}
        self.count = len(starts)

    def read(self) -> dict[str, AxisCodes]:
        for length in np.flatnonzero(np.bincount(self._lengths)).tolist():
            self._read_length(np.flatnonzero(self._lengths == length), length)
        found = sorted(self._columns.items(), key=lambda item: item[1].first)
        return {axis: self._codes(column) for axis, column in found if column.first[0] < self.count}

    def _read_length(self, rows: Rows, length: int) -> None:
        found = gather(self._data, self._starts[rows], -(-length // 8))
        for _ in range(_MAX_LAYOUTS):
            if not len(rows) or rows[0] >= self.count:
                return
            start = int(self._starts[rows[0]])
            text = self._data[start : start + length]
            values = _layout_of(text)
            alike = _alike(found, text, values)
            if not values or not alike[0] or not self._take(rows[alike], found[alike].view(np.uint8), values):
                break
            rows, found = rows[~alike], found[~alike]
        if len(rows):
            self._end_before(int(rows[0]))

    def _end_before(self, row: int) -> None:
        self.count = min(self.count, row)

    def _take(self, rows: Rows, octets: NDArray[np.uint8], values: list[_Value]) -> bool:
        """Put the values of these rows, which have one layout, into the columns; False if an axis has both kinds."""
        for place, value in enumerate(values):
            first = (int(rows[0]), place)
            column = self._columns.get(value.axis)
            if column is None:
                codes = np.full(len(self._starts), MISSING, np.int32)
                column = self._columns[value.axis] = _Column(codes, value.is_string, first)
            if column.is_string != value.is_string:
                return False
            column.first = min(column.first, first)
            column.codes[rows] = self._strings(column, rows, value) if value.is_string else _integers(octets, value)
        return True

    def _strings(self, column: _Column, rows: Rows, value: _Value) -> NDArray[np.int32]:
        """The codes of string values; the text ends before the first one that is not read here."""
        size = value.end - value.start
        starts = self._starts[rows] + value.start
        found = gather(self._data, starts, max(1, -(-size // 8)))
        found[:, -1] &= np.uint64(2 ** (8 * (size - 8 * (found.shape[1] - 1))) - 1)
        changes = np.flatnonzero((found[1:] != found[:-1]).any(axis=1)) + 1
        heads = np.concatenate((np.zeros(1, np.int64), changes))  # mostly the same string many times in a row
        kinds = "<u8" if found.shape[1] == 1 else f"S{8 * found.shape[1]}"
        _, first, which = np.unique(found[heads].view(kinds).reshape(-1), return_index=True, return_inverse=True)
        codes = np.empty(len(first), np.int32)
        for kind, head in enumerate(heads[first].tolist()):
            row, start = int(rows[head]), int(starts[head])
            text = _string_content(self._data[start : start + size])
            if text is None:
                self._end_before(row)
                codes[kind] = MISSING
                continue
            code = codes[kind] = column.code_of.setdefault(text, len(column.firsts))
            if code == len(column.firsts):
                column.firsts.append(row)
            column.firsts[code] = min(column.firsts[code], row)
        return np.repeat(codes[which], np.diff(heads, append=len(rows)))

    def _codes(self, column: _Column) -> AxisCodes:
        codes = column.codes[: self.count]
        if not column.is_string:
            return AxisCodes(codes, None)
        order = [code for code in np.argsort(column.firsts, kind="stable") if column.firsts[code] < self.count]
        strings = list(column.code_of)
        rank = np.full(len(strings) + 1, MISSING, np.int32)  # the last one is for rows without a string
        rank[order] = np.arange(len(order))
        return AxisCodes(rank[np.maximum(codes, -1)], [strings[code] for code in order])


def _layout_of(text: bytes) -> list[_Value]:
    """The values of a regular text; empty if it is none (or has none)."""
    start = _OPEN.match(text)
    position = start.end() if start else len(text)
    values: list[_Value] = []
    while (pair := _PAIR.match(text, position)) is not None and pair.end() < len(text):
        axis, is_string = _string_content(pair[1]), pair[4] is not None
        if axis is None or any(axis == value.axis for value in values):
            return []
        values.append(_Value(axis, *pair.span(4 if is_string else 3), is_string, pair[2] == b"-"))
        position = pair.end()
        if text[position] != ord(","):
            return values if _CLOSE.fullmatch(text, position) else []
        position += 1
    return []


def _alike(found: NDArray[np.uint64], text: bytes, values: list[_Value]) -> NDArray[np.bool_]:
    """Which rows have the layout of `text`: its bytes but for the values, and digits where it has an integer."""
    is_fixed = np.ones(len(text), np.bool_)
    for value in values:
        is_fixed[value.start : value.end] = False
    alike = equal_to(found, text, is_fixed)
    octets = found.view(np.uint8)
    for value in values:
        if not value.is_string:
            for place in range(value.start, value.end):
                alike &= octets[:, place] - np.uint8(ord("0")) <= 9
            if value.end - value.start > 1:
                alike &= octets[:, value.start] != ord("0")
    return alike


def _integers(octets: NDArray[np.uint8], value: _Value) -> NDArray[np.int32]:
    total = np.zeros(len(octets), np.int32)
    for place in range(value.start, value.end):
        total *= 10
        total += octets[:, place] - np.uint8(ord("0"))
    return -total if value.is_negative else total


def _string_content(content: bytes) -> str | None:
    """The text between quotes; None unless it is plain UTF-8."""
    if _CONTENT.fullmatch(content) is None:
        return None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:  # the text may be Latin-1
        return None
