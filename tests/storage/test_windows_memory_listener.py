"""Memory handed over on loopback: only the program that made a connection is asked for it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import psutil
import pytest

from acqstream.storage.handover import PAGE_BYTES, close_handle, make_sealed_memory, map_sealed_memory
from acqstream.storage.platform import windows_memory_listener
from acqstream.storage.platform.windows_api import is_windows
from acqstream.storage.platform.windows_memory_listener import (
    MemoryListener,
    MemoryPeer,
    connect_to,
    receive_answer,
    send_memory,
)
from tests.waiting import until

pytestmark = pytest.mark.skipif(not is_windows(), reason="handles are duplicated on Windows")

NO_HANDLE = 0x7770
MAX_BYTES = 100

OTHER = """
import json, sys
from acqstream.storage.handover import make_sealed_memory
from acqstream.storage.platform.windows_memory_listener import connect_to, send_memory
pages, handle = make_sealed_memory(4096)
pages[:5] = b"other"
connection = connect_to(sys.argv[1], 20)
send_memory(connection, json.dumps(handle).encode(), handle)
connection.recv(1)
"""


@pytest.fixture
def listener() -> Iterator[MemoryListener]:
    one = MemoryListener()
    yield one
    one.close()


def test_a_failing_call_of_the_system_is_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon refuses that memory, and goes on."""

    def fails(_kind: str) -> None:
        raise RuntimeError("GetExtendedTcpTable failed")

    monkeypatch.setattr(psutil, "net_connections", fails)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as connection:
        with pytest.raises(OSError, match="GetExtendedTcpTable failed"):
            windows_memory_listener.owner_of(connection)


def admit(listener: MemoryListener) -> MemoryPeer:
    until(lambda: listener.ready()[0], "a connection is there")
    peer = listener.accept()
    listener.watch(peer)
    return peer


def message_of(peer: MemoryPeer) -> bytes:
    message: bytes = until(lambda: peer.receive(MAX_BYTES), "a message has come")
    return message


@pytest.fixture
def pair(listener: MemoryListener) -> Iterator[tuple[socket.socket, MemoryPeer]]:
    with connect_to(listener.address, 20) as connection:
        peer = admit(listener)
        yield connection, peer
        listener.forget(peer)
        peer.close()


def test_a_message_arrives_in_pieces(pair: tuple[socket.socket, MemoryPeer], listener: MemoryListener) -> None:
    connection, peer = pair
    connection.sendall(b"\5\0")
    until(lambda: listener.ready()[1], "bytes are there")
    assert peer.receive(MAX_BYTES) is None
    assert peer.receive(MAX_BYTES) is None  # nothing more is there
    connection.sendall(b"\0\0hell")
    until(lambda: listener.ready()[1], "bytes are there")
    assert peer.receive(MAX_BYTES) is None
    connection.sendall(b"o")
    assert message_of(peer) == b"hello"
    peer.send(b"answer")
    assert receive_answer(connection, MAX_BYTES) == b"answer"
    connection.close()
    until(lambda: listener.ready()[1], "the end is there")
    assert peer.receive(MAX_BYTES) == b""


@pytest.mark.parametrize("length", [0, MAX_BYTES + 1, 2**32 - 1])
def test_a_message_of_a_wrong_length_is_refused(pair: tuple[socket.socket, MemoryPeer], length: int) -> None:
    connection, peer = pair
    connection.sendall(length.to_bytes(4, "little"))
    with pytest.raises(ValueError, match=f"a message of {length} bytes; expected 1 to {MAX_BYTES}"):
        message_of(peer)


def test_the_handle_is_one_of_the_program_that_connected(listener: MemoryListener) -> None:
    """Its number may well mean something else in another process."""
    with subprocess.Popen([sys.executable, "-c", OTHER, listener.address]) as program:
        peer = admit(listener)
        handle = peer.take_memory(json.loads(message_of(peer)))
        assert windows_memory_listener.owner_of(peer.socket) == program.pid
        peer.close()  # it ends
        program.wait()
    view = map_sealed_memory(handle)
    close_handle(handle)
    assert bytes(view[:5]) == b"other"  # it lives as long as it is mapped


def test_a_wrong_number_is_an_error(pair: tuple[socket.socket, MemoryPeer]) -> None:
    connection, peer = pair
    send_memory(connection, b"x", 0)
    message_of(peer)
    with pytest.raises(OSError, match="cannot duplicate handle"):
        peer.take_memory(NO_HANDLE)
    with pytest.raises(ValueError, match="the message has no 'handle'"):
        peer.take_memory(None)


def test_a_process_that_started_after_its_connection_is_not_the_one(
    pair: tuple[socket.socket, MemoryPeer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system gives the number of a process that has ended to another one."""
    connection, peer = pair
    pages, handle = make_sealed_memory(PAGE_BYTES)
    send_memory(connection, b"x", handle)
    message_of(peer)
    close_handle(peer.take_memory(handle))
    monkeypatch.setattr(peer, "_accepted_at", 0)
    with pytest.raises(PermissionError, match="started after its connection"):
        peer.take_memory(handle)
    close_handle(handle)
    del pages


def test_a_peer_that_has_gone_has_no_owner(listener: MemoryListener) -> None:
    connection = connect_to(listener.address, 20)
    peer = admit(listener)
    connection.close()
    until(lambda: listener.ready()[1], "the end is there")
    with pytest.raises(OSError, match=r"does not name|cannot open"):
        peer.take_memory(NO_HANDLE)
    listener.forget(peer)
    peer.close()


@pytest.mark.parametrize(
    "address", ["", "/run/x.memory", "tcp://127.0.0.1", "tcp://192.0.2.1:80", "ipc://127.0.0.1:80"]
)
def test_memory_is_offered_on_loopback_only(address: str) -> None:
    with pytest.raises(OSError, match="not an address on loopback"):
        connect_to(address, 1)


def test_the_loop_polls_every_peer(listener: MemoryListener) -> None:
    polled: list[int] = []
    listener.register_with(polled.append, polled.remove)
    with ExitStack() as stack:
        stack.enter_context(connect_to(listener.address, 20))
        peer = admit(listener)
        assert polled == [listener._listener.fileno(), peer.socket.fileno()]
        listener.forget(peer)
        peer.close()
    assert len(polled) == 1
