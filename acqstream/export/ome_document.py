"""The OME-XML of a file: images, channels, physical sizes, places, a plate. Pure.

Source: OME data model, schema 2016-06; OME-TIFF specification, "Storage of planes" (TiffData) and "Sub-resolutions".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from xml.etree import ElementTree as ET

import numpy as np

from acqstream.arrays.frame_space import S_BY_UNIT, UM_BY_UNIT
from acqstream.errors import UnsupportedFeature
from acqstream.formats.ome_zarr.metadata import row_number

NAMESPACE = "http://www.openmicroscopy.org/Schemas/OME/2016-06"
_TYPES = {
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "uint8": "uint8",
    "uint16": "uint16",
    "uint32": "uint32",
    "float32": "float",
    "float64": "double",
}
_UM = "\u00b5m"  # readers ignore units: lengths are in um, times in s
_NOT_IN_XML = re.compile("[^\\t\\n\\r\\u0020-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")


@dataclass(frozen=True, slots=True)
class OmeChannel:
    """color is #rrggbb."""

    name: str
    color: str


@dataclass(frozen=True, slots=True)
class OmePlane:
    """What the frame of a plane says of itself. at: (t, c, z); None for what it does not say.

    stage: (x, y, z) of the stage in um, of the middle of the image. delta_s: since the start of the run.
    """

    at: tuple[int, int, int]
    stage: tuple[float | None, ...] = (None, None, None)
    delta_s: float | None = None
    exposure_s: float | None = None


