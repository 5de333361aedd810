"""Where the arrays of a container lie.

bdv         setup<i>/timepoint<t>/s<level>   3-D; a setup for each position along all axes but time
multiscale  <axis><i>/.../s<level>           3-D; a folder for each position along each axis but z, y, x
array       s<level>                         one array with all axes

A member is one of the arrays that make up a level; its position is that along the axes that are folders.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from acqstream.formats.n5.options import Layout

TIME = "time"
_PREFIXES = {TIME: "t", "channel": "c", "position": "p"}  # of folders; for other axes it is their name and _
AXES_BY_PREFIX = {prefix: axis for axis, prefix in _PREFIXES.items()} | {"setup": "channel", "timepoint": TIME}


def folder_axes(layout: Layout, axes: Sequence[str]) -> int:
    """How many of the axes, the first ones, are folders."""
    return 0 if layout == "array" else len(axes) - 3


def group_folder(layout: Layout, axes: Sequence[str], shape: Sequence[int], member: Sequence[int]) -> tuple[str, ...]:
    """The folders, from the container on, of the group that holds all levels of a member.

    axes and shape are those of the whole array.
    """
    if layout == "bdv":
        time = member[axes.index(TIME)] if TIME in axes else 0
        return f"setup{setup_number(axes, shape, member)}", f"timepoint{time}"
    return tuple(f"{_PREFIXES.get(axis, axis + '_')}{at}" for axis, at in zip(axes, member, strict=False))


def level_folder(level: int) -> str:
    """The folder of a level in its group."""
    return f"s{level}"


def members(layout: Layout, axes: Sequence[str], shape: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Positions of all members."""
    return itertools.product(*(range(size) for size in shape[: folder_axes(layout, axes)]))


def setup_number(axes: Sequence[str], shape: Sequence[int], member: Sequence[int]) -> int:
    """The number of the setup with a member: positions along all folder axes but time, the last one fastest."""
    number = 0
    for axis, size, at in zip(axes, shape, member, strict=False):
        if axis != TIME:
            number = number * size + at
    return number


def setup_count(axes: Sequence[str], shape: Sequence[int]) -> int:
    """How many setups there are."""
    return math.prod(size for axis, size in zip(axes[:-3], shape, strict=False) if axis != TIME)


def may_grow(layout: Layout, axes: Sequence[str], axis: int) -> bool:
    """Whether an axis may get longer without moving what is there: numbers of setups would change."""
    if layout != "bdv" or axis >= folder_axes(layout, axes) or axes[axis] == TIME:
        return True
    return all(name == TIME for name in axes[:axis])
