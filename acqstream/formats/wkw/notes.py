"""`acqstream-array.json`: what an array is that was written here, beyond what webKNOSSOS can say.

It lies at the top of the container and tells axes, the shape and place of each level, names of channels, and whether
more is to come. Everything inside the shapes is stored. Other software passes the file over.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from acqstream.arrays.array_spec import ArraySpec
from acqstream.arrays.shown_array import note_of_values, read_note_of_values
from acqstream.errors import ConfigError
from acqstream.formats.place_note import note_of_places, read_places
from acqstream.formats.wkw.axes import COMPONENT, AxisRoles, axis_roles, plain_name
from acqstream.formats.wkw.header import MAX_VOXELS, VOXEL_TYPES, BlockType, Header
from acqstream.grid.block_sizes import reduced_size
from acqstream.model.fields import Fields
from acqstream.storage.json_file import parse_fields

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
        "axes": list(first.axes),
        "dtype": first.dtype.name,
        "units": list(first.units),
        "calibrated": not first.unknown_distances,
        **note_of_places(first.places, first.stage_axes),
        **note_of_values(first.shown_axes, first.axis_values),
        "layers": list(array.layers),
        "labels": {axis: list(names) for axis, names in first.labels.items()},
        "attributes": dict(first.attributes),
        "cubes": {
            "blocks": array.header.block_type.name,
            "block_side": array.header.block_side,
            "cube_side": array.header.cube_side,
        },
        "levels": [
            {
                "shape": list(level.shape),
                "factors": list(level.factors),
                "scale": list(level.scale),
                "translation": list(level.translation),
            }
            for level in array.levels
        ],
    }
    return json.dumps(value, indent=1, ensure_ascii=False, default=_plain_value).encode()


def _plain_value(value: object) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray | tuple | set):
        return list(value)
    return str(value)


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
    places, stage_axes = read_places(fields.values)
    shown, values = read_note_of_values(fields.values, axes)
    levels = tuple(
        replace(_level(level, fields, axes), places=places, stage_axes=stage_axes, shown_axes=shown, axis_values=values)
        for level in fields.children("levels")
    )
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


def _level(level: Fields, fields: Fields, axes: tuple[str, ...]) -> ArraySpec:
    count = len(axes)
    labels = fields.child("labels")
    shape, factors = level.integers("shape", count), level.integers("factors", count)
    if axis_roles(axes).has_too_many(shape):
        raise level.wrong("shape", "at most a million layers in all datasets")
    if math.prod(shape) >= 2**63:
        raise level.wrong("shape", "fewer than 2^63 items")
    if not all(factors):
        raise level.wrong("factors", "1 at least")
    return ArraySpec(
        axes=axes,
        shape=shape,
        dtype=_DTYPES[fields.text("dtype")],
        factors=factors,
        scale=level.numbers("scale", count),
        units=fields.texts("units", count),
        translation=level.numbers("translation", count),
        labels={axis: labels.texts(axis) for axis in labels.values},
        attributes=fields.child("attributes").values,
    )
