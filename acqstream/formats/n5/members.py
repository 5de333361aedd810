"""Places of the arrays of a container.

bdv         setup<i>/timepoint<t>/s<level>   3-D; a setup for each position along all axes but time
multiscale  <axis><i>/.../s<level>           3-D; a folder for each position along each axis but z, y, x
array       s<level>                         one array with all axes

A member is one of the arrays that make up a level; its position is that along the axes that are folders.

Setups are numbered in rows, the last axis fastest, if the sizes of their axes are known, but for the first of them.
Else by the bits of their positions taken in turn, the last axis lowest: these numbers do not depend on any size, and
there are gaps between them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Literal

from acqstream.formats.n5.options import Layout

Numbering = Literal["rows", "bits"]

TIME = "time"
MAX_MEMBERS = 1_000_000
_PREFIXES = {TIME: "t", "channel": "c", "position": "p"}  # of folders; for other axes it is their name and _
AXES_BY_PREFIX = {prefix: axis for axis, prefix in _PREFIXES.items()} | {"setup": "channel", "timepoint": TIME}


def folder_axes(layout: Layout, axes: Sequence[str]) -> int:
    """Number of axes, from the first one on, that are folders."""
    return 0 if layout == "array" else len(axes) - 3


def numbering_of(layout: Layout, axes: Sequence[str], shape: Sequence[int]) -> Numbering:
    """Numbering of the setups of a new container. Unknown sizes are 0."""
    sizes = [size for axis, size in zip(axes[: folder_axes(layout, axes)], shape, strict=False) if axis != TIME]
    return "bits" if layout == "bdv" and 0 in sizes[1:] else "rows"


def has_too_many(layout: Layout, axes: Sequence[str], shape: Sequence[int]) -> bool:
    """Return True if there would be more than MAX_MEMBERS. A size that is not known counts as 1."""
    return math.prod(max(1, size) for size in shape[: folder_axes(layout, axes)]) > MAX_MEMBERS


def too_many_text(layout: Layout) -> str:
    """The text of the error in that case."""
    return f"N5 layout {layout} holds at most {MAX_MEMBERS:,} volumes; layout array holds any number of planes"


def group_folder(
    layout: Layout, axes: Sequence[str], shape: Sequence[int], member: Sequence[int], numbering: Numbering = "rows"
) -> tuple[str, ...]:
    """The folders, from the container on, of the group that holds all levels of a member.

    axes and shape are those of the whole array.
    """
    if layout == "bdv":
        time = member[axes.index(TIME)] if TIME in axes else 0
        return f"setup{setup_number(axes, shape, member, numbering)}", f"timepoint{time}"
    return tuple(f"{_PREFIXES.get(axis, axis + '_')}{at}" for axis, at in zip(axes, member, strict=False))


def level_folder(level: int) -> str:
    """The folder of a level in its group."""
    return f"s{level}"


def members(layout: Layout, axes: Sequence[str], shape: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Positions of all members."""
    return itertools.product(*(range(size) for size in shape[: folder_axes(layout, axes)]))


def setup_number(
    axes: Sequence[str], shape: Sequence[int], member: Sequence[int], numbering: Numbering = "rows"
) -> int:
    """The number of the setup with a member: by its positions along all folder axes but time."""
    places = [(size, at) for axis, size, at in zip(axes, shape, member, strict=False) if axis != TIME]
    number = 0
    if numbering == "rows":
        for size, at in places:
            number = number * size + at
        return number
    for bit in range(max((at.bit_length() for _, at in places), default=0)):
        for place, (_, at) in enumerate(reversed(places)):
            number |= (at >> bit & 1) << (bit * len(places) + place)
    return number


def may_grow(layout: Layout, axes: Sequence[str], axis: int, numbering: Numbering = "rows") -> bool:
    """Return True if an axis may get longer without moving what is there: numbers of setups would change."""
    if layout != "bdv" or numbering == "bits" or axis >= folder_axes(layout, axes) or axes[axis] == TIME:
        return True
    return all(name == TIME for name in axes[:axis])


def parse_group_folder(
    layout: Layout, axes: Sequence[str], shape: Sequence[int], folders: Sequence[str], numbering: Numbering = "rows"
) -> tuple[int, ...] | None:
    """The member in a group: the inverse of `group_folder`; None for folders that it does not return."""
    names = axes[: folder_axes(layout, axes)]
    if layout == "bdv":
        numbers = [_number_after(prefix, name) for prefix, name in zip(("setup", "timepoint"), folders, strict=False)]
        setup, time = numbers if len(numbers) == 2 else (None, None)
        if setup is None or time is None:
            return None
        places = iter(
            _setup_places([size for axis, size in zip(names, shape, strict=False) if axis != TIME], setup, numbering)
        )
        member = tuple(time if axis == TIME else next(places) for axis in names)
    else:
        found = [
            _number_after(_PREFIXES.get(axis, axis + "_"), name) for axis, name in zip(names, folders, strict=False)
        ]
        member = tuple(number for number in found if number is not None)
    is_inverse = len(member) == len(names) and group_folder(layout, axes, shape, member, numbering) == tuple(folders)
    return member if is_inverse else None


def _number_after(prefix: str, name: str) -> int | None:
    digits = name.removeprefix(prefix)
    return (
        int(digits)
        if name.startswith(prefix) and digits.isascii() and digits.isdecimal() and len(digits) < 20
        else None
    )


def _setup_places(sizes: Sequence[int], number: int, numbering: Numbering) -> list[int]:
    """Positions along the axes of setups, of these sizes: the inverse of `setup_number`."""
    places = [0] * len(sizes)
    if not sizes:
        return places
    if numbering == "rows":
        for axis in range(len(sizes) - 1, 0, -1):
            number, places[axis] = divmod(number, max(1, sizes[axis]))
        places[0] = number
        return places
    for bit in range(number.bit_length()):
        place = len(sizes) - 1 - bit % len(sizes)
        places[place] |= (number >> bit & 1) << (bit // len(sizes))
    return places
