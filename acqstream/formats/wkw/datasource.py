"""`datasource-properties.json`: the layers of a webKNOSSOS dataset, their magnifications and extents.

Source: datasets of webKNOSSOS, tried with the webknossos library. Coordinates: (x, y, z), in voxels of magnification 1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from acqstream.description.space import UM_BY_UNIT
from acqstream.errors import UnsupportedFeature
from acqstream.formats.wkw.header import MAX_VOXELS
from acqstream.formats.wkw.magnification import Magnification, is_power_of_two, magnification_name
from acqstream.model.fields import Fields
from acqstream.storage.files.small_file import parse_fields

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
