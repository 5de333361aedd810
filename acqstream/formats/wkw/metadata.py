"""Options of a WKW container, and its documents, which name magnifications and layers. Pure.

`datasource-properties.json` has the layers of a webKNOSSOS dataset, their magnifications and extents; coordinates are
(x, y, z), in voxels of magnification 1. A magnification is how many voxels of the full resolution a voxel of a level
covers along x, y and z: powers of two, named "1", "2-2-1", "4-4-2"; no two of a layer have the same largest one.
Source: datasets of webKNOSSOS, tried with the webknossos library.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from acqstream.arrays.array_spec import ArraySpec
from acqstream.description.channels import display_range
from acqstream.description.space import UM_BY_UNIT
from acqstream.errors import UnsupportedFeature
from acqstream.formats.array_options import OptionReader
from acqstream.formats.wkw.axis_roles import COMPONENT
from acqstream.formats.wkw.header import MAX_SIDE, MAX_VOXELS, BlockType
from acqstream.model.fields import Fields
from acqstream.storage.files.small_file import parse_fields

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


Magnification = tuple[int, int, int]
"""(x, y, z), as webKNOSSOS writes it."""

FULL: Magnification = (1, 1, 1)
_NAME = re.compile(r"([1-9][0-9]{0,9})(?:-([1-9][0-9]{0,9})-([1-9][0-9]{0,9}))?")


def magnification_name(magnification: Magnification) -> str:
    """Name of its folder: one number where it is the same along all axes."""
    x, y, z = magnification
    return str(x) if x == y == z else f"{x}-{y}-{z}"


def folder_names(magnification: Magnification) -> tuple[str, ...]:
    """All names that its folder may have, the usual one first."""
    return tuple(dict.fromkeys((magnification_name(magnification), "-".join(map(str, magnification)))))


def parse_magnification(name: str) -> Magnification | None:
    """The magnification that a folder of this name holds; None if the name is not one."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    x, y, z = (int(part) if part else int(found[1]) for part in found.groups())
    return (x, y, z) if all(is_power_of_two(side) for side in (x, y, z)) else None


def is_power_of_two(number: int) -> bool:
    """True for 1, 2, 4, ..."""
    return number > 0 and not number & (number - 1)


def coarser(voxel_size: tuple[float, float, float] | None) -> Iterator[Magnification]:
    """Magnifications beyond the full one, each with twice the largest component of the one before, without end.

    voxel_size is (x, y, z) in one unit: the axes with the finest voxels are doubled until doubling all is the better
    match, as the webknossos library does. None, where it is not known: x and y only.
    """
    magnification = FULL
    while True:
        largest = max(magnification)
        magnification = _next(magnification, voxel_size)
        if max(magnification) > largest:
            yield magnification


def _next(magnification: Magnification, voxel_size: tuple[float, float, float] | None) -> Magnification:
    x, y, z = magnification
    if voxel_size is None:
        return 2 * x, 2 * y, z
    sizes = [step * size for step, size in zip(magnification, voxel_size, strict=True)]
    x_step, y_step, z_step = (2 if math.isclose(size, min(sizes), rel_tol=1e-6) else 1 for size in sizes)
    finest = [size * step for size, step in zip(sizes, (x_step, y_step, z_step), strict=True)]
    if max(sizes) / min(sizes) < max(finest) / min(finest):
        return 2 * x, 2 * y, 2 * z
    return x_step * x, y_step * y, z_step * z


OWN_UNIT = "nanometer"  # webKNOSSOS takes numbers without a unit for it
PROPERTIES_NAME = "datasource-properties.json"

_UNITS_BACK = {  # theirs -> ours; "um" is an error there
    "picometer": "pm",
    "nanometer": "nm",
    "micrometer": "um",
    "millimeter": "mm",
    "centimeter": "cm",
    "meter": "m",
}


