"""Notices of a real daemon, by its own child process: what happens arrives, also when the daemon is killed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import acqstream
from acqstream.daemon.child_process import NOTICES_PAUSE_S, notifier_process
from tests.live.daemon_process import DaemonProcess
from tests.waiting import until

IMAGE = np.zeros((16, 16), np.uint16)
_KEEP = "import json, sys; line = sys.stdin.read(); open(sys.argv[1], 'a').write(line + '\\n')"


@pytest.fixture
def got(tmp_path: Path) -> Path:
    return tmp_path / "got"


@pytest.fixture
def daemon(tmp_path: Path, got: Path) -> Iterator[DaemonProcess]:
    script = tmp_path / "keep.py"
    script.write_text(_KEEP, encoding="utf-8")
    notify = [f"command '{sys.executable}' '{script}' '{got}'"]
    with DaemonProcess(tmp_path / "data", notify=notify, notify_no_frames_s=1.0) as daemon:
        yield daemon


def notices(got: Path) -> list[dict[str, Any]]:
    written = got.read_text(encoding="utf-8") if got.exists() else ""
    return [json.loads(line) for line in written.rpartition("\n")[0].splitlines()]  # the last one may be on its way


def seen(got: Path, kind: str) -> dict[str, Any] | None:
    return next((one for one in notices(got) if one["kind"] == kind), None)


def notifier_of(daemon: DaemonProcess) -> psutil.Process | None:
    children = psutil.Process(daemon.pid).children()
    return next((one for one in children if "acqstream.monitor.notifier" in command_of(one)), None)


def command_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except (psutil.Error, OSError):  # it begins or ends just now; OSError: under Wine
        return []


def test_what_happens_to_a_run_arrives(daemon: DaemonProcess, got: Path) -> None:
    until(lambda: notifier_of(daemon), "the notifier runs")
    with acqstream.create("cells", endpoint=daemon.endpoint) as run:
        run.put(IMAGE, time=0)
        silence = until(lambda: seen(got, "no_frames"), "a notice about silence")
    assert silence["acquisition"] == "cells"
    finished = until(lambda: seen(got, "finished"), "a notice about the end")
    assert (finished["details"]["stored"], finished["details"]["complete"]) == (1, True)
    assert finished["path"] == str(daemon.data / "cells")


def test_each_run_gives_one_notice_however_short_it_is(daemon: DaemonProcess, got: Path) -> None:
    for number in range(12):
        run = acqstream.create(f"run-{number}", endpoint=daemon.endpoint)
        run.put(IMAGE, time=0)
        run.close("error" if number % 2 else "completed", "the camera broke")
    until(lambda: len(notices(got)) >= 12, "a notice for each run")
    kinds = {one["acquisition"]: one["kind"] for one in notices(got)}
    assert kinds == {f"run-{number}": "failed" if number % 2 else "finished" for number in range(12)}
    with acqstream.create("later", endpoint=daemon.endpoint) as run:
        run.put(IMAGE, time=0)
    until(lambda: seen(got, "finished") and len(notices(got)) >= 13, "a notice of the next run")
    assert [one["acquisition"] for one in notices(got)][12:] == ["later"]  # and none a second time


def test_a_killed_daemon_is_reported(daemon: DaemonProcess, got: Path) -> None:
    notifier = until(lambda: notifier_of(daemon), "the notifier runs")
    run = acqstream.create("cells", endpoint=daemon.endpoint, patience_s=300.0)
    run.put(IMAGE, time=0)
    until(lambda: seen(got, "no_frames"), "the notifier has seen the run")
    daemon.kill()
    failed = until(lambda: seen(got, "failed"), "a notice about the failure")
    assert "cells ended without a receipt" in failed["text"]
    until(lambda: not notifier.is_running(), "the notifier ends with its daemon")
    daemon.start()
    run.close()


def test_a_notifier_that_dies_costs_nothing(daemon: DaemonProcess) -> None:
    notifier = until(lambda: notifier_of(daemon), "the notifier runs")
    with acqstream.create("cells", endpoint=daemon.endpoint) as run:
        run.put(IMAGE, time=0)
        notifier.kill()
        run.put(IMAGE, time=1)
    assert run.receipt is not None
    assert run.receipt.complete


def test_no_secret_is_in_the_list_of_processes(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data", notify=["https://127.0.0.1:9/very-secret"]) as daemon:
        notifier = until(lambda: notifier_of(daemon), "the notifier runs")
        assert "very-secret" not in " ".join(notifier.cmdline())
        assert "very-secret" not in daemon.output()


def test_it_is_started_again_but_not_in_a_loop(tmp_path: Path) -> None:
    count = tmp_path / "count"
    source = "import sys; open(sys.argv[1], 'a').write(sys.stdin.readline())"
    process = notifier_process(
        ["command a"], 60.0, "tcp://127.0.0.1:9", command=(sys.executable, "-c", source, str(count))
    )
    process.tick(0.0)
    started = process.process
    assert started is not None
    started.wait()
    assert json.loads(count.read_text()) == {
        "endpoint": "tcp://127.0.0.1:9",
        "targets": ["command a"],
        "no_frames_s": 60.0,
    }
    process.tick(1.0)
    process.tick(1.0 + NOTICES_PAUSE_S - 0.1)
    assert process.process is None
    process.tick(1.2 + NOTICES_PAUSE_S)
    again = process.process
    assert again is not None
    process.close()
    again.wait()


def test_without_targets_there_is_no_process() -> None:
    process = notifier_process([], 60.0, "tcp://127.0.0.1:9")
    process.tick(0.0)
    assert process.process is None


def test_a_program_that_cannot_be_started_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    process = notifier_process(["command a"], 60.0, "tcp://127.0.0.1:9", command=("/nowhere",))
    process.tick(0.0)
    assert "cannot start the notifier" in caplog.text


def test_closing_ends_the_process() -> None:
    command = (sys.executable, "-c", "import sys; sys.stdin.read()")
    notifier = notifier_process(["command a"], 60.0, "tcp://127.0.0.1:9", command=command)
    notifier.tick(0.0)
    started = notifier.process
    assert started is not None
    try:
        notifier.close()
        until(lambda: started.poll() is not None, "the process ends with its input")
    finally:
        started.kill()
        started.wait()
