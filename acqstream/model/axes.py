"""Axes: the named coordinates of a frame, e.g. time, channel, z, row, column.

Names follow NDTiff 3.2 and later: values are 32-bit integers or strings. The limits are ours and bound what a
hostile header can cost.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from acqstream.errors import ProtocolError

# Orders the axes of frames. Pure.
#
# Readers show axes in one order, whichever format they come from: see docs/arrays.md. Our mirrors store them in
# another, which is that of the first version: foreign readers of old and new mirrors find the same folders and setups.


TIME, POSITION, CHANNEL, Z = "time", "position", "channel", "z"
ROW, COLUMN = "row", "column"
TILE_AXES = frozenset({ROW, COLUMN})
PICTURE_AXES = ("y", "x", "c")
"""Axes of the pixels, which every frame has itself: rows, columns, and samples of colour."""

_RANKS = {POSITION: 1, TIME: 2, CHANNEL: 3, Z: 4}
_STORED_RANKS = {TIME: 0, POSITION: 1, CHANNEL: 2, Z: 4}
_OTHER_STORED_RANK = 3


def axis_order(names: Iterable[str], declared: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the axes of frames, slowest first.

    names are in order of first appearance. Axes in `declared` come first, in its order. The others follow: unknown
    ones in order of first appearance, then position, time, channel, z.
    """
    remaining = dict.fromkeys(names)
    first = [name for name in dict.fromkeys(declared) if name in remaining]
    others = [name for name in remaining if name not in first]
    return (*first, *sorted(others, key=lambda name: _RANKS.get(name, 0)))


def stored_axis_order(names: Iterable[str]) -> tuple[str, ...]:
    """Return the order in which our mirrors store the axes of frames: time, position, channel, others, z."""
    return tuple(sorted(dict.fromkeys(names), key=lambda name: _STORED_RANKS.get(name, _OTHER_STORED_RANK)))


def declared_names(declared: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the names of the axes of a request (`axes` in acqstream.json)."""
    return tuple(str(axis["name"]) for axis in declared if isinstance(axis.get("name"), str))


AxisValue = int | str
Axes = Mapping[str, AxisValue]

MAX_AXES = 16
MAX_STRING = 128
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_INT32 = range(-(2**31), 2**31)  # Java readers cast axis values to Integer


def check_axes(axes: object) -> dict[str, AxisValue]:
    """`axes` as a plain mapping, after checking names, values and counts.

    Raises ProtocolError naming the axis and what was expected.
    """
    if axes.__class__ is not dict and not isinstance(axes, Mapping):
        raise ProtocolError(f"axes must be a map of name to integer or string, not {type(axes).__name__}")
    if len(axes) > MAX_AXES:
        raise ProtocolError(f"{len(axes)} axes; at most {MAX_AXES} are allowed")
    for name, value in axes.items():
        if name.__class__ is not str or not _is_name(name):
            raise ProtocolError(f"axis name {name!r} must be 1 to 64 letters, digits or underscores")
        if value.__class__ is not int or not -(2**31) <= value < 2**31:
            _check_value(name, value)
    return dict(axes)


def are_good_axes(axes: Mapping[str, object]) -> bool:
    """True if `check_axes` would accept these axes, in less time. `check_axes` raises the detailed error."""
    if not _are_names(tuple(axes)):
        return False
    for value in axes.values():
        if value.__class__ is int:
            if not -(2**31) <= value < 2**31:
                return False
        elif value.__class__ is not str or not _is_text(value):
            return False
    return True


@functools.lru_cache(maxsize=1024)  # a run has few sets of names, and asks for one with every frame
def _are_names(names: tuple[str, ...]) -> bool:
    return len(names) <= MAX_AXES and all(name.__class__ is str and _is_name(name) for name in names)


@functools.lru_cache(maxsize=1024)
def _is_text(value: str) -> bool:
    return len(value) <= MAX_STRING and value.isprintable()


def are_good_columns(columns: Mapping[str, Sequence[AxisValue]]) -> bool:
    """True if `check_axes` would accept every row of these columns. `check_axes` raises the detailed error."""
    return _are_names(tuple(columns)) and all(map(_is_good_column, columns.values()))


def _is_good_column(column: Sequence[AxisValue]) -> bool:
    kinds = set(map(type, column))
    if kinds == {int}:
        return min(column) >= -(2**31) and max(column) < 2**31  # type: ignore[operator]
    return kinds == {str} and all(len(text) <= MAX_STRING and text.isprintable() for text in set(column))  # type: ignore[arg-type,union-attr]


@functools.lru_cache(maxsize=1024)  # a run has few names, and asks for each with every frame
def _is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def _check_value(name: str, value: object) -> None:
    if type(value) is int:
        if value not in _INT32:
            raise ProtocolError(f"axis {name!r}: {value} does not fit 32 bits")
    elif type(value) is str:
        if len(value) > MAX_STRING or not value.isprintable():
            raise ProtocolError(f"axis {name!r}: a string value has at most {MAX_STRING} printable characters")
    else:
        raise ProtocolError(f"axis {name!r}: {value!r} must be an integer or a string")


def axes_json(axes: Axes) -> bytes:
    """`axes` (checked) as an ASCII JSON object without blanks, keys in the order given."""
    values = [value if value.__class__ is int else _quoted(value) for value in axes.values()]
    return (_template(tuple(axes)) % tuple(values)).encode("ascii")


def in_order(axes: Axes, names: dict[str, None]) -> dict[str, AxisValue]:
    """The axes in the order of `names`, to which those that are new are added."""
    names |= dict.fromkeys(axes)
    return {name: axes[name] for name in names if name in axes}


def axes_json_rows(columns: Mapping[str, Sequence[AxisValue]], count: int) -> list[bytes]:
    """`axes_json` of each of the `count` rows of these columns (good ones)."""
    texts = []
    varying: list[Iterable[object]] = []
    for name, column in columns.items():
        first = column[0]
        if column.count(first) == count:
            value = str(first) if first.__class__ is int else _quoted(first).replace("%", "%%")
        elif first.__class__ is int:
            value = "%d"
            varying.append(column)
        else:
            value = "%b"
            varying.append([_quoted(text).encode("ascii") for text in column])
        texts.append(f'"{name}":{value}')
    template = ("{" + ",".join(texts) + "}").encode("ascii")
    if not varying:
        return [template % ()] * count
    return [template % row for row in zip(*varying, strict=True)]


@functools.lru_cache(maxsize=1024)
def _template(names: tuple[str, ...]) -> str:
    """A format string for objects with these keys, which need no escapes: six times faster than the encoder."""
    return "{" + ",".join(f'"{name}":%s' for name in names) + "}"


@functools.lru_cache(maxsize=4096)
def _quoted(text: AxisValue) -> str:
    return json.dumps(text, ensure_ascii=True)
