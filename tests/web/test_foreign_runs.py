"""Datasets of other programs: every golden one, big-endian and compressed ones."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import acqstream
from acqstream.errors import DatasetError
from tests.waiting import until
from tests.web.web_process import Site, web_thread

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "ndtiff"
NAMES = sorted(path.name for path in GOLDEN.iterdir() if path.is_dir())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    data = tmp_path_factory.mktemp("foreign") / "data"
    for name in NAMES:
        shutil.copytree(GOLDEN / name / "data", data / name)
    with web_thread(data) as site:
        yield site


@pytest.mark.parametrize("name", NAMES)
def test_a_golden_dataset_reads_as_its_files_do(site, name):
    """Level 0 in every layout that our reader knows; a dataset that cannot be read is an error, and no more."""
    try:
        own = acqstream.open(site.context.settings.data / name)
    except DatasetError:
        assert site.ask(f"/data/{name}/ome.zarr/zarr.json").status in (404, 500)
        return
    with own:
        try:
            expected = own.levels[0].read()
        except DatasetError:
            assert site.ask(f"/data/{name}/ome.zarr/zarr.json").status in (200, 404, 500)
            return
        for layout in ("ome.zarr", "n5", "precomputed"):
            with acqstream.open(f"{site.url}/data/{name}/{layout}") as served:
                level = served.levels[0]
                assert level.axes == own.levels[0].axes, layout
                assert np.array_equal(level.read(), expected), layout


def test_most_golden_datasets_are_served(site):
    """So that the test above compares pixels, and not errors."""
    statuses = [site.ask(f"/data/{name}/ome.zarr/zarr.json").status for name in NAMES]
    assert statuses.count(200) >= len(NAMES) - 6


def test_a_damaged_frame_breaks_the_answer_and_nothing_else(site):
    """A stack file that is cut: no length is announced that the file does not have."""
    folder = site.context.settings.data / "cut"
    shutil.copytree(GOLDEN / "py_uint16" / "data", folder)
    until(lambda: site.ask("/data/cut/ome.zarr/zarr.json").status == 200, "the new folder is listed")
    document = json.loads(site.ask("/data/cut/ome.zarr/0/zarr.json").body)
    chunk = "/".join("0" for _ in document["shape"])
    assert site.ask(f"/data/cut/ome.zarr/0/c/{chunk}").status == 200
    for stack in folder.rglob("*.tif"):
        with stack.open("r+b") as file:
            file.truncate(1000)
    reply = site.ask(f"/data/cut/ome.zarr/0/c/{chunk}")
    assert reply.status == 500
    assert b"1000" not in reply.body
    assert site.ask("/data/py_uint16/ome.zarr/zarr.json").status == 200
