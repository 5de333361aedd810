"""Levels as xarray arrays, and what `xarray.open_dataset` makes of a path."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pytest

import acqstream
from acqstream.errors import ConfigError, DatasetError
from tests.formats.ndtiff.ndtiff_bytes import GOLDEN, STACK, Folder, image

dask = pytest.importorskip("dask")
xarray = pytest.importorskip("xarray")

ENGINE = "acqstream"
PYRAMID = GOLDEN / "java_pyramid_u16" / "data"


@pytest.fixture(autouse=True)
def _threads_that_end() -> Iterator[None]:
    """dask keeps its own pool of threads for ever."""
    with ThreadPoolExecutor(4) as pool, dask.config.set(scheduler="threads", pool=pool):
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    summary = {"AxisOrder": ["time", "channel", "z"], "PixelSizeUm": 0.5, "z-step_um": 2.0, "User": {"name": "Ada"}}
    folder = Folder(tmp_path / "cells", summary)
    for time, channel, z in [(0, "DAPI", -1), (0, "GFP", 0), (5, "GFP", -1)]:
        folder.add({"time": time, "channel": channel, "z": z}, image(10 * time + z + 1))
    return folder


def test_axes_have_names_values_and_units(folder: Folder) -> None:
    with acqstream.open(folder.path) as ds:
        array = ds.to_xarray()
        assert array.dims == ("time", "channel", "z", "y", "x")
        assert array.name == "cells"
        assert array.coords["time"].values.tolist() == [0, 5]
        assert array.coords["channel"].values.tolist() == ["DAPI", "GFP"]
        assert array.coords["z_um"].values.tolist() == [-2.0, 0.0]
        assert array.coords["y"].values.tolist() == [0.0, 0.5, 1.0]
        assert {array.coords[name].attrs["units"] for name in ("y", "x", "z_um")} == {"um"}
        assert array.attrs["User"] == {"name": "Ada"}
        assert array.attrs["path"] == str(folder.path)
        assert (array.attrs["missing_frames"], array.attrs["complete"]) == (5, True)
        assert np.array_equal(array.sel(time=5, channel="GFP", z=-1), image(50))
        assert not array.sel(time=5, channel="DAPI").any()


def test_levels_lie_over_each_other() -> None:
    with acqstream.open(PYRAMID) as ds:
        arrays = [ds.to_xarray(number) for number in range(len(ds.levels))]
        for number, array in enumerate(arrays):
            step = np.diff(array.coords["y"].values)
            assert np.allclose(step, 2**number * (ds.levels[0].pixel_size_um or 1.0))
            assert array.coords["x"].values[0] - step[0] / 2 <= arrays[0].coords["x"].values[0]
            assert np.array_equal(array.values, ds.levels[number].read())


def test_a_level_makes_the_same_array() -> None:
    with acqstream.open(PYRAMID) as ds:
        for number, level in enumerate(ds.levels):
            array = level.to_xarray()
            assert array.identical(ds.to_xarray(number))
            assert (array.name, array.attrs["level"], array.attrs["path"]) == ("data", number, str(PYRAMID))
            assert array.attrs["missing_frames"] == level.missing_count
    with acqstream.open(PYRAMID / "Downsampled_x4") as ds:
        array = ds.levels[0].to_xarray()
        assert (array.attrs["level"], array.attrs["path"]) == (2, str(PYRAMID))


def test_axes_of_frames_that_are_called_like_those_of_pixels(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "odd")
    folder.add({"y": 3, "c": 1}, image(1))
    with acqstream.open(folder.path) as ds:
        assert ds.to_xarray().dims == ("y_axis", "c", "y", "x")


def test_a_dataset_that_grew_is_asked_again(folder: Folder) -> None:
    with acqstream.open(folder.path) as ds:
        assert ds.to_xarray().sizes["time"] == 2
        folder.add({"time": 7, "channel": "GFP", "z": 0}, image(3))
        ds.refresh()
        array = ds.to_xarray()
        assert array.sizes["time"] == 3
        assert np.array_equal(array.sel(time=7, channel="GFP", z=0), image(3))


@pytest.mark.parametrize("module", ["xarray", "dask.array"])
def test_without_the_library_it_says_how_to_get_it(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with acqstream.open(folder.path) as ds, pytest.raises(ConfigError, match=r"pip install \".*\["):
        ds.to_xarray()


def test_the_engine_is_installed() -> None:
    assert ENGINE in {entry.name for entry in entry_points(group="xarray.backends")}


@pytest.mark.parametrize("inside", ["", "NDTiff.index"])
def test_xarray_guesses_the_engine(folder: Folder, inside: str) -> None:
    with xarray.open_dataset(folder.path / inside) as found, acqstream.open(folder.path) as ds:
        assert np.array_equal(found["image"].values, ds.levels[0].read())
        assert np.array_equal(found["image"].sel(time=[5, 0], z=-1)[:, 1, ::2], found["image"].values[::-1, 1, 0, ::2])
        assert found["image"].dims == ds.to_xarray().dims


@pytest.mark.parametrize("name", ["py_uint16", "java_rgb", "java_pyramid_rgb_odd", "py_string_axes", "real_v3_3_12bit"])
def test_golden_sets_in_chunks_and_without(name: str) -> None:
    path = GOLDEN / name / "data"
    with acqstream.open(path) as ds:
        expected = ds.levels[0].read()
    with xarray.open_dataset(path, engine=ENGINE) as found:
        assert found["image"].chunks is None
        assert np.array_equal(found["image"].values, expected)
    with xarray.open_dataset(path, engine=ENGINE, chunks={}) as found:
        assert found["image"].chunks is not None
        assert np.array_equal(found["image"].values, expected)


def test_a_level_and_all_levels() -> None:
    with acqstream.open(PYRAMID) as ds:
        expected = [level.read() for level in ds.levels]
    with xarray.open_dataset(PYRAMID, engine=ENGINE, level=2) as found:
        assert np.array_equal(found["image"].values, expected[2])
    with xarray.open_datatree(PYRAMID, engine=ENGINE) as tree:
        for number, array in enumerate(expected):
            assert np.array_equal(tree[f"level{number}/image"].values, array)
    with pytest.raises(DatasetError, match="levels 0 to 3"):
        xarray.open_dataset(PYRAMID, engine=ENGINE, level=4)


def test_variables_can_be_left_out(folder: Folder) -> None:
    with xarray.open_dataset(folder.path, engine=ENGINE, drop_variables=["z_um", "nothing"]) as found:
        assert "z_um" not in found.coords


def test_closing_closes_the_files(folder: Folder) -> None:
    found = xarray.open_dataset(folder.path, engine=ENGINE)
    found.close()
    with pytest.raises(DatasetError, match="closed"):
        found["image"].load()


def test_it_claims_nothing_foreign(folder: Folder, tmp_path: Path) -> None:
    from acqstream.dataset.xarray_backend import AcqStreamBackend

    guess = AcqStreamBackend().guess_can_open
    (tmp_path / "foreign.tif").write_bytes(b"II*\0" + bytes(100))
    (tmp_path / "zarr.json").write_text("{}")
    assert guess(str(folder.path))
    assert guess(PYRAMID)
    assert guess(PYRAMID / "Downsampled_x2")
    for path in ("", "foreign.tif", "zarr.json", "not there", f"cells/{STACK}"):
        assert not guess(tmp_path / path)
    for nothing in (b"CDF", None, 3, "", "http://nowhere/x.nc", "a\0b", object()):
        assert not guess(nothing)
