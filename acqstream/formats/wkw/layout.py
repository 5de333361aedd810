"""The layout of a WKW container: how an array is cut into cubes, and where each chunk lies. Pure.

A raw chunk is a box of blocks of a cube, written in place; a compressed one is a complete cube file. The container has
a folder for each dataset of webKNOSSOS, in it one for each layer, in it one for each magnification, in it
`z<k>/y<j>/x<i>.wkw` and `header.wkw` for all of them. Cube (k, j, i) covers x from i times the side of a cube on, and
so on; a cube that holds nothing need not exist. Source of paths: webknossos-wrap, format description version 1.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.errors import ConfigError, DatasetExists
from acqstream.formats.array_options import OptionReader
from acqstream.formats.chunk_layout import ChunkLayout, Encoded, InPlace, Plan
from acqstream.formats.level_plan import reduced_levels
from acqstream.formats.wkw.axis_roles import CHANNEL, AxisRoles, Place, axis_roles, layer_names, wkw_axes
from acqstream.formats.wkw.codec import (
    BlockOrder,
    block_order,
    decode_compressed,
    decode_raw,
    encode_compressed,
    encode_raw,
    largest_compressed_bytes,
    raw_runs,
)
from acqstream.formats.wkw.header import (
    HEADER_BYTES,
    HEADER_NAME,
    MAX_SIDE,
    MAX_VOXEL_BYTES,
    VOXEL_TYPES,
    BlockType,
    Header,
)
from acqstream.formats.wkw.metadata import (
    ARRAY_NAME,
    PROPERTIES_NAME,
    StoredArray,
    coarser,
    cube_folder,
    dataset_properties,
    encode_array,
    encode_properties,
    is_power_of_two,
    parse_array,
    unit_name,
)
from acqstream.storage.stores.store import Capability

Cube = tuple[int, int, int]
"""(z, y, x) number of a cube file along each axis."""

_NUMBER = "(0|[1-9][0-9]{0,9})"
Z_NAME = re.compile(f"z{_NUMBER}")
Y_NAME = re.compile(f"y{_NUMBER}")
X_NAME = re.compile(rf"x{_NUMBER}\.wkw")


def cube_path(cube: Cube) -> str:
    """Path of the file below its folder."""
    z, y, x = cube
    return f"z{z}/y{y}/x{x}.wkw"


def parse_cube_path(path: str) -> Cube | None:
    """The inverse of `cube_path`; None for any other path."""
    found = re.fullmatch(f"{Z_NAME.pattern}/{Y_NAME.pattern}/{X_NAME.pattern}", path)
    return None if found is None else (int(found[1]), int(found[2]), int(found[3]))


BLOCK_SIDE = 32  # what webKNOSSOS streams; it shows no other
Downsample = Literal["xyz", "xy"]

_BLOCK_TYPES = {"raw": BlockType.RAW, "lz4": BlockType.LZ4, "lz4hc": BlockType.LZ4HC}
_CUBE_SIDES = {BlockType.RAW: 0, BlockType.LZ4: 128, BlockType.LZ4HC: 128}


@dataclass(frozen=True, slots=True)
class WkwOptions:
    """cube_side is in voxels; 0: it follows the volume. levels: how many, with the full resolution; None: as many as
    make sense. downsample: the axes along which lower levels are reduced; z only once its steps are not larger than
    those of the others.
    """

    block_type: BlockType = BlockType.RAW
    cube_side: int = _CUBE_SIDES[BlockType.RAW]
    levels: int | None = None
    downsample: Downsample = "xyz"


def parse_options(given: Mapping[str, object]) -> WkwOptions:
    """From what a user wrote, e.g. {"compression": "lz4", "cube": 256, "levels": 1, "downsample": "xy"}.

    Raises ConfigError naming the option and what was expected.
    """
    options = OptionReader("WKW", given, ("compression", "cube", "levels", "downsample"))
    block_type = _BLOCK_TYPES[options.choice("compression", tuple(_BLOCK_TYPES))]
    cube, largest = given.get("cube", BLOCK_SIDE), BLOCK_SIDE * MAX_SIDE
    if type(cube) is not int or not is_power_of_two(cube) or not BLOCK_SIDE <= cube <= largest:
        raise options.wrong("cube", f"a power of two from {BLOCK_SIDE} to {largest} voxels")
    return WkwOptions(
        block_type,
        cube if "cube" in given else _CUBE_SIDES[block_type],
        options.levels(),
        options.choice("downsample", get_args(Downsample)),
    )


_LONG_RUN_BYTES = 2**20
_MAX_CUBE_SIDE = 512  # of raw cubes, unless another side is asked for
_OPEN_CUBE_SIDE = 128  # where the depth is not known yet
_MAX_PLANE_CUBES = 1024


@dataclass(frozen=True)
class WkwLayout(ChunkLayout):
    """`create_layout` makes that of a new container. header is that of all cubes; layer_names are by channel.

    open_sides: whether the picture grows along (y, x), whose sizes were not known at first.
    """

    header: Header
    layer_names: tuple[str, ...]
    open_sides: tuple[bool, bool]

    head_bytes: ClassVar[int] = HEADER_BYTES
    announces_indices: ClassVar[bool] = True
    names_picture: ClassVar[bool] = True  # blocks beyond its sides are left out of raw cubes

    @property
    def needs_distances(self) -> bool:
        """See ChunkLayout: `datasource-properties.json` does."""
        return True

    def max_encode_memory(self, spec: ArraySpec) -> int:
        """See ChunkLayout: none for raw cubes, else the size of all compressed blocks."""
        del spec
        return 0 if self.header.block_type is BlockType.RAW else largest_compressed_bytes(self.header)

    @property
    def needs(self) -> Capability:
        """See ChunkLayout."""
        return "in_place" if self.header.block_type is BlockType.RAW else "whole"

    @property
    def joined_layers(self) -> int:
        """See ChunkLayout: 2 x 2 blocks that lie one after the other become 2 x 4 x 4 (`BlockOrder`).

        Such a run is long enough to be written past the page cache.
        """
        _, height, width = self.roles.extent(self.plan.full.chunk_shape)
        has_them = self.needs == "in_place" and min(height, width) >= 4 * self.header.block_side
        return 2 if has_them and 32 * self.header.block_bytes >= _LONG_RUN_BYTES else 1

    @property
    def roles(self) -> AxisRoles:
        return axis_roles(self.plan.full.axes)

    def stored_array(self, *, complete: bool = False) -> StoredArray:
        """The array as our note describes it."""
        return StoredArray(self.plan.levels, self.layer_names, self.header, complete)

    def key(self, level: int, position: Position) -> str:
        """See ChunkLayout: the cube file, which has many chunks if it is raw."""
        place = self.roles.place(position)
        cube = self._raw_place(level, position)[0] if self.header.block_type is BlockType.RAW else place.voxel
        return _key(*self._cube_folder(level, place.dataset, place.layer), cube_path(cube))

    def parse_key(self, key: str) -> tuple[int, Position] | None:
        """See ChunkLayout: the first chunk of the cube file."""
        parts = key.split("/")
        folder, *names = parts if self.roles.folders else ["", *parts]
        cube, dataset = parse_cube_path("/".join(names[2:])), self.roles.parse_folder(folder)
        if cube is None or dataset is None:
            return None
        for level, spec in enumerate(self.plan.levels):
            for layer in range(max(1, self.roles.layers(spec.shape))):
                if self._cube_folder(level, dataset, layer)[-2:] == tuple(names[:2]):
                    sizes = self.roles.extent(spec.chunk_shape)
                    first = [at * self.header.cube_side // size for at, size in zip(cube, sizes, strict=True)]
                    return level, self.roles.position(Place(dataset, layer, _three(first)))
        return None

    def encode(self, level: int, position: Position, chunk: NDArray[np.generic]) -> Encoded:
        """See ChunkLayout. Raw chunks in little-endian are not copied."""
        self.check_chunk(level, position, chunk)
        if self.header.block_type is BlockType.RAW:
            return [encode_raw(chunk)]
        return encode_compressed(chunk, self.header)

    def decode(self, level: int, position: Position, data: bytes, where: str) -> NDArray[np.generic]:
        """See ChunkLayout."""
        shape = self.plan.levels[level].memory_shape
        if self.header.block_type is BlockType.RAW:
            return decode_raw(data, self.header, where).reshape(shape)
        return decode_compressed(data, self.header, where).reshape(shape)

    def in_place(self, level: int, position: Position, encoded: Encoded) -> InPlace:
        """See ChunkLayout. Holes of a raw cube read as zeros."""
        spec, header = self.plan.levels[level], self.header
        order = self._raw_place(level, position)[1]
        runs = raw_runs(encoded[0], self.roles.extent(spec.memory_shape), header, order)
        return InPlace(runs, [header.encode(header.first_block)], header.raw_file_bytes)

    def check_growth(self, shape: Sequence[int]) -> None:
        """See ChunkLayout."""
        if self.roles.has_too_many(shape):
            raise ConfigError(f"WKW: {self.plan.full.axes} of {tuple(shape)} are more than a million layers")

    def documents(self, *, complete: bool) -> Mapping[str, bytes]:
        """See ChunkLayout."""
        return {ARRAY_NAME: encode_array(self.stored_array(complete=complete))}

    def resume(self, documents: Mapping[str, bytes], where: str) -> tuple[Self, bool]:
        """See ChunkLayout."""
        found = parse_array(documents[ARRAY_NAME], f"{where}/{ARRAY_NAME}")
        if text := self._difference(found):
            raise DatasetExists(f"{where} exists with {text}")
        plan = self.plan.resumed(found.levels, complete=found.complete)
        return replace(self, plan=plan, layer_names=found.layers), found.complete

    def member_documents(self, member: Position) -> Mapping[str, bytes]:
        """See ChunkLayout: `header.wkw` of each folder of cubes of a dataset."""
        content = self.header.encode(0)
        return {
            _key(*self._cube_folder(level, member, layer), HEADER_NAME): content
            for level, spec in enumerate(self.plan.levels)
            for layer in range(self.roles.layers(spec.shape))
        }

    @property
    def member_version(self) -> Hashable:
        """See ChunkLayout."""
        return tuple(self.roles.layers(level.shape) for level in self.plan.levels)

    def shown_documents(
        self, before: ChunkLayout | None, container_name: str
    ) -> Iterator[tuple[Position, Mapping[str, bytes]]]:
        """See ChunkLayout: `datasource-properties.json`, whose bounding box is the extent that every level has."""
        roles, array, shape = self.roles, self.stored_array(), self._shown_shape
        if 0 in shape:
            return
        starts = [0] * len(roles.folders)
        if isinstance(before, WkwLayout) and before._shown_version == self._shown_version:
            sizes = [(before._shown_shape[axis], shape[axis]) for axis in roles.folders]
            grown = [axis for axis, (old, new) in enumerate(sizes) if old != new]
            if not grown:
                return
            if len(grown) == 1:
                starts[grown[0]] = sizes[grown[0]][0]
        for member in product(*(range(start, shape[axis]) for start, axis in zip(starts, roles.folders, strict=True))):
            properties = dataset_properties(array, member, container_name, roles.extent(shape))
            yield member, {_key(roles.folder(member), PROPERTIES_NAME): encode_properties(properties)}

    @property
    def _shown_shape(self) -> tuple[int, ...]:
        return self.stored_array().visible_shape()

    @property
    def _shown_version(self) -> Hashable:
        """While it is the same, what is shown of a dataset is, too."""
        full, extent = self.plan.full, self.roles.extent
        sizes = [size for axis, size in enumerate(self._shown_shape) if axis not in self.roles.folders]
        return tuple(sizes), extent(full.scale), extent(full.units), repr(full.own), full.looks, full.bits

    def _cube_folder(self, level: int, dataset: Position, layer: int) -> tuple[str, ...]:
        return cube_folder(self.stored_array(), level, dataset, layer)

    def _raw_place(self, level: int, position: Position) -> tuple[Cube, BlockOrder]:
        """The cube of a raw chunk, and the order of its blocks; blocks beyond a side that is known are left out."""
        spec, header, roles = self.plan.levels[level], self.header, self.roles
        sides = zip(roles.extent(spec.shape)[1:], self.open_sides, strict=True)
        ends = (None, *(None if is_open else size for size, is_open in sides))
        extents = zip(roles.extent(position), roles.extent(spec.chunk_shape), ends, strict=True)
        cube, first, counts = [], [], []
        for at, size, end in extents:
            start, count = at * size // header.block_side, size // header.block_side
            if end is not None:
                count = min(count, -(-end // header.block_side) - start)
            cube.append(start // header.cube_blocks)
            first.append(start % header.cube_blocks)
            counts.append(count)
        return _three(cube), block_order(_three(first), _three(counts))

    def _difference(self, found: StoredArray) -> str:
        """Why the existing array cannot be continued as this one; "" if it can."""
        theirs, ours = found.levels[0], self.plan.full
        if (theirs.axes, found.header) != (ours.axes, self.header):
            return f"axes {theirs.axes} in {found.header}, expected {ours.axes} in {self.header}"
        texts = []
        factors = [level.factors for level in found.levels], [level.factors for level in self.plan.levels]
        if factors[0] != factors[1]:
            texts.append(f"levels {factors[0]}, expected {factors[1]}")
        planes = [self.roles.extent(spec.shape)[1:] for spec in (theirs, ours)]
        sides = zip(*planes, self.open_sides, strict=True)
        if 0 not in planes[0] and any(found != own for found, own, is_open in sides if not is_open):
            texts.append(f"planes of {planes[0]} pixels, expected {planes[1]}")
        return "; ".join(texts)


def create_layout(plan: Plan, options: WkwOptions) -> WkwLayout:
    """The layout of a new container; plan is that of `plan`."""
    full = plan.full
    count = max(axis_roles(full.axes).layers(full.shape), len(full.labels.get(CHANNEL, ())))
    _, y, x = axis_roles(full.axes).extent(full.shape)
    return WkwLayout(plan, header_for(full, options), layer_names(full.labels, count), (not y, not x))


def header_for(spec: ArraySpec, options: WkwOptions) -> Header:
    """The kind of cubes that hold this array. Raises ConfigError where none can."""
    channels = spec.shape[-1] if spec.axes[-1] == "c" else 1
    dtype = spec.dtype.newbyteorder("=")
    if dtype not in VOXEL_TYPES.values():
        raise ConfigError(f"WKW: dtype {spec.dtype} cannot be stored, only {', '.join(map(str, VOXEL_TYPES.values()))}")
    if not 1 <= channels * dtype.itemsize <= MAX_VOXEL_BYTES:
        raise ConfigError(f"WKW: {channels} components of {dtype} take more than {MAX_VOXEL_BYTES} bytes a voxel")
    roles = axis_roles(spec.axes)
    planned = spec.shard_shape[roles.depth] if spec.shard_shape else options.cube_side
    side = planned or fitting_side(*roles.extent(spec.shape))
    return Header(BLOCK_SIDE, side // BLOCK_SIDE, options.block_type, dtype, channels)


def fitting_side(depth: int, height: int, width: int) -> int:
    """The side of raw cubes that suits a volume: a copy without holes is not much larger than its blocks.

    A size of 0 is not known yet. A plane has at most _MAX_PLANE_CUBES of them, if cubes of _MAX_CUBE_SIDE permit.
    """
    side = BLOCK_SIDE if depth else _OPEN_CUBE_SIDE
    while side < _MAX_CUBE_SIDE and (side < depth or -(-height // side) * -(-width // side) > _MAX_PLANE_CUBES):
        side *= 2
    return side


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
    magnifications = coarser(_voxel_size(full, roles, options))

    def next_factors(_last: ArraySpec) -> tuple[int, ...]:
        x, y, z = next(magnifications)
        return (*(1 for _ in range(roles.depth)), z, y, x, *(1 for _ in range(roles.has_components)))

    levels = reduced_levels(full, options.levels, next_factors=next_factors)
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
    known = not full.is_uneven("z") and len(units) == 1 and unit_name(units.pop()) is not None and min(x, y, z) > 0
    return (x, y, z) if known and options.downsample == "xyz" else None


def _key(*parts: str) -> str:
    return "/".join(part for part in parts if part)


def _three(items: Sequence[int]) -> tuple[int, int, int]:
    z, y, x = items
    return z, y, x
