"""Runs on the page in a real browser: what stays when one ends, several at a time, the sentence, night."""

from __future__ import annotations

import io
import json
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import acqstream
from acqstream.model.units import size_text
from tests.live.daemon_process import DaemonProcess
from tests.log.make_frames import frame_of, write_log
from tests.waiting import HANG_S, until
from tests.web.browser import BrowserPage, needs_browser
from tests.web.test_page_in_browser import frame_of_squares, shown_number
from tests.web.web_process import Site, web_process, web_thread

pytestmark = [needs_browser, pytest.mark.oracle]


def strip_names(page: BrowserPage) -> list[str]:
    found: list[str] = page.value("[...document.querySelectorAll('#strip b')].map((one) => one.textContent)")
    return [] if page.value("document.getElementById('strip').hidden") else found


def test_the_last_picture_and_the_receipt_stay(daemon: DaemonProcess, page: BrowserPage) -> None:
    """Also while the next run records, which is one key away."""
    with acqstream.create("first", endpoint=daemon.endpoint) as run:
        run.put(frame_of_squares(11), time=0)
        until(lambda: shown_number(page) == 11, "the run is shown")
    until(lambda: "complete" in page.text("#ended"), "it has ended")
    with acqstream.create("second", endpoint=daemon.endpoint) as run:
        run.put(frame_of_squares(22), time=0)
        until(lambda: page.text("#next-run") == "next run: second", "the next one is offered")
        assert (page.text("#live-name"), shown_number(page)) == ("first", 11)
        assert page.text("#live-age") == "not recording"
        assert "1 frame stored" in page.text(".column")
        page.press("n")
        until(lambda: shown_number(page) == 22, "one key shows it")
        assert page.value("document.getElementById('next-run').hidden")


