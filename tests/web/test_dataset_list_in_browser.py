"""The list of datasets in a real browser: search, mirrors inside their run, lines that work, many datasets."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from acqstream.cli.main import main
from tests.log.make_frames import frame_of, write_log
from tests.waiting import WAIT_S, until
from tests.web.browser import BrowserPage, needs_browser
from tests.web.web_process import web_thread

pytestmark = [needs_browser, pytest.mark.oracle]


@pytest.fixture
def page(tmp_path: Path) -> Iterator[BrowserPage]:
    """A data directory with two runs, one with a mirror, and 60 more."""
    (tmp_path / "data").mkdir()
    for name in ("anna embryo", "bernd-cells", *(f"scan{number:02}" for number in range(60))):
        write_log(tmp_path / "data" / name, [frame_of(0, (64, 64), axes={"time": 0})])
    with pytest.raises(SystemExit) as end:
        main(["mirror", str(tmp_path / "data" / "anna embryo"), "--to", "n5"])
    assert end.value.code in (0, None)
    with web_thread(tmp_path / "data", endpoint="tcp://127.0.0.1:9") as site, BrowserPage(tmp_path) as page:
        page.open(f"{site.url}/")
        until(lambda: page.text("#dataset-count") == "62 datasets", "the list is shown")
        yield page
        assert page.errors == []


def names(page: BrowserPage) -> list[str]:
    found: list[str] = page.value("[...document.querySelectorAll('#dataset-list h4')].map((one) => one.textContent)")
    return found


def search(page: BrowserPage, text: str) -> None:
    page.value(
        f"(() => {{ const s = document.getElementById('search'); s.value = {text!r};"
        "s.dispatchEvent(new Event('input')); })()"
    )


def test_words_find_a_run_with_its_mirror(page: BrowserPage) -> None:
    search(page, "EMBRYO anna")
    until(lambda: names(page) == ["anna embryo"], "the run is found, and its mirror is no entry")
    assert page.text("#dataset-count") == '1 dataset with "EMBRYO anna"'
    assert "mirrors: n5" in page.text("#dataset-list")
    assert "1 frame stored · 8.19 kB" in page.text("#dataset-list")
    page.value("document.querySelectorAll('#dataset-list details').forEach((one) => (one.open = true))")
    lines = "[...document.querySelectorAll('#dataset-list code')].map((one) => one.textContent)"
    until(lambda: sum("acqstream.open" in one for one in page.value(lines)) == 2, "run and mirror have lines")
    for line in (one for one in page.value(lines) if one.startswith("import acqstream")):
        program = f"{line}; print(ds.levels[0].shape[-2:])"
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=WAIT_S, check=True
        )
        assert done.stdout == "(64, 64)\n"
    labels = page.text("#dataset-list")
    assert all(word in labels for word in ("Neuroglancer", "napari here", "Python here"))
    search(page, "<b>nothing</b>")
    until(lambda: page.text("#dataset-count") == '0 datasets with "<b>nothing</b>"', "nothing is found")


def test_a_key_typed_into_the_search_is_text(page: BrowserPage) -> None:
    page.value("document.getElementById('search').focus()")
    for key in "dn2":
        page.press(key)
    assert page.value("document.getElementById('search').value") == "dn2"
    assert page.value("document.documentElement.dataset.theme") == "day"


def test_a_long_list_has_pages(page: BrowserPage) -> None:
    first = names(page)
    assert len(first) == 50
    assert page.value("document.querySelectorAll('#dataset-list h3').length") == 1, "one heading for the day"
    page.value("document.getElementById('older').click()")
    until(lambda: len(names(page)) == 12, "the rest")
    assert not set(first) & set(names(page))
    assert page.value("document.getElementById('older').hidden")
    page.value("document.getElementById('newer').click()")
    until(lambda: names(page) == first, "back")
