"""The rule by which an array announces the indices of the axis that it grows along: for mirrors and viewers. Pure.

Other software sees no zeros where data will come: the last index is announced when all its frames are there, earlier
ones when a frame of a later index has come.
"""

from __future__ import annotations

from collections.abc import Mapping

from acqstream.arrays.axis_order import TIME, Z


def growing_axis(sizes: Mapping[str, int]) -> str | None:
    """The axis that an array grows along: time, else z, else the first other one with more than one item.

    sizes: planned ones by axis, slowest first, 0 for unknown. None for an array of one frame.
    """
    longer = [name for name, size in sizes.items() if size != 1]
    for name in (TIME, Z):
        if name in longer:
            return name
    return longer[0] if longer else None


def announced_size(seen: int, came: int, needed: int) -> int:
    """The size to announce along the growing axis.

    seen: one more than the last index of any frame; came: frames of that index; needed: frames that it has at the end.
    """
    return seen if came >= needed else seen - 1
