"""OME metadata, read and made: axes, levels and channels of an image, wells and plates, lists of images. Pure.

Sources: OME-NGFF 0.1 to 0.5, "multiscales", "omero", "plate", "well" and "bioformats2raw.layout"; Zarr v3 core.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from xml.etree import ElementTree

from acqstream.arrays.array_spec import ArraySpec
from acqstream.description.channels import channel_color, display_range
from acqstream.description.image_positions import position_names
from acqstream.errors import UnsupportedFeature
from acqstream.formats.array_note import plain_value, printable
from acqstream.formats.ome_zarr.hierarchy import Node, node_path
from acqstream.formats.ome_zarr.image_folders import CHANNEL, SAMPLE, image_axis
from acqstream.formats.ome_zarr.zarr_json import DOCUMENT_NAME
from acqstream.model.axes import POSITION
from acqstream.model.fields import Fields
from acqstream.model.metadata import finite_number

_RGB = ("FF0000", "00FF00", "0000FF", "FFFFFF")


def omero_channels(full: ArraySpec, count: int, labels: Sequence[str], *, is_rgb: bool) -> list[Any]:
    """An entry for each channel; those without a label are numbered. Readers require as many as there are channels."""
    channels = []
    for number in range(count):
        look = full.looks[number] if number < len(full.looks) and not is_rgb else None
        label = labels[number] if number < len(labels) else (look.name if look is not None else "") or str(number)
        color = _RGB[number % len(_RGB)] if is_rgb else channel_color(label, number) if look is None else look.color
        shown = display_range(look, full.dtype, full.bits)
        window = {"min": shown.low, "max": shown.high, "start": shown.start, "end": shown.end}
        channels.append({"label": label, "color": color.lstrip("#").upper(), "active": True, "window": window})
    return channels


VERSION = "0.5"
SERIES_FOLDER = "OME"
XML_NAME = "METADATA.ome.xml"
_UNITS = {"um": "micrometer", "s": "second"}
_OME_XML = "http://www.openmicroscopy.org/Schemas/OME/2016-06"
_OME_TYPES = {"float32": "float", "float64": "double", "bool": "bit"}


def document_key(*folders: str) -> str:
    """The key of the document of a group or array."""
    return "/".join((*folders, DOCUMENT_NAME))


def encode(document: Mapping[str, Any]) -> bytes:
    """The bytes of a document. Values of numpy and those that JSON lacks are taken as numbers, lists and texts."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False, default=plain_value).encode()


def group(ome: Mapping[str, Any] | None, **others: Any) -> dict[str, Any]:
    """The document of a group with metadata of OME, and attributes beside them."""
    attributes = {} if ome is None else {"ome": {"version": VERSION, **ome}}
    return {"zarr_format": 3, "node_type": "group", "attributes": {**attributes, **others}}


def image_metadata(levels: Sequence[ArraySpec], name: str) -> dict[str, Any]:
    """`multiscales` and `omero` of an image. levels have its axes only, and its place on the stage.

    Levels are means, so item 0 of a lower level lies further: every level states its translation.
    """
    full = levels[0]
    axes = [image_axis(axis) for axis in full.axes]
    entries: list[dict[str, Any]] = []
    for axis, unit in zip(axes, full.units, strict=True):
        known = _UNITS.get(unit, "")
        entries.append({"name": axis.name, "type": axis.type, **({"unit": known} if known else {})})
    datasets = [
        {"path": str(number), "coordinateTransformations": _transformations(level)}
        for number, level in enumerate(levels)
    ]
    multiscale = {"name": name, "axes": entries, "datasets": datasets, "type": "mean"}
    channel_axis = next((axis for axis in (SAMPLE, CHANNEL) if axis in full.axes), "")
    count = full.shape[full.axes.index(channel_axis)] if channel_axis else 1
    labels = ("R", "G", "B", "A") if channel_axis == SAMPLE else full.labels.get(CHANNEL, ())
    channels = omero_channels(full, count, labels, is_rgb=channel_axis == SAMPLE)
    rdefs = {"defaultT": 0, "defaultZ": 0, "model": "color" if count > 1 else "greyscale"}
    return {"multiscales": [multiscale], "omero": {"channels": channels, "rdefs": rdefs}}


