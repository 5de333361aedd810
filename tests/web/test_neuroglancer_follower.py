"""A Neuroglancer that follows a growing run: when it changes what, and what is on the screen of a real one."""

from __future__ import annotations

import base64
import io
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from acqstream.web.data import neuroglancer_follower
from acqstream.web.data.neuroglancer_follower import CHANGE_S, LEAD_S, PATIENCE_S, Follower
from tests.log.growing_run import BLOCK, N_BITS, PLANES, SHAPE, GrowingRun
from tests.log.make_frames import start_log
from tests.oracles.neuroglancer_page import _FLAGS, needs_neuroglancer
from tests.oracles.webknossos_package import PYTHON
from tests.waiting import HANG_S, in_time, until
from tests.web.chromium import ChromiumPage
from tests.web.web_process import web_thread

URL = "http://a/t/x/view/cells/state.json"


def state(count: int) -> dict[str, Any]:
    layer = {"name": "cells", "source": f"http://a/t/x/data/cells@g={count}/ome.zarr/|zarr3:", "shader": ""}
    return {"dimensions": {"x": [1, ""], "t": [1, ""]}, "position": [5.0, count - 1.0], "layers": [layer]}


class Viewer:
    """A stand-in for neuroglancer.Viewer. shown: all states; moves: of somebody at the page."""

    def __init__(self) -> None:
        self.shown: list[dict[str, Any]] = []
        self.config = SimpleNamespace(prefetch=[])
        self.shared_state = self.config_state = self
        self.moves = 0

    @contextmanager
    def txn(self) -> Iterator[SimpleNamespace]:
        yield self.config

    @property
    def raw_state_and_generation(self) -> tuple[dict[str, Any], str]:
        return self.shown[-1] if self.shown else {}, f"{len(self.shown)}/{self.moves}"

    def set_state(self, state: dict[str, Any], existing_generation: str | None = None) -> None:
        if existing_generation not in (None, self.raw_state_and_generation[1]):
            raise RuntimeError("modified")
        self.shown.append(state)

    def move(self, x: float) -> None:
        self.moves += 1
        self.shown[-1] = {**self.shown[-1], "position": [x, *self.shown[-1]["position"][1:]]}


class Server:
    """A stand-in for the server. count: frames published; loaded: its answers by number of frames."""

    def __init__(self) -> None:
        self.count = 1
        self.loaded: dict[int, bool | None] = {}
        self.requests: list[str] = []

    def fetch(self, url: str) -> dict[str, Any] | None:
        self.requests.append(url)
        if url == URL:
            return state(self.count)
        prefix, _, count = url.rpartition("=")
        assert prefix == "http://a/t/x/view/cells/loaded/cells@g"
        return {"loaded": self.loaded.get(int(count))}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setattr(neuroglancer_follower, "fetch", server.fetch)
    return server


@pytest.fixture
def viewer() -> Viewer:
    return Viewer()


def test_the_next_source_is_shown_when_it_is_loaded_and_the_last_was_shown_for_a_while(
    server: Server, viewer: Viewer
) -> None:
    follower = Follower(viewer, URL)
    follower.step(100.0)
    assert viewer.shown == [state(1)]
    server.count = 3
    follower.step(100.0 + CHANGE_S - LEAD_S - 0.1)
    assert viewer.config.prefetch == []
    follower.step(100.0 + CHANGE_S - LEAD_S)
    assert viewer.config.prefetch == [{"state": state(3), "priority": 0}]
    server.loaded = {1: True, 3: True}
    follower.step(100.0 + CHANGE_S - 0.1)
    assert viewer.shown == [state(1)]
    server.count = 9  # what comes while it is loaded is for the next time
    answers: list[dict[int, bool | None]] = [{1: True, 3: False}, {1: True, 3: None}, {1: False, 3: True}]
    for loaded in answers:
        server.loaded = loaded
        follower.step(100.0 + CHANGE_S)
        assert viewer.shown == [state(1)]
    server.loaded = {3: True}  # a page that was loaded again has the first one from its cache
    follower.step(100.0 + CHANGE_S)
    assert viewer.shown == [state(1), state(3)]


