"""What each face says of an array, read from its documents without our readers: distances, places, looks.

A `Said` has no entry for an axis whose distance the face does not know. Lengths are in um, times in s.
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import json
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import ome_types
import tensorstore
import xarray

import acqstream
from acqstream.cli.main import main
from acqstream.dataset.napari_live import image_layers, widen_ranges
from tests.web.web_process import web_thread

with warnings.catch_warnings(action="ignore"):  # of its own libraries
    from napari.components import ViewerModel
    from napari.layers import Layer

_UM = {"micrometer": 1.0, "um": 1.0, "µm": 1.0, "nm": 1e-3, "nanometer": 1e-3, "m": 1e6}
_S = {"second": 1.0, "s": 1.0}
_AXES = {"t": "time", "x": "x", "y": "y", "z": "z"}


@dataclass
class Said:
    """distances by axis; first: (z, y, x) of the first pixel of the first image, or of the stage; None: not said."""

    distances: dict[str, float] = field(default_factory=dict)
    first: tuple[float, float, float] | None = None
    stage: tuple[float, float] | None = None
    channels: list[str] = field(default_factory=list)
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


def ome_zarr(path: Path) -> list[Said]:
    """Places of images as OME-Zarr finds them: wells and fields of a plate, members of a collection, or the group."""

    def load(group: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = json.loads((path / group / "zarr.json").read_text(encoding="utf-8"))["attributes"]
        return found

    return ome_zarr_images(load)


def ome_zarr_images(load: Callable[[str], Mapping[str, Any]]) -> list[Said]:
    """load: the attributes of a group."""
    top = load("").get("ome", {})
    if "multiscales" in top:
        return [_multiscale(top)]
    if "plate" in top:
        wells = [well["path"] for well in top["plate"]["wells"]]
        groups = [f"{well}/{image['path']}" for well in wells for image in load(well)["ome"]["well"]["images"]]
    else:
        groups = load("OME")["ome"]["series"]
    return [_multiscale(load(group)["ome"]) for group in groups]


def _multiscale(ome: Mapping[str, Any]) -> Said:
    (multiscale,) = ome["multiscales"]
    names = [axis["name"] for axis in multiscale["axes"]]
    scale, translation = multiscale["datasets"][0]["coordinateTransformations"]
    place = dict(zip(names, translation["translation"], strict=True))
    channels = ome["omero"]["channels"]
    return Said(
        _known(names, scale["scale"], [axis.get("unit", "") for axis in multiscale["axes"]]),
        (place.get("z", 0.0), place["y"], place["x"]),
        channels=[channel["label"] for channel in channels],
        colors=[f"#{channel['color'].lower()}" for channel in channels],
        windows=[(channel["window"]["start"], channel["window"]["end"]) for channel in channels],
        highest=channels[0]["window"]["max"],
    )


def bdv_xml(path: Path) -> list[Said]:
    """By the setups of the first channel."""
    root = ElementTree.parse(path.with_suffix(".xml")).getroot()
    channels = [one.findtext("name") or "" for one in root.findall(".//Attributes[@name='channel']/Channel")]
    found = []
    for setup in root.findall("SequenceDescription/ViewSetups/ViewSetup"):
        if int(setup.findtext("attributes/channel") or 0):
            continue
        (registration, *_) = root.findall(f"ViewRegistrations/ViewRegistration[@setup='{setup.findtext('id')}']")
        numbers = [float(number) for number in (registration.findtext("ViewTransform/affine") or "").split()]
        sizes = [float(number) for number in (setup.findtext("voxelSize/size") or "").split()]
        assert sizes == [numbers[0], numbers[5], numbers[10]]
        unit = setup.findtext("voxelSize/unit") or ""
        said = Said(_known(["x", "y", "z"], sizes, [unit] * 3), (numbers[11], numbers[7], numbers[3]))
        said.channels = channels
        found.append(said)
    return found


def n5_multiscale(path: Path) -> list[Said]:
    found = []
    for level in _firsts(path, "s0/attributes.json"):
        transform = json.loads(level.read_text(encoding="utf-8"))["transform"]
        z, y, x = transform["translate"]
        found.append(Said(_known(transform["axes"], transform["scale"], transform["units"]), (z, y, x)))
    return found


def _firsts(path: Path, name: str) -> list[Path]:
    """Files of the first of all other axes, one for each position, in their order."""
    others = re.compile(r"(^|[/_])(t|c|time|channel|dose|camera)0*[1-9]")
    return [one for one in sorted(path.rglob(name)) if not others.search(one.relative_to(path).as_posix())]


def wkw(path: Path) -> list[Said]:
    found = []
    for one in _firsts(path, "datasource-properties.json"):
        document = json.loads(one.read_text(encoding="utf-8"))
        scale, layers = document["scale"], document["dataLayers"]
        views = [layer["defaultViewConfiguration"] for layer in layers if "defaultViewConfiguration" in layer]
        said = Said(_known(["x", "y", "z"], scale["factor"], [scale["unit"]] * 3))
        said.channels = [layer["name"] for layer in layers]
        said.colors = ["#" + bytes(view["color"]).hex() for view in views]
        said.windows = [(view["intensityRange"][0], view["intensityRange"][1]) for view in views]
        said.highest = views[0]["max"] if views else None
        found.append(said)
    return found


def precomputed(path: Path) -> list[Said]:
    found = []
    for one in _firsts(path, "info"):
        store = {"driver": "neuroglancer_precomputed", "kvstore": {"driver": "file", "path": f"{one.parent}/"}}
        x, y, z, _ = tensorstore.open(store).result().dimension_units
        assert x is not None
        assert y is not None
        assert z is not None
        lengths = [(axis.multiplier, axis.base_unit) for axis in (x, y, z)]
        found.append(Said(_known(["x", "y", "z"], [size for size, _ in lengths], [unit for _, unit in lengths])))
    return found


def hdf5(path: Path) -> list[Said]:
    """As xarray reads it."""
    with xarray.open_dataset(path, engine="h5netcdf") as file:
        return array_images(file["image"])


def array_images(array: xarray.DataArray) -> list[Said]:
    """By the coordinates of an array of xarray, one for each position."""
    if "position" not in array.dims:
        return [_coordinates(array)]
    return [_coordinates(array.isel(position=at)) for at in range(array.sizes["position"])]


def _coordinates(array: xarray.DataArray) -> Said:
    said, firsts = Said(), []
    for axis in "zyx":
        name = "z_um" if axis == "z" else axis
        values = array.coords[name].values.ravel() if name in array.coords else np.zeros(0)
        place = array.coords.get(f"position_{axis}_um")
        firsts.append((0.0 if place is None else float(place)) + (float(values[0]) if len(values) else 0.0))
        steps = np.diff(values)
        if len(steps) and array.coords[name].attrs.get("units") == "um" and np.allclose(steps, steps[0], rtol=0.1):
            said.distances[axis] = abs(float(steps[0]))
    said.first = (firsts[0], firsts[1], firsts[2])
    if "time_s" in array.coords and "time" in array.dims:
        measured = array.coords["time_s"].transpose("time", ...)
        said.times = [float(value) for value in measured.values.reshape(array.sizes["time"], -1)[:, 0]]
    names = array.coords.get("channel_name", array.coords.get("channel"))
    if names is not None:
        said.channels = [str(name) for name in names.values]
    return said


def hsds(path: Path) -> list[Said]:
    """The attributes of its dataset, as h5pyd gets them from a server."""
    (document,) = path.rglob(".dataset.json")
    found = {name: one["value"] for name, one in json.loads(document.read_text("utf-8"))["attributes"].items()}
    place = dict(zip(found["axes"], found["translation"], strict=True))
    said = Said(_known(found["axes"], found["scale"], found["units"]))
    said.first = (place.get("z", 0.0), place["y"], place["x"])
    said.highest = found.get("valid_range", [0, None])[1]
    said.channels = found.get("channel labels", [])
    return [said]


def table(path: Path) -> list[Said]:
    """The rows of the first channel and plane, by position."""
    found: dict[str, Said] = {}
    seen = set()
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            said = found.setdefault(row.get("position", ""), Said())
            if said.stage is None and row["stage_x_um"]:
                said.stage = (float(row["stage_x_um"]), float(row["stage_y_um"]))
            if "time" in row and row["time_s"] and (key := (row.get("position"), row["time"])) not in seen:
                seen.add(key)
                said.times = [*(said.times or []), float(row["time_s"])]
    return [*found.values()]


def ome_tiff(path: Path) -> list[Said]:
    """As ome-types parses it."""
    return [_ome_image(image) for image in ome_types.from_tiff(path).images]


def _ome_image(image: Any) -> Said:
    pixels, said = image.pixels, Said()
    for axis in "xyz":
        size = getattr(pixels, f"physical_size_{axis}")
        if size is not None:
            said.distances |= _known([axis], [size], [getattr(pixels, f"physical_size_{axis}_unit").value])
    if pixels.time_increment is not None:
        said.distances["time"] = pixels.time_increment
    said.highest = 2**pixels.significant_bits - 1 if pixels.significant_bits else None
    said.channels = [channel.name for channel in pixels.channels if channel.name]
    said.colors = [f"#{bytes(channel.color.as_rgb_tuple(alpha=False)).hex()}" for channel in pixels.channels]
    planes = pixels.planes
    if planes and planes[0].position_x is not None:
        said.stage = (planes[0].position_x, planes[0].position_y)
    firsts = [plane for plane in planes if plane.the_z == plane.the_c == 0]
    if firsts and all(plane.delta_t is not None for plane in firsts):
        said.times = [plane.delta_t for plane in firsts]
    return said


def reader(path: Path) -> list[Said]:
    """Our own, of the dataset."""
    with acqstream.open(path) as ds:
        level = ds.levels[0]
        place = dict(zip(level.axes, level.translation, strict=True))
        first = (place.get("z", 0.0), place["y"], place["x"])
        if "position" not in level.axes:
            return [Said(_known([*level.axes], [*level.scale], [*level.units]), first)]
        found = []
        for value, own in zip(ds.axes["position"], level.places or itertools.repeat(first), strict=False):
            spacings = [level.spacing_of(axis, value) for axis in level.axes]
            known = _known([*level.axes], [one.step for one in spacings], [one.unit for one in spacings])
            found.append(Said(known, own))
        return found


def info(path: Path) -> list[Said]:
    """What `acqstream info` says."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main(["info", "--json", str(path)])
    scale = json.loads(printed.getvalue())["scale"]
    return [Said(_known([*scale], [size for size, *_ in scale.values()], [unit for _, unit, _ in scale.values()]))]


