"""The daemon's sockets in-process: their names in the file system, with more than one daemon about."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

from acqstream.daemon import endpoints as endpoints_module
from acqstream.daemon.config import DaemonConfig
from acqstream.daemon.endpoints import Endpoints
from acqstream.errors import ConfigError
from acqstream.protocol.shared_memory import socket_identity
from tests.live.old_protocols import streams
from tests.live.programs import environment
from tests.live.raw_peer import GREETING, RawPeer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs local sockets")


def config_of(folder: Path, *endpoints: str, **more: Any) -> DaemonConfig:
    return DaemonConfig(data=folder, endpoints=list(endpoints), runtime=folder / "run", **more)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_socket())


def hears(path: str | Path, kind: int) -> bool:
    with socket.socket(socket.AF_UNIX, kind) as visitor:
        try:
            visitor.connect(str(path))
        except OSError:
            return False
        return True


@pytest.fixture
def first(tmp_path: Path) -> Iterator[Endpoints]:
    endpoints = Endpoints(config_of(tmp_path, "tcp://127.0.0.1:*"))
    yield endpoints
    endpoints.close()


def check_local(endpoints: Endpoints) -> None:
    """Both names lead to somebody."""
    assert endpoints.memory_server is not None
    assert hears(endpoints.ipc.removeprefix("ipc://"), socket.SOCK_STREAM)
    assert hears(endpoints.memory_server.address, socket.SOCK_SEQPACKET)


def test_the_names_of_the_next_daemon_stay(tmp_path: Path, first: Endpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins on the same endpoint as soon as that is free, while the one before still ends."""
    destroy, others = zmq.Context.destroy, []

    def destroy_and_be_followed(context: zmq.Context[Any], linger: int | None = None) -> None:
        monkeypatch.undo()
        destroy(context, linger=linger)
        others.append(Endpoints(config_of(tmp_path, first.bound[0])))

    monkeypatch.setattr(zmq.Context, "destroy", destroy_and_be_followed)
    first.close()
    (second,) = others
    try:
        assert second.ipc == first.ipc
        check_local(second)
    finally:
        second.close()
    assert not names(tmp_path)


def test_one_that_cannot_begin_leaves_those_of_the_living_alone(tmp_path: Path, first: Endpoints) -> None:
    port = first.bound[0].rpartition(":")[2]
    for endpoint in (first.bound[0], f"tcp://127.0.0.2:{port}", first.ipc):  # the second: with names of the same port
        with pytest.raises(ConfigError, match="another"):
            Endpoints(config_of(tmp_path, endpoint))
    assert names(tmp_path) == [f"{port}.memory", f"{port}.sock"]
    check_local(first)
    first.close()
    assert not names(tmp_path)


def test_one_that_fails_later_takes_its_own_names_along(tmp_path: Path) -> None:
    other = tmp_path / "1.memory"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(other))
        listener.listen()
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / f"{os.getpid()}.memory").hardlink_to(other)  # the desk finds its place taken
        with pytest.raises(ConfigError, match="another process"):
            Endpoints(config_of(tmp_path, f"ipc://{tmp_path}/own.sock"))
        assert names(tmp_path) == ["1.memory", f"{os.getpid()}.memory"]


def test_a_local_endpoint_goes_with_its_daemon_and_is_taken_over_from_a_dead_one(tmp_path: Path) -> None:
    path = tmp_path / "own.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as killed:
        killed.bind(str(path))
        killed.listen()
    assert path.is_socket()
    for _ in range(2):
        endpoints = Endpoints(config_of(tmp_path, f"ipc://{path}", "ipc://*", "ipc://@acqstream-test", ipc=False))
        assert hears(path, socket.SOCK_STREAM)
        endpoints.close()
        assert not names(tmp_path)


def tcp_ports() -> set[str]:
    """Local addresses of this process at which it listens."""
    return {
        f"{one.laddr.ip}:{one.laddr.port}" for one in psutil.Process().net_connections("tcp") if one.status == "LISTEN"
    }


def test_with_local_endpoints_only_no_port_is_open(tmp_path: Path) -> None:
    before = tcp_ports()
    path = tmp_path / "own.sock"
    endpoints = Endpoints(config_of(tmp_path, f"ipc://{path}"))
    try:
        assert tcp_ports() == before
        assert endpoints.all == [endpoints.ipc] == [f"ipc://{path}"]  # and no second local socket beside it
        assert endpoints.memory_server is not None
        events = endpoints.events_endpoint.removeprefix("ipc://")
        assert names(tmp_path) == sorted(["own.sock", Path(endpoints.memory_server.address).name, Path(events).name])
        assert endpoints.identities() == {
            one: socket_identity(one) for one in (str(path), events, endpoints.memory_server.address)
        }
        with zmq.Context() as context, context.socket(zmq.SUB) as reader:
            reader.linger = 0
            reader.connect(endpoints.events_endpoint)
            reader.subscribe(b"")
            assert endpoints.events.poll(20_000)
            endpoints.events.recv()
            endpoints.events.send(b"news")
            assert reader.poll(20_000)
    finally:
        endpoints.close()
    assert not names(tmp_path)


