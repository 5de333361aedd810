"""Positions with plans of their own: each image says its own z step and interval, in every face that has images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import tifffile

import acqstream
from acqstream.arrays.level_layout import Spacing
from acqstream.model.acquisition_spec import AxisSpec
from tests.export.sample_exports import export
from tests.log.make_frames import frame_of, write_log
from tests.mirrors.mirror_cases import finish, places_of, run_of

SIZES, NAMES = {"time": 4, "z": 3}, ["A", "B", "C"]
STEPS, INTERVALS = {"A": 0.5, "B": 1.5}, {"A": 5.0, "B": 20.0}
STARTS = {"A": 7.0, "B": 30.0, "C": 0.0}


def said(place: dict[str, Any]) -> dict[str, Any]:
    """C shows neither: it moved unevenly."""
    name, time, z = place["position"], place["time"], place["z"]
    time_s = INTERVALS.get(name, 0.0) * time + (name == "B") + (time**2 if name == "C" else 0)
    z_um = STARTS[name] + STEPS.get(name, 0.0) * z + (z**2 if name == "C" else 0)
    stage = {"ZPositionUm": z_um, "XPositionUm": 10.0, "YPositionUm": 0.0}
    return {"PixelSizeUm": 0.5, "ElapsedTime-ms": time_s * 1000, **stage}


def write(path: Path, **options: Any) -> Path:
    places = places_of(("time", "position", "z"), SIZES, {"position": NAMES})
    write_log(path, [frame_of(n, (20, 30), axes=at, metadata=said(at)) for n, at in enumerate(places)], **options)
    return path


def mirror(tmp_path: Path, settings: dict[str, Any]) -> Path:
    write(tmp_path / "cells")
    finish(run_of(tmp_path / "cells", {**settings, "levels": 2}, settings["format"]))
    (path,) = (one for one in tmp_path.iterdir() if one.is_dir() and one.name != "cells" and ".view" not in one.name)
    return path


def check(path: Path) -> None:
    with acqstream.open(path) as ds:
        level = ds.levels[0]
        by_axis = dict(zip(level.axes, zip(level.scale, level.units, strict=True), strict=True))
        assert (by_axis["z"], by_axis["time"]) == ((1.0, ""), (1.0, ""))
        for name, step in STEPS.items():
            assert level.spacing_of("z", name) == Spacing(STARTS[name], step, "um")
            assert level.spacing_of("time", name) == Spacing(float(name == "B"), INTERVALS[name], "s")
        assert level.spacing_of("z", "C").unit == ""
        z_um = ds.to_xarray().coords["z_um"].transpose("position", "z").sel(position=["A", "B"])
        np.testing.assert_allclose(z_um, [[7, 7.5, 8], [30, 31.5, 33]])
        assert set(ds.to_xarray().coords["time_s"].dims) == {"time", "position"}


def test_the_reader(tmp_path: Path) -> None:
    pytest.importorskip("xarray")
    check(write(tmp_path / "cells"))
    with acqstream.open(tmp_path / "cells") as ds:
        assert [place and place[0] for place in ds.levels[0].places[:2]] == [7.0, 30.0]


MIRRORS = [
    *({"format": name} for name in ("ome-zarr", "n5", "wkw", "precomputed")),
    {"format": "n5", "layout": "array"},
]


@pytest.mark.parametrize("settings", MIRRORS, ids=str)
def test_our_reader_gives_them_back_from_a_mirror(tmp_path: Path, settings: dict[str, Any]) -> None:
    pytest.importorskip("xarray")
    check(mirror(tmp_path, settings))


def test_ome_zarr(tmp_path: Path) -> None:
    path = mirror(tmp_path, {"format": "ome-zarr"})
    for number, name in enumerate(("A", "B")):
        document = json.loads((path / str(number) / "zarr.json").read_text())["attributes"]["ome"]["multiscales"][0]
        axes = [axis["name"] for axis in document["axes"]]
        units = {axis["name"]: axis.get("unit") for axis in document["axes"]}
        assert (units["z"], units["t"]) == ("micrometer", "second")
        for level in document["datasets"]:
            scale, move = level["coordinateTransformations"]
            at = dict(zip(axes, zip(scale["scale"], move["translation"], strict=True), strict=True))
            assert (at["z"], at["t"]) == ((STEPS[name], STARTS[name]), (INTERVALS[name], float(name == "B")))


def test_n5(tmp_path: Path) -> None:
    root = ElementTree.parse(mirror(tmp_path, {"format": "n5"}).with_suffix(".xml")).getroot()
    sizes = [one.text for one in root.findall("SequenceDescription/ViewSetups/ViewSetup/voxelSize/size")]
    affines = [one.text or "" for one in root.findall("ViewRegistrations/ViewRegistration/ViewTransform/affine")]
    assert sizes == ["0.5 0.5 0.5", "0.5 0.5 1.5", "0.5 0.5 1.0"]
    assert [one.split()[10:] for one in affines[:2]] == [["0.5", "7.0"], ["1.5", "30.0"]]


def test_n5_multiscale(tmp_path: Path) -> None:
    path = mirror(tmp_path, {"format": "n5", "layout": "multiscale"})
    found = {json.loads(file.read_text())["transform"]["scale"][0] for file in path.rglob("s0/attributes.json")}
    assert found == {0.5, 1.5, 1.0}


@pytest.mark.parametrize(("name", "expected"), [("wkw", {0.5, 1.5, 1.0}), ("precomputed", {500, 1500, 1})])
def test_a_folder_for_each_image(tmp_path: Path, name: str, expected: set[float]) -> None:
    found: dict[float, set[str]] = {}
    for file in mirror(tmp_path, {"format": name}).rglob("datasource-properties.json" if name == "wkw" else "info"):
        value = json.loads(file.read_text())
        size = value["scale"]["factor"] if name == "wkw" else value["scales"][0]["resolution"]
        found.setdefault(size[2], set()).add(str(file.parent))
    assert {size: len(files) for size, files in found.items()} == dict.fromkeys(expected, SIZES["time"])


def test_ome_tiff(tmp_path: Path) -> None:
    report = export(write(tmp_path / "cells"), "ome-tiff")
    with tifffile.TiffFile(report.path) as file:
        root = ElementTree.fromstring(file.ome_metadata or "")
    found = [(one.get("PhysicalSizeZ"), one.get("TimeIncrement")) for one in root.iterfind(".//{*}Pixels")]
    assert found == [("0.5", "5.0"), ("1.5", "20.0"), (None, None)]


def test_hdf5(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(export(write(tmp_path / "cells"), "hdf5").path) as file:
        z_um = file["z_um"]
        assert [dim[0].name for dim in z_um.dims] == ["/position", "/z"]
        np.testing.assert_allclose(z_um[:2], [[7, 7.5, 8], [30, 31.5, 33]])


def test_what_was_declared_is_that_of_all_and_a_wish_is_doubted(tmp_path: Path) -> None:
    write(tmp_path / "declared", axes=(AxisSpec("z", 3, "um", 2.0),))
    write(tmp_path / "wished", summary={"z-step_um": 0.5})
    with acqstream.open(tmp_path / "declared") as ds, acqstream.open(tmp_path / "wished") as other:
        assert ds.levels[0].spacing_of("z", "B")[1:] == (2.0, "um")
        assert other.levels[0].spacing_of("z", "B")[1:] == (1.5, "um")
        assert (
            "along z the summary says 0.5 um, the frames differ between positions" in other.levels[0].source.doubts[0]
        )


def test_positions_with_other_channels_and_against_the_direction(tmp_path: Path) -> None:
    """Places along z have one direction: a stack that runs against it has no distance."""
    plans = {"A": ("DAPI", 0.5), "B": ("GFP", 1.5), "C": ("GFP", -1.0)}
    places: list[dict[str, Any]] = [
        {"position": name, "channel": channel, "z": z} for name, (channel, _) in plans.items() for z in range(3)
    ]
    said_z = [{"ZPositionUm": plans[at["position"]][1] * at["z"]} for at in places]
    write_log(tmp_path / "cells", [frame_of(n, axes=at, metadata=said_z[n]) for n, at in enumerate(places)])
    with acqstream.open(tmp_path / "cells") as ds:
        found = [ds.levels[0].spacing_of("z", name)[1:] for name in plans]
    assert found == [(0.5, "um"), (1.5, "um"), (1.0, "")]
