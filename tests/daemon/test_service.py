"""What the service manager hears, and when it hears no sign of life."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from acqstream.daemon.service import Service, ServiceManager, StallWatch, status_line
from acqstream.model.state import AcquisitionState, Cursors
from acqstream.model.status import AcquisitionStatus, DaemonStatus

pytestmark = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no Unix sockets")

WATCHDOG_S = 8.0
ABSTRACT = pytest.param("@", marks=pytest.mark.skipif(sys.platform != "linux", reason="abstract names"))


@dataclass
class FakeLog:
    state: AcquisitionState = AcquisitionState.RUNNING
    is_finished: bool = False
    received: int = 0
    published: int = 0
    paused_why: str = ""

    def cursors(self) -> Cursors:
        return Cursors(self.received, self.published, 0)

    def queued(self) -> tuple[int, int]:
        return self.received - self.published, 0


@dataclass
class FakeAcquisition:
    dataset_id: str = "a"
    bytes_per_s: float = 0.0
    log: FakeLog = field(default_factory=FakeLog)


def status_of(*acquisitions: FakeAcquisition) -> Callable[[], DaemonStatus]:
    runs = tuple(AcquisitionStatus(bytes_per_s=one.bytes_per_s) for one in acquisitions)
    return lambda: DaemonStatus(acquisitions=runs, free_bytes=10**11)


class Manager:
    """The socket that a service manager would hold."""

    def __init__(self, name: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + name[1:] if name.startswith("@") else name)
        self._socket.setblocking(False)
        self.environment = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": str(int(WATCHDOG_S * 1e6))}

    def heard(self) -> list[str]:
        lines: list[str] = []
        while True:
            try:
                lines += self._socket.recv(4096).decode().splitlines()
            except BlockingIOError:
                return lines

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["/", ABSTRACT])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    one = Manager(str(tmp_path / "s") if request.param == "/" else f"@acqstream-test-{os.getpid()}")
    yield one
    one.close()


@pytest.fixture
def service(manager: Manager, tmp_path: Path) -> Iterator[Service]:
    one = Service(manager.environment)
    yield one
    one.close()


def test_ready_status_and_end_are_told_once(service: Service, manager: Manager) -> None:
    service.tick([], 10.0, is_stopping=False, daemon_status=status_of())
    first = manager.heard()
    assert first[0] == "READY=1"
    assert first[1].startswith("STATUS=idle, ")
    assert first[2] == "WATCHDOG=1"
    service.tick([], 10.1, is_stopping=False, daemon_status=status_of())
    assert manager.heard() == []
    acquisition = FakeAcquisition(bytes_per_s=5e6)
    service.tick([acquisition], 11.5, is_stopping=False, daemon_status=status_of(acquisition))
    (line,) = manager.heard()
    assert line.startswith("STATUS=1 dataset, 5 MB/s, ")
    service.tick([acquisition], 11.6, is_stopping=True, daemon_status=status_of(acquisition))
    assert manager.heard()[0] == "STOPPING=1"
    service.tick([acquisition], 11.7, is_stopping=True, daemon_status=status_of(acquisition))
    assert manager.heard() == []


def test_time_for_recovery_is_asked_for_folder_by_folder(service: Service, manager: Manager) -> None:
    folders = service.starting([Path("/data/a"), Path("/data/b")])
    assert next(folders) == Path("/data/a")
    extend, status = manager.heard()
    assert extend.startswith("EXTEND_TIMEOUT_USEC=")
    assert status == "STATUS=checking /data/a"
    assert list(folders) == [Path("/data/b")]


def test_the_name_of_a_folder_tells_the_service_manager_nothing_else(service: Service, manager: Manager) -> None:
    strangers = [Path("/data/a\nWATCHDOG=trigger\r"), Path("/data/\udcff"), Path("/data/Zellen am Rand 細胞 é")]
    assert list(service.starting(strangers)) == strangers
    lines = manager.heard()
    assert [line.partition("=")[0] for line in lines] == ["EXTEND_TIMEOUT_USEC", "STATUS"] * 3
    assert lines[-1] == "STATUS=checking /data/Zellen am Rand 細胞 é"


def feedings(service: Service, manager: Manager, acquisition: FakeAcquisition, first_s: int, last_s: int) -> list[int]:
    """At which of these seconds the watchdog was fed."""
    times = []
    for now_s in range(first_s, last_s):
        service.tick([acquisition], now_s, is_stopping=False, daemon_status=status_of(acquisition))
        if "WATCHDOG=1" in manager.heard():
            times.append(now_s)
    return times


def test_the_watchdog_is_fed_at_half_its_time_while_logs_have_nothing_to_do(service: Service, manager: Manager) -> None:
    assert feedings(service, manager, FakeAcquisition(), 100, 117) == [100, 104, 108, 112, 116]


def test_a_log_that_stands_still_is_alive_below_the_bound_and_not_beyond(service: Service, manager: Manager) -> None:
    acquisition = FakeAcquisition(log=FakeLog(received=3, published=1))
    assert feedings(service, manager, acquisition, 100, 120) == [100, 104]  # the bound is 6 s
    acquisition.log.published = 2
    assert feedings(service, manager, acquisition, 120, 125) == [120, 124]


@pytest.mark.parametrize(
    ("log", "is_stalled"),
    [
        (FakeLog(), False),
        (FakeLog(received=1), True),
        (FakeLog(state=AcquisitionState.OPENING), True),
        (FakeLog(state=AcquisitionState.CLOSING), True),
        (FakeLog(state=AcquisitionState.PAUSED, received=1, paused_why="full"), False),
        (FakeLog(state=AcquisitionState.CLOSING, paused_why="full"), False),
        (FakeLog(state=AcquisitionState.COMPLETE, is_finished=True), False),
    ],
)
def test_who_owes_progress(log: FakeLog, is_stalled: bool) -> None:
    watch = StallWatch(5.0)
    assert watch.stalled([FakeAcquisition(log=log)], 0.0) == []
    assert watch.stalled([FakeAcquisition(log=log)], 5.0) == []
    assert watch.stalled([FakeAcquisition(log=log)], 5.1) == (["a"] if is_stalled else [])


@pytest.mark.parametrize("environment", [{}, {"NOTIFY_SOCKET": ""}])
def test_without_a_manager_nothing_is_said(environment: dict[str, str]) -> None:
    manager = ServiceManager(environment)
    assert not manager.exists
    assert not manager.notify("READY=1")


def test_a_manager_that_went_away_ends_nothing(tmp_path: Path) -> None:
    service = Service({"NOTIFY_SOCKET": str(tmp_path / "absent")})
    service.tick([], 10.0, is_stopping=False, daemon_status=status_of())
    service.tick([], 20.0, is_stopping=True, daemon_status=status_of())
    service.close()


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"WATCHDOG_USEC": "2500000"}, 2.5),
        ({"WATCHDOG_USEC": "2500000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({}, None),
    ],
)
def test_who_is_watched_and_how_closely(tmp_path: Path, more: dict[str, str], expected: float | None) -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "s"), **more})
    assert manager.watchdog_s == expected
    manager.close()


def test_the_status_is_one_line_for_people() -> None:
    three = (
        AcquisitionStatus(bytes_per_s=612e6, seconds_left=8.2 * 3600),
        AcquisitionStatus(),
        AcquisitionStatus(bytes_per_s=200e6, seconds_left=8.2 * 3600),
    )
    status = DaemonStatus(acquisitions=three, free_bytes=10**12)
    assert status_line(status) == "3 datasets, 812 MB/s, 4.1 h of disk left"
    full = replace(status, acquisitions=(*three, AcquisitionStatus(seconds_left=0)))
    assert status_line(full) == "4 datasets, 812 MB/s, no disk left"
    assert (
        status_line(DaemonStatus(acquisitions=three[1:2], free_bytes=5 * 10**11))
        == "1 dataset, 0 MB/s, 500 GB of disk left"
    )
    assert status_line(DaemonStatus()) == "idle"
