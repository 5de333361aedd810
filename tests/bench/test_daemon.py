"""The daemon of a benchmark ends in order, also where no signal asks a process to end."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from acqstream.bench import producer
from acqstream.errors import AcquisitionFailed, WaitTimeout
from tests.live.daemon_process import free_port


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
