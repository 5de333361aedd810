"""Frames of 12 bits can be seen in a real Neuroglancer and in napari with napari-ome-zarr: live and in a mirror.

Their values end at 611 of 65535: without a stated contrast a viewer shows black.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.log.make_frames import Axes, dim_frame, start_log, wait_for
from tests.mirrors.mirror_cases import finish, run_of
from tests.oracles.neuroglancer_page import NeuroglancerPage, needs_neuroglancer
from tests.oracles.webknossos_package import needs_environment
from tests.waiting import until
from tests.web.test_zarr_readers import ask
from tests.web.web_process import Site, web_thread

pytestmark = [pytest.mark.oracle, pytest.mark.slow, pytest.mark.timeout_s(180)]

SHAPE = (192, 256)
SUMMARY = {"PixelSizeUm": 0.5, "z-step_um": 2.0, "Interval_ms": 250}
PLACES: list[Axes] = [
    {"time": t, "channel": c, "z": z} for t, c, z in itertools.product(range(2), ("DAPI", "Cy5"), range(2))
]
COLORS = np.array([[0x43, 0x93, 0xFF], [0xF0, 0x3C, 0xF4]])  # of docs/meaning.md
VISIBLE = 40  # of 255, on average


def write(data: Path) -> None:
    with start_log(data / "cells", summary=SUMMARY, memory_bytes=2**24) as log:
        for number, place in enumerate(PLACES):
            frame = dim_frame(number, place, SHAPE, elapsed_ms=250 * (number // 4))
            log.append(frame.header, frame.image)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A run of two channels, and its mirror beside it; and one that still grows, whose first frames are black."""
    data = tmp_path_factory.mktemp("web") / "data"
    data.mkdir()
    write(data)
    finish(run_of(data / "cells", {"format": "ome-zarr", "levels": 1}, "ome-zarr"))
    with start_log(data / "growing", summary=SUMMARY, memory_bytes=2**24) as log, web_thread(data) as site:
        for number, place in enumerate(PLACES):
            frame = dim_frame(number, place, SHAPE, elapsed_ms=250 * (number // 4))
            frame.image[...] *= number > 3  # the first time is black
            log.append(frame.header, frame.image)
            wait_for(log, lambda: log.cursors().published > number)  # noqa: B023
            seen = f",g={number + 1}/".encode()  # a viewer asks from the first frame on
            if number != 2:  # of the second channel there is one of two planes: no array
                until(lambda: seen in site.ask("/view/growing/state.json").body, "the state has it")  # noqa: B023
        yield site


@pytest.mark.parametrize("name", ["cells", "growing"])
@needs_neuroglancer[0]
@needs_neuroglancer[1]
def test_neuroglancer_shows_them(site: Site, tmp_path: Path, name: str) -> None:
    state = json.loads(site.ask(f"/view/{name}/state.json").body)
    state |= {"showScaleBar": False, "showDefaultAnnotations": False}  # a frame and a bar, which are bright themselves
    with NeuroglancerPage(tmp_path) as page:
        shown = page.state(state, SHAPE)
        for number, color in enumerate(COLORS):
            one = page.state({**state, "layers": state["layers"][number : number + 1]}, SHAPE)
            assert np.allclose(one.mean((0, 1)) / one.mean((0, 1)).max(), color / color.max(), atol=0.03)
            assert (one.max(-1) >= color.max() - 1).mean() < 0.05  # not saturated
            assert one.max() > color.max() - 8  # nor half transparent
    assert shown.mean() > VISIBLE
    assert state["dimensions"]["x"] == [0.5e-6, "m"]
    assert state["dimensions"]["t"] == [0.25, "s"]


@pytest.mark.parametrize("place", ["data/cells/ome.zarr", "data/growing/ome.zarr", "mirror"])
@needs_environment("napari with zarr 3")
def test_napari_ome_zarr_shows_them(site: Site, tmp_path: Path, place: str) -> None:
    assert site.context is not None
    mirror = site.context.settings.data / "cells.ome.zarr"
    found, told = ask("napari", str(mirror) if place == "mirror" else f"{site.url}/{place}", tmp_path)
    arrays: dict[str, NDArray[Any]] = dict(found)
    assert len(told["limits"]) == 2
    for number, (low, high) in enumerate(told["limits"]):
        picture = arrays[f"{number}/shown"].astype(float)
        assert ((picture - low) / (high - low)).clip(0, 1).mean() * 255 > VISIBLE
    assert np.array_equal(np.round(told["colors"]), COLORS)


@pytest.mark.parametrize("name", ["cells", "cells.ome.zarr"])
def test_the_page_says_the_same_of_the_run_and_its_mirror(site: Site, name: str) -> None:
    found = json.loads(site.ask(f"/api/datasets/{name}").body)
    low, high = found["channels"][0]["limits"]
    assert 100 <= low < high <= 611
    assert [(one["name"], one["color"]) for one in found["channels"]] == [("DAPI", "#4393ff"), ("Cy5", "#f03cf4")]
    assert (found["bits"], found["pixel_um"]) == (12, [0.5, 0.5])
    assert found["distances"] == {"time": [0.0, 0.25, "s"], "z": [0.0, 2.0, "um"]}
    facts = {
        more: json.loads(site.ask(f"/api/datasets/{name}/preview.jpg?channel=DAPI{more}").headers["acqstream-picture"])
        for more in ("", "&auto=1", "&low=0&high=4095")
    }
    assert [facts[""][key] for key in ("low", "high")] == [low, high]
    assert [facts["&auto=1"][key] for key in ("low", "high")] == facts[""]["auto"]
    assert [facts["&low=0&high=4095"][key] for key in ("low", "high")] == [0, 4095]
