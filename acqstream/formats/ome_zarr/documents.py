"""The documents of a container: groups, arrays and lists of images. Pure.

Sources: Zarr v3 core; OME-NGFF 0.5, "multiscales", "omero" and "bioformats2raw.layout".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from acqstream.arrays.array_spec import ArraySpec
from acqstream.formats.array_note import plain_value
from acqstream.formats.ome_zarr.axes import CHANNEL, SAMPLE, image_axis
from acqstream.formats.ome_zarr.channels import omero_channels
from acqstream.formats.ome_zarr.zarr_json import DOCUMENT_NAME

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


def series(numbers: Sequence[int]) -> dict[str, Any]:
    """The document of the group that lists the images."""
    return group({"series": [str(number) for number in numbers]})


def ome_xml(images: Sequence[tuple[str, ArraySpec]]) -> bytes:
    """`METADATA.ome.xml`: names and sizes of the images, each a level with the axes of an image.

    Source: OME data model 2016-06.
    """
    root = ElementTree.Element("OME", xmlns=_OME_XML)
    for number, (name, full) in enumerate(images):
        sizes = dict(zip(full.axes, full.shape, strict=True))
        image = ElementTree.SubElement(root, "Image", ID=f"Image:{number}", Name=_printable(name))
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


def _printable(text: str) -> str:
    return "".join(sign if sign.isprintable() else "?" for sign in text)  # XML has no control characters