def to_xarray(path: Path) -> list[Said]:
    with acqstream.open(path) as ds:
        return array_images(ds.to_xarray())


def napari(path: Path) -> list[Said]:
    """As napari takes our layers, without a window."""
    with acqstream.open(path) as ds:
        viewer = ViewerModel()
        widen_ranges(viewer)
        layers = [viewer.add_layer(Layer.create(*layer)) for layer in image_layers(ds)]
        names = list(layers[0].axis_labels)
        said = Said(_known([*names], [*layers[0].scale], [str(unit) for unit in layers[0].units]))
        place = dict(zip(names, layers[0].translate, strict=True))
        said.first = (place.get("z", 0.0), place["y"], place["x"])
        if not layers[0].rgb:
            said.colors = [
                "#" + bytes(round(255 * part) for part in one.colormap.colors[-1][:3]).hex() for one in layers
            ]
            said.windows = [(one.contrast_limits[0], one.contrast_limits[1]) for one in layers]
            said.highest = layers[0].contrast_limits_range[1]
        said.channels = [one.name.removeprefix(path.name).strip() for one in layers]
        return [said]


def web(path: Path) -> list[Said]:
    """The virtual OME-Zarr of a server."""
    with web_thread(path.parent) as site:
        return ome_zarr_images(
            lambda group: json.loads(site.ask(f"/data/{path.name}/ome.zarr/{group}{'/' * bool(group)}zarr.json").body)[
                "attributes"
            ]
        )


