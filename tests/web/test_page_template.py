"""The page's template: texts are escaped, and nothing of the page is left unfilled."""

from __future__ import annotations

from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.web.page.page_texts import page_texts
from acqstream.web.page_routes import PageTemplate, load_page_files
from tests.monitor.views_of_daemons import daemon_status, receipt_of, run_status, view_of

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
SMALL = (
    '<body><p data-text="name"></p><b data-show="is_bad" data-text="name">'
    '</b><ul data-list="runs" data-item="run"></ul><progress data-share="share"></progress></body>'
    '<template id="run"><li data-word="is_good" data-text="name"></li></template>'
)


class Elements(HTMLParser):
    """Elements outside of templates: name, attributes, text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None], str]] = []
        self._in_template = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_template += tag == "template"
        if not self._in_template:
            self.found.append((tag, dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self._in_template -= tag == "template"

    def handle_data(self, data: str) -> None:
        if self.found and not self._in_template:
            tag, attributes, text = self.found.pop()
            self.found.append((tag, attributes, text + data))


@given(name=st.text(), others=st.lists(st.text(), max_size=3), is_bad=st.booleans())
def test_any_text_is_shown_as_it_is(name: str, others: list[str], is_bad: bool) -> None:
    texts = {
        "name": name,
        "is_bad": is_bad,
        "share": 0.5,
        "runs": [{"name": one, "is_good": is_bad} for one in others],
    }
    shown = Elements(PageTemplate(SMALL).render(texts)).found
    plain = name.replace("\r\n", "\n").replace("\r", "\n")
    assert [tag for tag, _, _ in shown] == ["body", "p", "b", "ul", *["li"] * len(others), "progress"]
    texts_shown = [text.replace("\r\n", "\n").replace("\r", "\n") for tag, _, text in shown if tag in ("p", "b")]
    assert texts_shown == [plain, plain]
    assert ("hidden" in shown[2][1]) == (not is_bad)
    assert all(one["data-is"] == str(is_bad).lower() for tag, one, _ in shown if tag == "li")
    assert shown[-1][1]["value"] == "0.5000"


def test_a_text_that_is_missing_is_an_error() -> None:
    with pytest.raises(KeyError, match="name"):
        PageTemplate('<p data-text="name"></p>').render({})


def page_of(*runs: Any, **values: Any) -> list[tuple[str, dict[str, str | None], str]]:
    view = view_of(*runs, **values).following(daemon_status(*runs[1:]), 5.0, receipt_of)
    return Elements(load_page_files().template.render(page_texts(view, "scope-3", NOW))).found


def test_the_numbers_are_in_the_page_without_any_script() -> None:
    found = page_of(run_status("ended"), run_status("cells", received=81_930, durable=81_203))
    texts = [text for _, _, text in found]
    assert "81,930" in texts
    assert any(one.startswith("last safe frame 81,202") for one in texts)
    assert "81,203 frames safe, 727 not yet · space for 2 h 10 min" in texts
    assert "complete" in texts
    assert sum(tag == "article" for tag, _, _ in found) == 2
    assert next(text for tag, _, text in found if tag == "title").startswith("● recording 1 run · scope-3")


def test_the_page_is_light() -> None:
    """All its files, and the page itself, without compression."""
    files = load_page_files()
    page = files.template.render(page_texts(view_of(run_status()), "scope", NOW))
    assert len(page) + sum(one.size for one in files.by_name.values()) < 150_000


def test_names_of_producers_stay_text() -> None:
    evil = "<img src=x onerror=alert(1)>"
    run = run_status(evil, warnings=((evil, evil, evil),), paused=evil, state="PAUSED")
    found = page_of(run_status("ended"), run)
    assert not any(tag == "img" for tag, _, _ in found)
    assert any(text == evil for _, _, text in found)


def test_the_page_asks_for_files_of_its_own_server_only() -> None:
    files = load_page_files()
    assert {"main.js", "page.css", "icon.svg"} <= set(files.by_name)
    addresses = [
        value
        for _, attributes, _ in page_of(run_status())
        for name, value in attributes.items()
        if name in ("src", "href")
    ]
    assert addresses
    assert all(value is not None and value.startswith("/page/") for value in addresses)
    assert not any(attributes.keys() & {"style", "onclick"} for _, attributes, _ in page_of(run_status()))
    for name, file in files.by_name.items():
        content = b"".join(file.pieces)
        assert b"http://" not in content.replace(b"http://www.w3.org/2000/svg", b""), name
        assert b"https://" not in content, name
        assert b"innerHTML" not in content, name
