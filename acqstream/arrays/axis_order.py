"""Orders the axes of frames. Pure.

Readers show axes in one order, whichever format they come from: see docs/arrays.md. Our mirrors store them in another,
which is that of the first version: foreign readers of old and new mirrors find the same folders and setups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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
