"""Outer axes as images with time, channel and z: their names, sizes, positions and colours, and the OME-XML of a file.

Source: OME data model, schema 2016-06; OME-TIFF specification, "Storage of planes" (TiffData) and "Sub-resolutions".
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

import numpy as np

from acqstream.arrays.level_layout import LevelAxis, Spacing, X, Y, Z
from acqstream.dataset.dataset import Dataset
from acqstream.dataset.level_array import LevelArray
from acqstream.description.channels import channel_looks
from acqstream.description.image_positions import IMAGE_AXES, position_names
from acqstream.description.space import S_BY_UNIT, UM, UM_BY_UNIT, Place
from acqstream.description.stage import StageReading, stage_reading
from acqstream.errors import UnsupportedFeature
from acqstream.formats.ome_zarr.metadata import find_wells, row_number
from acqstream.model.axes import POSITION, TILE_AXES, AxisValue
from acqstream.model.run_note import RunNote

_ROLES = {"time": "T", "t": "T", "channel": "C", "c": "C", "z": "Z"}
ORDER = "TCZ"
"""Slowest first: OME's DimensionOrder XYZCT."""


@dataclass(frozen=True, slots=True)
class ImageGrid:
    """outer are the axes of the array, slowest first. Those without a role of their own count images."""

    outer: tuple[LevelAxis, ...]

    def axis(self, role: str) -> LevelAxis | None:
        """The axis of a role "T", "C" or "Z"; the first one where several could have it."""
        return next((axis for axis in self.outer if _ROLES.get(axis.name) == role), None)

    def size(self, role: str) -> int:
        """Number of positions along a role; 1 without its axis."""
        axis = self.axis(role)
        return 1 if axis is None else len(axis.values)

    @property
    def image_axes(self) -> tuple[LevelAxis, ...]:
        """The axes that count images, such as `position`."""
        own = [axis.name for role in ORDER if (axis := self.axis(role)) is not None]
        return tuple(axis for axis in self.outer if axis.name not in own)

    def images(self) -> Iterator[tuple[int, ...]]:
        """Positions along `image_axes` of every image, last axis fastest."""
        yield from itertools.product(*(range(len(axis.values)) for axis in self.image_axes))

    def planes(self, image: Sequence[int], order: str = ORDER) -> Iterator[tuple[int, ...]]:
        """Positions of the planes of an image along `outer`, in the order of roles, slowest first."""
        for roles in itertools.product(*(range(self.size(role)) for role in order)):
            at = dict(zip((axis.name for axis in self.image_axes), image, strict=True))
            for role, number in zip(order, roles, strict=True):
                axis = self.axis(role)
                if axis is not None:
                    at[axis.name] = number
            yield tuple(at[axis.name] for axis in self.outer)

    def values(self, image: Sequence[int]) -> dict[str, AxisValue]:
        """The values of an image on `image_axes`."""
        return {axis.name: axis.values[at] for axis, at in zip(self.image_axes, image, strict=True)}