def ome_xml(images: Sequence[tuple[str, ArraySpec]]) -> bytes:
    """`METADATA.ome.xml`: names and sizes of the images, each a level with the axes of an image.

    Source: OME data model 2016-06.
    """
    root = ElementTree.Element("OME", xmlns=_OME_XML)
    for number, (name, full) in enumerate(images):
        sizes = dict(zip(full.axes, full.shape, strict=True))
        image = ElementTree.SubElement(root, "Image", ID=f"Image:{number}", Name=printable(name))
        pixels = ElementTree.SubElement(
            image,
            "Pixels",
            ID=f"Pixels:{number}",
            DimensionOrder="XYZCT",
            Type=_OME_TYPES.get(full.dtype.name, full.dtype.name),
            SizeX=str(sizes["x"]),
            SizeY=str(sizes["y"]),
            SizeZ=str(sizes.get("z", 1)),
            SizeC=str(sizes.get(SAMPLE, sizes.get(CHANNEL, 1))),
            SizeT=str(sizes.get("time", 1)),
        )
        ElementTree.SubElement(pixels, "MetadataOnly")
    content: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return content


def _transformations(level: ArraySpec) -> list[dict[str, Any]]:
    return [
        {"type": "scale", "scale": [_positive(size) for size in level.scale]},
        {"type": "translation", "translation": [*level.translation]},
    ]


def _positive(size: float) -> float:
    """Viewers refuse other scales; a distance that is negative or zero has no meaning there."""
    return abs(size) or 1.0


_DISTANCE = re.compile(r"\s*(\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|)\s*(.*?)\s*", re.DOTALL)
_VERSION = re.compile(r"0\.[1-5](\D.*)?")
_OLD_AXES = ("t", "c", "z", "y", "x")  # of versions that name none
_KINDS = MappingProxyType({"t": "time", "c": "channel"})
_PREFIXES: Mapping[str, float] = MappingProxyType(
    {
        "": 1.0,
        "pico": 1e-12,
        "nano": 1e-9,
        "micro": 1e-6,
        "milli": 1e-3,
        "centi": 1e-2,
        "deci": 1e-1,
        "kilo": 1e3,
    }
)
_READ_UNITS: Mapping[str, tuple[str, float]] = MappingProxyType(
    {
        **{f"{prefix}meter": ("um", value / 1e-6) for prefix, value in _PREFIXES.items()},
        **{f"{prefix}second": ("s", value) for prefix, value in _PREFIXES.items()},
        "micrometer": ("um", 1.0),
        "nanometer": ("um", 1e-3),
        "millimeter": ("um", 1e3),
        "angstrom": ("um", 1e-4),
        "inch": ("um", 25400.0),
        "um": ("um", 1.0),
        "\u00b5m": ("um", 1.0),
        "\u03bcm": ("um", 1.0),
        "nm": ("um", 1e-3),
        "mm": ("um", 1e3),
        "s": ("s", 1.0),
        "ms": ("s", 1e-3),
        "minute": ("s", 60.0),
        "hour": ("s", 3600.0),
        "day": ("s", 86400.0),
    }
)


@dataclass(frozen=True, slots=True)
class LevelEntry:
    """One level: path below the group; scale and translation in the units of the axes."""

    path: str
    scale: tuple[float, ...]
    translation: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Multiscales:
    """An image. axes are our names, slowest first; units "um", "s", others as they stand, "" for none.

    has_scales: False if no level states one; they are 1 then. channels are the labels of omero, () without.
    """

    name: str
    axes: tuple[str, ...]
    units: tuple[str, ...]
    levels: tuple[LevelEntry, ...]
    has_scales: bool
    channels: tuple[str, ...]


def parse_multiscales(node: Node) -> Multiscales:
    """The first image of a group. Raises CorruptDataset, UnsupportedFeature."""
    entries = list(node.fields.children("multiscales"))
    if not entries:
        raise node.fields.wrong("multiscales", "a list with an image")
    entry = entries[0]
    version = node.ome.get("version", entry.values.get("version"))
    if version is not None and not (isinstance(version, str) and _VERSION.fullmatch(version)):
        raise UnsupportedFeature(f"{node.where}: OME-Zarr version {version!r:.60}, expected 0.1 to 0.5")
    axes, given_units = _axes(entry, version)
    units, factors = (
        zip(*(_READ_UNITS.get(unit, (unit, 1.0)) for unit in given_units), strict=True) if axes else ((), ())
    )
    levels, has_scales = _levels(entry, factors, node.where)
    name = entry.values.get("name")
    return Multiscales(
        name if isinstance(name, str) else "", axes, units, levels, has_scales, _read_channels(node.ome.get("omero"))
    )


