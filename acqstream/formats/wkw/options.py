"""What a user can choose for a WKW mirror, and the levels and chunks that follow from it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from acqstream.arrays.array_spec import ArraySpec
from acqstream.errors import ConfigError
from acqstream.formats.chunk_layout import Plan
from acqstream.formats.wkw.axis_roles import AxisRoles, axis_roles, wkw_axes
from acqstream.formats.wkw.datasource import unit_name
from acqstream.formats.wkw.encoding import largest_compressed_bytes
from acqstream.formats.wkw.header import MAX_SIDE, MAX_VOXEL_BYTES, VOXEL_TYPES, BlockType, Header
from acqstream.formats.wkw.magnification import coarser, is_power_of_two

BLOCK_SIDE = 32  # what webKNOSSOS streams; it shows no other
MAX_LEVELS = 16

_BLOCK_TYPES = {"raw": BlockType.RAW, "lz4": BlockType.LZ4, "lz4hc": BlockType.LZ4HC}
_CUBE_SIDES = {BlockType.RAW: 512, BlockType.LZ4: 128, BlockType.LZ4HC: 128}
_SMALLEST_LEVEL = 512  # pixels: without a count there are levels until a plane fits into this


@dataclass(frozen=True, slots=True)
class WkwOptions:
    """cube_side is in voxels. levels: how many, with the full resolution; None: as many as make sense. downsample: the
    axes along which lower levels are reduced; z only once its steps are not larger than those of the others.
    """

    block_type: BlockType = BlockType.RAW
    cube_side: int = _CUBE_SIDES[BlockType.RAW]
    levels: int | None = None
    downsample: Literal["xyz", "xy"] = "xyz"


def parse_options(given: Mapping[str, object]) -> WkwOptions:
    """From what a user wrote, e.g. {"compression": "lz4", "cube": 256, "levels": 1, "downsample": "xy"}.

    Raises ConfigError naming the option and what was expected.
    """
    known = ("compression", "cube", "levels", "downsample")
    for name in given:
        if name not in known:
            raise ConfigError(f"WKW has no option {name!r}, only {', '.join(known)}")
    compression = given.get("compression", "raw")
    if not isinstance(compression, str) or compression not in _BLOCK_TYPES:
        raise ConfigError(f"WKW compression is {compression!r:.80}, expected one of {', '.join(_BLOCK_TYPES)}")
    block_type = _BLOCK_TYPES[compression]
    cube = given.get("cube", _CUBE_SIDES[block_type])
    largest = BLOCK_SIDE * MAX_SIDE
    if type(cube) is not int or not is_power_of_two(cube) or not BLOCK_SIDE <= cube <= largest:
        raise ConfigError(f"WKW cube is {cube!r:.80}, expected a power of two from {BLOCK_SIDE} to {largest} voxels")
    levels = given.get("levels", "auto")
    if levels != "auto" and (type(levels) is not int or not 1 <= levels <= MAX_LEVELS):
        raise ConfigError(f'WKW levels are {levels!r:.80}, expected "auto" or 1 to {MAX_LEVELS}')
    downsample = given.get("downsample", "xyz")
    if downsample not in {"xyz", "xy"}:
        raise ConfigError(f"WKW downsample is {downsample!r:.80}, expected one of xyz, xy")
    return WkwOptions(block_type, cube, levels if type(levels) is int else None, "xy" if downsample == "xy" else "xyz")


def header_for(spec: ArraySpec, options: WkwOptions) -> Header:
    """The kind of cubes that hold this array. Raises ConfigError where none can."""
    channels = spec.shape[-1] if spec.axes[-1] == "c" else 1
    dtype = spec.dtype.newbyteorder("=")
    if dtype not in VOXEL_TYPES.values():
        raise ConfigError(f"WKW: dtype {spec.dtype} cannot be stored, only {', '.join(map(str, VOXEL_TYPES.values()))}")
    if not 1 <= channels * dtype.itemsize <= MAX_VOXEL_BYTES:
        raise ConfigError(f"WKW: {channels} components of {dtype} take more than {MAX_VOXEL_BYTES} bytes a voxel")
    return Header(BLOCK_SIDE, options.cube_side // BLOCK_SIDE, options.block_type, dtype, channels)


def plan_levels(array: ArraySpec, options: WkwOptions) -> tuple[ArraySpec, ...]:
    """The levels of an array, the finest first, with their chunks. Raises ConfigError.

    Axes come in WKW's order, with a z of extent 1 if need be. A raw chunk is one layer of blocks of one cube, at the
    margin of a plane as many as the plane needs; a compressed one is a whole cube.
    """
    full = array.ordered(wkw_axes(array.axes))
    roles = axis_roles(full.axes)
    if roles.has_too_many(full.shape):
        raise ConfigError(f"WKW: {', '.join(full.axes)} of {full.shape} are more than a million layers and datasets")
    header = header_for(full, options)
    levels = [full]
    for x, y, z in itertools.islice(coarser(_voxel_size(full, roles, options)), MAX_LEVELS - 1):
        _, height, width = roles.extent(levels[-1].shape)
        if max(height, width) <= _SMALLEST_LEVEL if options.levels is None else len(levels) >= options.levels:
            break
        levels.append(full.reduced((1,) * roles.depth + (z, y, x) + (1,) * roles.has_components))
    block = (1,) * roles.depth + (header.block_side,) * 3 + ((header.channels,) if roles.has_components else ())
    return tuple(
        replace(
            level,
            chunk_shape=_chunk_shape(level, roles, header),
            block_shape=block,
            shard_shape=_cube_shape(level, roles, header),
        )
        for level in levels
    )


def plan(array: ArraySpec, options: WkwOptions) -> Plan:
    """`plan_levels`; every dataset of webKNOSSOS is a member. Raises ConfigError."""
    levels = plan_levels(array, options)
    axes = levels[0].axes
    return Plan(levels=levels, member_axes=tuple(axes[axis] for axis in axis_roles(axes).folders))


def max_encode_memory(level: ArraySpec, options: WkwOptions) -> int:
    """Bytes that encoding a chunk takes at most: none for raw cubes, else the size of all compressed blocks."""
    if options.block_type is BlockType.RAW:
        return 0
    return largest_compressed_bytes(header_for(level, options))


def _cube_shape(level: ArraySpec, roles: AxisRoles, header: Header) -> tuple[int, ...]:
    """The part of a level that a cube file holds."""
    components = level.shape[roles.depth + 3 :]
    return (1,) * roles.depth + (header.cube_side,) * 3 + components


def _chunk_shape(level: ArraySpec, roles: AxisRoles, header: Header) -> tuple[int, ...]:
    if header.block_type is BlockType.RAW:
        side, most = header.block_side, header.cube_side
        _, height, width = (min(most, -(-max(1, size) // side) * side) for size in roles.extent(level.shape))
        voxels = (side, height, width)
    else:
        voxels = (header.cube_side,) * 3
    components = (header.channels,) if roles.has_components else ()
    return (1,) * roles.depth + voxels + components


def _voxel_size(full: ArraySpec, roles: AxisRoles, options: WkwOptions) -> tuple[float, float, float] | None:
    """(x, y, z) where all three are lengths in one unit; None: the depth is not reduced."""
    z, y, x = (abs(size) for size in roles.extent(full.scale))
    units = set(full.units[roles.depth : roles.depth + 3])
    known = len(units) == 1 and unit_name(units.pop()) is not None and min(x, y, z) > 0
    return (x, y, z) if known and options.downsample == "xyz" else None
