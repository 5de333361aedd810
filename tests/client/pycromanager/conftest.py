"""A real daemon for a module, and an endpoint without one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.live.daemon_process import DaemonProcess, free_port


@pytest.fixture(scope="module")
def shared_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """One for all tests of a module; names of datasets must differ."""
    with DaemonProcess(tmp_path_factory.mktemp("live") / "data") as process:
        yield process


@pytest.fixture
def free_endpoint() -> str:
    """Where nobody listens."""
    return f"tcp://127.0.0.1:{free_port()}"
