"""The daemon is told to end, or must not start."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import acqstream
from acqstream.client.connector import Transport
from acqstream.errors import AcqStreamError, AcquisitionRefused, DaemonUnavailable
from acqstream.model.state import AcquisitionState
from tests.live.daemon_process import DaemonProcess
from tests.live.impatience import make_impatient
from tests.live.stored import check_frames, image_of, state_of
from tests.waiting import in_time, until

SHAPE = (256, 256)
PATIENCE_S = 1.0


@pytest.mark.skipif(sys.platform == "win32", reason="such signals kill a process of Windows; see test_shutdown")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_daemon_ends_with_0(tmp_path: Path, number: signal.Signals) -> None:
    daemon = DaemonProcess(tmp_path / "data").start()
    daemon.signal(number)
    assert daemon.wait() == 0
    assert "Traceback" not in daemon.output()


@pytest.mark.parametrize(("transport", "shape"), [("shm", (400, 401)), ("tcp", SHAPE)])
@pytest.mark.parametrize("restarts", [True, False])
def test_sigterm_in_the_middle_of_a_run_without_a_restart_is_an_error_in_time(
    tmp_path: Path, transport: Transport, shape: tuple[int, int], restarts: bool
) -> None:
    daemon = DaemonProcess(tmp_path / "data", restarts=restarts).start()
    told = threading.Event()
    errors: list[AcqStreamError] = []

    def on_error(error: AcqStreamError) -> None:
        errors.append(error)
        told.set()

    options: dict[str, Any] = {"transport": transport, "on_error": on_error}
    run = acqstream.create("cells", endpoint=daemon.endpoint, buffer_mb=40, **options)
    assert run.transport == transport
    for number in range(100):
        run.put(image_of(number, shape), time=number)
    until(lambda: run.progress.published, "something published")
    if restarts:
        make_impatient(run, PATIENCE_S)
    daemon.begin_stop()
    assert daemon.wait() == 0
    assert told.wait(PATIENCE_S + in_time(1.0))  # without another put
    (error,) = errors
    assert isinstance(error, DaemonUnavailable)
    assert "its last message: the daemon was stopped" in str(error)
    for action in (lambda: run.put(image_of(0, shape), time=1000), run.close):
        with pytest.raises(DaemonUnavailable, match="stopped"):
            action()
    assert "Traceback" not in daemon.output()

    assert (run.receipt is None) == restarts
    assert state_of(run.path)["state"] == "INTERRUPTED"
    with acqstream.open(run.path) as dataset:
        assert dataset.state is AcquisitionState.INTERRUPTED
    check_frames(run.path, lambda _: shape, least=run.progress.published)


def test_nothing_is_opened_while_the_daemon_ends_and_the_next_one_has_nothing_to_recover(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path / "data").start()
    with acqstream.create("cells", endpoint=daemon.endpoint) as run:
        run.put(image_of(0, SHAPE), time=0)
    daemon.begin_stop()
    with pytest.raises((AcquisitionRefused, DaemonUnavailable)):
        acqstream.create("late", endpoint=daemon.endpoint, patience_s=1.0)
    assert daemon.wait() == 0
    with daemon:
        assert "recovered" not in daemon.output()
        with acqstream.create("after", endpoint=daemon.endpoint) as run:
            run.put(image_of(0, SHAPE), time=0)
    assert check_frames(daemon.data / "cells", lambda _: SHAPE) == 1
    assert check_frames(daemon.data / "after", lambda _: SHAPE) == 1


def test_a_second_daemon_on_the_same_data_is_refused_and_names_the_first(shared_daemon: DaemonProcess) -> None:
    second = DaemonProcess(shared_daemon.data)
    second.launch()
    assert second.wait() == 75
    (line,) = second.output().splitlines()
    for part in (str(shared_daemon.data), f"pid {shared_daemon.pid}"):
        assert part in line


def test_a_second_daemon_on_the_same_port_is_refused(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    second = DaemonProcess(tmp_path / "other", port=shared_daemon.port, runtime=str(shared_daemon.data.parent / "run"))
    second.launch()
    assert second.wait() == 78
    (line,) = second.output().splitlines()
    assert f"cannot listen on {shared_daemon.endpoint}" in line
    with acqstream.create("over-ipc", endpoint=shared_daemon.ipc) as run:
        run.put(image_of(0, SHAPE), time=0)
    assert check_frames(run.path, lambda _: SHAPE) == 1


@pytest.mark.parametrize("what", ["missing", "file"])
def test_a_data_directory_that_is_none_is_refused(tmp_path: Path, what: str) -> None:
    daemon = DaemonProcess(tmp_path / "data")
    daemon.launch_on(tmp_path / "absent" if what == "missing" else daemon.config_path)
    assert daemon.wait() == 78
    (line,) = daemon.output().splitlines()
    assert "data directory" in line