def test_beside_tcp_events_stay_on_loopback(first: Endpoints) -> None:
    assert first.events_endpoint.startswith("tcp://127.0.0.1:")
    assert first.memory_server is not None
    assert set(first.identities()) == {first.ipc.removeprefix("ipc://"), first.memory_server.address}
    assert all(first.identities().values())


NO_ZMTP_3 = {
    **streams(b'{"t":"ping"}'),
    "ZMTP 3 with another mechanism": GREETING.replace(b"NULL", b"PLAIN")[:64],
    "ZMTP 3 and noise": GREETING + b"\x04\xff" + bytes(300),
    "ZMTP 3 without READY": GREETING + b'\x00\x0c{"t":"ping"}',
    "half a greeting, then HTTP": GREETING[:10] + b"POST / HTTP/1.1\r\n" + bytes(60),
}


@pytest.mark.parametrize("transport", ["tcp", "ipc"])
def test_nothing_but_zmtp_3_reaches_the_loop(first: Endpoints, transport: str) -> None:
    place = int(first.bound[0].rpartition(":")[2]) if transport == "tcp" else first.ipc.removeprefix("ipc://")
    for content in NO_ZMTP_3.values():
        hung_up_on(place, content)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        dealer = context.socket(zmq.DEALER)
        dealer.connect(first.bound[0] if transport == "tcp" else first.ipc)
        dealer.send(b"by ZMTP 3")
        assert first.producers.poll(20_000)
        assert first.producers.recv_multipart()[1:] == [b"by ZMTP 3"]  # and nothing before it
        first.producers.setsockopt(zmq.RCVTIMEO, 0)
        with pytest.raises(zmq.Again):
            first.producers.recv()
    finally:
        context.destroy(linger=0)


def hung_up_on(place: int | str, content: bytes) -> None:
    """Send raw bytes, and wait for the daemon to end the connection, which it does by itself."""
    kind = socket.AF_INET if isinstance(place, int) else socket.AF_UNIX
    with socket.socket(kind) as one:
        one.settimeout(50)
        one.connect(("127.0.0.1", place) if isinstance(place, int) else place)
        with contextlib.suppress(ConnectionError):
            one.sendall(content)
            while one.recv(4096):
                pass


# libzmq 4.3.5 aborts the process if it holds a connection at its high-water mark (as nobody takes its messages), finds
# it broken, and then has a heartbeat to send or to answer: decision 018.
VANISHED = """
import sys, time
from pathlib import Path
from acqstream.daemon.config import DaemonConfig
from acqstream.daemon.endpoints import Endpoints
from tests.live.raw_peer import RawPeer
folder, kind, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
endpoints = Endpoints(DaemonConfig(data=folder, endpoints=["tcp://127.0.0.1:*"], runtime=folder / "run"))
tcp = int(endpoints.bound[0].rpartition(":")[2])
peer = RawPeer(endpoints.ipc.removeprefix("ipc://") if kind == "ipc" else tcp)
peer.vanish_with_ping(b"x", count)
time.sleep(float(sys.argv[4]))  # the loop is held up
taken = 0
while endpoints.producers.poll(20_000 if taken < count else 200):
    endpoints.producers.recv_multipart()
    taken += 1
endpoints.close()
print(taken)
"""


@pytest.mark.parametrize("kind", ["tcp", "ipc"])
@pytest.mark.parametrize(("count", "held_s"), [(1000, 0.3), (30, 2.6)])
def test_a_connection_that_breaks_while_its_messages_wait(tmp_path: Path, kind: str, count: int, held_s: float) -> None:
    command = [sys.executable, "-c", VANISHED, str(tmp_path), kind, str(count), str(held_s)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment())
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) == count


def test_a_machine_that_is_gone_is_noticed_by_the_kernel(first: Endpoints) -> None:
    monitor = first.producers.get_monitor_socket(zmq.EVENT_ACCEPTED)
    try:
        with RawPeer(int(first.bound[0].rpartition(":")[2])):
            assert monitor.poll(5000)
            descriptor = int(recv_monitor_message(monitor)["value"])
            with socket.socket(fileno=os.dup(descriptor)) as accepted:
                assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
                found = [accepted.getsockopt(socket.IPPROTO_TCP, option) for option in options]
    finally:
        first.producers.disable_monitor()
        monitor.close(0)
    assert found == [10, 5, 3, 25_000]


def test_a_port_that_is_released_late_is_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows after a daemon was killed."""
    old = Endpoints(config_of(tmp_path / "old", "tcp://127.0.0.1:*"))
    waits: list[float] = []

    def release(seconds: float) -> None:
        waits.append(seconds)
        old.close()

    monkeypatch.setattr(endpoints_module, "port_release_s", lambda: 60.0)
    monkeypatch.setattr("acqstream.daemon.endpoints.time.sleep", release)
    new = Endpoints(config_of(tmp_path / "new", *old.bound))
    assert new.bound == old.bound
    assert waits
    new.close()
