"""A data directory with the web face beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.web.web_process import Site, web_thread


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


@pytest.fixture
def site(data: Path) -> Iterator[Site]:
    with web_thread(data) as site:
        yield site
