"""A real daemon, started as a service manager starts it."""

from __future__ import annotations

import os
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import acqstream
from tests.live.daemon_process import DaemonProcess

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no service manager of this kind")

HEAR_S = 20.0


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A manager's socket, named in the environment of what is started from here."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.bind(str(tmp_path / "notify"))
        one.settimeout(HEAR_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "400000")
        yield one


def hear(manager: socket.socket, start: str) -> str:
    """The next line that begins so; others are passed over."""
    while True:
        for line in manager.recv(4096).decode().splitlines():
            if line.startswith(start):
                return line


@pytest.mark.promise("system-service")
def test_ready_status_watchdog_and_end_are_heard(tmp_path: Path, manager: socket.socket) -> None:
    with DaemonProcess(tmp_path / "data", is_fresh=True) as daemon:
        hear(manager, "READY=1")
        assert hear(manager, "STATUS=").startswith("STATUS=idle, ")
        with acqstream.create("cells", endpoint=daemon.endpoint) as run:
            hear(manager, "STATUS=1 dataset, ")
            hear(manager, "WATCHDOG=1")
            run.put(np.zeros((8, 8), np.uint16), time=0)
        assert daemon.stop() == 0
        hear(manager, "STOPPING=1")


def test_the_group_can_change_what_was_written(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o2770)
    mask = os.umask(0o007)
    try:
        daemon = DaemonProcess(data, is_fresh=True).start()
    finally:
        os.umask(mask)
    with acqstream.create("cells", endpoint=daemon.endpoint) as run:
        run.put(np.zeros((8, 8), np.uint16), time=0)
    assert daemon.stop() == 0
    folder = data / "cells"
    assert stat.S_IMODE(folder.stat().st_mode) & 0o777 == 0o770
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}
    assert set(modes.values()) == {0o660}, modes


@pytest.mark.parametrize("is_enough", [True, False])
def test_memory_that_may_not_do_is_told(tmp_path: Path, is_enough: bool) -> None:
    needed_mb = 64 + 30 + 200 + 1024
    limit = f"lambda: {needed_mb if is_enough else needed_mb - 1} * 2**20"
    prelude = f"import acqstream.daemon.server as serve; serve.memory_limit_bytes = {limit}"
    options: dict[str, Any] = {"memory_mb": 64, "pyramid_memory_mb": 30, "mirror_memory_mb": 200}
    with DaemonProcess(tmp_path / "data", prelude=prelude, **options) as daemon:
        pass  # it writes the rest of its log when it ends
    text = f"MemoryMax of this service is {needed_mb - 1} MiB; its configuration needs at least {needed_mb} MiB"
    assert (text in daemon.output()) is not is_enough