@dataclass(frozen=True, slots=True)
class LayerMagnification:
    """One magnification of a layer: folder below the dataset's ("" where it is not told), side of its cubes."""

    magnification: Magnification
    path: str = ""
    cube_side: int = 0


@dataclass(frozen=True, slots=True)
class LayerProperties:
    """One layer. top_left and size (x, y, z) are its bounding box; magnifications the finest first.

    view is what webKNOSSOS calls defaultViewConfiguration: color, intensityRange, min and max.
    """

    name: str
    element_class: str
    channels: int
    size: tuple[int, int, int]
    magnifications: tuple[LayerMagnification, ...]
    top_left: tuple[int, int, int] = (0, 0, 0)
    view: Mapping[str, object] = field(default_factory=dict)

    @property
    def end(self) -> tuple[int, int, int]:
        """(z, y, x) after the last voxel."""
        x, y, z = (start + count for start, count in zip(self.top_left, self.size, strict=True))
        return z, y, x


@dataclass(frozen=True, slots=True)
class DatasourceProperties:
    """A dataset. voxel_size is (x, y, z) in `unit`, a full name as "micrometer"."""

    name: str
    voxel_size: tuple[float, float, float]
    unit: str
    layers: tuple[LayerProperties, ...]


def unit_name(unit: str) -> str | None:
    """The unit's name in webKNOSSOS; None if it is not a unit of length."""
    return next((name for name, ours in _UNITS_BACK.items() if UM_BY_UNIT[ours] == UM_BY_UNIT.get(unit)), None)


def unit_symbol(name: str) -> str:
    """The symbol of a unit of webKNOSSOS; its name where there is none."""
    return _UNITS_BACK.get(name, name)


def element_class(dtype: np.dtype[np.generic], channels: int) -> str:
    """Name of the voxel type of a layer in webKNOSSOS."""
    if (dtype, channels) == (np.dtype(np.uint8), 3):
        return "uint24"
    return {"float32": "float", "float64": "double"}.get(dtype.name, dtype.name)


def encode_properties(properties: DatasourceProperties) -> bytes:
    """The content of the file."""
    value = {
        "id": {"name": properties.name, "team": ""},
        "version": 1,
        "scale": {"factor": list(properties.voxel_size), "unit": properties.unit},
        "dataLayers": [_layer_value(layer) for layer in properties.layers],
    }
    return json.dumps(value, indent=1, ensure_ascii=False).encode()


def _layer_value(layer: LayerProperties) -> dict[str, object]:
    width, height, depth = layer.size
    mags: Sequence[dict[str, object]] = [
        {
            "mag": list(entry.magnification),
            "path": entry.path or f"./{layer.name}/{magnification_name(entry.magnification)}",
            "cubeLength": entry.cube_side,
            "axisOrder": {"c": 0, "x": 1, "y": 2, "z": 3},
        }
        for entry in layer.magnifications
    ]
    return {
        "name": layer.name,
        "category": "color",
        "dataFormat": "wkw",
        "elementClass": layer.element_class,
        "numChannels": layer.channels,
        "boundingBox": {"topLeft": list(layer.top_left), "width": width, "height": height, "depth": depth},
        "mags": mags,
        **({"defaultViewConfiguration": dict(layer.view)} if layer.view else {}),
    }


def parse_properties(content: bytes, path: str) -> DatasourceProperties:
    """The WKW layers of a dataset; layers of other formats are left out.

    Raises CorruptDataset that names `path` and the field, UnsupportedFeature for magnifications that lie elsewhere.
    """
    fields = parse_fields(content, path, max_integer=MAX_VOXELS)
    name = fields.child("id").text("name", "") if "id" in fields else ""
    voxel_size, unit = _scale(fields)
    layers = [
        _layer(layer, path)
        for layer in fields.children("dataLayers")
        if layer.text("dataFormat", "wkw").lower() == "wkw"
    ]
    return DatasourceProperties(name, voxel_size, unit, tuple(layers))


