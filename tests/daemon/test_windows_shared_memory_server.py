"""The server for shared memory on Windows: what it takes, and what it refuses with the reason."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from acqstream.daemon.shared_memory_server import SharedMemoryServer
from acqstream.errors import ProtocolError
from acqstream.protocol import shared_memory as wire
from acqstream.protocol.frame_batch import MemoryPlace
from acqstream.storage.handover import PAGE_BYTES, close_handle, make_sealed_memory
from acqstream.storage.platform import windows_memory_listener
from acqstream.storage.platform.windows_api import is_windows
from tests.waiting import until

pytestmark = pytest.mark.skipif(not is_windows(), reason="handles are duplicated on Windows")

NOW_S = 1000.0
TOKEN = "ab" * 16
NO_HANDLE = 0x7770


@pytest.fixture
def server() -> Iterator[SharedMemoryServer]:
    one = SharedMemoryServer(None)
    yield one
    one.close()


def answer_to(server: SharedMemoryServer, message: bytes) -> tuple[socket.socket, dict[str, Any]]:
    """The connection, and the server's answer to one message."""
    connection = windows_memory_listener.connect_to(server.address, 20)
    windows_memory_listener.send_memory(connection, message, 0)
    until(lambda: bool(visitors_of(server)), "it is admitted")
    until(lambda: all(one.memory is not None for one in visitors_of(server).values()), "it is taken or dismissed")
    return connection, json.loads(windows_memory_listener.receive_answer(connection, wire.MAX_HANDOVER_BYTES))


def visitors_of(server: SharedMemoryServer) -> dict[int, Any]:
    """Those that stay after a turn of the server."""
    server.serve(NOW_S)
    return dict(server._visitors)


def test_memory_is_taken_once_and_its_bounds_are_kept(server: SharedMemoryServer) -> None:
    pages, handle = make_sealed_memory(PAGE_BYTES)
    pages[:5] = b"hello"
    connection, taken = answer_to(server, wire.encode_handover(TOKEN, handle))
    close_handle(handle)
    with connection:
        assert (taken["t"], taken["bytes"]) == ("taken", PAGE_BYTES)
        memory = server.take(TOKEN)
    del pages
    assert bytes(memory.part(MemoryPlace(memory.generation, 0), 5)) == b"hello"
    for offset, length in ((1, PAGE_BYTES), (PAGE_BYTES, 1), (2**62, 1)):  # more than was handed over
        with pytest.raises(ProtocolError, match="the memory has 4096"):
            memory.part(MemoryPlace(memory.generation, offset), length)
    with pytest.raises(ProtocolError):
        server.take(TOKEN)


@pytest.mark.parametrize(
    ("handle", "text"),
    [
        (NO_HANDLE, "cannot duplicate handle"),
        (None, "the message has no 'handle'"),
        (2**31 - 1, "'handle' must be an integer from 1 to 67108864"),
        (0, "'handle' must be"),
    ],
)
def test_what_is_no_memory_is_refused(server: SharedMemoryServer, handle: int | None, text: str) -> None:
    connection, answer = answer_to(server, wire.encode_handover(TOKEN, handle))
    with connection:
        assert answer["code"] == "bad_memory"
        assert text in answer["text"]
    assert not server._visitors


def test_a_handle_of_something_else_is_refused(server: SharedMemoryServer) -> None:
    with socket.socket() as something:
        connection, answer = answer_to(server, wire.encode_handover(TOKEN, something.fileno()))
    with connection:
        assert "cannot" in answer["text"]
    assert not server._visitors
