"""A program that was killed in mid acquisition and is run again: nothing twice, nothing missing, for every plan."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import acqstream
from tests.live.daemon_process import DaemonProcess
from tests.live.stored import state_of
from tests.waiting import until

PROGRAM = Path(__file__).with_name("resumed_program.py")
SNAPPED = ["plain", "tiles", "cameras"]
FRAMES = {"plain": 18, "longer": 24, "burst": 40, "tiles": 24, "cameras": 24, "slow": 4}
CAMERAS = {"cameras": 2}

pytestmark = [pytest.mark.slow, pytest.mark.timeout_s(600)]
pytest.importorskip("mm_test_adapters")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path / "data", grace_s=0.1) as process:
        yield process


def start(
    daemon: DaemonProcess, plan: str, *, way: str = "sequence", last: int = -1, slack: int = 0
) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYMM_LOG_FILE": "0"}
    command = [sys.executable, str(PROGRAM), daemon.endpoint, plan, way, str(last), str(slack)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def killed(daemon: DaemonProcess, plan: str, last: int, way: str = "sequence", slack: int = 0) -> tuple[int, set[str]]:
    """Kill the program after it has delivered so many frames; how many are stored then, and the shas it delivered."""
    process = start(daemon, plan, way=way, last=last, slack=slack)
    assert process.stdout is not None
    seen = set()
    try:
        for line in process.stdout:
            told = json.loads(line) if line.startswith("{") else {}
            if "sha" in told:
                seen.add(told["sha"])
            if "paused" in told:
                break
        else:
            raise AssertionError(process.communicate()[1][-4000:])
    finally:
        process.kill()
        process.communicate()
    folder = daemon.data / "cells"
    until(lambda: state_of(folder)["state"] == "INTERRUPTED", "it is interrupted")
    with acqstream.open(folder) as dataset:
        return len(list(dataset.keys())), seen


def finished(daemon: DaemonProcess, plan: str, way: str = "sequence") -> tuple[dict[str, Any], set[str], str]:
    """Run the program to its end: what it told in the end, shas that it delivered, and its log."""
    output, errors = (process := start(daemon, plan, way=way)).communicate(timeout=500)
    assert process.returncode == 0, errors[-4000:]
    told: dict[str, Any] = {}
    seen = set()
    for line in output.splitlines():
        if line.startswith("{"):
            values = json.loads(line)
            seen |= {values["sha"]} if "sha" in values else set()
            told.update(values)
    return told, seen, errors


def content(folder: Path) -> dict[str, str]:
    """sha of every frame by its axes."""
    with acqstream.open(folder) as dataset:
        keys = list(dataset.keys())
        shas = {json.dumps(key, sort_keys=True): sha_of(dataset.read_frame(key)) for key in keys}
        assert len(shas) == len(keys)
        return shas


def sha_of(image: Any) -> str:
    return hashlib.sha256(image.tobytes()).hexdigest()


@pytest.mark.parametrize("plan", SNAPPED)
def test_a_killed_program_that_is_run_again_completes_the_dataset(tmp_path: Path, plan: str) -> None:
    total, cameras = FRAMES[plan], CAMERAS.get(plan, 1)
    shas, calls = [], []
    for name in ("whole", "resumed"):
        (tmp_path / name).mkdir()
        with DaemonProcess(tmp_path / name / "data", grace_s=0.1) as daemon:
            stored = killed(daemon, plan, 11, slack=3)[0] if name == "resumed" else 0
            if name == "resumed":
                assert 0 < stored <= 11
            told, _, _ = finished(daemon, plan)
            assert (told["status"], told["complete"], told["stored"]) == ("completed", True, total)
            assert told["skipped_events"] == stored // cameras
            assert told["calls"]["snap"] == total // cameras - stored // cameras
            calls.append(told["calls"])
            shas.append(content(daemon.data / "cells"))
    assert shas[0] == shas[1]
    assert len(shas[0]) == total
    if plan == "tiles":
        assert calls[1]["move"] < calls[0]["move"]


def test_a_burst_is_resumed_with_the_rest_alone(daemon: DaemonProcess) -> None:
    stored, first = killed(daemon, "burst", 15, slack=3)
    assert 0 < stored < 40
    told, second, _ = finished(daemon, "burst")
    assert (told["complete"], told["stored"], told["skipped_events"]) == (True, 40, stored)
    assert told["calls"] == {"snap": 0, "burst": 40 - stored, "move": 0}
    shas = content(daemon.data / "cells")
    assert set(shas) == {json.dumps({"time": t}) for t in range(40)}
    assert {shas[json.dumps({"time": t})] for t in range(stored)} <= first
    assert {shas[json.dumps({"time": t})] for t in range(stored, 40)} == second


@pytest.mark.parametrize("way", ["list", "iterator"])
def test_lists_and_iterators_of_events_are_resumed_too(daemon: DaemonProcess, way: str) -> None:
    stored, _ = killed(daemon, "plain", 7, way)
    told, _, _ = finished(daemon, "plain", way)
    assert (told["complete"], told["stored"], told["skipped_events"]) == (True, 18, stored)
    assert told["calls"]["snap"] == 18 - stored
    assert {json.loads(key)["frame"] for key in content(daemon.data / "cells")} == {0}


def test_a_second_kill_and_then_other_plans(daemon: DaemonProcess) -> None:
    once, _ = killed(daemon, "plain", 5)
    twice, _ = killed(daemon, "plain", 5)
    assert once < twice <= once + 5
    killed(daemon, "longer", 24 - twice)  # all of it, but for the close
    told, _, errors = finished(daemon, "shorter")  # an earlier version of the script
    assert (told["complete"], told["stored"], told["seen"]) == (True, 24, 0)
    assert told["calls"]["snap"] == 0
    assert "nothing was acquired: all frames are stored already" in errors
    assert state_of(daemon.data / "cells")["state"] == "COMPLETE"


def test_more_events_than_before_are_acquired(daemon: DaemonProcess) -> None:
    stored, _ = killed(daemon, "plain", 6)
    told, _, _ = finished(daemon, "longer")
    assert (told["complete"], told["stored"], told["calls"]["snap"]) == (True, 24, 24 - stored)


def test_a_time_lapse_is_resumed_at_once(daemon: DaemonProcess) -> None:
    """Its second point would come after an hour: the first that is left starts the clock."""
    assert killed(daemon, "slow", 1)[0] == 1
    assert killed(daemon, "slow", 1)[0] == 2