def _scale(fields: Fields) -> tuple[tuple[float, float, float], str]:
    if isinstance(fields.values.get("scale"), list):  # older files
        x, y, z = fields.numbers("scale", 3)
        return (x, y, z), OWN_UNIT
    scale = fields.child("scale")
    x, y, z = scale.numbers("factor", 3)
    return (x, y, z), scale.text("unit", OWN_UNIT)


def _layer(fields: Fields, path: str) -> LayerProperties:
    box = fields.child("boundingBox")
    left, top, front = box.integers("topLeft", 3)
    if "mags" in fields:
        entries = [_magnification(entry, "mag", path) for entry in fields.children("mags")]
    else:
        entries = [_magnification(entry, "resolution", path) for entry in fields.children("wkwResolutions")]
    if not entries or len({entry.magnification for entry in entries}) < len(entries):
        raise fields.wrong("mags", "one magnification at least, each once")
    entries.sort(key=lambda entry: (max(entry.magnification), entry.magnification))
    name = fields.text("name")
    if name in {"", ".", ".."} or not {"/", "\\"}.isdisjoint(name) or not _is_name(name):  # perhaps of a folder
        raise fields.wrong("name", "a name without slashes")
    return LayerProperties(
        name,
        fields.text("elementClass"),
        fields.integer("numChannels", 1),
        (box.integer("width"), box.integer("height"), box.integer("depth")),
        tuple(entries),
        (left, top, front),
    )


def _magnification(fields: Fields, name: str, path: str) -> LayerMagnification:
    if isinstance(fields.values.get(name), int):
        x = y = z = fields.integer(name)
    else:
        x, y, z = fields.integers(name, 3)
    if not all(is_power_of_two(side) for side in (x, y, z)):
        raise fields.wrong(name, "powers of two")
    folder = fields.text("path", "")
    parts = folder.replace("\\", "/").split("/")
    if "://" in folder or folder.startswith(("/", "~")) or ".." in parts or not _is_name(folder):
        raise UnsupportedFeature(f"{path}: a magnification at {folder!r}; only folders below this one are read")
    return LayerMagnification((x, y, z), folder, fields.integer("cubeLength", 0))


def _is_name(text: str) -> bool:
    """Return False for a text that can be in no name of a file: with NUL, or half a surrogate pair."""
    return "\0" not in text and (text.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in text))


def layer_view(full: ArraySpec, layer: int) -> dict[str, object]:
    """How webKNOSSOS shows a layer at first; nothing for RGB, and where nothing is known."""
    if layer >= len(full.looks) or full.axes[-1] == COMPONENT:
        return {}
    look = full.looks[layer]
    shown = display_range(look, full.dtype, full.bits)
    color = [*bytes.fromhex(look.color[1:])]
    return {"color": color, "intensityRange": [shown.start, shown.end], "min": shown.low, "max": shown.high}


def magnification(level: ArraySpec) -> Magnification:
    """(x, y, z) out of the factors of a level in WKW's order of axes."""
    y = level.axes.index("y")
    return level.factors[y + 1], level.factors[y], level.factors[y - 1]


def voxel_size_of(full: ArraySpec, depth: int) -> tuple[tuple[float, float, float], str]:
    """(x, y, z) and the unit that all share. A distance that is not a known length is 1 of it, as the note says; the
    unit is nanometer, the format's own, where none is known.
    """
    sides = [*zip(full.scale, full.units, strict=True)][depth : depth + 3]
    known = [unit for size, unit in reversed(sides) if unit_name(unit) is not None and size]
    unit = known[0] if known else ""
    z, y, x = (
        float(f"{abs(size) * UM_BY_UNIT[own] / UM_BY_UNIT[unit]:.12g}") if own in known and size else 1.0
        for size, own in sides
    )
    return (x, y, z), unit_name(unit) or OWN_UNIT
