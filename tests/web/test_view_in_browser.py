"""The view of the picture in a real browser: layout, zoom to single pixels, pan, full screen, scale bar."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.log.make_frames import frame_of, write_log
from tests.waiting import until
from tests.web.browser import BrowserPage, needs_browser
from tests.web.test_pixels_in_browser import show_dataset
from tests.web.web_process import web_thread

pytestmark = [needs_browser, pytest.mark.oracle]

SHAPE = (1500, 2100)
STRIPES = np.zeros(SHAPE, np.uint16)
STRIPES[:, ::4] = STRIPES[:, 1::4] = 4000  # in means of 3 x 3 pixels they are much weaker
MIDDLE = (400.0, 400.0)  # x and y of a place of the screen on the picture


@contextmanager
def shown(folder: Path, metadata: dict[str, Any]) -> Iterator[BrowserPage]:
    """A page of a finished dataset of one frame."""
    (folder / "data").mkdir()
    frame = frame_of(0, SHAPE, axes={"time": 0}, bits=12, metadata=metadata, checksum=False)
    write_log(folder / "data" / "stripes", [replace(frame, image=STRIPES)])
    with web_thread(folder / "data", endpoint="tcp://127.0.0.1:9") as site, BrowserPage(folder) as page:
        page.open(f"{site.url}/")
        show_dataset(page)
        page.press("a")  # the samples that settle the contrast see every fourth column only
        yield page
        assert page.errors == []


@pytest.fixture
def page(tmp_path: Path) -> Iterator[BrowserPage]:
    with shown(tmp_path, {"PixelSizeUm": 0.5}) as page:
        yield page


def box(page: BrowserPage, selector: str) -> dict[str, float]:
    found: dict[str, float] = page.value(f"document.querySelector({selector!r}).getBoundingClientRect().toJSON()")
    return found


def zoom(page: BrowserPage) -> str:
    return page.text("#zoom-text")


def is_zoomed(page: BrowserPage, text: str) -> bool:
    return zoom(page) == text


def stored_at(page: BrowserPage, x: float, y: float) -> tuple[int, int]:
    """The stored pixel (y, x) that the page reports for a place of the screen, with its value."""
    page.point(1, 1)
    until(lambda: page.text("#pixel") == "", "no pixel is shown")
    page.point(x, y)
    text = until(lambda: (now := page.text("#pixel")) and not now.endswith("…") and now, "a value is shown")
    at_y, at_x = (int(part[2:].replace(",", "")) for part in text.split(" (")[0].split(", "))
    assert text.endswith(f" · {STRIPES[at_y, at_x]:,}")
    return at_y, at_x


def stripes_seen(page: BrowserPage) -> float:
    """The mean difference of neighbours along x in the middle of the picture, in grey values."""
    found: float = page.value(
        "(() => { const c = document.getElementById('picture'); const d = c.getContext('2d').getImageData("
        "c.width / 2 - 50, c.height / 2, 100, 1).data; let sum = 0; for (let n = 1; n < 100; n++)"
        " sum += Math.abs(d[4 * n] - d[4 * n - 4]); return sum / 99; })()"
    )
    return found


def test_the_picture_comes_first(page: BrowserPage) -> None:
    """Two thirds of the width, all of the frame in sight, contrast without scrolling."""
    frame, picture = box(page, "#frame"), box(page, "#picture")
    assert frame["width"] >= 0.64 * 1280
    assert frame["bottom"] <= 800
    assert box(page, "#head")["bottom"] - 1 <= picture["top"]
    assert picture["bottom"] <= box(page, "#controls")["top"] + 1
    for control in ("#low", "#high", "#histogram", "#auto"):
        assert 0 < box(page, control)["bottom"] <= 800, control
    page.resize(390, 844)
    until(lambda: box(page, "#picture")["width"] <= 390, "the picture is as wide as a phone")
    assert box(page, "#picture")["width"] >= 0.9 * 390
    assert page.value("document.documentElement.scrollWidth") <= 390


def test_one_to_one_shows_single_pixels(page: BrowserPage) -> None:
    assert zoom(page) != "100 %"
    assert stripes_seen(page) < 60
    page.press("x")
    until(lambda: stripes_seen(page) > 100, "single columns are seen")
    assert zoom(page) == "100 %"
    canvas = page.value("document.getElementById('picture').width")
    assert box(page, "#picture")["width"] == pytest.approx(canvas, abs=0.5)
    y, x = stored_at(page, *MIDDLE)
    assert stored_at(page, MIDDLE[0] + 7, MIDDLE[1] - 5) == (y - 5, x + 7)
    for _ in range(3):
        page.press("+")
    until(lambda: zoom(page) == "195 %", "larger than the frame")
    page.press("z")
    until(lambda: page.value("document.getElementById('picture').width") == 700, "all of the frame is shown")
    assert page.value("document.getElementById('stage').dataset.is") == "fit"


def test_on_a_large_screen_the_true_ratio_is_said(page: BrowserPage) -> None:
    page.resize(3600, 2000)
    page.press("x")
    until(lambda: zoom(page) == "100 % · 1:2", "more than 2048 pixels are seen, so every second one is shown")
    page.resize(1280, 800)
    until(lambda: zoom(page) == "100 %", "single pixels are shown")


def test_the_wheel_keeps_the_pixel_under_the_pointer(page: BrowserPage) -> None:
    before, place = zoom(page), stored_at(page, *MIDDLE)
    for _ in range(6):
        page.wheel(*MIDDLE, -100)
    until(lambda: zoom(page) != before, "the picture is larger")
    assert np.abs(np.subtract(stored_at(page, *MIDDLE), place)).max() <= 2
    assert page.value("scrollY") == 0


def test_a_drag_moves_the_picture(page: BrowserPage) -> None:
    page.press("x")
    until(lambda: stripes_seen(page) > 100, "single columns are seen")
    y, x = stored_at(page, *MIDDLE)
    for kind, dx in (("mousePressed", 0), ("mouseMoved", -30), ("mouseMoved", -90), ("mouseReleased", -90)):
        page.drag(kind, MIDDLE[0] + dx, MIDDLE[1] + dx / 3)
    assert stored_at(page, *MIDDLE) == (y + 30, x + 90)
    page.press("l")
    page.press("k")
    assert stored_at(page, *MIDDLE) == (y + 110, x + 170)
    for _ in range(30):
        page.press("j")
    assert stored_at(page, 20, MIDDLE[1])[1] <= 20, "the frame ends at the edge"
    until(lambda: stripes_seen(page) > 100, "the part that is seen now is drawn")


def test_only_the_first_button_moves_the_picture(page: BrowserPage) -> None:
    """Also when its end was not seen, as one over a menu or outside of the window."""
    page.press("x")
    until(lambda: stripes_seen(page) > 100, "single columns are seen")
    y, x = stored_at(page, *MIDDLE)
    for button, number in (("right", 2), ("middle", 4), ("left", 1)):
        page.drag("mousePressed", *MIDDLE, button, number)
        if button != "left":
            page.drag("mouseMoved", MIDDLE[0] - 60, MIDDLE[1], button, number)
        page.point(MIDDLE[0] - 90, MIDDLE[1])
        place = f"y {y:,}, x {x - 90:,} "
        until(lambda place=place: page.text("#pixel").startswith(place), f"no move by {button}")  # type: ignore[misc]
        page.point(*MIDDLE)


def test_one_to_one_on_a_wide_screen(page: BrowserPage) -> None:
    page.resize(2400, 1200)
    page.press("x")
    until(lambda: zoom(page) == "100 %" and stripes_seen(page) > 100, "single columns are seen")
    canvas = page.value("document.getElementById('picture').width")
    assert box(page, "#picture")["width"] == pytest.approx(canvas, abs=0.5)


@pytest.mark.parametrize("shapes", [[[1500, 2100, 3]] * 2, [[1500, 2100], [3000, 2100]]])
def test_the_view_stays_with_the_next_picture(page: BrowserPage, shapes: list[list[int]]) -> None:
    """Of colour, and of a mosaic that has grown."""
    centres = page.value(
        "import('/page/view.js').then(({ PictureView }) => { const view = new PictureView();"
        " const facts = { start: [0, 0], steps: [1, 1] };"
        f" const [first, next] = {shapes}.map((shape) => ({{ shape, pixel_um: null }}));"
        " view.place(facts, first); view.zoomTo(4); view.panBy(80, -40); const before = view.centre;"
        " view.place(facts, next); return [before, view.centre]; })"
    )
    assert centres[0] == centres[1] != [750, 1050]


def test_two_fingers_zoom(page: BrowserPage) -> None:
    page.resize(390, 844)
    page.command("Emulation.setTouchEmulationEnabled", enabled=True, maxTouchPoints=2)
    until(lambda: box(page, "#picture")["width"] <= 390, "the picture fits the phone")
    before = float(zoom(page).split()[0])
    middle = box(page, "#stage")["top"] + 150
    for kind, gap in (("touchStart", 40), ("touchMove", 60), ("touchMove", 80), ("touchMove", 120)):
        points = [{"x": 195 - gap, "y": middle, "id": 0}, {"x": 195 + gap, "y": middle, "id": 1}]
        page.command("Input.dispatchTouchEvent", type=kind, touchPoints=points)
    page.command("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    until(lambda: float(zoom(page).split()[0]) == pytest.approx(3 * before, rel=0.1), f"{zoom(page)} of {before}")


def test_full_screen(page: BrowserPage) -> None:
    page.press("f")
    until(lambda: box(page, "#frame")["width"] == page.value("innerWidth"), "it is as wide as the window")
    assert box(page, "#frame")["height"] >= page.value("innerHeight") - 1
    assert page.value("document.getElementById('full').getAttribute('aria-pressed')") == "true"
    page.press("f")
    until(lambda: box(page, "#frame")["width"] < 1000, "the rest is back")


def test_the_scale_bar_is_as_long_as_it_says(page: BrowserPage) -> None:
    for key, factor in (("x", 1.0), ("+", 1.25), ("+", 1.5625)):
        page.press(key)
        until(partial(is_zoomed, page, f"{round(100 * factor)} %"), "the zoom")
        number, unit = page.text("#scale-bar").split()
        assert unit == "µm"
        assert box(page, "#scale-bar .bar")["width"] == pytest.approx(float(number) / 0.5 * factor, abs=0.5)


def test_no_scale_bar_without_a_pixel_size(tmp_path: Path) -> None:
    with shown(tmp_path, {}) as page:
        assert page.value("document.getElementById('scale-bar').hidden")


def test_each_control_has_a_name(page: BrowserPage) -> None:
    """For people who hear the page: what Chromium tells their reader."""
    page.command("Accessibility.enable")
    nodes = page.command("Accessibility.getFullAXTree")["nodes"]
    controls = [
        one for one in nodes if one["role"]["value"] in ("button", "slider", "combobox", "textbox", "searchbox")
    ]
    assert len(controls) > 8
    nameless = [one["role"]["value"] for one in controls if not one["name"]["value"].strip()]
    assert nameless == []
