"""The verbs against a real daemon in its own process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zmq

import acqstream
from acqstream.simulate import pattern
from acqstream.storage.platform.capabilities import has_terminate_signal
from tests.live.daemon_process import START_S, free_port
from tests.waiting import FreeSeconds

pytestmark = pytest.mark.slow


def verb(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "acqstream", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)


def verb_json(*arguments: str):
    ended = verb(*arguments, "--json")
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def own_endpoint(sockets: Path) -> str:
    return f"ipc://{sockets}/d" if zmq.has("ipc") else f"tcp://127.0.0.1:{free_port()}"


class Daemon:
    def __init__(self, data: Path, sockets: Path) -> None:
        self.data = data
        self.endpoint = own_endpoint(sockets)
        config = data.with_suffix(".toml")
        config.write_text("ipc = false\nmemory_mb = 64\n")
        data.mkdir()
        command = [sys.executable, "-m", "acqstream", "serve", "--config", str(config), "--data", str(data)]
        self.log = data.with_suffix(".log")
        with self.log.open("wb") as log:  # nobody reads it meanwhile: a pipe of Windows takes 4 KiB
            self.process = subprocess.Popen([*command, "--endpoint", self.endpoint], stderr=log)

    def wait_until_ready(self) -> None:
        waited = FreeSeconds()
        while waited.passed() < START_S:
            assert self.process.poll() is None, self.log.read_text(encoding="utf-8")
            if verb("status", "--endpoint", self.endpoint, "--timeout", "1").returncode == 0:
                return
        pytest.fail("the daemon does not answer")

    def stop(self) -> int:
        if has_terminate_signal():
            self.process.send_signal(signal.SIGTERM)
        else:
            ended = verb("shutdown", "--endpoint", self.endpoint)
            assert ended.returncode == 0, ended.stderr
        return self.process.wait(timeout=30)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    running = Daemon(tmp_path_factory.mktemp("live") / "data", tmp_path_factory.mktemp("s"))
    try:
        running.wait_until_ready()
        yield running
        assert running.stop() == 0
    finally:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait()


def test_what_is_simulated_is_on_disk(daemon: Daemon) -> None:
    options = ["--shape", "60,80", "--axes", "time=5,channel=DAPI|FITC,z=3", "--bits", "12", "--name", "cells"]
    options += ["--pattern", "noise"]
    (document,) = verb_json("simulate", "--endpoint", daemon.endpoint, *options)
    assert document["complete"] is True
    assert document["receipt"]["stored"] == 30
    found = verb_json("info", str(daemon.data / "cells"))
    assert found["complete"] is True
    assert found["frames"] == 30
    assert found["first"] == {"time": 0, "channel": "DAPI", "z": 0}
    assert found["last"] == {"time": 4, "channel": "FITC", "z": 2}
    with acqstream.open(daemon.data / "cells") as dataset:
        for number, key in enumerate(dataset.keys()):
            assert np.array_equal(dataset.read_frame(key), pattern.frame(number, (60, 80), "uint16", 12))
            assert dataset.read_metadata(key)["number"] == number


def test_several_cameras_rgb_and_numbered_names(daemon: Daemon) -> None:
    options = ["--shape", "20,30,3", "--dtype", "uint8", "--frames", "10", "--fps", "500", "--producers", "2"]
    for _ in range(2):
        documents = verb_json("simulate", "--endpoint", daemon.endpoint, *options)
        assert [document["complete"] for document in documents] == [True, True]
    names = {Path(document["receipt"]["path"]).name for document in documents}
    assert len(names) == 2
    assert not names & {"simulated-1", "simulated-2"}


def test_a_taken_name_is_refused(daemon: Daemon) -> None:
    options = ["--endpoint", daemon.endpoint, "--frames", "2", "--shape", "8,8", "--name", "taken"]
    assert verb("simulate", *options).returncode == 0
    second = verb("simulate", *options)
    assert second.returncode == 1
    assert second.stdout == ""
    assert second.stderr.count("\n") == 1
    assert "taken" in second.stderr


def test_status_shows_the_daemon(daemon: Daemon) -> None:
    answer = verb_json("status", "--endpoint", daemon.endpoint)
    assert Path(answer["data"]) == daemon.data
    assert answer["memory_budget_bytes"] > 0
    assert answer["free_bytes"] > 0
    assert verb("status", "--endpoint", daemon.endpoint).stdout.startswith("acqstream ")


@pytest.mark.skipif(sys.platform == "win32", reason="has no pseudo terminals")
def test_a_watch_stays_in_place_on_a_terminal_until_ctrl_c(daemon: Daemon) -> None:
    import pty

    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "acqstream", "status", "--watch", "--endpoint", daemon.endpoint]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        waited = FreeSeconds()
        while shown.count(b"\x1b[2J") < 2:
            shown += os.read(ours, 2**16)
            assert waited.passed() < START_S
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0
    os.close(ours)
    screens = shown.decode().split("\x1b[2J")
    assert all("acqstream " in screen for screen in screens[:2])
    assert "Traceback" not in shown.decode()


@pytest.mark.skipif(sys.platform == "win32", reason="pipes end otherwise")
def test_a_watch_ends_quietly_with_its_reader(daemon: Daemon) -> None:
    command = [sys.executable, "-m", "acqstream", "status", "--watch", "--endpoint", daemon.endpoint]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("acqstream ")
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_a_second_daemon_is_refused(daemon: Daemon, tmp_path: Path) -> None:
    ended = verb("serve", "--data", str(daemon.data), "--endpoint", own_endpoint(tmp_path))
    assert ended.returncode not in (0, 2)
    assert "Traceback" not in ended.stderr


def test_a_wrong_configuration_ends_with_78(tmp_path: Path) -> None:
    config = tmp_path / "a.toml"
    config.write_text("colour = 3\n")
    ended = verb("serve", "--config", str(config))
    assert ended.returncode == 78
    assert ended.stderr.count("\n") == 1
    assert "colour" in ended.stderr
