"""What connections may cost the daemon: a message without end, hundreds of them, events nobody reads."""

from __future__ import annotations

import contextlib
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from acqstream.client.status import fetch_status
from acqstream.errors import DaemonUnavailable
from tests.live.daemon_process import DaemonProcess
from tests.live.raw_peer import RawPeer
from tests.live.victim import Victim
from tests.live.wire_client import WireClient, new_dataset_id
from tests.waiting import until

MIB = 2**20
MAX_CONNECTIONS = 220
PART = bytes(64 * 2**10)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="connections are watched on Linux only")


@pytest.fixture(scope="module")
def small_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    folder: Path = tmp_path_factory.mktemp("connections") / "data"
    with DaemonProcess(folder, max_payload_mb=16, max_connections=MAX_CONNECTIONS) as process:
        victim = Victim(process.endpoint)
        yield process
        victim.finish()


def test_a_message_without_end_is_cut_off(small_daemon: DaemonProcess) -> None:
    before, most = small_daemon.rss_bytes(), 0
    sent = 0
    with RawPeer(small_daemon.port) as peer:
        peer.send_part(b'{"t":"ping"}', more=True)
        with contextlib.suppress(ConnectionError, TimeoutError):
            while sent < 4000 * MIB:
                peer.send_part(PART, more=True)
                sent += len(PART)
                if sent % (4 * MIB) == 0:
                    most = max(most, small_daemon.rss_bytes())
    assert sent < 1000 * MIB, "it was not cut off"
    assert most - before < 400 * MIB
    assert "cut off" in small_daemon.output()
    assert fetch_status(small_daemon.endpoint).acquisitions[0].name == "victim"


def test_a_long_message_that_comes_slowly_is_no_such_thing(small_daemon: DaemonProcess) -> None:
    """As large as it may be, in pieces, with pauses longer than the guard looks apart."""
    with RawPeer(small_daemon.port) as peer:
        peer.send_part(b'{"t":"ping"}', more=True)
        peer.announce(16 * MIB)
        for _ in range(16):
            peer.socket.sendall(bytes(MIB))
            time.sleep(0.02)
        assert b"bad_header" in _answer_of(peer.socket)


def _answer_of(one: socket.socket) -> bytes:
    """Everything up to the end of the first JSON text."""
    answer = b""
    while not answer.endswith(b"}"):
        answer += one.recv(65536)
    return answer


def test_hundreds_of_connections(small_daemon: DaemonProcess) -> None:
    """200 are served; those above the bound are shut down; when they are gone, others may come."""
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(WireClient(small_daemon.endpoint)) for _ in range(200)]
        for one in peers:
            assert one.hello()["t"] == "welcome"
        for _ in range(MAX_CONNECTIONS - 200 + 10):
            with contextlib.suppress(ConnectionError):  # refused
                stack.enter_context(RawPeer(small_daemon.port))
        until(lambda: "the newest is refused" in small_daemon.output(), "one is refused")
        for one in peers[::20]:
            assert one.hello()["t"] == "welcome"
    until(lambda: _is_served(small_daemon), "a place for a new connection")


def test_connections_that_fail_leave_no_place_taken(small_daemon: DaemonProcess) -> None:
    for number in range(MAX_CONNECTIONS + 20):
        with socket.create_connection(("127.0.0.1", small_daemon.port)) as one, contextlib.suppress(OSError):
            one.sendall(b"GET / HTTP/1.1\r\n\r\n" if number % 2 else b"\xff" * 20)
    until(lambda: _is_served(small_daemon), "a place for a new connection")


def _is_served(daemon: DaemonProcess) -> bool:
    try:
        fetch_status(daemon.endpoint, timeout_s=1.0)
    except DaemonUnavailable:
        return False
    return True


def test_events_that_nobody_reads(small_daemon: DaemonProcess) -> None:
    """Subscribers to everything that never receive: the events are dropped for them alone."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        with WireClient(small_daemon.endpoint) as client:
            events = client.hello()["events"]
            subscribers = [context.socket(zmq.SUB) for _ in range(5)]
            for slow in subscribers:
                slow.rcvhwm = 1
                slow.rcvbuf = 4096
                slow.subscribe(b"")
                slow.connect(events)
            ds = new_dataset_id()
            client.open("events", ds)
            for number in range(300):
                client.frame(ds, number, bytes(128), (8, 8), {"time": number})
            client.send("close", ds=ds, n=300)
            assert client.wait_for("closed")["receipt"]["stored"] == 300
    finally:
        context.destroy(linger=0)


@pytest.mark.parametrize("transport", ["tcp", "ipc"])
def test_peers_that_ping_and_vanish_while_their_messages_wait(small_daemon: DaemonProcess, transport: str) -> None:
    """See decision 018."""
    place = small_daemon.port if transport == "tcp" else small_daemon.ipc.removeprefix("ipc://")
    for _ in range(5):
        peers = [RawPeer(place) for _ in range(20)]
        small_daemon.pause()  # it finds all of it at once
        for peer in peers:
            peer.vanish_with_ping(b'{"t":"ping"}', 400)
        small_daemon.go_on()
        assert fetch_status(small_daemon.endpoint).acquisitions[0].name == "victim"
