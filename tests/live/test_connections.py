"""What connections may cost the daemon: a message without end, hundreds of them, events nobody reads."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import zmq

import acqstream
from acqstream.client.daemon_requests import fetch_status
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
    limits: dict[str, Any] = {"max_payload_mb": 16, "max_connections": MAX_CONNECTIONS, "memory_mb": 512}
    with DaemonProcess(folder, grace_s=0.5, **limits) as process:  # those that were cut off do not come back
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
    until(lambda: "cut off" in small_daemon.output(), "the log names it")
    assert fetch_status(small_daemon.endpoint).acquisitions[0].name == "victim"


LARGE = b"\x03" + MIB.to_bytes(8, "big") + bytes(MIB)


@pytest.mark.parametrize("part", [b"\x01\x00", LARGE], ids=["tiny", "large"])
def test_a_reader_of_events_that_sends_without_end_is_cut_off(small_daemon: DaemonProcess, part: bytes) -> None:
    with WireClient(small_daemon.endpoint) as client:
        events = client.hello()["events"]
    before, sent, content = small_daemon.rss_bytes(), 0, part * (MIB // len(part) or 1)
    with RawPeer(int(events.rpartition(":")[2]), is_reader=True) as peer, contextlib.suppress(ConnectionError):
        while sent < 1000 * MIB:
            peer.socket.sendall(content)
            sent += len(content)
    assert sent < 1000 * MIB, "it was not cut off"
    assert small_daemon.rss_bytes() - before < 400 * MIB
    assert fetch_status(small_daemon.endpoint).acquisitions[0].name == "victim"


TINY = b"\x01\x00" * 2**15  # parts without content
ALONE = b"\x01\x23" + bytes(35)  # one that is too long for the message structure of libzmq


def open_one(peer: RawPeer, name: str) -> None:
    """From now on the daemon expects frames of this peer."""
    request = {"t": "open", "ds": new_dataset_id(), "name": name, "on_exists": "number"}
    peer.send_part(json.dumps(request).encode(), more=False)
    heard = b""
    while b'"opened"' not in heard:
        heard += peer.socket.recv(65536)


@pytest.mark.parametrize("transport", ["tcp", "ipc"])
@pytest.mark.parametrize("is_opened", [False, True], ids=["before open", "after open"])
@pytest.mark.parametrize("parts", [TINY, ALONE], ids=["tiny", "alone"])
def test_small_parts_without_end_take_little_memory(
    small_daemon: DaemonProcess, transport: str, is_opened: bool, parts: bytes
) -> None:
    """libzmq needs 64 bytes for a part of 2, and up to 18 KiB for one that it reads alone."""
    sent, most, before = 0, 0, small_daemon.rss_bytes()
    with RawPeer(small_daemon.port if transport == "tcp" else small_daemon.ipc.removeprefix("ipc://")) as peer:
        if transport == "tcp":
            peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if is_opened:
            open_one(peer, "parts")
        with contextlib.suppress(ConnectionError):
            while sent < 64 * MIB:
                for _ in range(max(1, 2**16 // len(parts))):
                    peer.socket.sendall(parts)
                    sent += len(parts)
                most = max(most, small_daemon.rss_bytes())
    assert sent < 64 * MIB, "it was not cut off"
    assert most - before < 600 * MIB
    until(lambda: "cut off" in small_daemon.output(), "the log")
    assert "victim" in [one.name for one in fetch_status(small_daemon.endpoint).acquisitions]


@pytest.mark.parametrize("transport", ["tcp", "ipc"])
def test_honest_producers_beside_one_that_sends_small_parts_are_not_cut_off(
    small_daemon: DaemonProcess, transport: Literal["tcp", "ipc"], caplog: pytest.LogCaptureFixture
) -> None:
    image = np.zeros((2048, 2048), np.uint16)  # as the parts without content, if read as parts
    place = small_daemon.port if transport == "tcp" else small_daemon.ipc.removeprefix("ipc://")
    with RawPeer(place) as peer:
        open_one(peer, "parts")

        def flood() -> None:
            with contextlib.suppress(ConnectionError):
                while True:
                    peer.socket.sendall(TINY)

        thread = threading.Thread(target=flood)
        thread.start()
        with acqstream.create(
            "honest", endpoint=small_daemon.endpoint, transport=transport, on_exists="number", buffer_mb=32
        ) as run:
            number = 0
            while thread.is_alive() or number < 10:
                run.put(image, time=number)
                number += 1
        thread.join()
    assert run.receipt is not None
    assert run.receipt.complete
    assert "contact with" not in caplog.text  # "is lost; connecting again"


def test_large_and_many_messages_are_not_cut_off(tmp_path: Path) -> None:
    """Producers at full rate, by tcp and ipc at the same time: frames of 24 MiB, and 20,000 small ones."""
    large, small = np.zeros((3072, 4096), np.uint16), np.zeros((64, 64), np.uint16)
    with DaemonProcess(tmp_path / "data", memory_mb=1024) as daemon:

        def record(name: str, transport: Literal["tcp", "ipc"], image: np.ndarray, count: int) -> None:
            with acqstream.create(name, endpoint=daemon.endpoint, transport=transport, buffer_mb=64) as run:
                for number in range(count):
                    run.put(image, time=number)

        with ThreadPoolExecutor(4) as pool:
            work = [
                pool.submit(record, f"{transport}-{count}", transport, image, count)
                for transport in ("tcp", "ipc")
                for image, count in ((large, 16), (small, 20_000))
            ]
            for one in work:
                one.result()
        assert "cut off" not in daemon.output()
        assert "lost" not in daemon.output()


def test_a_long_message_that_comes_slowly_is_no_such_thing(small_daemon: DaemonProcess) -> None:
    """As large as it may be, in pieces, with pauses longer than the guard looks apart."""
    with RawPeer(small_daemon.port) as peer:
        open_one(peer, "slow")
        peer.send_part(b'{"t":"ping"}', more=True)
        peer.announce(16 * MIB)
        for _ in range(16):
            peer.socket.sendall(bytes(MIB))
            time.sleep(0.02)
        assert _is_answered(peer.socket, b"bad_header")


def _is_answered(one: socket.socket, wanted: bytes) -> bool:
    """Whether this comes before the daemon hangs up; how far the dataset is may be told before it."""
    heard, part = b"", b"any"
    while part and wanted not in heard:
        part = one.recv(65536)
        heard += part
    return wanted in heard


def test_hundreds_of_connections(small_daemon: DaemonProcess) -> None:
    """200 are served; of those above the bound some are shut down that said nothing."""
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(WireClient(small_daemon.endpoint)) for _ in range(200)]
        for one in peers:
            assert one.hello()["t"] == "welcome"
        for _ in range(MAX_CONNECTIONS - 200 + 10):
            with contextlib.suppress(ConnectionError):  # refused
                stack.enter_context(RawPeer(small_daemon.port))
        until(lambda: "one without a run is refused" in small_daemon.output(), "one is refused")
        for one in peers[::20]:
            assert one.hello()["t"] == "welcome"
    until(lambda: _is_served(small_daemon), "a place for a new connection")


@pytest.mark.parametrize("says", [False, True], ids=["nothing", "ping"])
def test_a_flood_of_connections_costs_nobody_a_run(small_daemon: DaemonProcess, says: bool) -> None:
    """More than the daemon has places for, held open, and new ones for those that are shut down, by tcp as the run."""
    stop = threading.Event()
    held: list[RawPeer] = []

    def flood() -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError):
                held.append(RawPeer(small_daemon.port))
                if says:
                    held[-1].send_part(b'{"t":"ping"}', more=False)
            if len(held) > 2 * MAX_CONNECTIONS:
                held.pop(0).socket.close()
            time.sleep(0.002)  # some hundred a second: the processors are for others, too

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        until(lambda: len(held) > MAX_CONNECTIONS, "all places are taken")
        with acqstream.create("cells", endpoint=small_daemon.endpoint, transport="tcp", on_exists="number") as run:
            for number in range(200):
                run.put(np.full((64, 64), number, np.uint16), time=number)
                time.sleep(0.005)
        assert run.receipt is not None
        assert (run.receipt.status, run.receipt.stored) == ("completed", 200)
    finally:
        stop.set()
        thread.join()
        for peer in held:
            peer.socket.close()
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
