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
from acqstream.web.data.data_address import DataOptions
from acqstream.web.data_routes import find_object
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


@pytest.mark.parametrize(
    "path",
    [
        "bytes/n5/s0/0/0/1/0",  # a header and a frame from its file
        "five_axes/n5/s0/0/0/1/0/1",  # swapped
        "five_axes/ome.zarr/0/c/1/0/2/0/0",
        "five_axes/ome.zarr/zarr.json",
    ],
)
def test_ranges_are_parts_of_the_whole(site, path):
    whole = site.ask(f"/data/{path}")
    size = len(whole.body)
    assert (whole.status, int(whole.headers["content-length"])) == (200, size)
    for first, last in ((0, 3), (2, 30), (10, size - 1), (0, size + 9)):
        part = site.ask(f"/data/{path}", headers={"Range": f"bytes={first}-{last}"})
        assert (part.status, part.body) == (206, whole.body[first : last + 1])
    assert site.ask(f"/data/{path}", headers={"Range": "bytes=-7"}).body == whole.body[-7:]
    head = site.ask(f"/data/{path}", "HEAD")
    assert (head.status, head.body, int(head.headers["content-length"])) == (200, b"", size)


@pytest.mark.parametrize(
    ("name", "layout", "key", "goes_out_from_its_file"),
    [
        ("five axes", "ome.zarr", "0/c/1/0/2/0/0", True),
        ("five axes", "v2.ome.zarr", "0/1/0/2/0/0", True),
        ("five axes", "xarray.zarr", "image/c/1/0/2/0/0", True),
        ("five axes", "precomputed", "time1/channel0/s0/0-26_0-21_2-3", True),
        ("five axes", "n5", "s0/0/0/1/0/1", False),  # N5 is big-endian
        ("bytes", "n5", "s0/0/0/1/0", True),
        ("colour", "xarray.zarr", "image/c/0/0/0/0/0", True),
        ("colour", "ome.zarr", "0/c/0/0/0/0/0", False),  # its samples are taken apart
        ("levels", "ome.zarr", "1/c/0/0/0/0", False),
    ],
)
def test_a_whole_frame_is_not_copied(site, name, layout, key, goes_out_from_its_file):
    folder = site.context.folders.find(name.replace(" ", "_"))
    with site.context.shelf.borrow(folder) as dataset:
        found = find_object(site.context.shelf, dataset, DataOptions(), layout, key)
    assert found is not None
    assert (found.part is not None) is goes_out_from_its_file
    assert (found.memory_bytes == 0) is goes_out_from_its_file
