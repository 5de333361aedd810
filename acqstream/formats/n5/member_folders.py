"""Options of an N5 container, and the folders of its arrays. Pure.

bdv         setup<i>/timepoint<t>/s<level>   3-D; a setup for each position along all axes but time
multiscale  <axis><i>/.../s<level>           3-D; a folder for each position along each axis but z, y, x
array       s<level>                         one array with all axes

A member is one of the arrays that make up a level; its position is that along the axes that are folders. Numbers of
setups are those of `array_members`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from acqstream.arrays.array_spec import Position
from acqstream.formats import array_members
from acqstream.formats.array_members import MAX_MEMBERS, Numbering, numbers_after
from acqstream.formats.array_options import OptionReader
from acqstream.formats.compression import N5_COMPRESSION, Compressor

Layout = Literal["bdv", "multiscale", "array"]
Downsample = Literal["xyz", "xy"]

SPATIAL = ("z", "y", "x")
COMPONENT = "c"
TIME = "time"
_PREFIXES = {TIME: "t", "channel": "c", "position": "p"}  # of folders; for other axes it is their name and _
AXES_BY_PREFIX = {prefix: axis for axis, prefix in _PREFIXES.items()} | {"setup": "channel", "timepoint": TIME}


@dataclass(frozen=True, slots=True, kw_only=True)
class N5Options:
    """layout: for BigDataViewer (a 3-D array per channel and time, and an XML file beside the container), for n5-viewer
    and COSEM (the same without XML), or one array with all axes. blocks: extents (z, y, x) of a block; None: chosen to
    hold a few MiB. levels: how many resolution levels; None: until one fits into a block in y and x. downsample: the
    axes that lower levels are reduced along; z only once its steps are not larger than those of the others.
    """

    layout: Layout = "bdv"
    compression: Compressor
    blocks: tuple[int, int, int] | None = None
    levels: int | None = None
    downsample: Downsample = "xyz"


def parse_options(given: Mapping[str, object]) -> N5Options:
    """From what a user wrote, e.g. {"compression": "gzip", "blocks": [64, 128, 128], "levels": 1}.

    Raises ConfigError naming the option and what was expected.
    """
    options = OptionReader("N5", given, ("layout", "compression", "blocks", "levels", "downsample"))
    return N5Options(
        layout=options.choice("layout", get_args(Layout)),
        compression=N5_COMPRESSION.parse(given.get("compression", "blosc")),
        blocks=options.chunks("blocks"),
        levels=options.levels(),
        downsample=options.choice("downsample", get_args(Downsample)),
    )


def folder_axes(layout: Layout, axes: Sequence[str]) -> int:
    """Number of axes, from the first one on, that are folders."""
    return 0 if layout == "array" else len(axes) - 3


def numbering_of(layout: Layout, axes: Sequence[str], shape: Sequence[int]) -> Numbering:
    """Numbering of the setups of a new container. Unknown sizes are 0."""
    names = axes[: folder_axes(layout, axes)]
    return array_members.numbering_of(_of_setups(names, shape)) if layout == "bdv" else "rows"


def has_too_many(layout: Layout, axes: Sequence[str], shape: Sequence[int]) -> bool:
    """Return True if there would be more than MAX_MEMBERS. A size that is not known counts as 1."""
    return array_members.has_too_many(shape[: folder_axes(layout, axes)])


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
    return tuple(f"{_prefix(axis)}{at}" for axis, at in zip(axes, member, strict=False))


def level_folder(level: int) -> str:
    """The folder of a level in its group."""
    return f"s{level}"


def setup_number(
    axes: Sequence[str], shape: Sequence[int], member: Sequence[int], numbering: Numbering = "rows"
) -> int:
    """The number of the setup with a member: by its positions along all folder axes but time."""
    names = axes[: len(member)]
    return array_members.member_number(_of_setups(names, member), _of_setups(names, shape), numbering)


def may_grow(layout: Layout, axes: Sequence[str], axis: int, numbering: Numbering = "rows") -> bool:
    """Return True if an axis may get longer without moving what is there: numbers of setups would change."""
    if layout != "bdv" or numbering == "bits" or axis >= folder_axes(layout, axes) or axes[axis] == TIME:
        return True
    return all(name == TIME for name in axes[:axis])


def parse_group_folder(
    layout: Layout, axes: Sequence[str], shape: Sequence[int], folders: Sequence[str], numbering: Numbering = "rows"
) -> Position | None:
    """The member in a group: the inverse of `group_folder`; None for folders that it does not return."""
    names = axes[: folder_axes(layout, axes)]
    member = numbers_after([*map(_prefix, names)], folders)
    if layout == "bdv":
        numbers = numbers_after(("setup", "timepoint"), folders)
        if numbers is None:
            return None
        setup, time = numbers
        others = iter(array_members.numbered_member(setup, _of_setups(names, shape), numbering))
        member = tuple(time if axis == TIME else next(others) for axis in names)
    is_inverse = member is not None and group_folder(layout, axes, shape, member, numbering) == tuple(folders)
    return member if is_inverse else None


def _prefix(axis: str) -> str:
    return _PREFIXES.get(axis, axis + "_")


def _of_setups(names: Sequence[str], items: Sequence[int]) -> list[int]:
    """The items of the axes that make up setups."""
    return [item for axis, item in zip(names, items, strict=False) if axis != TIME]
