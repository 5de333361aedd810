"""Virtual datasets as other software reads them over HTTP: every pixel of every level."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorstore
from numpy.typing import NDArray

import acqstream
from tests.log.make_frames import write_log
from tests.web.virtual_cases import CASES, SUMMARY, Case
from tests.web.web_process import Site, web_thread

pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    data = tmp_path_factory.mktemp("web") / "data"
    data.mkdir()
    for name, case in CASES.items():
        write_log(data / name.replace(" ", "_"), case.frames, summary=SUMMARY, axes=case.axes, memory_bytes=2**24)
    with web_thread(data) as site:
        yield site


def url_of(site: Site, name: str, layout: str) -> str:
    case = CASES[name]
    options = f"@chunk={case.chunk}" if case.chunk else ""
    return f"{site.url}/data/{name.replace(' ', '_')}{options}/{layout}"


def read(driver: str, url: str, **more: Any) -> NDArray[Any]:
    """An array, by tensorstore."""
    spec = {"driver": driver, "kvstore": {"driver": "http", "base_url": f"{url}/"}, **more}
    found: NDArray[Any] = tensorstore.open(spec, open=True).result().read().result()
    return found


def levels_of(site: Site, name: str) -> int:
    attributes = json.loads(site.ask(f"{url_of(site, name, 'ome.zarr').removeprefix(site.url)}/zarr.json").body)
    return len(attributes["attributes"]["ome"]["multiscales"][0]["datasets"])


def of_images(case: Case, level: int) -> NDArray[Any]:
    """The array as an image of OME-Zarr has it: colour samples are its channels, before z."""
    return case.level(level)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("driver", "layout"), [("zarr3", "ome.zarr"), ("zarr", "v2.ome.zarr")])
def test_zarr(site, name, driver, layout):
    for level in range(levels_of(site, name)):
        found = read(driver, f"{url_of(site, name, layout)}/{level}")
        assert np.array_equal(found, of_images(CASES[name], level)), level


@pytest.mark.parametrize("name", CASES)
def test_n5(site, name):
    for level in range(levels_of(site, name)):
        found = read("n5", f"{url_of(site, name, 'n5')}/s{level}").T
        expected = CASES[name].level(level)
        assert np.array_equal(np.squeeze(found), np.squeeze(expected)), level


def test_precomputed(site):
    case = CASES["five axes"]
    for time in range(3):
        for channel in range(2):
            url = f"{url_of(site, 'five axes', 'precomputed')}/time{time}/channel{channel}"
            found = read("neuroglancer_precomputed", url)
            assert np.array_equal(found[..., 0].T, case.array[time, channel])


@pytest.mark.parametrize("name", ["planes", "levels", "colour", "pieces", "colour pieces"])
def test_precomputed_levels(site, name):
    case = CASES[name]
    folder = "/time1" if "time" in case.order and "z" in case.order else ""
    for level in range(levels_of(site, name)):
        url = f"{url_of(site, name, 'precomputed')}{folder}"
        found = read("neuroglancer_precomputed", url, scale_index=level).T  # c, z, y, x
        expected = case.level(level)[1] if folder else case.level(level)
        if name.startswith("colour"):
            expected = expected if folder else np.moveaxis(expected, 0, 1)  # time is the depth
        else:
            expected = expected[None]
        assert np.array_equal(found, expected), level


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("layout", ["ome.zarr", "n5", "precomputed"])
def test_our_reader_sees_the_same_dataset(site, name, layout):
    """Axes, shape, values, space and holes: whichever layout it is read from."""
    folder = site.context.settings.data / name.replace(" ", "_")
    with acqstream.open(folder) as own, acqstream.open(url_of(site, name, layout)) as served:
        a, b = own.levels[0], served.levels[0]
        assert (b.axes, b.shape, b.dtype, served.complete) == (a.axes, a.shape, a.dtype, True)
        assert dict(served.axes) == dict(own.axes)
        assert np.array_equal(b.read(), a.read())
        assert served.summary_metadata["PixelSize_um"] == 0.5
