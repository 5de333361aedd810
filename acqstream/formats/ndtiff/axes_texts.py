"""Axes of many index entries at once, from JSON texts to columns.

A writer puts the axes of all its frames the same way: texts of one length mostly differ in digits and in strings at
the same places. The first text defines these places (its layout); array operations read all texts that have the same
layout, then the next layout is taken. What is read is what a JSON parser reads; texts with anything else (escapes,
other types, large integers, no UTF-8) are not read here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

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


@dataclass(slots=True)
class AxisCodes:
    """Values of one axis, an int32 code per row: the integer, or a position in `strings`; MISSING where there is none.

    strings are in order of first appearance, and None for integers.
    """

    codes: NDArray[np.int32]
    strings: list[str] | None


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