def neuroglancer(path: Path) -> list[Said]:
    """The state that a server makes for the dataset."""
    with web_thread(path.parent) as site:
        state = json.loads(site.ask(f"/view/{path.name}/state.json").body)
    said = Said()
    for axis, (size, unit) in state["dimensions"].items():
        factor = {"m": 1e6, "s": 1.0}.get(unit)
        if factor:
            said.distances[_AXES.get(axis, axis)] = size * factor
    for layer in state["layers"]:
        for low, high in re.findall(r"normalized\(range=\[(\S+?),(\S+?)\]", layer.get("shader", "")):
            said.windows.append((float(low), float(high)))
    return [said]


FACES: Mapping[str, tuple[Mapping[str, Any] | str, Callable[[Path], list[Said]]]] = {
    "reader": ("dataset", reader),
    "info": ("dataset", info),
    "xarray": ("dataset", to_xarray),
    "napari": ("dataset", napari),
    "web": ("dataset", web),
    "neuroglancer": ("dataset", neuroglancer),
    "ome-zarr": ({"format": "ome-zarr"}, ome_zarr),
    "n5": ({"format": "n5"}, bdv_xml),
    "n5 multiscale": ({"format": "n5", "layout": "multiscale"}, n5_multiscale),
    "wkw": ({"format": "wkw", "cube": 32}, wkw),
    "precomputed": ({"format": "precomputed"}, precomputed),
    "hsds": ({"format": "hsds", "pixels": "copy"}, hsds),
    "hdf5": ("hdf5", hdf5),
    "table": ("table", table),
    "ome-tiff": ("ome-tiff", ome_tiff),
}
"""The settings of a mirror, the kind of an export, or "dataset"; and what reads it."""
