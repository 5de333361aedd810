"""A real Neuroglancer shows virtual datasets: every pixel on its screen is compared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.log.make_frames import write_log
from tests.mirrors.mirror_cases import array_of, frames_at, halved, places_of
from tests.oracles.neuroglancer_page import NeuroglancerPage, needs_neuroglancer
from tests.web.web_process import web_thread

pytestmark = [pytest.mark.oracle, *needs_neuroglancer]

SIZES = {"time": 2, "channel": 2, "z": 3}
SHAPE = (96, 128)
FRAMES = frames_at(places_of(tuple(SIZES), SIZES), SHAPE)
ARRAY = array_of(FRAMES, tuple(SIZES))
LOWER = halved(ARRAY, (1, 1, 1, 2, 2))
PLANE = {"x": (0.5e-6, "m"), "y": (0.5e-6, "m"), "z": (2e-6, "m")}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NeuroglancerPage]:
    with NeuroglancerPage(tmp_path_factory.mktemp("neuroglancer")) as page:
        yield page


def view_of(layout: str, time: int, channel: int, z: int) -> tuple[str, dict[str, Any]]:
    """The source below the layout, and where Neuroglancer has a frame."""
    if layout == "precomputed":
        return f"time{time}/channel{channel}/|neuroglancer-precomputed:", {"dimensions": PLANE, "place": {"z": z}}
    if layout == "n5":
        names = {**PLANE, "channel": (1, ""), "time": (1, "")}
        return "|n5:", {"dimensions": names, "place": {"z": z, "channel": channel, "time": time}}
    driver = "zarr3" if layout == "ome.zarr" else "zarr2"
    where = {
        "dimensions": {**PLANE, "t": (1, "")},
        "place": {"z": z, "t": time},
        "local": {"c'": channel},
        "begin": -0.5,
    }
    return f"|{driver}:", where


@pytest.mark.parametrize("layout", ["ome.zarr", "v2.ome.zarr", "n5", "precomputed"])
@pytest.mark.parametrize("chunk", ["", "@chunk=64"])
def test_every_pixel_is_on_the_screen(tmp_path: Path, page: NeuroglancerPage, layout: str, chunk: str) -> None:
    write_log(tmp_path / "cells", FRAMES, summary={"PixelSize_um": 0.5, "z-step_um": 2.0})
    with web_thread(tmp_path) as site:
        for time, channel, z in ((0, 0, 0), (1, 1, 2)):
            source, where = view_of(layout, time, channel, z)
            shown = page.plane(f"{site.url}/data/cells{chunk}/{layout}/{source}", shape=SHAPE, **where)
            assert np.array_equal(shown, ARRAY[time, channel, z])