def test_what_is_loaded_is_loaded_again_for_a_view_that_was_moved(server: Server, viewer: Viewer) -> None:
    follower = Follower(viewer, URL)
    follower.step(0.0)
    server.count, server.loaded = 3, {3: True}
    follower.step(CHANGE_S)
    viewer.move(8.0)
    follower.step(CHANGE_S)
    assert len(viewer.shown) == 1
    assert viewer.config.prefetch[0]["state"]["position"] == [8.0, 2.0]
    follower.step(CHANGE_S)
    assert viewer.shown[-1]["position"] == [8.0, 2.0]
    server.count = 5
    follower.step(2 * CHANGE_S)
    viewer.move(9.0)
    server.count = 7
    follower.step(2 * CHANGE_S + PATIENCE_S)  # that is old by now
    follower.step(2 * CHANGE_S + PATIENCE_S)
    assert viewer.config.prefetch[0]["state"]["position"] == [9.0, 6.0]


def test_a_view_that_is_moved_in_this_moment_is_left_alone(
    server: Server, viewer: Viewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = Follower(viewer, URL)
    follower.step(0.0)
    server.count = 3
    follower.step(CHANGE_S)

    def fetch(url: str) -> dict[str, Any]:
        viewer.move(4.0)
        return {"loaded": True}

    monkeypatch.setattr(neuroglancer_follower, "fetch", fetch)
    follower.step(CHANGE_S)
    assert len(viewer.shown) == 1
    assert viewer.shown[-1]["position"][0] == 4.0


def test_a_page_that_is_opened_late_shows_what_is_new_and_nothing_is_asked_for_often(
    server: Server, viewer: Viewer
) -> None:
    follower = Follower(viewer, URL)
    for turn in range(240):
        server.count = 1 + turn
        follower.step(turn / 2)
    assert viewer.shown[-1]["position"][1] > 240 - 2 * (PATIENCE_S + CHANGE_S + LEAD_S)
    assert len(viewer.shown) <= 1 + 120 / CHANGE_S
    assert server.requests.count(URL) <= 1 + 120 / CHANGE_S
    assert len(server.requests) <= 240 + 120 / CHANGE_S


def test_nothing_changes_while_the_server_does_not_answer(
    server: Server, viewer: Viewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = Follower(viewer, URL)
    follower.step(0.0)
    server.count = 3
    follower.step(CHANGE_S)
    monkeypatch.setattr(neuroglancer_follower, "fetch", lambda _url: None)
    follower.step(60.0)
    assert viewer.shown == [state(1)]
    monkeypatch.setattr(neuroglancer_follower, "fetch", server.fetch)
    follower.step(60.0)
    assert len(viewer.shown) == 2


def test_layers_of_the_user_stay_and_removed_ones_stay_away(server: Server, viewer: Viewer) -> None:
    follower = Follower(viewer, URL)
    follower.step(0.0)
    own = {"name": "notes", "type": "annotation"}
    viewer.shown[-1] = {**viewer.shown[-1], "layers": [own]}
    server.count, server.loaded = 3, {3: True}
    follower.step(CHANGE_S)
    follower.step(CHANGE_S)
    assert viewer.shown[-1]["layers"] == [own]


# ------------------------------------------------------------------------------------------------- on a real screen

VIEW = """(() => {
  const panel = document.querySelector(".neuroglancer-rendered-data-panel");
  if (!window.viewer || !panel) return {at: {}};
  const {position, crossSectionScale} = JSON.parse(JSON.stringify(viewer.state));
  const at = viewer.coordinateSpace.value.names.map((name, number) => [name, position?.[number]]);
  const {x, y, width, height} = panel.getBoundingClientRect();
  return {at: Object.fromEntries(at), scale: crossSectionScale, middle: [x + width / 2, y + height / 2]};
})()"""


# Reads a pixel below the middle, in the bright half, each time that the page has drawn: between two looks as well.
WATCH = """(() => {
  const {display} = viewer, {gl, canvas} = display, pixel = new Uint8Array(4);
  const panel = document.querySelector(".neuroglancer-rendered-data-panel").getBoundingClientRect();
  const below = panel.y + panel.height / 2 + 16 - canvas.getBoundingClientRect().y;
  window.drawn = [];
  display.updateFinished.add(() => {
    gl.bindFramebuffer(gl.FRAMEBUFFER, null);
    gl.readPixels(canvas.width / 2 + 8, canvas.height - below, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, pixel);
    window.drawn.push(Math.max(...pixel.slice(0, 3)));
  });
})()"""


class Screen:
    """What a page shows of a `GrowingRun`."""

    def __init__(self, page: ChromiumPage) -> None:
        self._page = page
        self.view: dict[str, Any] = {}

    def look(self) -> tuple[float, int, int]:
        """Mean grey of the lower half of the picture, which is bright, and the time and plane that it tells."""
        view = self.view
        left, top = (view["middle"][n] - (view["at"]["xy"[n]] + 0.5) / view["scale"] for n in (0, 1))
        height, width = (side / view["scale"] for side in SHAPE)
        clip = {"x": left, "y": top, "width": width, "height": height, "scale": 1}
        shot = self._page.command("Page.captureScreenshot", format="png", clip=clip)
        with Image.open(io.BytesIO(base64.b64decode(shot["data"]))) as image:
            grey = np.asarray(image.convert("L")).astype(float)
        row = grey[grey.shape[0] // 4]
        block = BLOCK / view["scale"]
        bits = [row[int((number + 0.5) * block)] for number in range(N_BITS)]
        bright = grey[grey.shape[0] * 5 // 8 : -8].mean()
        number = int("".join("1" if bit > bright / 2 else "0" for bit in bits), 2)
        return bright, *divmod(number - 1, PLANES)


@contextmanager
def followed_run(tmp_path: Path, frames_per_s: float) -> Iterator[tuple[GrowingRun, ChromiumPage]]:
    """A growing run, and a browser that shows the page of a follower of it."""
    data, pipe = tmp_path / "data", subprocess.PIPE
    data.mkdir()
    program = [str(PYTHON), "-I", "-W", "ignore", str(neuroglancer_follower.__file__)]
    flags = (*(flag for flag in _FLAGS if "window-size" not in flag), "--remote-debugging-port=0")
    with (
        start_log(data / "cells", memory_bytes=2**24) as log,
        GrowingRun(log, frames_per_s, is_flat=False) as run,
        web_thread(data) as site,
    ):
        run.wait_for_time(1)
        with subprocess.Popen(program, stdin=pipe, stdout=pipe, text=True, bufsize=1) as follower:
            assert follower.stdin is not None
            assert follower.stdout is not None
            try:
                follower.stdin.write(f"{site.url}/view/cells/state.json\n")
                address = follower.stdout.readline().strip()
                with ChromiumPage(tmp_path, 800, 600, flags=flags) as page:
                    page.open(address)
                    yield run, page
            finally:
                follower.stdin.close()
                follower.wait(HANG_S)


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.timeout_s(180)
@needs_neuroglancer[0]
@needs_neuroglancer[1]
@pytest.mark.parametrize("frames_per_s", [5, 30])
def test_a_run_is_followed_without_a_black_moment(tmp_path: Path, frames_per_s: float) -> None:
    """Ten looks a second at the screen, and one at everything that the page draws.

    The second plane and another zoom, chosen by hand, stay.
    """
    with followed_run(tmp_path, frames_per_s) as (run, page):
        screen = Screen(page)

        def has_picture() -> bool:
            screen.view = page.value(VIEW)
            return "z" in screen.view["at"] and screen.look()[0] > 100

        until(has_picture, "the first picture", every_s=0.1)
        x, y = screen.view["middle"]
        page.command("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=-100)  # along z
        page.command("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=-100, modifiers=2)
        until(lambda: has_picture() and screen.look()[2] == 1, "the second plane", every_s=0.1)
        view = screen.view
        assert view["scale"] != 1
        page.value(WATCH)
        n_before = len(page.requests)
        seen: set[int] = set()
        looks = []

        def look() -> bool:
            expected = run.complete_before(in_time(10.0))
            bright, at, plane = screen.look()
            looks.append(bright)
            assert bright > 100
            assert plane == 1
            assert at >= expected
            seen.add(at)
            return len(seen) > 3

        until(look, "three changes", every_s=0.1)
        assert np.std(looks) < 1
        documents = [url for url in page.requests[n_before:] if "/data/" in url]
        assert 0 < len(documents) <= 2 * (len(seen) + 1)  # two of each source, also of the next one
        drawn = page.value("drawn")
        assert len(drawn) > len(seen)
        assert min(drawn) > 100
        later = page.value(VIEW)
        assert later | {"at": {**later["at"], "t": 0}} == view | {"at": {**view["at"], "t": 0}}
