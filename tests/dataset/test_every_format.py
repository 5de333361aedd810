"""What people read with does the same for every format: the same frames in NDTiff, N5 and WKW."""

from __future__ import annotations

import itertools
import os
import pickle
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import acqstream
from acqstream.dataset.contact_sheet import choose_pictures, save_contact_sheet
from acqstream.errors import DatasetError, UnsupportedFeature
from acqstream.formats.registry import chunk_format
from tests.command import command
from tests.dataset.web_server import serving
from tests.formats.ndtiff.ndtiff_bytes import Folder, image
from tests.host_system import make_link

dask = pytest.importorskip("dask")
xarray = pytest.importorskip("xarray")

TIMES, CHANNELS, DEPTHS = range(3), ["DAPI", "GFP"], range(4)
FRAME = (40, 70)
SUMMARY = {"PixelSizeUm": 0.5, "z-step_um": 2.0}
OPTIONS = {
    "n5": ["--blocks", "4,16,32"],
    "wkw": ["--option", "cube=64"],
    "ome-zarr": ["--chunks", "1,16,32"],
    "precomputed": ["--option", "chunks=[2,16,32]"],
    "hsds": ["--option", "pixels=copy", "--option", "chunks=[2,16,32]"],
}


@pytest.fixture(autouse=True)
def _threads_that_end() -> Iterator[None]:
    """dask keeps its own pool of threads for ever."""
    with ThreadPoolExecutor(2) as pool, dask.config.set(scheduler="threads", pool=pool):
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same frames in every format; one is missing."""
    folder = Folder(tmp_path_factory.mktemp("formats") / "cells", SUMMARY)
    stage = {"XPositionUm": 100.0, "YPositionUm": 50.0, "ZPositionUm": 7.0}
    for number, (time, channel, z) in enumerate(itertools.product(TIMES, CHANNELS, DEPTHS)):
        if (time, channel, z) != (1, "GFP", 2):
            metadata = stage | {"ZPositionUm": 7.0 + 2 * z}
            folder.add({"time": time, "channel": channel, "z": z}, image(number, FRAME), metadata=metadata)
    places = {"ndtiff": folder.path}
    for name, options in OPTIONS.items():
        places[name] = folder.path.with_name(f"cells{chunk_format(name).suffix}")
        assert command("mirror", folder.path, "--to", name, *options) == 0
    return places


@pytest.fixture(params=["ndtiff", *OPTIONS])
def path(request: pytest.FixtureRequest, made: dict[str, Path]) -> Path:
    return made[request.param]


def expected() -> np.ndarray:
    whole = np.zeros((3, 2, 4, *FRAME), "<u2")
    for number, (time, channel, z) in enumerate(itertools.product(TIMES, range(2), DEPTHS)):
        if (time, channel, z) != (1, 1, 2):
            whole[time, channel, z] = image(number, FRAME)
    return whole


def test_axes_pixels_and_space_are_those_of_the_frames(path: Path) -> None:
    with acqstream.open(path) as ds:
        level = ds.levels[0]
        assert level.axes == ("time", "channel", "z", "y", "x")
        assert ds.axes == {"time": [0, 1, 2], "channel": CHANNELS, "z": [0, 1, 2, 3]}
        assert np.array_equal(level.read(), expected())
        assert np.array_equal(
            level.read((1, 0, slice(None, None, -1), 7, slice(3, 60, 4))), expected()[1, 0, ::-1, 7, 3:60:4]
        )
        assert (level.pixel_size_um, level.z_step_um) == (0.5, 2.0)
        assert level.units == ("", "", "um", "um", "um")
        assert level.translation == (0.0, 0.0, 7.0, 40.25, 82.75)  # the stage is at the middle of the image
        assert (ds.complete, ds.writing, ds.has_frames) == (True, False, ds.format == "ndtiff")


def test_dask_reads_the_same_in_this_process_and_pickled(path: Path) -> None:
    with acqstream.open(path) as ds:
        lazy = ds.to_dask()
        assert np.array_equal(lazy.compute(), expected())
        assert np.array_equal(lazy[1, :, 2].compute(), expected()[1, :, 2])
        level = pickle.loads(pickle.dumps(ds.levels[0]))  # noqa: S301 - our own
        array = pickle.loads(pickle.dumps(ds.levels[-1].as_array()))  # noqa: S301
        last = ds.levels[-1].read()
    assert np.array_equal(level.read((0, 1)), expected()[0, 1])  # opened again: the dataset was closed
    assert np.array_equal(array[...], last)


def test_xarray_has_the_same_coordinates(path: Path) -> None:
    with acqstream.open(path) as ds:
        array = ds.to_xarray()
        assert array.coords["channel"].values.tolist() == CHANNELS
        assert array.coords["z"].values.tolist() == [0, 1, 2, 3]
        assert array.coords["z_um"].values.tolist() == [7.0, 9.0, 11.0, 13.0]
        assert array.coords["y"].values[:2].tolist() == [40.25, 40.75]
        assert array.coords["x"].attrs == {"units": "um"}
        assert {"path", "level", "complete"} <= array.attrs.keys()
        assert np.array_equal(array.sel(time=2, channel="GFP", z=3), expected()[2, 1, 3])


def test_xarray_opens_the_path(path: Path) -> None:
    with xarray.open_dataset(path) as found:  # the engine is guessed
        assert found["image"].dims == ("time", "channel", "z", "y", "x")
        assert np.array_equal(found["image"].values, expected())
    with xarray.open_dataset(path, engine="acqstream", chunks={}) as found:
        assert np.array_equal(found["image"].values, expected())
    with acqstream.open(path) as ds, xarray.open_datatree(path, engine="acqstream") as tree:
        for number, level in enumerate(ds.levels):
            assert np.array_equal(tree[f"level{number}/image"].values, level.read())


def test_a_contact_sheet_shows_the_pictures(path: Path, tmp_path: Path) -> None:
    with acqstream.open(path) as ds:
        pictures = list(choose_pictures(ds))
        assert save_contact_sheet(ds, tmp_path / "a.png") == len(pictures) in (23, 24)
        for picture in pictures:
            key = picture.key
            place = (int(key["time"]), CHANNELS.index(str(key["channel"])), int(key["z"]))
            assert np.array_equal(picture.pixels, expected()[place])
    with Image.open(tmp_path / "a.png") as sheet:
        assert np.asarray(sheet).std() > 0


def test_info_and_view_write_one(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb, name in (("info", "a.png"), ("view", "b.png")):
        assert command(verb, path, "--png", tmp_path / name) == 0
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert "shape   time 3, channel 2, z 4, y 40, x 70" in capsys.readouterr().out


def test_a_web_server_gives_the_same(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    pytest.importorskip("aiohttp")
    with serving(path.parent) as (url, _):
        with xarray.open_dataset(f"{url}/{path.name}", engine="acqstream") as found:
            assert np.array_equal(found["image"].values, expected())
        with acqstream.open(f"{url}/{path.name}") as ds:
            assert np.array_equal(ds.to_dask()[2, 1].compute(), expected()[2, 1])
            assert save_contact_sheet(ds, tmp_path / "a.png") > 20


def test_links_out_are_followed_on_request_alone(path: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(path, tmp_path / path.name))
    files = [file for file in copy.rglob("*") if file.is_file() and file.suffix not in (".json", ".sums")]
    largest = min(files, key=lambda file: (-file.stat().st_size, str(file)))  # of equal ones, one of level 0
    away = tmp_path / "away"
    largest.rename(away)
    make_link(largest, away)
    with xarray.open_dataset(copy, engine="acqstream", follow_links=True) as found:
        assert np.array_equal(found["image"].values, expected())
    with acqstream.open(copy, follow_links=True) as ds:
        array = pickle.loads(pickle.dumps(ds.levels[0].as_array()))  # noqa: S301 - our own
        assert np.array_equal(array[...], expected())
    with pytest.raises(UnsupportedFeature, match="is a link"), xarray.open_dataset(copy, engine="acqstream") as found:
        found["image"].load()


def test_a_level_that_disappeared_is_named(path: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(path, tmp_path / path.name))
    with acqstream.open(copy) as ds:
        kept = pickle.dumps(ds.levels[0].as_array())
    shutil.rmtree(copy)
    os.mkdir(copy)
    with pytest.raises((DatasetError, OSError)):
        pickle.loads(kept)[...]  # noqa: S301 - our own


def test_layers_of_napari(path: Path) -> None:
    """What the plug-in gives to napari; tests/live has napari itself."""
    from acqstream.dataset.napari_live import get_reader, read_layers

    assert get_reader(str(path)) is read_layers
    layers = read_layers(path)
    assert [keywords["name"] for _, keywords, _ in layers] == [f"{path.name} {name}" for name in CHANNELS]
    for number, (data, keywords, kind) in enumerate(layers):
        assert (kind, keywords["axis_labels"]) == ("image", ("time", "z", "y", "x"))
        assert keywords["scale"] == [1.0, 2.0, 0.5, 0.5]
        assert keywords["translate"] == [0.0, 7.0, 40.25, 82.75]
        assert keywords["units"] == ["pixel", "um", "um", "um"]
        full = data[0] if keywords["multiscale"] else data
        assert np.array_equal(np.asarray(full), expected()[:, number])
    layers[0][1]["metadata"]["acqstream"].dataset.close()
