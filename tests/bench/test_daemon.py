"""The daemon of a benchmark ends in order, also where no signal asks a process to end."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import acqstream
from acqstream.bench import producer
from acqstream.client.daemon_requests import fetch_status
from acqstream.daemon.config import DaemonConfig
from acqstream.errors import AcquisitionFailed, WaitTimeout
from acqstream.mirrors.mirror_plan import Budget
from acqstream.mirrors.view_kinds import ready_bytes
from acqstream.protocol.requests import parse_views
from tests.live.daemon_process import free_port
from tests.waiting import HANG_S


@pytest.fixture
def kills(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A system without a terminate signal; the process ids that are killed."""
    pids: list[int] = []
    kill = subprocess.Popen.kill

    def note_and_kill(process: subprocess.Popen[bytes]) -> None:
        pids.append(process.pid)
        kill(process)

    monkeypatch.setattr(producer, "has_terminate_signal", lambda: False)
    monkeypatch.setattr(subprocess.Popen, "kill", note_and_kill)
    return pids


def test_without_a_signal_it_is_asked_to_end(tmp_path: Path, kills: list[int]) -> None:
    with producer.running_daemon(tmp_path / "data", f"tcp://127.0.0.1:{free_port()}"):
        pass
    assert not kills


def test_one_that_does_not_end_is_killed(tmp_path: Path, kills: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(endpoint: str, *, timeout_s: float) -> int:
        raise WaitTimeout("it does not end")

    monkeypatch.setattr(producer, "shut_down", refuse)
    with (
        pytest.raises(AcquisitionFailed, match="did not stop within 60 s: it does not end"),
        producer.running_daemon(tmp_path / "data", f"tcp://127.0.0.1:{free_port()}") as pid,
    ):
        pass
    assert kills == [pid]


def test_it_is_configured_for_the_mirrors_of_its_row_and_takes_memory_for_them(tmp_path: Path) -> None:
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    mirrors: list[dict[str, Any]] = [{"format": "ome-zarr", "levels": 1}, {"format": "hsds", "name": "table"}]
    with producer.running_daemon(tmp_path / "data", endpoint, 64, mirrors=mirrors):
        wanted = ready_bytes(
            parse_views(mirrors), Budget.of(DaemonConfig().mirror_memory_mb), psutil.virtual_memory().total
        )
        views = fetch_status(endpoint).views
        assert views.ready_bytes == wanted
        with acqstream.create("cells", endpoint=endpoint) as run:
            run.put(np.full((8, 8), 7, np.uint16), time=0)
        assert {one.name for one in run.wait_for_mirrors(HANG_S) if one.complete} == {"ome-zarr", "table"}


def test_options_of_all_kinds_are_written_as_toml() -> None:
    options = {"a": 'x"\\é\n', "b": [1, 2.5, True], "c": {"d": 9, "e": {}}, "f": ()}
    assert tomllib.loads(f"mirrors = {producer._toml([options])}") == {"mirrors": [{**options, "f": []}]}
