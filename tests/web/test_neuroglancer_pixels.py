"""A real Neuroglancer shows virtual datasets: every pixel on its screen is compared, and a growing run is followed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acqstream.log.log import Log
from acqstream.web import data_routes
from acqstream.web.data import neuroglancer_follower
from tests.log.make_frames import start_log, wait_for, write_log
from tests.mirrors.mirror_cases import array_of, frames_at, halved, places_of
from tests.oracles.neuroglancer_page import _FLAGS, BROWSER, NeuroglancerPage, needs_neuroglancer
from tests.oracles.webknossos_package import PYTHON
from tests.waiting import HANG_S, until
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


def test_a_viewer_follows_a_growing_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The browser asks for the frame of each new time, in a generation that has it."""
    asked: set[tuple[int, str]] = set()
    find = data_routes.find_object

    def note(*arguments: Any) -> Any:
        found = find(*arguments)
        if found is not None and found.source is not None:
            asked.add((arguments[2].generation, arguments[4]))
        return found

    monkeypatch.setattr(data_routes, "find_object", note)
    data = tmp_path / "data"
    data.mkdir()
    with start_log(data / "cells") as log, web_thread(data) as site:
        program = [str(PYTHON), "-I", "-W", "ignore", str(neuroglancer_follower.__file__)]
        pipe = subprocess.PIPE
        with subprocess.Popen(program, stdin=pipe, stdout=pipe, text=True, bufsize=1) as follower:
            assert follower.stdin is not None
            assert follower.stdout is not None
            follower.stdin.write(f"{site.url}/view/cells/state.json\n")
            address = follower.stdout.readline().strip()
            folder = tmp_path / "browser"
            browser = subprocess.Popen(
                [str(BROWSER), *_FLAGS, f"--user-data-dir={folder}", address],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                for number, frame in enumerate(frames_at(places_of(("time",), {"time": 4}), SHAPE)):
                    log.append(frame.header, frame.image)
                    wait_for(log, partial(_is_published, log, number))
                    until(partial(_is_asked_for, asked, number), f"the browser asks for time {number}")
            finally:
                browser.terminate()
                browser.wait()
                assert follower.stdin is not None
                follower.stdin.close()
                follower.wait(HANG_S)


def _is_published(log: Log, number: int) -> bool:
    return log.cursors().published > number


def _is_asked_for(asked: set[tuple[int, str]], time: int) -> bool:
    return any(key == f"0/c/{time}/0/0" and count > time for count, key in asked)