NOTE_NAMESPACE = "acqstream/note"
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
    """An image of `size_t` x `size_z` planes per channel. stage is the position of the stage, (x, y, z) in um.

    pages: number of the page of each plane, in the order t, c, z. well is a path such as "A/1"; planes are those with
    something to say; date is ISO 8601; steps are those of the image alone, as in `OmePixels`.
    """

    name: str
    pages: Sequence[int]
    stage: tuple[float | None, ...] = (None, None, None)
    well: str = ""
    planes: Sequence[OmePlane] = ()
    date: str = ""
    steps: Mapping[str, tuple[float, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OmePixels:
    """What all images of a file share. shape is that of a plane, (Y, X) or (Y, X, 3).

    steps are (distance, unit) along "X", "Y", "Z" and "T"; roles without a known distance are absent. bits are the
    significant ones, 0: all. notes are those on the run.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    size_t: int
    size_z: int
    channels: Sequence[OmeChannel]
    steps: dict[str, tuple[float, str]]
    bits: int = 0
    notes: Sequence[RunNote] = ()

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
    _add_notes(root, pixels.notes)
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
    position = _positions(image.stage, "")
    if position:
        ET.SubElement(element, "StageLabel", {"Name": _plain(image.name), **position})
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
    for first, page, count in _page_runs(image.pages):  # planes without a frame share a page
        line, of_z = divmod(first, pixels.size_z)
        of_time, of_channel = divmod(line, len(pixels.channels))
        data = {"FirstT": of_time, "FirstC": of_channel * samples, "FirstZ": of_z, "IFD": page, "PlaneCount": count}
        ET.SubElement(element, "TiffData", {name: str(value) for name, value in data.items()})
    for plane in image.planes or ([OmePlane((0, 0, 0), image.stage)] if position else []):
        said = _positions(plane.stage, "Position")
        for name, seconds in (("DeltaT", plane.delta_s), ("ExposureTime", plane.exposure_s)):
            if seconds is not None:
                said |= {name: repr(seconds), f"{name}Unit": "s"}
        t, c, z = map(str, plane.at)
        ET.SubElement(element, "Plane", {"TheZ": z, "TheC": c, "TheT": t, **said})


def _add_notes(root: ET.Element, notes: Sequence[RunNote]) -> None:
    """Annotations of the first image: with many images, links of all to all would fill the file."""
    image = root.find("Image")
    if image is None or not notes:
        return
    annotations = ET.SubElement(root, "StructuredAnnotations")
    for number, note in enumerate(notes):
        identity = f"Annotation:{number}"
        ET.SubElement(image, "AnnotationRef", {"ID": identity})
        one = ET.SubElement(annotations, "CommentAnnotation", {"ID": identity, "Namespace": NOTE_NAMESPACE})
        ET.SubElement(one, "Description").text = _plain(note.origin(UTC))
        ET.SubElement(one, "Value").text = _plain(note.content)


def _page_runs(pages: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Runs of pages that follow each other: first plane, its page, number of pages."""
    first = 0
    for at in range(1, len(pages) + 1):
        if at == len(pages) or pages[at] != pages[at - 1] + 1:
            yield first, pages[first], at - first
            first = at


def _positions(stage: Sequence[float | None], prefix: str) -> dict[str, str]:
    """Attributes of a stage position. A unit is always written: that of OME's default is no length."""
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
            index = {"Row": str(row_number(row)), "Column": str(int(column) - 1)}
            well = wells[image.well] = ET.SubElement(plate, "Well", {"ID": f"Well:0:{len(wells)}", **index})
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


_LAST_SECOND = 4e9  # of dates that are believed


def physical_steps(
    dataset: Dataset, grid: ImageGrid, position: AxisValue | None = None
) -> dict[str, tuple[float, str]]:
    """(distance, unit) along "X", "Y", "Z" and "T", of what is known and the same for all neighbours.

    Of a position "Z" and "T" alone, which may be its own.
    """
    source = dataset.levels[0].source
    steps: dict[str, tuple[float, str]] = {}
    for role, name in (("X", X), ("Y", Y)) if position is None else ():
        spacing = source.spacing(name)
        if spacing.unit:
            steps[role] = (spacing.step, spacing.unit)
    for role in "ZT":
        axis = grid.axis(role)
        spacing = Spacing() if axis is None else axis.spacing(source.spacing(axis.name, position))
        if spacing.unit and spacing.step > 0:
            steps[role] = (spacing.step, spacing.unit)
    return steps


def ome_pixels(dataset: Dataset, array: LevelArray, grid: ImageGrid) -> OmePixels:
    """What all images share."""
    known, axis = dataset.channel_looks(), grid.axis("C")
    values = known if axis is None else axis.values
    looks = [known.get(value) or channel_looks([value], dataset.summary_metadata, {})[0] for value in values]
    return OmePixels(
        shape=array.shape[len(array.outer) :],
        dtype=array.dtype,
        size_t=grid.size("T"),
        size_z=grid.size("Z"),
        channels=[OmeChannel(look.name, look.color) for look in looks],
        steps=physical_steps(dataset, grid),
        bits=dataset.levels[0].source.bits,
    )


def ome_images(dataset: Dataset, array: LevelArray, grid: ImageGrid) -> list[OmeImage]:
    """An image for each index on the axes that count images, named after it. Names of wells make a plate.

    Frames say themselves when they were taken and where; of other arrays the stage position of the image is known.
    """
    readings = [(at, stage_reading(meta)) for at, meta in dataset.levels[0].source.metadata(array.layout)]
    planes, begin_s = _planes(readings, array, grid)
    pages = _pages(grid, {at for at, _ in readings})
    axis = next((axis for axis in grid.image_axes if axis.name == POSITION), None)
    names = {} if axis is None else _position_names(dataset, axis)
    stages = _stage_positions(dataset, array)
    wells = dict(zip(names, find_wells(list(names.values()), dataset.summary_metadata), strict=False))
    images = []
    for at in grid.images():
        values = grid.values(at)
        position = values.get(POSITION)
        tile = {name: value for name, value in values.items() if name in IMAGE_AXES}
        others = [f"{name} {value}" for name, value in values.items() if name != POSITION]
        own = [] if position is None else [names[position]]
        name = ", ".join([*own, *others]) or dataset.levels[0].source.title
        well = "" if position is None else wells.get(position, "")
        steps = {} if position is None else physical_steps(dataset, grid, position)
        own_planes = planes.get(at, [])
        if own_planes:
            images.append(OmeImage(name, pages[at], own_planes[0].stage, well, own_planes, _date(begin_s), steps))
            continue
        stage = stages.get(position) if TILE_AXES.isdisjoint(tile) else dataset.levels[0].place_of(**tile)
        images.append(OmeImage(name, pages[at], _middle(stage, dataset, array), well, steps=steps))
    return images


def _pages(grid: ImageGrid, stored: Set[tuple[int, ...]]) -> dict[tuple[int, ...], list[int]]:
    """Number of the page of each plane, by position of its image. Missing frames of an image share a blank page.

    stored: positions of frames; of arrays, which have none, each plane is stored. Bio-Formats refuses or scrambles
    files where a plane has no page; tifffile refuses pages that images share.
    """
    pages: dict[tuple[int, ...], list[int]] = {}
    count = 0
    for image in grid.images():
        frames = [at if not stored or at in stored else None for at in grid.planes(image)]
        numbers = {frame: number for number, frame in enumerate(dict.fromkeys(frames), count)}
        pages[image] = [numbers[frame] for frame in frames]
        count += len(numbers)
    return pages


def _planes(
    readings: Sequence[tuple[tuple[int, ...], StageReading]], array: LevelArray, grid: ImageGrid
) -> tuple[dict[tuple[int, ...], list[OmePlane]], float | None]:
    """Planes by position of their image, each image's in order, and when the first was captured, in s since 1970."""
    captures = [seen.capture_s for _, seen in readings if seen.capture_s is not None]
    begin_s = min(captures, default=None)
    names = [axis.name for axis in array.outer]
    roles = [names.index(axis.name) if (axis := grid.axis(role)) is not None else None for role in ORDER]
    image_axes = [names.index(axis.name) for axis in grid.image_axes]
    found: dict[tuple[int, ...], list[OmePlane]] = {}
    for at, seen in sorted(readings, key=lambda reading: reading[0]):
        delta_s = seen.time_s
        if delta_s is None and seen.capture_s is not None and begin_s is not None:
            delta_s = round(seen.capture_s - begin_s, 9)
        exposure_s = None if seen.exposure_ms is None else seen.exposure_ms / 1000
        t, c, z = (0 if axis is None else at[axis] for axis in roles)
        plane = OmePlane((t, c, z), (seen.x_um, seen.y_um, seen.z_um), delta_s, exposure_s)
        if plane != OmePlane(plane.at):
            found.setdefault(tuple(at[axis] for axis in image_axes), []).append(plane)
    return found, begin_s


def _date(capture_s: float | None) -> str:
    if capture_s is None or not 0 <= capture_s < _LAST_SECOND:
        return ""
    return datetime.fromtimestamp(capture_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _middle(stage: Place | None, dataset: Dataset, array: LevelArray) -> tuple[float | None, ...]:
    """(x, y, z) of the middle of an image whose first item lies at (z, y, x)."""
    if stage is None:
        return (None, None, None)
    source, (height, width) = dataset.levels[0].source, array.shape[len(array.outer) :][:2]
    y, x = ((count - 1) / 2 * source.spacing(name).step for count, name in ((height, Y), (width, X)))
    return round(stage[2] + x, 6), round(stage[1] + y, 6), stage[0]


def _stage_positions(dataset: Dataset, array: LevelArray) -> dict[AxisValue | None, Place]:
    """Places of the first pixels of `array` by value of `position`; of None for a dataset without positions."""
    level = dataset.levels[0]
    z, y, x = (level.source.spacing(name) for name in (Z, Y, X))
    if x.unit != UM or y.unit != UM:
        return {}
    planes = next((axis.numbers for axis in array.outer if axis.name == Z), None)
    first_z = planes[0] * z.step if planes and z.unit == UM else 0.0
    first_y, first_x = (first * step for first, step in zip(array.layout.origin, (y.step, x.step), strict=True))
    values = level.axis_values().get(POSITION)
    found: dict[AxisValue | None, Place | None] = dict(zip(values or (), level.places, strict=False))
    if values is None and any(spacing.start for spacing in (z, y, x)):  # 0 where the position of the stage is unknown
        found[None] = (z.start if z.unit == UM else 0.0, y.start, x.start)
    return {
        value: (stage[0] + first_z, stage[1] + first_y, stage[2] + first_x)
        for value, stage in found.items()
        if stage is not None
    }


def _position_names(dataset: Dataset, axis: LevelAxis) -> dict[AxisValue, str]:
    """Names of positions by value: texts themselves, labels, names in the summary, or "position 3"."""
    listed = position_names(dataset.summary_metadata)
    labels = dict(zip(axis.values, _labelled(dataset, axis), strict=True))
    found: dict[AxisValue, str] = {}
    for value in axis.values:
        label = labels[value]
        if isinstance(label, int):
            label = listed[label] if 0 <= label < len(listed) else f"{POSITION} {label}"
        found[value] = str(label)
    return found


def _labelled(dataset: Dataset, axis: LevelAxis) -> Sequence[AxisValue]:
    """The values of a part of an axis, or their labels where the format has them."""
    level = dataset.levels[0]
    labels = level.labels.get(axis.name, ())
    values = level.axis_values().get(axis.name, ())
    if len(labels) != len(values):
        return list(axis.values)
    by_value = dict(zip(values, labels, strict=True))
    return [by_value.get(value, value) for value in axis.values]
