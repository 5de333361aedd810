"""Roles of the axes of an array in a container of precomputed volumes, and the folders of its members. Pure.

A volume has x, y, z and the components of a voxel only. z, or time where there is no z, is its depth. Each combination
of positions along all other axes is a volume in a folder of its own: `time3/channel1`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from acqstream.arrays.array_spec import Position
from acqstream.formats.array_members import numbers_after

COMPONENT = "c"
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


def is_single(axes: Sequence[str], shape: Sequence[int]) -> bool:
    """Return True if the array is one volume, which lies at the top. A size of 0 is not known yet."""
    return all(size == 1 for size in shape[: member_count(axes)])


def member_folder(axes: Sequence[str], member: Sequence[int]) -> str:
    """The folder of a member, with "/" at its end."""
    return "".join(f"{_ODD.sub('_', axis)}{at}/" for axis, at in zip(axes, member, strict=False))


def parse_member_folder(axes: Sequence[str], folder: str) -> Position | None:
    """The inverse of `member_folder`; None for any other folder."""
    prefixes = [_ODD.sub("_", axis) for axis in axes[: member_count(axes)]]
    member = numbers_after(prefixes, folder.split("/")[:-1])
    return member if member is not None and member_folder(axes, member) == folder else None
