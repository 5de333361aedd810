"""The picture in a real browser: stored values under the pointer, and all channels in one picture."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import acqstream
from tests.live.daemon_process import DaemonProcess
from tests.log.make_frames import frame_of, write_log
from tests.waiting import until
from tests.web.browser import IS_FIREFOX, BrowserPage, needs_browser
from tests.web.test_page_in_browser import TILE, frame_of_squares
from tests.web.web_process import Site, web_process, web_thread

pytestmark = [needs_browser, pytest.mark.oracle]

STEP = 3  # a picture of at most 1024 pixels of a frame with 2100
LARGE = frame_of(0, (1500, 2100), axes={"time": 0}, bits=12, metadata={"PixelSizeUm": 0.5})


@pytest.fixture
def still(tmp_path: Path) -> Iterator[Site]:
    """A finished dataset with one frame that is larger than its picture."""
    (tmp_path / "data").mkdir()
    write_log(tmp_path / "data" / "large", [LARGE])
    with web_thread(tmp_path / "data", endpoint="tcp://127.0.0.1:9") as site:
        yield site


@pytest.fixture
def page(still: Site, tmp_path: Path) -> Iterator[BrowserPage]:
    with BrowserPage(tmp_path) as page:
        page.open(f"{still.url}/")
        show_dataset(page)
        yield page
        assert page.errors == []


def show_dataset(page: BrowserPage) -> None:
    until(lambda: page.value("document.querySelector('.look') !== null"), "the dataset is listed")
    page.value("document.querySelector('.look').click()")
    until(lambda: page.value("document.getElementById('picture').width > 1"), "the picture is shown")


def place_of(page: BrowserPage, y: float, x: float) -> tuple[float, float]:
    """The place of the viewport (x, y) that shows the middle of a pixel of the picture."""
    box = page.value(
        "(() => { const c = document.getElementById('picture'); c.scrollIntoView({ block: 'center' });"
        "const b = c.getBoundingClientRect(); return [b.left, b.top, b.width, b.height, c.width, c.height]; })()"
    )
    left, top, width, height, columns, rows = box
    scale = min(width / columns, height / rows)
    left, top = left + (width - scale * columns) / 2, top + (height - scale * rows) / 2
    return left + (x + 0.5) * scale, top + (y + 0.5) * scale


def text_of(y: int, x: int, *, um: float = 0.5) -> str:
    """The text of a pixel of LARGE."""
    return f"y {y:,}, x {x:,} ({y * um:,.1f}, {x * um:,.1f} µm) · {LARGE.image[y, x]:,}"


def is_near(page: BrowserPage, y: int, x: int) -> bool:
    """The page shows the place and the stored value of a pixel that this pixel of the picture stands for.

    In Firefox that or a neighbour: a mouse is at whole pixels of the screen there.
    """
    near = range(-IS_FIREFOX * STEP, STEP + IS_FIREFOX * STEP)
    stored = [(STEP * y + row, STEP * x + column) for row in near for column in near]
    stored = [(row, column) for row, column in stored if 0 <= row < 1500 and 0 <= column < 2100]
    return page.text("#pixel") in [text_of(*one) for one in stored]


def test_the_pointer_shows_place_and_stored_value(page: BrowserPage) -> None:
    for y, x in ((0, 0), (120, 333), (499, 699)):
        page.point(*place_of(page, y, x))
        until(partial(is_near, page, y, x), f"the value at {y}, {x}")
        assert not page.value("document.getElementById('pointer-mark').hidden")
    page.point(2, 2)
    until(lambda: page.text("#pixel") == "", "no value beside the picture")
    assert page.value("document.getElementById('pointer-mark').hidden")


def test_a_finger_shows_it_too(page: BrowserPage) -> None:
    page.resize(390, 844)
    page.command("Emulation.setTouchEmulationEnabled", enabled=True)

    def is_shown() -> bool:
        """Once the layout of the narrow window rests: the list of datasets may still come."""
        page.touch(*place_of(page, 200, 100))
        until(lambda: page.text("#pixel").endswith("…") is False and page.text("#pixel") != "", "a value is shown")
        return is_near(page, 200, 100)

    until(is_shown, "the value under the finger")
    y, x = (int(part[2:].replace(",", "")) for part in page.text("#pixel").split(" (")[0].split(", "))
    assert abs(y - STEP * 200) <= 2 * STEP, (y, x)
    assert abs(x - STEP * 100) <= 2 * STEP, (y, x)
    assert page.text("#pixel") == text_of(y, x)
    assert page.value("document.documentElement.scrollWidth") <= 390


def test_keys_move_the_point(page: BrowserPage) -> None:
    page.press("ArrowUp", is_shifted=True)
    until(lambda: is_near(page, 250, 350), "the first key takes the middle")
    moves = {"ArrowUp": (249, 350), "ArrowLeft": (249, 349), "ArrowDown": (250, 349), "ArrowRight": (250, 350)}
    for key, place in moves.items():
        page.press(key, is_shifted=True)
        until(partial(is_near, page, *place), key)


def test_questions_are_few(page: BrowserPage) -> None:
    """At most one is in progress, and the next one comes PERIOD_MS later."""
    page.value(
        "(() => { const ask = window.fetch; window.begun = []; window.open_questions = window.peak = 0;"
        "window.fetch = async (url, ...more) => { if (!String(url).includes('/values?')) return ask(url, ...more);"
        "  window.begun.push(performance.now()); window.open_questions += 1;"
        "  window.peak = Math.max(window.peak, window.open_questions);"
        "  try { return await ask(url, ...more); } finally { window.open_questions -= 1; } }; })()"
    )
    left, top = place_of(page, 100, 100)
    for number in range(200):
        page.point(left + number, top + number % 7)
    until(lambda: page.value("window.begun.length > 1 && window.open_questions === 0"), "values are asked for")
    until(lambda: not page.text("#pixel").endswith("…"), "the last value is shown")
    begun = page.value("window.begun")
    assert page.value("window.peak") == 1
    assert min(np.diff(begun)) >= 290, begun  # the page's own timer: load makes it longer only


RED, BLUE, BOTH, NONE = ([255, 48, 64], [67, 147, 255], [255, 195, 255], [0, 0, 0])


def colors(page: BrowserPage) -> list[list[int]]:
    """Red, green and blue in the middles of the first four squares."""
    found: list[list[int]] = page.value(
        "(() => { const c = document.getElementById('picture').getContext('2d'); return [0, 1, 2, 3].map("
        f"(n) => [...c.getImageData({TILE} * n + {TILE // 2}, {TILE // 2}, 1, 1).data.slice(0, 3)]); }})()"
    )
    return found


def shows(page: BrowserPage, *expected: list[int]) -> bool:
    return all(np.abs(np.subtract(one, other)).max() < 40 for one, other in zip(colors(page), expected, strict=True))


def press(page: BrowserPage, key: str, *expected: list[int]) -> None:
    page.press(key)
    until(lambda: shows(page, *expected), f"{key!r} shows other colours")


def is_pressed(page: BrowserPage, selector: str) -> Any:
    return page.value(f"document.querySelector({selector!r}).getAttribute('aria-pressed')") == "true"


def test_all_channels_in_one_picture(tmp_path: Path) -> None:
    white, grey = [255] * 3, [0] * 3
    with (
        DaemonProcess(tmp_path / "data") as daemon,
        web_process(daemon.data, "--endpoint", daemon.endpoint) as site,
        BrowserPage(tmp_path) as page,
        acqstream.create("cells", endpoint=daemon.endpoint) as run,
    ):
        page.open(f"{site.url}/")
        run.put(frame_of_squares(0b0011), time=0, channel="DAPI")
        run.put(frame_of_squares(0b0101) // 4, time=0, channel="mCherry")  # its contrast is its own
        until(lambda: shows(page, white, white, grey, grey), "one channel at a time is grey")
        until(lambda: page.value("!document.getElementById('all-channels').hidden"), "all can be shown")
        press(page, "0", BOTH, BLUE, RED, NONE)
        assert is_pressed(page, "#all-channels")
        assert "DAPI + mCherry" in page.text("#live-facts")
        page.point(*place_of(page, TILE // 2, TILE // 2))
        until(lambda: page.text("#pixel") == "y 8, x 8 · DAPI 3,500 · mCherry 875", "values of both")

        run.put(frame_of_squares(0b1100), time=1, channel="DAPI")
        run.put(frame_of_squares(0b0101) // 4, time=1, channel="mCherry")
        until(lambda: shows(page, RED, NONE, BOTH, BLUE), "the newest frames are shown")
        press(page, "ArrowLeft", BOTH, BLUE, RED, NONE)  # time 0 of both
        press(page, " ", RED, NONE, BOTH, BLUE)

        select = "document.getElementById('contrast-channel')"
        page.value(f"{select}.selectedIndex = 1; {select}.dispatchEvent(new Event('input'))")
        until(lambda: page.text("#low-text") == "125", "the contrast of the other channel is shown")
        page.value("document.getElementById('high').value = 60000")
        page.value("const low = document.getElementById('low'); low.value = 876; low.dispatchEvent(new Event('input'))")
        until(lambda: shows(page, NONE, NONE, BLUE, BLUE), "one channel is black, the other one is kept")

        press(page, "1", grey, grey, white, white)
        assert not is_pressed(page, "#all-channels")
        assert all(url.startswith((f"{site.url}/", "about:", "chrome:", "data:", "blob:")) for url in page.requests)
