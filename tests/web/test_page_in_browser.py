"""The page in a real browser, while a real daemon records: numbers, picture, alarms, keys, and a phone."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import acqstream
from acqstream.client.daemon_requests import fetch_status
from tests.live.daemon_process import DaemonProcess
from tests.waiting import until
from tests.web.browser import BrowserPage, needs_browser
from tests.web.web_process import Site, web_process

pytestmark = [needs_browser, pytest.mark.oracle]

SHAPE = (96, 128)
TILE = 16  # pixels of a square: JPEG keeps its middle
EVIL = "<img src=x onerror=alert(1)>"


def frame_of_squares(number: int) -> NDArray[np.uint16]:
    """Bright and dark squares that spell the number in binary digits, so that no two frames look alike."""
    digits = [number >> bit & 1 for bit in range(SHAPE[0] * SHAPE[1] // TILE**2)]
    squares = np.array(digits, np.uint16).reshape(SHAPE[0] // TILE, SHAPE[1] // TILE)
    return np.kron(squares, np.ones((TILE, TILE), np.uint16)) * 3000 + 500


def number_of(pixels: list[int], width: int) -> int:
    """The number that the grey values of a picture spell."""
    grey = np.array(pixels, np.uint8).reshape(-1, width)
    middle = grey[TILE // 2 :: TILE, TILE // 2 :: TILE]
    return sum(int(one > 128) << bit for bit, one in enumerate(middle.ravel()))


def shown_number(page: BrowserPage) -> int | None:
    """The number that the live picture spells; None before the first picture."""
    found: Any = page.value(
        "(() => { const c = document.getElementById('picture'); if (c.width < 2) return null;"
        "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "return [c.width, Array.from(d.filter((_, i) => i % 4 === 0))]; })()"
    )
    return None if found is None else number_of(found[1], found[0])


def is_shown(page: BrowserPage, number: int) -> bool:
    return shown_number(page) == number


def test_numbers_and_picture_follow_a_run(daemon: DaemonProcess, daemon_site: Site, page: BrowserPage) -> None:
    until(lambda: "No acquisition is running" in page.text("#idle"), "the page says that nothing runs")
    with acqstream.create("cells", endpoint=daemon.endpoint) as run:
        for number in (1, 2, 3):
            run.put(frame_of_squares(0b101010 * number), time=number)
        until(lambda: run.progress.durable == 3, "the frames are durable")
        numbers = ["sent", "3", "received", "3", "published", "3", "durable", "3"]
        until(lambda: page.text(".cursors").split() == numbers, "the numbers are shown")
        assert "recording 1 run" in page.value("document.title")
        until(lambda: shown_number(page) == 0b101010 * 3, "the newest frame is shown")
        for number in (900_001, 123_456_789):
            run.put(frame_of_squares(number), time=number)
            until(partial(is_shown, page, number), "the picture is that of the newest frame")
        (status,) = fetch_status(daemon.endpoint).acquisitions
        shown = [f"{status.sent:,}", f"{status.received:,}"]
        until(lambda: page.text(".cursors").split()[1:4:2] == shown, "the page shows what status shows")
        assert "frame 4" in page.text("#live-facts")
    until(lambda: "complete" in page.text("#ended .verdict"), "the receipt is shown")
    assert "5 frames stored of 5 sent" in page.text("#ended")
    until(lambda: page.value("document.title").startswith("idle"), "the title says so, too")


def submit(page: BrowserPage, text: str) -> None:
    page.value(f"document.querySelector('.note input').value = {text!r}")
    page.value("document.querySelector('.note input').dispatchEvent(new Event('input', {bubbles: true}))")
    page.value("document.querySelector('.note button').click()")


def test_a_note_is_added_from_the_page(daemon: DaemonProcess, page: BrowserPage) -> None:
    with acqstream.create("noted", endpoint=daemon.endpoint) as run:
        run.put(frame_of_squares(1), time=0)
        run.note("from the program")
        until(lambda: page.text("#runs h2") == "noted", "the run is shown")
        submit(page, f"drug added {EVIL}")
        until(lambda: page.text(".note output") == "noted", "the page says that it is stored")
        until(lambda: f"drug added {EVIL}" in page.text("#runs .notes"), "the note is shown as text")
        assert "from the program" in page.text("#runs .notes")
        assert page.value("document.querySelector('.note input').value") == ""
        page.value("document.querySelector('.note input').focus()")
        page.press("a")  # a letter of a note is no key of the page
        run.put(frame_of_squares(2), time=1)
        until(partial(is_shown, page, 2), "the next frame is shown")
        assert page.value("document.getElementById('auto').getAttribute('aria-pressed')") == "false"
    with acqstream.open(run.path) as dataset:
        assert [(one.text, one.frame, one.source) for one in dataset.notes] == [
            ("from the program", 1, "run"),
            (f"drug added {EVIL}", 1, "page"),
        ]


def note(page: BrowserPage, number: int) -> Any:
    """What is typed for the run with this number on the page."""
    return page.value(f"document.querySelectorAll('.note input')[{number}].value")


def test_a_note_stays_in_its_card_when_another_run_ends(daemon: DaemonProcess, page: BrowserPage) -> None:
    first = acqstream.create("first", endpoint=daemon.endpoint)
    second = acqstream.create("second", endpoint=daemon.endpoint)
    until(lambda: page.text("#runs article:nth-child(2) h2") == "second", "the runs are shown")
    page.value("document.querySelectorAll('.note input')[1].focus()")
    page.press("x")
    first.close()
    until(lambda: page.text("#runs h2") == "second", "one run is left")
    page.press("n")
    assert note(page, 0) == "xn", "the letter goes where the one before it went"
    third = acqstream.create("third", endpoint=daemon.endpoint)
    until(lambda: page.text("#runs article:nth-child(2) h2") == "third", "another run is shown")
    assert (note(page, 0), note(page, 1)) == ("xn", "")
    page.value("document.querySelector('.note button').click()")
    until(lambda: page.text(".note output") == "noted", "it is stored")
    for run in (second, third):
        run.close()
    with acqstream.open(second.path) as dataset:
        assert [one.text for one in dataset.notes] == ["xn"]


def test_what_is_typed_while_a_note_is_sent_stays(daemon: DaemonProcess, page: BrowserPage) -> None:
    page.value(
        "(() => { const ask = window.fetch; window.fetch = async (...all) => { const answer = await ask(...all);"
        " if (all[1]?.method === 'POST') await new Promise((go) => (window.go = go)); return answer; }; })()"
    )
    with acqstream.create("noted", endpoint=daemon.endpoint):
        until(lambda: page.text("#runs h2") == "noted", "the run is shown")
        submit(page, "one")
        until(lambda: page.value("window.go !== undefined"), "the note is stored, and the answer on its way")
        page.value("document.querySelector('.note input').value = 'two'")
        page.value("window.go()")
        until(lambda: page.text(".note output") == "noted", "the page says that it is stored")
        assert note(page, 0) == "two"


_FULL_DISK = """
import pathlib
from acqstream.storage.files.disk import LocalDisk
free_bytes = LocalDisk.free_bytes
LocalDisk.free_bytes = lambda disk, path: 1000 if pathlib.Path({full!r}).exists() else free_bytes(disk, path)
"""


def test_a_paused_run_is_seen_from_afar(tmp_path: Path) -> None:
    full = tmp_path / "full"
    with (
        DaemonProcess(tmp_path / "data", prelude=_FULL_DISK.format(full=str(full))) as daemon,
        web_process(daemon.data, "--endpoint", daemon.endpoint) as site,
        BrowserPage(tmp_path) as page,
    ):
        page.open(f"{site.url}/")
        run = acqstream.create("cells", endpoint=daemon.endpoint)
        run.put(frame_of_squares(7), time=0)
        until(lambda: page.text(".state") == "RUNNING", "the run is shown")
        assert page.value("document.getElementById('alarm').hidden")
        full.touch()
        until(lambda: page.value("document.title").startswith("⚠ PAUSED: disk full"), "the title says so")
        assert "PAUSED: disk full (cells)" in page.text("#alarm")
        assert page.value("document.getElementById('alarm').getBoundingClientRect().width === innerWidth")
        assert page.text(".state") == "PAUSED"
        full.unlink()
        until(lambda: page.value("document.getElementById('alarm').hidden"), "the alarm ends with the shortage")
        run.close()


def test_names_of_producers_stay_text(daemon: DaemonProcess, page: BrowserPage) -> None:
    with acqstream.create("cells", endpoint=daemon.endpoint) as run:
        run.put(frame_of_squares(5), channel=EVIL, time=0)
        run.put(frame_of_squares(6), channel="b", time=0)
        until(lambda: EVIL in page.text("#channels"), "the channel has its name")
    assert page.value("document.querySelectorAll('#channels img').length") == 0
    until(lambda: EVIL in page.text("#live-facts"), "so has the frame")


def test_keys_choose_what_is_shown(daemon: DaemonProcess, page: BrowserPage) -> None:
    numbers = {}
    with acqstream.create("cells", endpoint=daemon.endpoint) as run:
        for time in range(3):
            for place, channel in enumerate(("DAPI", "GFP")):
                for z in range(3):
                    number = numbers[time, place, z] = 1 + time + 8 * place + 64 * z
                    run.put(frame_of_squares(number), time=time, channel=channel, z=z)
        until(lambda: shown_number(page) == numbers[2, 0, 1], "the newest frame of the first channel, middle plane")

        def press(key: str, expected: int) -> None:
            page.press(key)
            until(lambda: shown_number(page) == expected, f"{key!r} shows another frame")

        press("2", numbers[2, 1, 1])
        press("PageUp", numbers[2, 1, 2])
        press("PageDown", numbers[2, 1, 1])
        press("ArrowLeft", numbers[1, 1, 1])
        press("ArrowLeft", numbers[0, 1, 1])
        press("ArrowRight", numbers[1, 1, 1])
        press("1", numbers[1, 0, 1])
        press(" ", numbers[2, 0, 1])
        assert page.value("document.getElementById('go-live').getAttribute('aria-pressed')") == "true"
        press("a", numbers[2, 0, 1])
        until(
            lambda: page.value("document.getElementById('auto').getAttribute('aria-pressed')") == "true",
            "contrast is automatic",
        )


def test_contrast_is_held(daemon: DaemonProcess, page: BrowserPage) -> None:
    """A darker frame looks darker; its contrast follows only on request."""
    with acqstream.create("cells", endpoint=daemon.endpoint) as run:
        run.put(frame_of_squares(0b1111), time=0)
        until(lambda: shown_number(page) == 0b1111, "the first frame is shown")
        run.put(frame_of_squares(0b110011) // 4, time=1)
        until(lambda: "frame 1" in page.text("#live-facts"), "the second frame is shown")
        assert shown_number(page) == 0
        page.press("a")
        until(lambda: shown_number(page) == 0b110011, "auto shows it")


@pytest.mark.parametrize(("width", "height"), [(390, 844), (1280, 800)])
def test_nothing_is_wider_than_the_screen(
    daemon: DaemonProcess, daemon_site: Site, page: BrowserPage, width: int, height: int
) -> None:
    page.resize(width, height)
    name = "a_very_long_name_of_a_dataset_without_any_space_" * 2
    with acqstream.create(name, endpoint=daemon.endpoint, mirrors=["n5"]) as run:
        for number in range(5):
            run.put(frame_of_squares(number), time=number, channel=f"channel{number % 2}" * 8, z=number % 3)
        until(lambda: shown_number(page) is not None, "a picture is shown")
        until(lambda: name in page.text("#runs"), "the run is shown")
        until(lambda: page.value("document.querySelectorAll('#dataset-list details').length") > 0, "datasets")
        page.value("document.querySelectorAll('#dataset-list details').forEach((one) => (one.open = true))")
        until(lambda: "acqstream.open" in page.text("#dataset-list"), "lines to copy are shown")
        assert page.value("document.documentElement.scrollWidth") <= width
        size = page.value("parseFloat(getComputedStyle(document.querySelector('.sentence')).fontSize)")
        assert size >= 24  # read from two metres


def test_the_server_that_ends_is_noticed(daemon: DaemonProcess, daemon_site: Site, page: BrowserPage) -> None:
    until(lambda: page.text("#connection") == "live", "the page follows")
    assert daemon_site.process is not None
    daemon_site.process.terminate()
    daemon_site.process.wait()
    until(lambda: page.value("document.title").startswith("⚠ no answer"), "the title says that numbers are old")
    page.open("about:blank")  # it asks no more
    page.errors.clear()  # refused connections


def is_grey(page: BrowserPage) -> bool:
    """The numbers of a run are; False without a run."""
    return bool(page.value("[...document.querySelectorAll('.run')].some((one) => getComputedStyle(one).opacity < 0.9)"))


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_daemon_that_does_not_answer(
    daemon: DaemonProcess, daemon_site: Site, page: BrowserPage, is_killed: bool
) -> None:
    """Stopped or gone: the page says so and for how long, and all is well when it answers again."""
    run = acqstream.create("cells", endpoint=daemon.endpoint, expect=5000)
    run.put(frame_of_squares(7), time=0)
    until(lambda: page.text(".cursors dd") == "1" and "last frame" in page.text("#live-age"), "the run is shown")
    assert " of 5,000 frames safe" in page.text("#runs")
    assert not is_grey(page)
    if is_killed:
        daemon.kill()
    else:
        daemon.pause()
    until(lambda: page.text("#alarm").startswith("⚠ no word from the daemon for"), "the page says so")
    assert page.text(".cursors dd") == "1"
    assert is_grey(page)
    assert page.value("document.title").startswith("⚠ no word from the daemon for")
    assert "not known" in page.text("#live-age")
    assert page.value("document.querySelector('.dot').dataset.is") == "false"
    first = page.text("#alarm").split(":")[0]
    until(lambda: page.text("#alarm").split(":")[0] not in (first, "") and is_grey(page), "the seconds count")
    why = "no daemon answers at" if is_killed else "accepts connections but does not answer"
    until(lambda: why in page.text("#alarm"), "the reason is shown")
    if is_killed:
        daemon.start()
    else:
        daemon.go_on()
    until(lambda: "no word" not in page.value("document.title") and not is_grey(page), "the daemon answers again")
    assert "no word" not in page.text("#alarm")
    run.close()
    log = (daemon.data.parent / "web.log").read_text()
    assert log.count("no word from the daemon: ") == log.count("the daemon answers again after") == 1, log


def test_a_hidden_tab_needs_no_connection(daemon: DaemonProcess, daemon_site: Site, page: BrowserPage) -> None:
    until(lambda: page.text("#connection") == "live", "the page follows")
    page.value(
        "Object.defineProperty(document, 'hidden', { value: true, configurable: true });"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    with acqstream.create("cells", endpoint=daemon.endpoint):
        until(lambda: daemon_site.ask("/api/status").body.count(b'"cells"') > 0, "the server shows the run")
        assert "cells" not in page.text("#runs")
        page.value("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
        until(lambda: "cells" in page.text("#runs"), "the page shows it, once it is seen")
