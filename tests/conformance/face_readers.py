"""What each face says of an array, read from its documents without our readers: distances, places, looks.

A `Said` has no entry for an axis whose distance the face does not know. Lengths are in um, times in s.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import h5py
import tifffile

OME = "{http://www.openmicroscopy.org/Schemas/OME/2016-06}"
_UM = {"micrometer": 1.0, "um": 1.0, "µm": 1.0, "nm": 1e-3, "nanometer": 1e-3}
_S = {"second": 1.0, "s": 1.0}
_AXES = {"t": "time", "x": "x", "y": "y", "z": "z"}


@dataclass
class Said:
    """distances by axis; first: (z, y, x) of the first pixel of the first image, or of the stage; None: not said."""

    distances: dict[str, float] = field(default_factory=dict)
    first: tuple[float, float, float] | None = None
    stage: tuple[float, float] | None = None
    colors: list[str] = field(default_factory=list)
    windows: list[tuple[float, float]] = field(default_factory=list)
    highest: float | None = None
    times: list[float] | None = None


def _known(names: list[str], scale: list[float], units: list[str]) -> dict[str, float]:
    found = {}
    for name, size, unit in zip(names, scale, units, strict=True):
        factor = _UM.get(unit) or _S.get(unit)
        if factor is not None:
            found[_AXES.get(name, name)] = size * factor
    return found


def ome_zarr(path: Path) -> Said:
    folder = path if "multiscales" in _attributes(path).get("ome", {}) else path / "0"
    ome = _attributes(folder)["ome"]
    (multiscale,) = ome["multiscales"]
    names = [axis["name"] for axis in multiscale["axes"]]
    scale, translation = multiscale["datasets"][0]["coordinateTransformations"]
    place = dict(zip(names, translation["translation"], strict=True))
    channels = ome["omero"]["channels"]
    return Said(
        _known(names, scale["scale"], [axis.get("unit", "") for axis in multiscale["axes"]]),
        (place.get("z", 0.0), place["y"], place["x"]),
        colors=[f"#{channel['color'].lower()}" for channel in channels],
        windows=[(channel["window"]["start"], channel["window"]["end"]) for channel in channels],
        highest=channels[0]["window"]["max"],
    )


def _attributes(folder: Path) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads((folder / "zarr.json").read_text(encoding="utf-8"))["attributes"]
    return found


def bdv_xml(path: Path) -> Said:
    root = ElementTree.parse(path.with_suffix(".xml")).getroot()
    voxel = root.find("SequenceDescription/ViewSetups/ViewSetup/voxelSize")
    affine = root.findtext("ViewRegistrations/ViewRegistration/ViewTransform/affine")
    assert voxel is not None
    assert affine is not None
    numbers = [float(number) for number in affine.split()]
    sizes = [float(number) for number in (voxel.findtext("size") or "").split()]
    assert sizes == [numbers[0], numbers[5], numbers[10]]
    unit = voxel.findtext("unit") or ""
    return Said(_known(["x", "y", "z"], sizes, [unit] * 3), (numbers[11], numbers[7], numbers[3]))


def n5_multiscale(path: Path) -> Said:
    level = next(iter(sorted(path.rglob("s0/attributes.json"))))
    transform = json.loads(level.read_text(encoding="utf-8"))["transform"]
    z, y, x = transform["translate"]
    return Said(_known(transform["axes"], transform["scale"], transform["units"]), (z, y, x))


def wkw(path: Path) -> Said:
    (first, *_) = sorted(path.rglob("datasource-properties.json"))
    document = json.loads(first.read_text(encoding="utf-8"))
    scale, views = document["scale"], [layer["defaultViewConfiguration"] for layer in document["dataLayers"]]
    return Said(
        _known(["x", "y", "z"], scale["factor"], [scale["unit"]] * 3),
        colors=["#" + bytes(view["color"]).hex() for view in views],
        windows=[(view["intensityRange"][0], view["intensityRange"][1]) for view in views],
        highest=views[0]["max"],
    )


def precomputed(path: Path) -> Said:
    (first, *_) = sorted(path.rglob("info"))
    x, y, z = json.loads(first.read_text(encoding="utf-8"))["scales"][0]["resolution"]
    return Said(_known(["x", "y", "z"], [x, y, z], ["nm"] * 3))


def hdf5(path: Path) -> Said:
    said = Said()
    with h5py.File(path) as file:
        for name in ("x", "y"):
            values = file[name][:]
            if file[name].attrs.get("units"):
                said.distances[name] = float(values[1] - values[0])
        if "z_um" in file and len(file["z_um"]) > 1:
            said.distances["z"] = float(file["z_um"][1] - file["z_um"][0])
        if "time_s" in file:
            said.times = [float(value) for value in file["time_s"][:].reshape(len(file["time"]), -1)[:, 0]]
        said.first = (float(file["z_um"][0]) if "z_um" in file else 0.0, float(file["y"][0]), float(file["x"][0]))
    return said


def ome_tiff(path: Path) -> Said:
    with tifffile.TiffFile(path) as file:
        root = ElementTree.fromstring(file.ome_metadata or "")
    image = root.find(f"{OME}Image")
    pixels = image.find(f"{OME}Pixels") if image is not None else None
    assert pixels is not None
    given = pixels.attrib
    said = Said()
    for axis in "XYZ":
        if f"PhysicalSize{axis}" in given:
            unit = given[f"PhysicalSize{axis}Unit"]
            said.distances |= _known([axis.lower()], [float(given[f"PhysicalSize{axis}"])], [unit])
    if "TimeIncrement" in given:
        said.distances["time"] = float(given["TimeIncrement"])
    bits = given.get("SignificantBits")
    said.highest = 2 ** int(bits) - 1 if bits else None
    for channel in pixels.findall(f"{OME}Channel"):
        color = channel.get("Color")
        said.colors += [] if color is None else [f"#{(int(color) >> 8) & 0xFFFFFF:06x}"]
    planes = pixels.findall(f"{OME}Plane")
    if planes and "PositionX" in planes[0].attrib:
        said.stage = (float(planes[0].attrib["PositionX"]), float(planes[0].attrib["PositionY"]))
    firsts = [plane for plane in planes if plane.attrib["TheZ"] == plane.attrib["TheC"] == "0"]
    if firsts and all("DeltaT" in plane.attrib for plane in firsts):
        said.times = [float(plane.attrib["DeltaT"]) for plane in firsts]
    return said


FACES: Mapping[str, tuple[Mapping[str, Any] | str, Callable[[Path], Said]]] = {
    "ome-zarr": ({"format": "ome-zarr"}, ome_zarr),
    "n5": ({"format": "n5"}, bdv_xml),
    "n5 multiscale": ({"format": "n5", "layout": "multiscale"}, n5_multiscale),
    "wkw": ({"format": "wkw", "cube": 32}, wkw),
    "precomputed": ({"format": "precomputed"}, precomputed),
    "hdf5": ("hdf5", hdf5),
    "ome-tiff": ("ome-tiff", ome_tiff),
}
"""The settings of a mirror, or the kind of an export, and what reads it."""
