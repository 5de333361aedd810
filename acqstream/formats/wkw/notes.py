"""`acqstream-array.json`: what an array is that was written here, beyond what webKNOSSOS can say.

It lies at the top of the container and tells axes, the shape and place of each level, names of channels, and whether
more is to come. Everything inside the shapes is stored. Other software passes the file over.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from acqstream.arrays.array_spec import ArraySpec
from acqstream.errors import ConfigError
from acqstream.formats.array_note import note_of_array, note_of_level, plain_value, read_array, read_level
from acqstream.formats.wkw.axes import COMPONENT, AxisRoles, axis_roles, plain_name
from acqstream.formats.wkw.header import MAX_VOXELS, VOXEL_TYPES, BlockType, Header
from acqstream.grid.block_sizes import reduced_size
from acqstream.model.fields import Fields
from acqstream.storage.files.small_file import parse_fields

ARRAY_NAME = "acqstream-array.json"
_VERSION = 1
_DTYPES = {dtype.name: dtype for dtype in VOXEL_TYPES.values()}
_MAX_AXES = 16


@dataclass(frozen=True, slots=True)
class StoredArray:
    """The array as it is now. levels: the finest first; layers: the names of layers by position along `channel`;
    header: of all folders of cubes.
    """

    levels: tuple[ArraySpec, ...]
    layers: tuple[str, ...]
    header: Header
    complete: bool

    @property
    def roles(self) -> AxisRoles:
        return axis_roles(self.levels[0].axes)

    def layer_name(self, layer: int) -> str:
        """Of a layer beyond the ones that have names, too."""
        if layer < len(self.layers):
            return self.layers[layer]
        name = f"C{layer}"
        while name.lower() in {other.lower() for other in self.layers}:
            name += "_"
        return name

    def visible_shape(self) -> tuple[int, ...]:
        """The part of level 0 that is there in every level."""
        shape = self.levels[0].shape
        for level in self.levels[1:]:
            reached = zip(shape, level.shape, level.factors, strict=True)
            shape = tuple(
                size if stored >= reduced_size(size, factor) else stored * factor for size, stored, factor in reached
            )
        return shape

    def with_shapes(self, shapes: Sequence[tuple[int, ...]], *, complete: bool = False) -> StoredArray:
        levels = tuple(replace(level, shape=shape) for level, shape in zip(self.levels, shapes, strict=True))
        return replace(self, levels=levels, complete=complete)


def encode_array(array: StoredArray) -> bytes:
    """The content of the file."""
    first = array.levels[0]
    value = {
        "format": "acqstream-wkw",
        "version": _VERSION,
        "state": "complete" if array.complete else "writing",
        "dtype": first.dtype.name,
        **note_of_array(first),
        "layers": list(array.layers),
        "cubes": {
            "blocks": array.header.block_type.name,
            "block_side": array.header.block_side,
            "cube_side": array.header.cube_side,
        },
        "levels": [note_of_level(level) for level in array.levels],
    }
    return json.dumps(value, indent=1, ensure_ascii=False, default=plain_value).encode()


def parse_array(content: bytes, path: str) -> StoredArray:
    """The array that a note describes; the levels are without chunk_shape. Raises CorruptDataset that names `path`."""
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
    levels = tuple(_level(level, common) for level in fields.children("levels"))
    if not levels:
        raise fields.wrong("levels", "one level at least")
    layers = fields.texts("layers")
    if any(plain_name(name) != name for name in layers):  # they are names of folders
        raise fields.wrong("layers", "names of letters, digits and _ $ @ - .")
    return StoredArray(levels, layers, _header(fields, levels[0]), fields.text("state") == "complete")


def _header(fields: Fields, full: ArraySpec) -> Header:
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


def _level(level: Fields, common: ArraySpec) -> ArraySpec:
    found = read_level(level, common)
    if axis_roles(found.axes).has_too_many(found.shape):
        raise level.wrong("shape", "at most a million layers in all datasets")
    if math.prod(found.shape) >= 2**63:
        raise level.wrong("shape", "fewer than 2^63 items")
    return found
