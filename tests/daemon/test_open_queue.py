"""`open` requests beside frames: in order, without the disk in the loop, and patient while the disk stalls."""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acqstream.daemon import open_queue
from acqstream.daemon.config import DaemonConfig
from acqstream.daemon.open_requests import OpenRequests
from acqstream.daemon.server import Server
from acqstream.daemon.supervisor import ExitStatus
from acqstream.errors import AcquisitionRefused, ProtocolError
from acqstream.formats import registry
from acqstream.log.state_file import read_state
from acqstream.model.state import AcquisitionState
from tests.live.wire_client import WireClient, new_dataset_id
from tests.waiting import until

SHAPE = (4, 6)
PIXELS = np.arange(24, dtype="<u2").reshape(SHAPE).tobytes()
LOOP = "loop under test"
ON_DISK = ("open", "os.listdir", "os.scandir", "os.rmdir", "os.mkdir", "os.remove", "os.rename")


class Daemon:
    """A server whose loop runs in a thread called LOOP."""

    def __init__(self, data: Path, **options: Any) -> None:
        data.mkdir(exist_ok=True)
        self.data = data
        config = DaemonConfig(
            data=data,
            endpoints=["tcp://127.0.0.1:*"],
            ipc=False,
            memory_mb=64,
            reserve_mb=1,
            ballast_mb=0,
            **options,
        )
        self.server = Server(config)
        (self.endpoint,) = self.server.endpoints.all
        self.exit_status: ExitStatus | None = None
        self._thread = threading.Thread(target=self._run, name=LOOP, daemon=True)
        self._thread.start()

    @property
    def n_waiting(self) -> int:
        return len(self.server._handler._opens)

    def _run(self) -> None:
        self.exit_status = self.server.run()

    def wait(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()

    def stop(self) -> None:
        self.server.stop()
        self.wait()


class Clients:
    """Producers of one daemon, disconnected at the end."""

    def __init__(self, daemon: Daemon, undo: ExitStack) -> None:
        self._daemon, self._undo = daemon, undo

    def add(self) -> WireClient:
        return self._undo.enter_context(WireClient(self._daemon.endpoint))


class StalledState:
    """Reads of the state of one dataset stall until `go`; `reached` says that one does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.reached, self.go = threading.Event(), threading.Event()
        read = read_state

        def stalling(folder: str) -> Any:
            if Path(folder).name == name:
                self.reached.set()
                assert self.go.wait(60)
            return read(folder)

        monkeypatch.setattr("acqstream.daemon.open_requests.read_state", stalling)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    one = Daemon(tmp_path / "data")
    yield one
    one.stop()


@pytest.fixture
def clients(daemon: Daemon) -> Iterator[Clients]:
    with ExitStack() as undo:
        yield Clients(daemon, undo)


@pytest.fixture
def stall(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> Iterator[StalledState]:
    """Requests to resume `slow` stall."""
    one = StalledState(monkeypatch, "slow")
    yield one
    one.go.set()


def begin(client: WireClient, name: str = "slow", **more: Any) -> str:
    """Send an `open` and do not wait for its answer; the dataset id."""
    ds = new_dataset_id()
    client.send("open", ds=ds, name=name, **{"resume": True, **more})
    return ds


def begin_stalled(client: WireClient, stall: StalledState) -> str:
    ds = begin(client)
    assert stall.reached.wait(60)
    return ds


def store(client: WireClient, name: str, count: int) -> str:
    """Record a dataset of so many frames; its id."""
    ds = new_dataset_id()
    assert client.open(name, ds)["t"] == "opened"
    for number in range(count):
        client.frame(ds, number, PIXELS, SHAPE, {"time": number})
    client.send("close", ds=ds, n=count)
    assert client.wait_for("closed")["receipt"]["stored"] == count
    return ds


def test_frames_of_others_flow_while_an_open_stalls(clients: Clients, stall: StalledState) -> None:
    patient, other = clients.add(), clients.add()
    ds = new_dataset_id()
    assert other.open("cells", ds)["t"] == "opened"
    slow = begin_stalled(patient, stall)
    for number in range(20):
        other.frame(ds, number, PIXELS, SHAPE, {"time": number})
    other.send("close", ds=ds, n=20)
    assert other.wait_for("closed")["receipt"]["stored"] == 20
    assert not stall.go.is_set()
    stall.go.set()
    assert patient.wait_for("opened", "error")["ds"] == slow


def test_a_stalled_open_is_not_refused_for_lack_of_time(daemon: Daemon, clients: Clients, stall: StalledState) -> None:
    patient = clients.add()
    begin_stalled(patient, stall)
    daemon.server._resources.preparations.tick(time.monotonic() + 1e6)
    assert daemon.n_waiting == 1
    stall.go.set()
    assert patient.wait_for("opened", "error")["t"] == "opened"


class Audit:
    """Names of the threads that use the disk below a folder, by call. A hook of the interpreter cannot be removed."""

    def __init__(self, below: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, str, str]] = []
        self.is_on = True
        self._below = str(below)
        stat = os.stat

        def noting(path: Any, *arguments: Any, **more: Any) -> Any:
            self._note("os.stat", (path,))
            return stat(path, *arguments, **more)

        monkeypatch.setattr(os, "stat", noting)  # not audited by the interpreter
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.is_on and (event in ON_DISK or event == "os.stat") and arguments:
            path = arguments[0]
            if isinstance(path, str | os.PathLike) and os.fspath(path).startswith(self._below):
                self.calls.append((threading.current_thread().name, event, os.fspath(path)))

    def of(self, thread: str) -> list[tuple[str, str]]:
        return [(event, path) for name, event, path in self.calls if name == thread]


def test_the_loop_uses_no_file_while_it_opens(
    daemon: Daemon, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = clients.add()
    ended = store(client, "ended", 2)
    audit = Audit(daemon.data, monkeypatch)
    try:
        ids = [begin(client, "new", resume=False), begin(client, "ended", resume=False, on_exists="number")]
        ids.append(begin(client, "newer"))
        opened = [client.wait_for("opened", "error") for _ in ids]
        refused = [client.open("ended", new_dataset_id(), resume=how) for how in (False, True)]
        client.send("open", ds=ended, name="ended", resume=True, epoch=1)
        assert client.wait_for("closed")["receipt"]["stored"] == 2
        assert client.open("absent", new_dataset_id(), resume=True, epoch=1)["code"] == "unknown_ds"
    finally:
        audit.is_on = False
    assert sorted(one["name"] for one in opened) == ["ended_1", "new", "newer"]
    assert [one["code"] for one in refused] == ["name_taken", "name_taken"]
    expected = {"os.stat", "os.scandir"}
    if sys.platform != "win32":  # files are opened without Python's `open` there
        expected.add("open")
    assert expected <= {event for event, _ in audit.of("open-requests")}
    assert audit.of(LOOP) == []


@pytest.mark.parametrize("name", ["n5", "wkw"])
def test_the_loop_imports_no_format(clients: Clients, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    threads = set()
    load = registry._own_format

    def noting(kind: str) -> Any:
        threads.add(threading.current_thread().name)
        return load(kind)

    monkeypatch.setattr(registry, "_own_format", noting)
    client = clients.add()
    frame = {"dt": "<u2", "sh": list(SHAPE)}
    assert client.open("cells", new_dataset_id(), mirrors=[name], frame=frame)["t"] == "opened"
    assert "open-requests" in threads
    assert LOOP not in threads


def test_two_that_want_one_name_at_once(daemon: Daemon, clients: Clients, stall: StalledState) -> None:
    """The second is prepared after the first is open: its folder need not exist yet."""
    slow, first, second, third = (clients.add() for _ in range(4))
    begin_stalled(slow, stall)
    own = begin(first, "cells", resume=False)
    until(lambda: daemon.n_waiting == 2, "the first waits")
    begin(second, "cells", resume=False)
    until(lambda: daemon.n_waiting == 3, "the second waits")
    begin(third, "cells", resume=False, on_exists="number")
    stall.go.set()
    assert first.wait_for("opened", "error")["ds"] == own
    assert second.wait_for("opened", "error")["code"] == "name_taken"
    assert third.wait_for("opened", "error")["name"] == "cells_1"


def test_a_client_that_repeats_its_open_gets_the_same_dataset(
    daemon: Daemon, clients: Clients, stall: StalledState
) -> None:
    before, after = clients.add(), clients.add()
    ds = begin_stalled(before, stall)
    after.send("open", ds=ds, name="slow", resume=True, epoch=1)
    until(lambda: daemon.n_waiting == 2, "the second one waits too")
    stall.go.set()
    opened = after.wait_for("opened", "error")
    assert (opened["ds"], opened["name"], opened["resumed"]) == (ds, "slow", True)
    after.send("frame", PIXELS, ds=ds, n=0, dt="<u2", sh=list(SHAPE), ax={"time": 0})
    after.send("close", ds=ds, n=1)
    assert after.wait_for("closed")["receipt"]["stored"] == 1
    assert [path.name for path in daemon.data.iterdir() if path.is_dir()] == ["slow"]


def test_an_open_that_is_repeated_gets_the_same_dataset(daemon: Daemon, clients: Clients, stall: StalledState) -> None:
    """Twice: the first and the second wait for the disk meanwhile; one that comes late takes nothing."""
    slow, before, again, after, late = (clients.add() for _ in range(5))
    begin_stalled(slow, stall)
    ds = begin(before, "cells", resume=False, on_exists="number")
    again.send("open", ds=ds, name="cells", on_exists="number", epoch=1)
    after.send("open", ds=ds, name="cells", on_exists="number", epoch=2)
    until(lambda: daemon.n_waiting == 4, "all wait")
    stall.go.set()
    opened = after.wait_for("opened", "error")
    assert (opened["ds"], opened["name"], opened["epoch"]) == (ds, "cells", 2)
    for epoch in (0, 1, 2):
        late.send("open", ds=ds, name="cells", on_exists="number", epoch=epoch)
        assert "already open" in late.wait_for("opened", "error")["text"]
    after.send("frame", PIXELS, ds=ds, n=0, dt="<u2", sh=list(SHAPE), ax={"time": 0})
    after.send("close", ds=ds, n=1)
    assert after.wait_for("closed")["receipt"]["stored"] == 1
    assert sorted(path.name for path in daemon.data.iterdir() if path.is_dir()) == ["cells", "slow"]


def test_what_a_connection_sends_after_its_open_is_handled_after_it(
    daemon: Daemon, clients: Clients, stall: StalledState
) -> None:
    client, other = clients.add(), clients.add()
    ds = begin_stalled(client, stall)
    client.send("patch", ds=ds, summary={"Interval_ms": 5})
    client.send("ping")
    client.send("close", ds=ds, n=0)
    until(lambda: [len(one.followers) for one in daemon.server._handler._opens._waiting] == [3], "they wait")
    assert client.hello()["t"] == "welcome"
    assert other.hello()["t"] == "welcome"
    stall.go.set()
    assert client.wait_for("status", "error", "closed")["t"] == "status"
    receipt = client.wait_for("closed", "error")
    assert receipt["receipt"]["status"] == "completed"
    state = read_state(str(daemon.data / "slow"))
    assert state.state is AcquisitionState.COMPLETE


def test_requests_of_a_running_acquisition_do_not_wait(clients: Clients, stall: StalledState) -> None:
    """Its frames do not, and a `skip` must come between two of them."""
    client = clients.add()
    running = new_dataset_id()
    assert client.open("cells", running)["t"] == "opened"
    begin_stalled(client, stall)
    client.frame(running, 0, PIXELS, SHAPE, {"time": 0})
    client.send("skip", ds=running, n=1, reason="none")
    client.frame(running, 2, PIXELS, SHAPE, {"time": 2})
    client.send("close", ds=running, n=3)
    receipt = client.wait_for("closed", "error")["receipt"]
    assert (receipt["stored"], receipt["skipped"]) == (2, 1)
    assert not stall.go.is_set()


def test_a_frame_before_the_answer_ends_the_acquisition(daemon: Daemon, clients: Clients, stall: StalledState) -> None:
    client = clients.add()
    ds = begin_stalled(client, stall)
    client.send("frame", PIXELS, ds=ds, n=0, dt="<u2", sh=list(SHAPE), ax={"time": 0})
    until(lambda: [len(one.followers) for one in daemon.server._handler._opens._waiting] == [1], "the frame has come")
    stall.go.set()
    error = client.wait_for("error")
    assert (error["code"], error["n"], error["fatal"]) == ("limit_exceeded", 0, True)
    assert client.wait_for("closed")["receipt"]["status"] == "interrupted"


def test_a_producer_that_disconnects_has_its_grace_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = Daemon(tmp_path / "data", grace_s=0.0)
    stall = StalledState(monkeypatch, "slow")
    try:
        with WireClient(daemon.endpoint) as client:
            ds = begin_stalled(client, stall)
        stall.go.set()
        receipt = until(lambda: daemon.server._registry.receipt(ds), "it ends, as its producer is lost")
        assert (receipt.status, receipt.reason) == ("interrupted", "the producer was lost and did not come back")
        assert read_state(str(daemon.data / "slow")).state is AcquisitionState.INTERRUPTED
    finally:
        stall.go.set()
        daemon.stop()


def test_a_daemon_that_stops_does_not_wait_for_a_stalled_open(
    daemon: Daemon, clients: Clients, stall: StalledState
) -> None:
    first, second = clients.add(), clients.add()
    begin_stalled(first, stall)
    begin(second, "cells", resume=False)
    until(lambda: daemon.n_waiting == 2, "both wait")
    daemon.server.stop()
    for client in (first, second):
        error = client.wait_for("error", "opened")
        assert (error["code"], error["fatal"]) == ("shutting_down", False)
    daemon.wait()
    assert daemon.exit_status is ExitStatus.SUCCESS
    assert not stall.go.is_set()
    assert [path for path in daemon.data.iterdir() if path.is_dir()] == []


def test_a_signal_between_two_steps_of_the_loop_leaves_no_request_unanswered(
    daemon: Daemon, clients: Clients, stall: StalledState, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = clients.add()
    begin_stalled(client, stall)
    until(lambda: daemon.n_waiting == 1, "it waits")
    check, calls = daemon.server._guard.check, list[None]()

    def check_and_stop(*positional: Any, **named: Any) -> None:
        check(*positional, **named)
        if not calls:  # after those that wait were looked at, and before the loop asks whether it ends
            daemon.server.stop()
        calls.append(None)

    monkeypatch.setattr(daemon.server._guard, "check", check_and_stop)
    assert client.wait_for("error", "opened")["code"] == "shutting_down"
    daemon.wait()
    assert daemon.exit_status is ExitStatus.SUCCESS


def test_an_open_that_was_refused_at_the_end_is_not_opened_later(
    daemon: Daemon, clients: Clients, stall: StalledState
) -> None:
    """The disk is well again before the daemon has finished its other acquisitions."""
    client = clients.add()
    begin_stalled(client, stall)
    daemon.server._handler.stop()
    assert client.wait_for("error", "opened")["code"] == "shutting_down"
    stall.go.set()
    preparations = daemon.server._resources.preparations
    until(lambda: preparations._n_run == 1 and not preparations._waiting, "the result has come")
    assert client.hello()["t"] == "welcome"
    assert len(daemon.server._registry) == 0
    assert client.open("cells", new_dataset_id())["code"] == "shutting_down"
    assert [path for path in daemon.data.iterdir() if path.is_dir()] == []


class KeptMemory:
    """Stands for the server of shared memory; notes until when it keeps what tokens name."""

    def __init__(self) -> None:
        self.until: dict[str, list[float]] = {}

    def keep(self, token: str, until_s: float) -> None:
        self.until.setdefault(token, []).append(until_s)

    def take(self, _token: str) -> None:
        raise ProtocolError("gone", code="bad_memory")


def test_memory_is_kept_while_its_open_waits(daemon: Daemon, clients: Clients, stall: StalledState) -> None:
    memory, token = KeptMemory(), "0123456789abcdef" * 2
    daemon.server._handler._opens._memory_server = memory  # type: ignore[assignment]
    client = clients.add()
    begin(client, memory={"token": token})
    assert stall.reached.wait(60)
    assert memory.until == {token: [math.inf]}
    stall.go.set()
    assert client.wait_for("opened", "error")["memory_why"] == "gone"
    assert len(memory.until[token]) == 2
    assert memory.until[token][1] < math.inf


@pytest.mark.skipif(sys.platform != "linux", reason="connections are watched on Linux only")
def test_its_connection_may_send_large_messages_once_it_is_open(
    daemon: Daemon, clients: Clients, stall: StalledState
) -> None:
    client = clients.add()
    begin_stalled(client, stall)
    connections = daemon.server._guard._connections
    assert [one.is_opened for one in connections.values()] == [False]
    stall.go.set()
    assert client.wait_for("opened", "error")["t"] == "opened"
    assert [one.is_opened for one in connections.values()] == [True]


def test_what_waits_is_bounded(
    daemon: Daemon, clients: Clients, stall: StalledState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon.server._handler._opens, "_max_waiting", 2)
    monkeypatch.setattr(open_queue, "MAX_FOLLOWERS", 2)
    first, second = clients.add(), clients.add()
    ds = begin_stalled(first, stall)
    for number in range(2):
        begin(second, f"cells-{number}", resume=False)
    error = second.wait_for("error", "opened")
    assert (error["code"], "2 other requests to open" in error["text"]) == ("denied", True)
    for _ in range(2):
        first.send("ping", ds=ds)
    first.send("patch", ds=ds, summary={})
    error = first.wait_for("error", "opened")
    assert (error["code"], "2 requests of this connection wait" in error["text"]) == ("io_error", True)
    stall.go.set()
    assert [first.wait_for("opened", "error")["t"], second.wait_for("opened", "error")["t"]] == ["opened", "opened"]


@pytest.mark.parametrize("where", ["prepare", "start"])
def test_a_fault_is_an_error_of_its_request_alone(
    daemon: Daemon, clients: Clients, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    requests = daemon.server._handler._opens._open_requests

    def fail(*_: Any) -> None:
        raise ZeroDivisionError("a fault")

    client = clients.add()
    with monkeypatch.context() as patch:
        for logger in ("acqstream.daemon.resources.logger", "acqstream.daemon.request_handler.logger"):
            patch.setattr(f"{logger}.disabled", True)
        patch.setattr(requests, where, fail)
        error = client.open("cells", new_dataset_id())
        assert "a fault in the daemon: ZeroDivisionError" in error["text"]
    assert client.open("cells", new_dataset_id())["t"] == "opened"


def test_a_refusal_of_the_second_step_is_answered(
    daemon: Daemon, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that became full while the request waited."""
    client = clients.add()
    check: Callable[..., None] = OpenRequests._check_space

    def refuse(self: Any, spec: Any) -> None:
        raise AcquisitionRefused("the disk is full", code="disk_full")

    monkeypatch.setattr(OpenRequests, "_check_space", refuse)
    assert client.open("cells", new_dataset_id())["code"] == "disk_full"
    monkeypatch.setattr(OpenRequests, "_check_space", check)
    assert client.open("cells", new_dataset_id())["t"] == "opened"
