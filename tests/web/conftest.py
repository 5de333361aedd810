"""A data directory with the web face beside it; a daemon with its own, and a browser that shows its page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.daemon_process import DaemonProcess
from tests.web.browser import BrowserPage
from tests.web.web_process import Site, web_process, web_thread


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


@pytest.fixture
def site(data: Path) -> Iterator[Site]:
    with web_thread(data) as site:
        yield site


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path / "data") as daemon:
        yield daemon


@pytest.fixture
def daemon_site(daemon: DaemonProcess) -> Iterator[Site]:
    with web_process(daemon.data, "--endpoint", daemon.endpoint) as site:
        yield site


@pytest.fixture
def page(daemon_site: Site, tmp_path: Path) -> Iterator[BrowserPage]:
    with BrowserPage(tmp_path) as page:
        page.open(f"{daemon_site.url}/")
        yield page
    own = (f"{daemon_site.url}/", "about:", "chrome:", "data:")
    assert all(url.startswith(own) for url in page.requests), page.requests
    missing = [one for one in page.errors if "404" not in one]  # of a thumbnail before the first frame
    assert missing == []
