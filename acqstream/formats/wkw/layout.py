"""The layout of a WKW container: how an array is cut into cubes, and where each chunk lies. Pure.

A raw chunk is a box of blocks of a cube, written in place; a compressed one is a complete cube file. The container has
a folder for each dataset of webKNOSSOS, in it one for each layer, in it one for each magnification, in it
`z<k>/y<j>/x<i>.wkw` and `header.wkw` for all of them. Cube (k, j, i) covers x from i times the side of a cube on, and
so on; a cube that holds nothing need not exist. Source of paths: webknossos-wrap, format description version 1.

`acqstream-array.json` is our note at the top of the container: axes, the shape and place of each level, names of
channels, and whether more is to come. Everything inside the shapes is stored. Other software ignores the file.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.errors import ConfigError, DatasetExists
from acqstream.formats.array_note import note_of_array, note_of_level, plain_value, read_array, read_level
from acqstream.formats.chunk_layout import ChunkLayout, Encoded, InPlace, Plan
from acqstream.formats.level_plan import reduced_levels
from acqstream.formats.wkw.axis_roles import (
    CHANNEL,
    COMPONENT,
    AxisRoles,
    Place,
    axis_roles,
    layer_names,
    plain_name,
    wkw_axes,
)
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
    MAX_VOXEL_BYTES,
    MAX_VOXELS,
    VOXEL_TYPES,
    BlockType,
    Header,
)
from acqstream.formats.wkw.metadata import (
    BLOCK_SIDE,
    PROPERTIES_NAME,
    DatasourceProperties,
    LayerMagnification,
    LayerProperties,
    WkwOptions,
    coarser,
    element_class,
    encode_properties,
    layer_view,
    magnification,
    magnification_name,
    unit_name,
    voxel_size_of,
)
from acqstream.grid.block_sizes import reduced_size
from acqstream.model.fields import Fields
from acqstream.storage.files.small_file import parse_fields
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


_LONG_RUN_BYTES = 2**20
_MAX_CUBE_SIDE = 512  # of raw cubes, unless another side is asked for
_OPEN_CUBE_SIDE = 128  # where the depth is not known yet
_MAX_PLANE_CUBES = 1024


@dataclass(frozen=True)
class WkwLayout(ChunkLayout):
    """`create_layout` makes that of a new container, `parse_note` that of an existing one, to read it.

    header is that of all cubes; layer_names are by channel. open_sides: whether the picture grows along (y, x), whose
    sizes were not known at first.
    """

    header: Header
    layer_names: tuple[str, ...]
    open_sides: tuple[bool, bool] = (False, False)

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

    def layer_name(self, layer: int) -> str:
        """Of a layer beyond the ones that have names, too."""
        if layer < len(self.layer_names):
            return self.layer_names[layer]
        name = f"C{layer}"
        while name.lower() in {other.lower() for other in self.layer_names}:
            name += "_"
        return name

    def cube_folder(self, level: int, dataset: Position, layer: int) -> tuple[str, ...]:
        """The folder of the cubes of one level of one layer, below the container."""
        folder = self.roles.folder(dataset)
        names = (self.layer_name(layer), magnification_name(magnification(self.plan.levels[level])))
        return (folder, *names) if folder else names

    def key(self, level: int, position: Position) -> str:
        """See ChunkLayout: the cube file, which has many chunks if it is raw."""
        place = self.roles.place(position)
        cube = self._raw_place(level, position)[0] if self.header.block_type is BlockType.RAW else place.voxel
        return _key(*self.cube_folder(level, place.dataset, place.layer), cube_path(cube))

    def parse_key(self, key: str) -> tuple[int, Position] | None:
        """See ChunkLayout: the first chunk of the cube file."""
        parts = key.split("/")
        folder, *names = parts if self.roles.folders else ["", *parts]
        cube, dataset = parse_cube_path("/".join(names[2:])), self.roles.parse_folder(folder)
        if cube is None or dataset is None:
            return None
        for level, spec in enumerate(self.plan.levels):
            for layer in range(max(1, self.roles.layers(spec.shape))):
                if self.cube_folder(level, dataset, layer)[-2:] == tuple(names[:2]):
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
        return {ARRAY_NAME: encode_note(self, complete=complete)}

    def resume(self, documents: Mapping[str, bytes], where: str) -> tuple[Self, bool]:
        """See ChunkLayout."""
        found, complete = parse_note(documents[ARRAY_NAME], f"{where}/{ARRAY_NAME}")
        if text := self._difference(found):
            raise DatasetExists(f"{where} exists with {text}")
        plan = self.plan.resumed(found.plan.levels, complete=complete)
        return replace(self, plan=plan, layer_names=found.layer_names), complete

    def member_documents(self, member: Position) -> Mapping[str, bytes]:
        """See ChunkLayout: `header.wkw` of each folder of cubes of a dataset."""
        content = self.header.encode(0)
        return {
            _key(*self.cube_folder(level, member, layer), HEADER_NAME): content
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
        roles, shape = self.roles, self._shown_shape
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
            content = encode_properties(self._properties(member, container_name))
            yield member, {_key(roles.folder(member), PROPERTIES_NAME): content}

    @property
    def _shown_shape(self) -> tuple[int, ...]:
        """The part of level 0 that is there in every level."""
        shape = self.plan.full.shape
        for level in self.plan.levels[1:]:
            reached = zip(shape, level.shape, level.factors, strict=True)
            shape = tuple(
                size if stored >= reduced_size(size, factor) else stored * factor for size, stored, factor in reached
            )
        return shape

    def _properties(self, dataset: Position, container: str) -> DatasourceProperties:
        """Of one dataset. container is the name of the folder of the whole."""
        roles, header, shape, full = self.roles, self.header, self._shown_shape, self.plan.full
        mags = tuple(LayerMagnification(magnification(one), cube_side=header.cube_side) for one in self.plan.levels)
        kind, size = element_class(header.dtype, header.channels), roles.extent(shape)[::-1]
        layers = tuple(
            LayerProperties(self.layer_name(at), kind, header.channels, size, mags, view=layer_view(full, at))
            for at in range(roles.layers(shape))
        )
        name = "_".join(part for part in (plain_name(container), roles.folder(dataset)) if part)
        own = full.of_image(dict(zip(roles.dataset_axes, dataset, strict=True)))
        return DatasourceProperties(name, *voxel_size_of(own, roles.depth), layers)

    @property
    def _shown_version(self) -> Hashable:
        """While it is the same, what is shown of a dataset is, too."""
        full, extent = self.plan.full, self.roles.extent
        sizes = [size for axis, size in enumerate(self._shown_shape) if axis not in self.roles.folders]
        return tuple(sizes), extent(full.scale), extent(full.units), repr(full.own), full.looks, full.bits

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

    def _difference(self, found: WkwLayout) -> str:
        """Why the existing array cannot be continued as this one; "" if it can."""
        theirs, ours = found.plan.full, self.plan.full
        if (theirs.axes, found.header) != (ours.axes, self.header):
            return f"axes {theirs.axes} in {found.header}, expected {ours.axes} in {self.header}"
        texts = []
        factors = [level.factors for level in found.plan.levels], [level.factors for level in self.plan.levels]
        if factors[0] != factors[1]:
            texts.append(f"levels {factors[0]}, expected {factors[1]}")
        planes = [self.roles.extent(spec.shape)[1:] for spec in (theirs, ours)]
        sides = zip(*planes, self.open_sides, strict=True)
        if 0 not in planes[0] and any(found != own for found, own, is_open in sides if not is_open):
            texts.append(f"planes of {planes[0]} pixels, expected {planes[1]}")
        return "; ".join(texts)


ARRAY_NAME = "acqstream-array.json"
_VERSION = 1
_DTYPES = {dtype.name: dtype for dtype in VOXEL_TYPES.values()}
_MAX_AXES = 16


def encode_note(layout: WkwLayout, *, complete: bool) -> bytes:
    """The content of the file. complete: nothing more will come."""
    first, header = layout.plan.full, layout.header
    value = {
        "format": "acqstream-wkw",
        "version": _VERSION,
        "state": "complete" if complete else "writing",
        "dtype": first.dtype.name,
        **note_of_array(first),
        "layers": [*layout.layer_names],
        "cubes": {
            "blocks": header.block_type.name,
            "block_side": header.block_side,
            "cube_side": header.cube_side,
        },
        "levels": [note_of_level(level) for level in layout.plan.levels],
    }
    return json.dumps(value, indent=1, ensure_ascii=False, default=plain_value).encode()


def parse_note(content: bytes, path: str) -> tuple[WkwLayout, bool]:
    """The layout that the note in the file `path` describes, and whether it is complete; levels have no chunk_shape.

    Raises CorruptDataset with the field and what was expected.
    """
    fields = parse_fields(content, path, max_integer=MAX_VOXELS)
    if (fields.text("format"), fields.integer("version")) != ("acqstream-wkw", _VERSION):
        raise fields.wrong("version", f"{_VERSION}, and format acqstream-wkw")
    axes = fields.texts("axes")
    if len(axes) > _MAX_AXES:
        raise fields.wrong("axes", f"{_MAX_AXES} at most")
    try:
        axis_roles(axes)
    except ConfigError as error:
        raise fields.wrong("axes", "those of a WKW array: ..., depth, y, x and maybe c") from error
    if fields.text("dtype") not in _DTYPES:
        raise fields.wrong("dtype", f"one of {', '.join(_DTYPES)}")
    if fields.text("state") not in {"writing", "complete"}:
        raise fields.wrong("state", "writing or complete")
    common = read_array(fields, axes, _DTYPES[fields.text("dtype")])
    levels = tuple(_noted_level(level, common) for level in fields.children("levels"))
    if not levels:
        raise fields.wrong("levels", "one level at least")
    layers = fields.texts("layers")
    if any(plain_name(name) != name for name in layers):  # they are names of folders
        raise fields.wrong("layers", "names of letters, digits and _ $ @ - .")
    layout = WkwLayout(
        Plan(levels=levels, member_axes=axis_roles(axes).dataset_axes), _noted_header(fields, levels[0]), layers
    )
    return layout, fields.text("state") == "complete"


def _noted_header(fields: Fields, full: ArraySpec) -> Header:
    cubes = fields.child("cubes")
    if cubes.text("blocks") not in BlockType.__members__:
        raise cubes.wrong("blocks", f"one of {', '.join(BlockType.__members__)}")
    block_type = BlockType[cubes.text("blocks")]
    block_side, cube_side = cubes.integer("block_side"), cubes.integer("cube_side")
    channels = full.shape[-1] if full.axes[-1] == COMPONENT else 1
    try:
        return Header(block_side, cube_side // max(1, block_side), block_type, full.dtype, channels)
    except ValueError as error:
        raise cubes.wrong("cube_side", f"sides of a block and a cube of voxels ({error})") from error


def _noted_level(level: Fields, common: ArraySpec) -> ArraySpec:
    found = read_level(level, common)
    if axis_roles(found.axes).has_too_many(found.shape):
        raise level.wrong("shape", "at most a million layers in all datasets")
    if math.prod(found.shape) >= 2**63:
        raise level.wrong("shape", "fewer than 2^63 items")
    return found


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


def plan(array: ArraySpec, options: WkwOptions) -> Plan:
    """The levels of an array, the finest first, with their chunks; every dataset of webKNOSSOS is a member.

    Axes come in WKW's order, with a z of extent 1 if need be. A raw chunk is one layer of blocks of one cube, at the
    margin of a plane as many as the plane needs; a compressed one is a whole cube. Raises ConfigError.
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
    leading, components = (1,) * roles.depth, (header.channels,) if roles.has_components else ()
    cube, block = ((*leading, *(side,) * 3, *components) for side in (header.cube_side, header.block_side))

    def chunk(level: ArraySpec) -> tuple[int, ...]:
        if header.block_type is not BlockType.RAW:
            return cube
        side, most = header.block_side, header.cube_side
        _, height, width = (min(most, -(-max(1, size) // side) * side) for size in roles.extent(level.shape))
        return (*leading, side, height, width, *components)

    cut = (replace(level, chunk_shape=chunk(level), block_shape=block, shard_shape=cube) for level in levels)
    return Plan(levels=tuple(cut), member_axes=roles.dataset_axes)


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
