"""Fixtures of the tests with real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.daemon_process import DaemonProcess


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    """A running daemon with an empty data directory; it must end with exit code 0."""
    with DaemonProcess(tmp_path / "data") as process:
        yield process


@pytest.fixture(scope="module")
def shared_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """One for all tests of a module that leave it running; names of datasets must differ."""
    with DaemonProcess(tmp_path_factory.mktemp("live") / "data") as process:
        yield process
