"""The XML file that BigDataViewer opens: it lies beside the container and lists its setups and time points.

Source: the file that BigDataViewer itself writes for `bdv.n5`, version 1.0.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from acqstream.arrays.array_spec import ArraySpec
from acqstream.description.space import Place
from acqstream.errors import CorruptDataset
from acqstream.formats.array_members import Numbering
from acqstream.formats.array_note import printable
from acqstream.formats.n5.member_folders import COMPONENT, TIME, setup_number
from acqstream.model.axes import TILE_AXES

SUFFIX = ".xml"
_FORMAT = "bdv.n5"
Transform = tuple[str, list[list[float]]]
"""Name, "" for none, and the three rows of an affine map."""

_CHANNEL_AXES = ("channel", COMPONENT)  # the other axes of setups make up the tile


def xml_name(container_name: str) -> str:
    """Of the XML file of a container: a.n5 has a.xml beside it."""
    return container_name.removesuffix(".n5") + SUFFIX


def make_xml(full: ArraySpec, container_name: str, numbering: Numbering = "rows", image_name: str = "image") -> bytes:
    """The file for a container in layout `bdv` whose full resolution is `full`. image_name: of a single setup."""
    root = ElementTree.Element("SpimData", version="0.2")
    _add(root, "BasePath", ".", type="relative")
    sequence = ElementTree.SubElement(root, "SequenceDescription")
    loader = ElementTree.SubElement(sequence, "ImageLoader", format=_FORMAT, version="1.0")
    _add(loader, "n5", container_name, type="relative")
    _add_setups(sequence, full, numbering, image_name)
    times = full.shape[full.axes.index(TIME)] if TIME in full.axes else 1
    points = ElementTree.SubElement(sequence, "Timepoints", type="range")
    _add(points, "first", "0")
    _add(points, "last", str(max(0, times - 1)))
    _add_missing_views(sequence, full, numbering)
    registrations = ElementTree.SubElement(root, "ViewRegistrations")
    transforms = _stitching_transforms if _has_tiles(full) else _transforms
    for time, (setup, at) in itertools.product(range(max(1, times)), _setups(full, numbering)):
        view = ElementTree.SubElement(registrations, "ViewRegistration", timepoint=str(time), setup=str(setup))
        for name, rows in transforms(full.of_image(at)):
            transform = ElementTree.SubElement(view, "ViewTransform", type="affine")
            if name:
                _add(transform, "Name", name)
            _add(transform, "affine", " ".join(repr(float(number)) for row in rows for number in row))
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="UTF-8", xml_declaration=True)
    return text


def contains_bdv(content: bytes) -> bool:
    """Return True if this is the content of such a file."""
    return _FORMAT.encode() in content


def parse_xml(content: bytes, path: str) -> tuple[str, str, dict[str, Any]]:
    """The base path and the name of the container in the content of a file, and the size of its voxels as attributes.

    path names the file in errors. Raises CorruptDataset.
    """
    try:
        root = ElementTree.fromstring(content)
    except ElementTree.ParseError as error:
        raise CorruptDataset(f"is not an XML text: {error}", path=path) from error
    place = root.find("SequenceDescription/ImageLoader/n5")
    name = (place.text or "").strip() if place is not None else ""
    if not name:
        raise CorruptDataset("names no N5 container", path=path)
    base = (root.findtext("BasePath") or ".").strip() or "."
    voxel = root.find("SequenceDescription/ViewSetups/ViewSetup/voxelSize")
    return base, name, {} if voxel is None else _voxel_attributes(voxel)


def _voxel_attributes(voxel: ElementTree.Element) -> dict[str, Any]:
    """As the attributes of a group would tell it."""
    try:
        size = [float(number) for number in (voxel.findtext("size") or "").split()]
    except ValueError:
        return {}
    unit = (voxel.findtext("unit") or "").strip()
    return {"resolution": size, "units": [unit] * len(size)}


def _add_setups(sequence: ElementTree.Element, full: ArraySpec, numbering: Numbering, image_name: str) -> None:
    parent = ElementTree.SubElement(sequence, "ViewSetups")
    channels: dict[int, str] = {}
    tiles: dict[int, str] = {}
    locations: dict[int, Place] = {}
    for number, at in _setups(full, numbering):
        setup = ElementTree.SubElement(parent, "ViewSetup")
        _add(setup, "id", str(number))
        _add(setup, "name", _name(full, at) or printable(image_name))
        _add(setup, "size", " ".join(str(max(1, size)) for size in reversed(full.shape[-3:])))
        voxel = ElementTree.SubElement(setup, "voxelSize")
        own = full.of_image(at)
        _add(voxel, "unit", _unit(own))
        _add(voxel, "size", _numbers_text(reversed(own.scale[-3:])))
        attributes = ElementTree.SubElement(setup, "attributes")
        _add(attributes, "illumination", "0")
        for kind, named, is_channel in (("channel", channels, True), ("tile", tiles, False)):
            part = {axis: value for axis, value in at.items() if (axis in _CHANNEL_AXES) == is_channel}
            key = setup_number([*part], [full.shape[full.axes.index(axis)] for axis in part], [*part.values()])
            named[key] = _name(full, part) or str(key)
            _add(attributes, kind, str(key))
            place = None if is_channel else full.places.find(at)
            if place is not None:
                locations[key] = place
        _add(attributes, "angle", "0")
    # BigStitcher asks every setup for all four
    for tag, named in (("Illumination", {0: "0"}), ("Channel", channels), ("Tile", tiles), ("Angle", {0: "0"})):
        entries = ElementTree.SubElement(parent, "Attributes", name=tag.lower())
        for key, name in sorted(named.items()):
            entry = ElementTree.SubElement(entries, tag)
            _add(entry, "id", str(key))
            _add(entry, "name", name)
            if tag == "Tile" and key in locations:
                _add(entry, "location", _numbers_text(reversed(locations[key])))


def _add_missing_views(sequence: ElementTree.Element, full: ArraySpec, numbering: Numbering) -> None:
    """Views without a frame: BigDataViewer draws nothing for them, and asks for nothing."""
    time_at = full.axes.index(TIME) if TIME in full.axes else None
    axes = [axis for axis in full.axes[:-3] if axis != TIME]
    shape = [full.shape[full.axes.index(axis)] for axis in axes]
    views = []
    for position in full.absent:
        others = [at for axis, at in zip(full.axes, position, strict=False) if axis != TIME]
        time = 0 if time_at is None else position[time_at]
        views.append((time, setup_number(axes, shape, others, numbering)))
    if views:
        parent = ElementTree.SubElement(sequence, "MissingViews")
        for time, setup in sorted(views):
            ElementTree.SubElement(parent, "MissingView", timepoint=str(time), setup=str(setup))


def _setups(full: ArraySpec, numbering: Numbering) -> Iterator[tuple[int, Mapping[str, int]]]:
    """Every setup: its number, and its position along the axes that make it up."""
    axes = [axis for axis in full.axes[:-3] if axis != TIME]
    shape = [full.shape[full.axes.index(axis)] for axis in axes]
    for position in itertools.product(*map(range, shape)):
        yield setup_number(axes, shape, position, numbering), dict(zip(axes, position, strict=True))


def _name(full: ArraySpec, at: Mapping[str, int]) -> str:
    """Labels of a position, else the axis and its number."""
    parts = []
    for axis, number in at.items():
        labels = full.labels.get(axis, ())
        parts.append(labels[number] if number < len(labels) else f"{axis} {number}")
    return printable(", ".join(parts))


def _unit(full: ArraySpec) -> str:
    """The format knows one for all three axes: that of those which have one, else its own. A distance that is not known
    is 1 of it.
    """
    return next((unit for unit in reversed(full.units[-3:]) if unit), "pixel")


def _transforms(own: ArraySpec) -> list[Transform]:
    """From voxels of a setup to physical units."""
    return [("", _rows(own.scale[-3:], own.translation[-3:]))]


def _stitching_transforms(own: ArraySpec) -> list[Transform]:
    """From voxels of a tile to voxels of its finest side; the last one is applied first.

    BigStitcher fuses into voxels of size 1, and knows the two steps by these names.
    """
    finest = min(own.scale[-3:])
    shift = [place / finest for place in own.translation[-3:]]
    calibration = [size / finest for size in own.scale[-3:]]
    return [("Translation to Regular Grid", _rows((1.0,) * 3, shift)), ("calibration", _rows(calibration, (0.0,) * 3))]


def _rows(scale: Sequence[float], shift: Sequence[float]) -> list[list[float]]:
    """The three rows of an affine map of four numbers, x first. scale and shift are (z, y, x)."""
    return [[*(scale[-1 - row] if column == row else 0.0 for column in range(3)), shift[-1 - row]] for row in range(3)]


def _has_tiles(full: ArraySpec) -> bool:
    return not TILE_AXES.isdisjoint(full.axes)


def _numbers_text(numbers: Iterable[float]) -> str:
    return " ".join(map(repr, map(float, numbers)))


def _add(parent: ElementTree.Element, tag: str, text: str, **attributes: str) -> None:
    ElementTree.SubElement(parent, tag, attributes).text = text