def test_a_page_without_a_run_shows_the_latest_dataset(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    write_log(tmp_path / "data" / "old", [frame_of(0, (96, 128), axes={"time": 0})])
    with (
        DaemonProcess(tmp_path / "data") as daemon,
        web_process(daemon.data, "--endpoint", daemon.endpoint) as site,
        BrowserPage(tmp_path) as page,
    ):
        page.open(f"{site.url}/")
        until(lambda: page.text("#live-name") == "old", "the dataset is shown")
        until(lambda: "1 frame stored" in page.text("#receipt"), "so is its receipt")
        with acqstream.create("new", endpoint=daemon.endpoint) as run:
            run.put(frame_of_squares(5), time=0)
            until(lambda: shown_number(page) == 5, "a run that begins is shown instead")


def test_several_runs_have_a_strip(daemon: DaemonProcess, page: BrowserPage) -> None:
    runs = [acqstream.create(f"camera{number}", endpoint=daemon.endpoint) for number in range(3)]
    for number, run in enumerate(runs):
        run.put(frame_of_squares(100 + number), time=0)
    until(lambda: len(strip_names(page)) == 3, "each run has a small picture")
    drawn = "[...document.querySelectorAll('#strip canvas')].every((one) => one.width === 128)"
    until(lambda: page.value(drawn), "they are drawn")
    names = strip_names(page)
    for name in (names[1], names[2], names[0]):
        page.press("n")
        until(lambda name=name: page.text("#live-name") == name, "the key goes round")  # type: ignore[misc]
    page.value("document.querySelectorAll('#strip button')[2].click()")
    until(lambda: page.text("#live-name") == names[2], "a click chooses one")
    for run in runs:
        run.close()
    until(lambda: page.value("document.getElementById('strip').hidden"), "one picture is left: no strip")
    assert page.text("#live-name") == names[2]


def hide(page: BrowserPage, is_hidden: bool) -> None:
    """Put the page into the background, where it asks for nothing."""
    page.value(f"Object.defineProperty(document, 'hidden', {{ value: {str(is_hidden).lower()}, configurable: true }})")
    page.value("document.dispatchEvent(new Event('visibilitychange'))")


def test_the_last_frame_is_shown_after_a_time_without_the_server(daemon: DaemonProcess, page: BrowserPage) -> None:
    with acqstream.create("cells", endpoint=daemon.endpoint) as run:
        run.put(frame_of_squares(1), time=0)
        until(lambda: shown_number(page) == 1, "the run is shown")
        hide(page, True)
        run.put(frame_of_squares(2), time=1)
    asked = "fetch('/api/status').then((answer) => answer.json()).then(({ texts }) => texts.ended.length)"
    until(lambda: page.value(asked) == 1, "it has ended")
    hide(page, False)
    until(lambda: shown_number(page) == 2, "the last frame is shown")
    until(lambda: "2 frames stored" in page.text("#ended"), "with the receipt")


def test_another_picture_does_not_stay_under_the_name_of_a_run(daemon: DaemonProcess, page: BrowserPage) -> None:
    with acqstream.create("first", endpoint=daemon.endpoint) as run:
        run.put(frame_of_squares(11), time=0)
        until(lambda: shown_number(page) == 11 and "frame 0" in page.text("#live-facts"), "the run is shown")
        with acqstream.create("second", endpoint=daemon.endpoint):
            until(lambda: page.text("#next-run") == "next run: second", "the next one is offered")
            page.press("n")
            until(lambda: not page.value("document.getElementById('no-picture').hidden"), "it has no picture")
            assert page.text("#no-picture") == "no frame yet"
            assert (page.text("#live-name"), shown_number(page)) == ("second", None)
            assert page.text("#live-facts") == page.text("#saturated") == ""
            assert page.value("document.getElementById('histogram').children.length") == 0
            page.press("n")
            until(lambda: shown_number(page) == 11, "back")


def test_a_refused_question_is_asked_again(daemon: DaemonProcess, page: BrowserPage) -> None:
    """A busy server refuses some; here the first one about a run that has ended."""
    page.value(
        "(() => { window.asked = 0; const ask = window.fetch; window.fetch = (url, ...more) =>"
        " url === '/api/datasets/cells' && !document.querySelector('#runs article') && ++window.asked === 1"
        " ? Promise.resolve(new Response('', { status: 503 })) : ask(url, ...more); })()"
    )
    with acqstream.create("cells", endpoint=daemon.endpoint) as run:
        run.put(frame_of_squares(11), time=0)
        until(lambda: shown_number(page) == 11, "the run is shown")
    until(lambda: page.value("window.asked > 1"), "it has ended, and is asked for again")
    assert page.value("document.getElementById('no-picture').hidden")
    assert shown_number(page) == 11


def test_back_from_a_missing_frame(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    axes: list[dict[str, int | str]] = [{"channel": one, "time": time} for one, time in (("A", 0), ("B", 0), ("A", 1))]
    write_log(tmp_path / "data" / "old", [frame_of(number, (96, 128), axes=one) for number, one in enumerate(axes)])
    missing = "!document.getElementById('no-picture').hidden"
    with web_thread(tmp_path / "data", endpoint="tcp://127.0.0.1:9") as site, BrowserPage(tmp_path) as page:
        page.open(f"{site.url}/")
        until(lambda: page.value("document.querySelector('.look') !== null"), "the dataset is listed")
        page.value("document.querySelector('.look').click()")
        until(lambda: "frame 2" in page.text("#live-facts"), "the newest frame is shown")
        page.press("2")
        until(lambda: "frame 1" in page.text("#live-facts"), "the other channel")
        for _ in range(2):
            page.press("ArrowRight")
            until(lambda: page.value(missing), "it has one frame only")
            page.press("ArrowLeft")
            until(lambda: not page.value(missing), "back")
        assert "frame 1" in page.text("#live-facts")


def test_more_runs_than_small_pictures(page: BrowserPage) -> None:
    """The one that is shown has one, with its own state; the key goes to all."""
    found = page.value(
        "import('/page/strip.js').then(({ RunStrip }) => {"
        " const live = { name: 'run12', show(folder) { this.name = folder; }, follow() {} };"
        " const strip = new RunStrip(live);"
        " const run = (n) => ({ folder: `run${n}`, name: `r${n}`, state: 'RUNNING' });"
        " strip.follow({ runs: [...Array(15).keys()].map(run) });"
        " const text = (one, name) => one.querySelector(name).textContent;"
        " const items = [...document.querySelectorAll('#strip button')];"
        " const shown = items.map((one) => [text(one, 'b'), text(one, 'small')]);"
        " const went = [0, 1, 2].map(() => (strip.next(), live.name));"
        " document.getElementById('strip').hidden = true;"  # that of the page has none
        " return { shown, went }; })"
    )
    assert found["shown"] == [[f"r{number}", "running"] for number in range(13)]
    assert found["went"] == ["run13", "run14", "run0"]


def test_a_run_has_a_sentence_and_a_bar_of_planned_frames(daemon: DaemonProcess, page: BrowserPage) -> None:
    with acqstream.create("cells", endpoint=daemon.endpoint, expect=8) as run:
        run.put(frame_of_squares(1), time=0)
        run.put(frame_of_squares(2), time=1)
        run.skip(reason="shutter")
        until(lambda: "safe" in page.text(".sentence"), "the sentence is shown")
        until(lambda: page.value("document.querySelector('.run progress').value") == 0.375, "three of eight are done")
        assert "8 frames planned" in page.text(".run")
        until(lambda: "1 frame skipped" in page.text(".skipped"), "the skipped one is named")


def test_times_are_local_and_in_the_format_of_the_reader(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with web_thread(tmp_path / "data", endpoint="tcp://127.0.0.1:9") as site, BrowserPage(tmp_path) as page:
        page.command("Emulation.setTimezoneOverride", timezoneId="Asia/Tokyo")
        page.command("Emulation.setLocaleOverride", locale="de-DE")
        page.open(f"{site.url}/")
        shown = page.value("import('/page/texts.js').then((m) => m.timeText('2025-03-01T18:40:12+00:00'))")
        assert shown == "02.03.2025, 03:40"
        now = page.value("import('/page/texts.js').then((m) => m.timeText(new Date(2026, 1, 1, 9, 5) / 1000))")
        assert now == "01.02.2026, 09:05"
        clock = "const d = new Date(); d.setHours(9, 5); return m.timeText(d.toISOString())"
        assert page.value(f"import('/page/texts.js').then((m) => {{ {clock}; }})") == "09:05"
        assert page.value("import('/page/texts.js').then((m) => m.timeText('no time'))") == ""


def pixels(page: BrowserPage, path: Path) -> np.ndarray:
    page.screenshot(path)
    with Image.open(io.BytesIO(path.read_bytes())) as image:
        return np.asarray(image.convert("RGB")).reshape(-1, 3).astype(int)


def test_night_has_no_white(daemon: DaemonProcess, page: BrowserPage, tmp_path: Path) -> None:
    """Everything is red to amber, pictures and controls included, and stays so when the page is loaded again."""
    runs = [acqstream.create(name, endpoint=daemon.endpoint) for name in ("one", "two")]
    for run in runs:
        for channel in ("DAPI", "GFP"):
            run.put(frame_of_squares(0b111111000111), time=0, channel=channel)
    until(lambda: len(strip_names(page)) == 2 and shown_number(page), "two runs are shown")
    until(lambda: page.value("document.querySelector('.look img')?.naturalWidth > 1"), "and the list")
    assert pixels(page, tmp_path / "day.png").min(1).max() > 200, "white by day"
    page.press("d")
    for _ in range(2):
        for place in ("'live'", "'datasets'"):
            page.value(f"document.getElementById({place}).scrollIntoView()")
            shot = pixels(page, tmp_path / "night.png")
            assert shot[:, 2].max() <= 90, "hardly any blue"
            assert (shot[:, 1] <= 0.75 * shot[:, 0] + 8).all(), "red is the strongest"
            assert shot[:, 0].max() > 150
        page.reload()
        until(lambda: page.value("document.readyState") == "complete" and shown_number(page), "loaded again")
    bright = pixels(page, tmp_path / "night.png").sum()
    page.press("b")
    assert page.value("document.getElementById('brightness').value") == "70"
    assert pixels(page, tmp_path / "dark.png").sum() < 0.8 * bright
    page.press("d")
    assert page.value("document.documentElement.dataset.theme") == "day"
    for run in runs:
        run.close()


def test_nothing_moves_or_blinks(page: BrowserPage) -> None:
    assert page.value("document.getAnimations().length") == 0
    sheets = page.value("[...document.styleSheets].flatMap((s) => [...s.cssRules]).map((r) => r.cssText).join()")
    assert "@keyframes" not in sheets
    assert "prefers-reduced-motion" in sheets


def test_night_without_a_place_to_remember_it(daemon_site: Site, tmp_path: Path) -> None:
    """A browser may deny storage: the choice holds for the visit."""
    (tmp_path / "denied").mkdir()
    with BrowserPage(tmp_path / "denied") as page:
        denied = "Object.defineProperty(window, 'localStorage', { get() { throw new Error('denied'); } })"
        page.command("Page.addScriptToEvaluateOnNewDocument", source=denied)
        page.open(f"{daemon_site.url}/")
        page.press("d")
        assert page.value("document.documentElement.dataset.theme") == "night"
        assert page.value("document.getElementById('theme').getAttribute('aria-pressed')") == "true"
        page.press("b")
        assert page.value("document.getElementById('brightness').value") == "70"
        assert page.errors == []


def test_a_run_in_folders_is_shown_with_its_size_and_listed_by_folder(daemon: DaemonProcess, page: BrowserPage) -> None:
    name = "anna/2026-11-29/embryo"
    with acqstream.create(name, endpoint=daemon.endpoint, mirrors=["n5"]) as run:
        run.put(frame_of_squares(33), time=0)
        until(lambda: shown_number(page) == 33, "its picture is found by the whole name")
        assert page.text("#live-name") == name
        run.note("drug added")
        until(lambda: "drug added" in page.text("#runs"), "its notes too")
        entry = "#dataset-list [data-size-of]"
        until(lambda: page.value(f"Boolean(document.querySelector('{entry}'))"), "it is listed")
        size = size_text(frame_of_squares(33).nbytes)
        until(lambda: page.text(entry).startswith(f"{size} ·"), "with its size so far")
        assert page.text("#dataset-list h3") == "anna / 2026-11-29"
    run.wait_for_mirrors(HANG_S)
    until(lambda: "1 frame stored" in page.text("#dataset-list"), "the receipt is listed")
    until(lambda: page.text(entry) == "", "the size is that of the receipt")
    assert "mirrors: n5" in page.text("#dataset-list")
    assert page.text("#dataset-list h4") == name
    page.value("document.querySelectorAll('#dataset-list details').forEach((one) => (one.open = true))")
    lines = "[...document.querySelectorAll('#dataset-list code')].map((one) => one.textContent)"
    until(lambda: sum("acqstream.open" in one for one in page.value(lines)) == 2, "run and mirror have lines")
    (address,) = [line.split('"')[1] for line in page.value(lines) if line.startswith("import zarr")]
    for url in (address, address.replace("/embryo/ome.zarr", "/embryo.n5")):  # what is pasted works
        with urllib.request.urlopen(f"{url}/{'zarr.json' if url == address else 'attributes.json'}") as answer:
            assert json.load(answer)
    link = page.value("document.querySelector('#dataset-list a[href]').getAttribute('href')")
    assert link == "/view/anna%2F2026-11-29%2Fembryo"
    with urllib.request.urlopen(f"{address.partition('/data/')[0]}{link}/state.json") as answer:
        assert "/data/anna/2026-11-29/embryo@" in json.load(answer)["layers"][0]["source"]
