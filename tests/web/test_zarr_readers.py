"""Virtual datasets as zarr-python 3 (fsspec, obstore), xarray, dask and cloud-volume read them over HTTP."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.log.make_frames import write_log
from tests.mirrors.mirror_cases import frames_at, places_of
from tests.oracles.webknossos_package import PYTHON, needs_environment
from tests.web.virtual_cases import CASES, SUMMARY
from tests.web.web_process import Site, web_thread

pytestmark = [pytest.mark.oracle, needs_environment("zarr-python 3")]
PROGRAM = Path(__file__).with_name("zarr_readers_program.py")
NAMES = ("five axes", "colour", "levels", "pieces")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    data = tmp_path_factory.mktemp("web") / "data"
    data.mkdir()
    for name in NAMES:
        write_log(data / name.replace(" ", "_"), CASES[name].frames, summary=SUMMARY, memory_bytes=2**24)
    with web_thread(data) as site:
        yield site


def ask(reader: str, url: str, folder: Path) -> tuple[NDArray[Any], dict[str, Any]]:
    """The array that a reader gives, and what it tells."""
    out = folder / "array.npy"
    command = [str(PYTHON), "-I", "-W", "ignore", str(PROGRAM), reader, url, str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr[-3000:]
    return np.load(out), json.loads(done.stdout)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("layout", ["ome.zarr", "v2.ome.zarr"])
def test_zarr_python(site, tmp_path, name, layout):
    found, told = ask("fsspec", f"{site.url}/data/{name.replace(' ', '_')}/{layout}", tmp_path)
    assert np.array_equal(found, CASES[name].array)
    if name == "five axes" and layout == "ome.zarr":
        assert told["names"] == ["t", "c", "z", "y", "x"]


@pytest.mark.parametrize("reader", ["obstore", "dask"])
def test_other_ways_to_zarr(site, tmp_path, reader):
    found, _ = ask(reader, f"{site.url}/data/five_axes/ome.zarr", tmp_path)
    assert np.array_equal(found, CASES["five axes"].array)


def test_xarray_sees_axes_coordinates_and_units(site, tmp_path):
    found, told = ask("xarray", f"{site.url}/data/five_axes/xarray.zarr", tmp_path)
    assert told["dims"] == ["time", "channel", "z", "y", "x"]
    assert np.array_equal(found, CASES["five axes"].array)
    assert told["coords"]["channel"] == ["DAPI", "GFP"]
    assert told["coords"]["time"] == [0, 1, 2]
    assert told["coords"]["z"] == [0.0, 2.0, 4.0, 6.0]
    assert told["coords"]["x"][:3] == [0.0, 0.5, 1.0]
    assert told["units"] == {"time": "", "channel": "", "z": "um", "y": "um", "x": "um"}
    assert "PixelSize_um" in told["attributes"]


def test_xarray_sees_colours_last(site, tmp_path):
    found, told = ask("xarray", f"{site.url}/data/colour/xarray.zarr", tmp_path)
    assert told["dims"] == ["time", "z", "y", "x", "c"]
    assert told["coords"]["c"] == ["R", "G", "B"]
    expected = np.stack([frame.image for frame in CASES["colour"].frames])
    assert np.array_equal(found.reshape(expected.shape), expected)


@pytest.mark.parametrize(("layout", "version"), [("ome.zarr", "v05"), ("v2.ome.zarr", "v04")])
def test_a_plate_is_one_for_its_validator(tmp_path, layout, version):
    places = places_of(("time", "position"), {"time": 2, "position": 3})
    frames = frames_at(places, (20, 34))
    (tmp_path / "data").mkdir()
    write_log(tmp_path / "data" / "cells", frames, summary={"PositionNames": ["B2_0", "B2_1", "C3"]})
    with web_thread(tmp_path / "data") as site:
        found, told = ask("plate", f"{site.url}/data/cells/{layout}", tmp_path)
    assert told["models"] == ["HCS", "Well", "Image"]
    assert all(f".{version}." in name for name in told["modules"])
    assert np.array_equal(found, np.stack([frames[0].image, frames[3].image]))


def test_cloud_volume(site, tmp_path):
    url = f"precomputed://{site.url}/data/five_axes/precomputed/time1/channel0"
    found, told = ask("cloudvolume", url, tmp_path)
    assert np.array_equal(found, CASES["five axes"].array[1, 0])
    assert told["resolution"] == [500, 500, 2000]