@dataclass(frozen=True, slots=True)
class OmeImage:
    """An image of `size_t` x `size_z` planes per channel. place is that of the stage, (x, y, z) in um.

    pages: number of the page of each plane, in the order t, c, z. well is a path such as "A/1"; planes are those with
    something to say; date is ISO 8601; steps are those of the image alone, as in `OmePixels`.
    """

    name: str
    pages: Sequence[int]
    place: tuple[float | None, ...] = (None, None, None)
    well: str = ""
    planes: Sequence[OmePlane] = ()
    date: str = ""
    steps: Mapping[str, tuple[float, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OmePixels:
    """What all images of a file share. shape is that of a plane, (Y, X) or (Y, X, 3).

    steps are (distance, unit) along "X", "Y", "Z" and "T"; roles without a known distance are absent. bits are the
    significant ones, 0: all.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    size_t: int
    size_z: int
    channels: Sequence[OmeChannel]
    steps: dict[str, tuple[float, str]]
    bits: int = 0

    @property
    def plane_count(self) -> int:
        """Planes of one image."""
        return self.size_t * self.size_z * len(self.channels)


def ome_xml(images: Sequence[OmeImage], pixels: OmePixels, creator: str) -> bytes:
    """The document in UTF-8. Character references such as &#181; would be ASCII, but Bio-Formats destroys them.

    Raises UnsupportedFeature for a dtype without a name in OME.
    """
    root = ET.Element("OME", {"xmlns": NAMESPACE, "Creator": creator})
    if images and all(image.well for image in images):
        _add_plate(root, images)
    for number, image in enumerate(images):
        _add_image(root, number, image, pixels)
    text: bytes = ET.tostring(root, "utf-8", xml_declaration=False)
    return b'<?xml version="1.0" encoding="UTF-8"?>' + text


def pixel_type(dtype: np.dtype[np.generic]) -> str:
    """OME's name of a dtype. Raises UnsupportedFeature."""
    try:
        return _TYPES[dtype.name]
    except KeyError:
        raise UnsupportedFeature(f"OME-TIFF has no pixels of dtype {dtype}; it has {', '.join(_TYPES)}") from None


def _add_image(root: ET.Element, number: int, image: OmeImage, pixels: OmePixels) -> None:
    element = ET.SubElement(root, "Image", {"ID": f"Image:{number}", "Name": _plain(image.name)})
    if image.date:
        ET.SubElement(element, "AcquisitionDate").text = image.date
    place = _positions(image.place, "")
    if place:
        ET.SubElement(element, "StageLabel", {"Name": _plain(image.name), **place})
    samples = pixels.shape[2] if len(pixels.shape) > 2 else 1
    attributes = {
        "ID": f"Pixels:{number}",
        "DimensionOrder": "XYZCT",
        "Type": pixel_type(pixels.dtype),
        "BigEndian": "false",
        "SizeX": str(pixels.shape[1]),
        "SizeY": str(pixels.shape[0]),
        "SizeZ": str(pixels.size_z),
        "SizeC": str(len(pixels.channels) * samples),
        "SizeT": str(pixels.size_t),
    }
    if samples > 1:
        attributes["Interleaved"] = "true"
    if pixels.bits:
        attributes["SignificantBits"] = str(pixels.bits)
    for role, (distance, unit) in {**pixels.steps, **image.steps}.items():
        factors, own = (S_BY_UNIT, "s") if role == "T" else (UM_BY_UNIT, _UM)
        name = "TimeIncrement" if role == "T" else f"PhysicalSize{role}"
        if unit in factors and distance > 0:
            attributes |= {name: repr(float(f"{distance * factors[unit]:.12g}")), f"{name}Unit": own}
    element = ET.SubElement(element, "Pixels", attributes)
    for at, channel in enumerate(pixels.channels):
        names = {"Name": _plain(channel.name)} if channel.name else {}
        color = {"Color": _color(channel.color)} if samples == 1 else {}  # with one, ImageJ shows RGB in grey
        identity = {"ID": f"Channel:{number}:{at}", "SamplesPerPixel": str(samples)}
        ET.SubElement(element, "Channel", {**identity, **color, **names})
    for first, page, count in _runs(image.pages):  # planes without a frame share a page
        line, of_z = divmod(first, pixels.size_z)
        of_time, of_channel = divmod(line, len(pixels.channels))
        data = {"FirstT": of_time, "FirstC": of_channel * samples, "FirstZ": of_z, "IFD": page, "PlaneCount": count}
        ET.SubElement(element, "TiffData", {name: str(value) for name, value in data.items()})
    for plane in image.planes or ([OmePlane((0, 0, 0), image.place)] if place else []):
        said = _positions(plane.stage, "Position")
        for name, seconds in (("DeltaT", plane.delta_s), ("ExposureTime", plane.exposure_s)):
            if seconds is not None:
                said |= {name: repr(seconds), f"{name}Unit": "s"}
        t, c, z = map(str, plane.at)
        ET.SubElement(element, "Plane", {"TheZ": z, "TheC": c, "TheT": t, **said})


def _runs(pages: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Runs of pages that follow each other: first plane, its page, number of pages."""
    first = 0
    for at in range(1, len(pages) + 1):
        if at == len(pages) or pages[at] != pages[at - 1] + 1:
            yield first, pages[first], at - first
            first = at


def _positions(stage: Sequence[float | None], prefix: str) -> dict[str, str]:
    """Attributes of a place on the stage. A unit is always written: that of OME's default is no length."""
    known = [(axis, um) for axis, um in zip("XYZ", stage, strict=True) if um is not None]
    return {
        name: value
        for axis, um in known
        for name, value in ((f"{prefix}{axis}", repr(um)), (f"{prefix}{axis}Unit", _UM))
    }


def _add_plate(root: ET.Element, images: Sequence[OmeImage]) -> None:
    naming = {"RowNamingConvention": "letter", "ColumnNamingConvention": "number"}
    plate = ET.SubElement(root, "Plate", {"ID": "Plate:0", **naming})
    wells: dict[str, ET.Element] = {}
    counts: dict[str, int] = {}
    for number, image in enumerate(images):
        well = wells.get(image.well)
        if well is None:
            row, column = image.well.split("/")
            place = {"Row": str(row_number(row)), "Column": str(int(column) - 1)}
            well = wells[image.well] = ET.SubElement(plate, "Well", {"ID": f"Well:0:{len(wells)}", **place})
        site = counts[image.well] = counts.get(image.well, -1) + 1
        identity = f"WellSample:0:{list(wells).index(image.well)}:{site}"
        sample = ET.SubElement(well, "WellSample", {"ID": identity, "Index": str(number)})
        ET.SubElement(sample, "ImageRef", {"ID": f"Image:{number}"})


def _color(color: str) -> str:
    """OME's color, a signed integer of the bytes red, green, blue, alpha."""
    value = (int(color[1:], 16) << 8) | 0xFF
    return str(value - 2**32 if value >= 2**31 else value)


def _plain(text: str) -> str:
    """The text without characters that XML 1.0 lacks."""
    return _NOT_IN_XML.sub("", text)
