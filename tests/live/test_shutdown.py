"""A daemon is asked to end, over its control socket."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np
import pytest

import acqstream
from acqstream.cli.main import main
from acqstream.client import daemon_requests
from acqstream.client.daemon_requests import fetch_status, shut_down
from acqstream.errors import AcquisitionRefused, DaemonUnavailable, WaitTimeout
from acqstream.protocol.requests import Shutdown, new_shutdown_key
from tests.client.fake_daemon import FakeDaemon
from tests.command import command
from tests.live.daemon_process import DaemonProcess, free_port
from tests.live.stored import state_of
from tests.live.wire_client import WireClient, new_dataset_id
from tests.waiting import until

IMAGE = np.zeros((8, 8), np.uint16)


def key_path(daemon: DaemonProcess) -> Path:
    return daemon.runtime / f"{daemon.port}.shutdown"


def test_the_daemon_finishes_what_runs_and_ends_with_0(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path / "data").start()
    run = acqstream.create("cells", endpoint=daemon.endpoint, patience_s=5.0)
    run.put(IMAGE, time=0)
    until(lambda: run.progress.published == 1, "one frame is published")
    assert shut_down(daemon.endpoint) == 1
    assert daemon.wait() == 0
    assert "Traceback" not in daemon.output()
    assert state_of(run.path)["state"] == "INTERRUPTED"
    assert not key_path(daemon).exists()
    with pytest.raises(DaemonUnavailable):
        run.close()
    with daemon, acqstream.create("cells", endpoint=daemon.endpoint, resume=True) as resumed:
        assert "recovered" not in daemon.output()
        resumed.put(IMAGE, time=1)


def test_a_wrong_key_ends_nothing(shared_daemon: DaemonProcess) -> None:
    with WireClient(shared_daemon.endpoint) as client:
        client.send("hello", v=1)
        assert client.receive()["shutdown"] == str(key_path(shared_daemon))
        for key in ("", new_shutdown_key(), "x" * 200, "\u00e9" * 83):
            client.send("shutdown", key=key)
            assert client.receive()["code"] == "denied"
        client.send("shutdown")
        assert client.receive()["code"] == "bad_header"
        client.open("after", new_dataset_id())  # it still takes acquisitions


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="access lists are not modes")
def test_only_the_daemons_user_can_read_the_key(shared_daemon: DaemonProcess) -> None:
    status = key_path(shared_daemon).stat()
    assert (stat.S_IMODE(status.st_mode), status.st_uid) == (0o600, os.getuid())


def test_a_second_request_does_not_hurry_the_daemon(tmp_path: Path) -> None:
    """A second signal makes it leave at once; a wrapper that asks twice must not."""
    daemon = DaemonProcess(tmp_path / "data").start()
    key = key_path(daemon).read_text("ascii").strip()
    with WireClient(daemon.endpoint) as client:
        client.open("cells", new_dataset_id())
        for _ in range(5):
            client.send("shutdown", key=key)
        kinds = [client.receive()["t"] for _ in range(3)]
    assert "shutdown" in kinds
    assert daemon.wait() == 0
    assert "not finished" not in daemon.output()
    assert state_of(daemon.data / "cells")["state"] == "INTERRUPTED"


def test_no_other_file_of_the_user_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that has taken the port could name any file."""
    secret = tmp_path / "id_ed25519"
    secret.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    for content in (secret.read_text(), new_shutdown_key() + "\nmore", "acqstream-shutdown-zz", "x" * 10_000):
        secret.write_text(content)
        with pytest.raises(AcquisitionRefused, match="id_ed25519"):
            daemon_requests._read_key("tcp://127.0.0.1:1", str(secret))
    with pytest.raises(AcquisitionRefused, match="administrator"):
        daemon_requests._read_key("tcp://127.0.0.1:1", str(tmp_path / "missing"))


def test_no_answer_is_an_error_in_time(shared_daemon: DaemonProcess) -> None:
    with pytest.raises(DaemonUnavailable, match="no daemon answers"):
        shut_down(f"tcp://127.0.0.1:{free_port()}", timeout_s=0.5)
    shared_daemon.pause()
    try:
        with pytest.raises(DaemonUnavailable, match="no daemon answers"):
            shut_down(shared_daemon.endpoint, timeout_s=0.2)
    finally:
        shared_daemon.go_on()
    assert fetch_status(shared_daemon.endpoint).version


def test_a_daemon_that_has_not_ended_in_time_is_another_error(tmp_path: Path) -> None:
    path = tmp_path / "5271.shutdown"
    path.write_text(new_shutdown_key())
    daemon = FakeDaemon()
    try:
        daemon.behavior.shutdown = str(path)
        with pytest.raises(WaitTimeout, match="has not ended yet"):
            shut_down(daemon.endpoint, timeout_s=0.5)
        assert daemon.requests[-1] == Shutdown(path.read_text())
    finally:
        daemon.stop()


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    daemon = DaemonProcess(tmp_path / "data").start()
    with pytest.raises(SystemExit) as end:
        main(["shutdown", "--endpoint", daemon.endpoint])
    assert not end.value.code
    assert capsys.readouterr().out == "the daemon has ended; it finished 0 acquisitions\n"
    assert daemon.wait() == 0
    assert command("shutdown", "--endpoint", daemon.endpoint, "--timeout", "1") == 69
