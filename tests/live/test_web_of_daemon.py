"""The web face as a child of the daemon: it lives and dies with it, and its death touches no run."""

from __future__ import annotations

import http.client
import sys
from pathlib import Path

import psutil
import pytest

import acqstream
from tests.live.daemon_process import DaemonProcess, free_port
from tests.live.embedded_daemons import has_ended
from tests.log.make_frames import image_of
from tests.waiting import HANG_S, until


def ask(port: int, path: str, token: str = "") -> int | None:
    """The status of an answer; None while no process answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        return connection.getresponse().status
    except OSError:
        return None
    finally:
        connection.close()


def web_child(daemon: DaemonProcess) -> psutil.Process | None:
    """The web process of a daemon; None while it has none."""
    for child in psutil.Process(daemon.pid).children():
        try:
            if any("web_server" in word for word in child.cmdline()):
                return child
        except (psutil.Error, OSError):  # OSError: of a process that begins or ends just now, under Wine
            continue
    return None


def test_a_killed_web_process_costs_the_run_nothing(tmp_path: Path) -> None:
    port = free_port()
    with DaemonProcess(tmp_path / "data", web=True, web_port=port) as daemon:
        until(lambda: ask(port, "/") == 200, "the web face answers")
        with acqstream.create("cells", endpoint=daemon.endpoint) as run:
            for number in range(20):
                run.put(image_of(number), time=number)
                if number == 10:
                    child = web_child(daemon)
                    assert child is not None
                    child.kill()
                    child.wait(HANG_S)
        assert run.receipt is not None
        assert run.receipt.complete
        assert run.receipt.stored == 20
        found = until(lambda: web_child(daemon), "another web process")
        assert child is not None
        assert found.pid != child.pid
        assert until(lambda: ask(port, "/data/cells/ome.zarr/zarr.json") == 200, "it serves the run")
        assert "web process ended" in daemon.output()
    assert not found.is_running()


def test_it_ends_with_a_killed_daemon(tmp_path: Path) -> None:
    port = free_port()
    daemon = DaemonProcess(tmp_path / "data", web=True, web_port=port).start()
    child = until(lambda: web_child(daemon), "the web process")
    daemon.kill()
    until(lambda: has_ended(child.pid), "it has ended")


@pytest.mark.parametrize("is_asked", [True, False])
def test_a_token_that_the_group_can_read(tmp_path: Path, is_asked: bool) -> None:
    port = free_port()
    with DaemonProcess(tmp_path / "data", web=True, web_port=port, web_token=is_asked) as daemon:
        expected = 401 if is_asked else 200
        until(lambda: ask(port, "/") == expected, "the web face answers")
        path = daemon.runtime / "web-token"
        assert path.exists() is is_asked
        if is_asked:
            if sys.platform != "win32":  # which has access lists in the place of modes
                assert path.stat().st_mode & 0o777 == 0o640
            assert ask(port, "/", path.read_text().strip()) == 200


def test_a_configuration_that_cannot_work_is_reported_once(tmp_path: Path) -> None:
    port = free_port()
    with DaemonProcess(tmp_path / "data", web=True, web_address="0.0.0.0", web_token=False, web_port=port) as daemon:
        until(lambda: "not started again" in daemon.output(), "the daemon reports it")
        assert "token is needed" in daemon.output()
        with acqstream.create("cells", endpoint=daemon.endpoint) as run:
            run.put(image_of(0), time=0)
        assert run.receipt is not None
        assert run.receipt.complete