def dimension_units(given: object, ndim: int) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """Distances and units of axes, as tensorstore stores them in an array: "0.5 um", "nm", [4, "nm"] or null."""
    found = [(1.0, "")] * ndim
    for axis, one in enumerate(given if isinstance(given, list) and len(given) == ndim else ()):
        parts = _DISTANCE.fullmatch(one).groups() if isinstance(one, str) else one  # type: ignore[union-attr]
        if isinstance(parts, tuple | list) and len(parts) == 2 and isinstance(parts[1], str):
            unit, factor = _READ_UNITS.get(parts[1], (parts[1], 1.0))
            number = finite_number(float(parts[0] or 1) if isinstance(parts[0], str) else parts[0])
            found[axis] = (number * factor, unit) if number and number > 0 else (1.0, "")
    return tuple(size for size, _ in found), tuple(unit for _, unit in found)


def axis_name(name: str, kind: object = None) -> str:
    """Our name of an axis; kind is its type, None where it has none."""
    lower = name.lower()
    if kind in ("time", "channel"):
        return str(kind)
    if kind == "space" or (kind is None and lower in ("z", "y", "x")):
        return lower
    return _KINDS.get(lower, name) if kind is None else name


def _axes(entry: Fields, version: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names and units."""
    if "axes" not in entry and (version is None or version[:3] in ("0.1", "0.2", "0.3")):
        given: Sequence[Any] = _OLD_AXES
    else:
        given = entry.items("axes")
    names: list[str] = []
    units: list[str] = []
    for at, axis in enumerate(given):
        fields = Fields({"name": axis} if isinstance(axis, str) else axis, f"axes[{at}].", entry._error)
        names.append(axis_name(fields.text("name", max_length=200), fields.values.get("type")))
        unit = fields.values.get("unit")
        units.append(unit if isinstance(unit, str) else "")
    if not names or len(names) > 32 or "" in names or len(set(names)) < len(names):
        raise entry.wrong("axes", "1 to 32 axes with different names")
    return tuple(names), tuple(units)


def _levels(entry: Fields, factors: Sequence[float], where: str) -> tuple[tuple[LevelEntry, ...], bool]:
    common, has_scales = _read_transformations(entry, len(factors), where)
    levels: list[LevelEntry] = []
    for dataset in entry.children("datasets"):
        own, has_own = _read_transformations(dataset, len(factors), where)
        has_scales |= has_own
        per_axis = list(zip(own, common, factors, strict=True))
        scale = tuple(a[0] * b[0] * factor for a, b, factor in per_axis)
        shift = tuple((a[1] * b[0] + b[1]) * factor for a, b, factor in per_axis)
        if any(finite_number(number) is None for number in (*scale, *shift)):
            raise dataset.wrong("coordinateTransformations", "finite numbers")
        levels.append(LevelEntry(node_path(dataset.values.get("path"), where), scale, shift))
    if not levels or len(levels) > 100:
        raise entry.wrong("datasets", "1 to 100 levels")
    return tuple(levels), has_scales


def _read_transformations(fields: Fields, ndim: int, where: str) -> tuple[list[tuple[float, float]], bool]:
    """Scale and translation of each axis, and whether a scale is stated."""
    result, has_scale = [(1.0, 0.0)] * ndim, False
    if fields.values.get("coordinateTransformations") is None:
        return result, has_scale
    for step in fields.children("coordinateTransformations"):
        kind = step.text("type")
        if kind == "identity":
            continue
        if kind not in ("scale", "translation") or "path" in step:
            what = "with a path" if "path" in step else f"of type {kind!r:.60}"
            raise UnsupportedFeature(f"{where}: a coordinate transformation {what}, expected scale and translation")
        numbers = step.numbers(kind, ndim)
        pairs = list(zip(result, numbers, strict=True))
        if kind == "scale":
            has_scale = True
            result = [(scale * number, shift * number) for (scale, shift), number in pairs]
        else:
            result = [(scale, shift + number) for (scale, shift), number in pairs]
    return result, has_scale


def _read_channels(omero: object) -> tuple[str, ...]:
    """Labels; () where one has none: they are for display only."""
    channels = omero.get("channels") if isinstance(omero, dict) else None
    if not isinstance(channels, list):
        return ()
    labels = [channel.get("label") if isinstance(channel, dict) else None for channel in channels]
    return tuple(str(label) for label in labels) if all(isinstance(label, str) for label in labels) else ()


MAX_ROWS, MAX_COLUMNS = 32, 48  # of a plate with 1536 wells
_NAMED_ROWS, _NAMED_COLUMNS = 16, 24  # where names alone tell: 384 wells
_AMBIGUOUS = "P"  # "P1" is a position rather than a well
_NAME = re.compile(r"([A-Z]{1,2})0{0,2}([1-9]\d?)(?:[-_ .:].*)?", re.DOTALL)
_PATH = re.compile(r"([A-Z]{1,2})/([1-9]\d?)")


def find_wells(names: Sequence[str], summary: Mapping[str, Any]) -> tuple[str, ...]:
    """The paths of the wells, such as "A/1", that positions with these names lie in; () unless each one names a well.

    A name is that of a well, alone or with more behind one of `-_ .:`; A1, A01_0003, B12-Site_2. Without a plate in
    the summary, rows reach to P and columns to 24, and names of row P alone mean positions.
    """
    found = [_NAME.fullmatch(name) for name in names]
    wells = [(match[1], int(match[2])) for match in found if match is not None]
    if not wells or len(wells) < len(names):
        return ()
    size = _plate_size(summary)
    rows, columns = size or (_NAMED_ROWS, _NAMED_COLUMNS)
    if any(row_number(row) >= rows or column > columns for row, column in wells):
        return ()
    if size is None and {row for row, _ in wells} == {_AMBIGUOUS}:
        return ()
    return tuple(f"{row}/{column}" for row, column in wells)


def planned_wells(planned: ArraySpec) -> tuple[str, ...]:
    """The wells of the positions of an array; () if a position has no name yet, or a name means no well.

    A declared size alone makes no name known: names may come one by one, and the next one may mean no well.
    """
    names = [*planned.labels.get(POSITION, ())]
    are_known = 0 < planned.shape[planned.axes.index(POSITION)] <= len(names)
    if not are_known and names != position_names(planned.attributes):
        return ()
    return find_wells(names, planned.attributes)


def is_well(path: str) -> bool:
    """Return True for the path of a well as `find_wells` makes it."""
    match = _PATH.fullmatch(path)
    return match is not None and row_number(match[1]) < MAX_ROWS and int(match[2]) <= MAX_COLUMNS


def row_number(row: str) -> int:
    """The number of a row from 0: A to Z, then AA to AZ and so on."""
    number = 0
    for letter in row:
        number = number * 26 + ord(letter) - ord("A") + 1
    return number - 1


def row_name(number: int) -> str:
    """The inverse of `row_number`."""
    return (chr(ord("A") + number // 26 - 1) if number >= 26 else "") + chr(ord("A") + number % 26)


def plate_metadata(
    fields: Counter[str], listed: Collection[str], summary: Mapping[str, Any], version: str
) -> dict[str, Any]:
    """The document `plate` in a version of OME-NGFF.

    fields counts the fields of each well. listed are the wells that readers find.
    Rows and columns are those of the plate in the summary, else from the first to the last one that has a well, so
    that a picture of the plate keeps its gaps.
    """
    places = [_place(well) for well in fields]
    size = _plate_size(summary) or (0, 0)
    rows = range(max([size[0] - 1, *(row for row, _ in places)]) + 1)
    columns = range(1, max([size[1], *(column for _, column in places)]) + 1)
    wells = []
    for well in sorted(listed, key=_place):
        row, column = _place(well)
        wells.append({"path": well, "rowIndex": rows.index(row), "columnIndex": columns.index(column)})
    count = max((fields[well] for well in listed), default=0)
    name = _plate(summary).get("name")
    acquisition = {"id": 0, **({"maximumfieldcount": count} if count else {})}
    return {
        "version": version,
        **({"name": name} if isinstance(name, str) and name else {}),
        "rows": [{"name": row_name(row)} for row in rows],
        "columns": [{"name": str(column)} for column in columns],
        "wells": wells,
        **({"field_count": count} if count else {}),
        "acquisitions": [acquisition],
    }


def well_metadata(fields: int, version: str) -> dict[str, Any]:
    """The document `well` of a well with this number of fields, in a version of OME-NGFF."""
    return {"version": version, "images": [{"path": str(number), "acquisition": 0} for number in range(fields)]}


def _place(well: str) -> tuple[int, int]:
    row, column = well.split("/")
    return row_number(row), int(column)


def _plate(summary: Mapping[str, Any]) -> Mapping[str, Any]:
    """The plate of a serialized plan of useq; {} without one."""
    found: Any = summary
    for key in ("mda_sequence", "stage_positions", "plate"):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _plate_size(summary: Mapping[str, Any]) -> tuple[int, int] | None:
    rows, columns = (_plate(summary).get(key) for key in ("rows", "columns"))
    if type(rows) is int and type(columns) is int and 0 < rows <= MAX_ROWS and 0 < columns <= MAX_COLUMNS:
        return rows, columns
    return None
