"""Roles of the axes of an array in a container of precomputed volumes, and the folders of its members. Pure.

A volume has x, y, z and the components of a voxel only. z, or time where there is no z, is its depth. Each combination
of positions along all other axes is a volume in a folder of its own: `time3/channel1`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

COMPONENT = "c"
MAX_MEMBERS = 1_000_000  # each has folders
_SPATIAL = ("y", "x")
_DEPTHS = ("z", "time")  # the first that there is
_ODD = re.compile(r"[^A-Za-z0-9_-]")


def stored_axes(axes: Sequence[str]) -> tuple[str, ...]:
    """The axes in the order of a container: members, components of RGB, depth (z added if missing), y, x."""
    depth = next((name for name in _DEPTHS if name in axes), _DEPTHS[0])
    members = [name for name in axes if name not in (*_SPATIAL, COMPONENT, depth)]
    return (*members, *((COMPONENT,) if COMPONENT in axes else ()), depth, *_SPATIAL)


def member_count(axes: Sequence[str]) -> int:
    """Number of axes, from the first one on, that are members; axes are in the order of a container."""
    return len(axes) - 3 - (axes[-4:-3] == (COMPONENT,))


def member_total(axes: Sequence[str], shape: Sequence[int]) -> int:
    """Number of volumes of an array of this shape. A size that is not known counts as 1."""
    return math.prod(max(1, size) for size in shape[: member_count(axes)])


def is_single(axes: Sequence[str], shape: Sequence[int]) -> bool:
    """Return True if the array is one volume, which lies at the top. A size of 0 is not known yet."""
    return all(size == 1 for size in shape[: member_count(axes)])


def member_folder(axes: Sequence[str], member: Sequence[int]) -> str:
    """The folder of a member, with "/" at its end."""
    return "".join(f"{_ODD.sub('_', axis)}{at}/" for axis, at in zip(axes, member, strict=False))


def parse_member_folder(axes: Sequence[str], folder: str) -> tuple[int, ...] | None:
    """The inverse of `member_folder`; None for any other folder."""
    parts, names = folder.split("/")[:-1], axes[: member_count(axes)]
    digits = [part.removeprefix(_ODD.sub("_", axis)) for axis, part in zip(names, parts, strict=False)]
    if len(parts) != len(names) or not all(text.isascii() and text.isdecimal() and len(text) < 20 for text in digits):
        return None
    member = tuple(map(int, digits))
    return member if member_folder(axes, member) == folder else None
