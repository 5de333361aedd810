"""The server in-process: who may hand memory over, and what it keeps."""

from __future__ import annotations

import gc
import math
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from acqstream.daemon.shared_memory_server import MAX_VISITORS, VISIT_S, SharedMemoryServer, offered_memory
from acqstream.errors import ConfigError, ProtocolError
from acqstream.protocol import shared_memory as wire
from acqstream.protocol.frame_batch import MemoryPlace
from acqstream.storage.handover import PAGE_BYTES, make_sealed_memory
from acqstream.storage.platform.capabilities import has_local_sockets
from tests.host_system import descriptors_of

pytestmark = pytest.mark.skipif(not SharedMemoryServer.is_possible(), reason="no shared memory on this platform")

needs_local_sockets = pytest.mark.skipif(
    not has_local_sockets(), reason="the server of Windows has its tests in test_windows_shared_memory_server.py"
)

NOBODY = 65534
NOW_S = 1000.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SharedMemoryServer]:
    one = SharedMemoryServer(tmp_path / "1.memory")
    yield one
    one.close()
    assert not list(tmp_path.iterdir())


def visit(server: SharedMemoryServer) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(5)
    connection.connect(server.address)
    return connection


def hand_over(server: SharedMemoryServer, token: str) -> socket.socket:
    """With the server served, at NOW_S."""
    pages, descriptor = make_sealed_memory(PAGE_BYTES)
    pages[:4] = token[:4].encode()
    connection = visit(server)
    socket.send_fds(connection, [wire.encode_handover(token)], [descriptor])
    os.close(descriptor)
    server.serve(NOW_S)  # admits
    server.serve(NOW_S)  # hears
    wire.parse_handover_answer(connection.recv(4096))
    return connection


@needs_local_sockets
def test_an_open_finds_what_was_handed_over_once(server: SharedMemoryServer) -> None:
    tokens = [secrets.token_hex(16) for _ in range(3)]
    connections = [hand_over(server, token) for token in tokens]
    found = [offered_memory(server, wire.MemoryOffer(token)) for token in tokens]
    assert [why for _, why in found] == ["", "", ""]
    memories = [memory for memory, _ in found if memory is not None]
    assert [bytes(one.view[:4]) for one in memories] == [token[:4].encode() for token in tokens]
    assert len({one.generation for one in memories}) == 3
    assert offered_memory(server, wire.MemoryOffer(tokens[0]))[0] is None
    for connection in connections:
        connection.close()


def test_reasons(server: SharedMemoryServer) -> None:
    assert offered_memory(None, wire.MemoryOffer("0" * 32)) == (None, "this daemon does not use shared memory")
    assert offered_memory(server, wire.MemoryOffer(why="another machine")) == (None, "another machine")
    assert offered_memory(server, wire.MemoryOffer()) == (None, "the producer offered no memory")


@needs_local_sockets
def test_parts_of_the_memory(server: SharedMemoryServer) -> None:
    with hand_over(server, "ab" * 16):
        memory = server.take("ab" * 16)
    mine = memory.generation
    assert bytes(memory.part(MemoryPlace(mine, 1), 2)) == b"ba"
    assert len(memory.part(MemoryPlace(mine, 0), PAGE_BYTES)) == PAGE_BYTES
    for place, length in (((mine, 1), PAGE_BYTES), ((mine, PAGE_BYTES), 1), ((mine, 2**62), 1), ((mine + 1, 0), 1)):
        with pytest.raises(ProtocolError) as caught:
            memory.part(MemoryPlace(*place), length)
        assert caught.value.code == "bad_memory"


@needs_local_sockets
def test_places_of_claims(server: SharedMemoryServer) -> None:
    """They lie in the memory, on a word."""
    for claims, is_taken in (
        (0, True),
        (PAGE_BYTES - 16, True),
        (PAGE_BYTES - 8, False),
        (PAGE_BYTES, False),
        (4, False),
    ):
        pages, descriptor = make_sealed_memory(PAGE_BYTES)
        token = secrets.token_hex(16)
        with visit(server) as connection:
            socket.send_fds(connection, [wire.encode_handover(token, claims=claims)], [descriptor])
            server.serve(NOW_S)
            server.serve(NOW_S)
            answer = connection.recv(4096)
            assert (b'"taken"' in answer) == is_taken, answer
            assert is_taken or b"claims" in answer
            if is_taken:
                assert server.take(token).claims == claims
        os.close(descriptor)
        del pages


@needs_local_sockets
def test_what_nobody_names_goes_after_a_while(server: SharedMemoryServer) -> None:
    with hand_over(server, "0" * 32) as connection:
        server.serve(NOW_S + VISIT_S - 0.1)
        assert server._visitors
        server.serve(NOW_S + VISIT_S + 0.1)
        assert not server._visitors
        assert connection.recv(10) == b""
    assert offered_memory(server, wire.MemoryOffer("0" * 32))[0] is None


@needs_local_sockets
def test_too_many_at_once(server: SharedMemoryServer) -> None:
    connections = []
    for _ in range(MAX_VISITORS):
        connections.append(visit(server))
        server.serve(NOW_S)
    with visit(server) as late:
        late.send(wire.encode_handover("0" * 32))
        server.serve(NOW_S)
        server.serve(NOW_S)
        assert b"which is the limit" in late.recv(4096)
    assert len(server._visitors) == MAX_VISITORS
    for connection in connections:
        connection.close()
    while server._visitors:
        server.serve(NOW_S)


@needs_local_sockets
def test_no_descriptor_stays(server: SharedMemoryServer) -> None:
    gc.collect()  # what other tests have left goes now
    memory, sockets = descriptors_of("memfd:acqstream"), descriptors_of("socket:")
    for _ in range(5):
        hand_over(server, secrets.token_hex(16)).close()
        server.serve(NOW_S)
    assert not server._visitors
    assert descriptors_of("memfd:acqstream") <= memory
    assert descriptors_of("socket:") <= sockets


VISIT_AS = """
import os, socket, sys
path, user, group, groups = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
os.setgroups([int(groups)] if groups else [])
os.setgid(group)
os.setuid(user)
connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.settimeout(10)
try:
    connection.connect(path)
except PermissionError:
    print("no permission")
else:
    connection.send(b"rubbish")
    print(connection.recv(4096).decode())
"""


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize(
    ("mode", "group", "groups", "text"),
    [
        (0o660, NOBODY, "", "no permission"),
        (0o666, NOBODY, "", "neither of the daemon's user nor of the socket's group"),
        (0o660, 0, "", "no JSON|begin"),
        (0o660, NOBODY, "0", "no JSON|begin"),
    ],
)
def test_who_may_come(server: SharedMemoryServer, mode: int, group: int, groups: str, text: str) -> None:
    for folder in Path(server.address).parents:  # pytest's own are for one user only
        if folder.stat().st_mode & 0o005 != 0o005:
            folder.chmod(0o755)
    Path(server.address).chmod(mode)
    arguments = [server.address, str(NOBODY), str(group), groups]
    visitor = subprocess.Popen([sys.executable, "-c", VISIT_AS, *arguments], stdout=subprocess.PIPE, text=True)
    while visitor.poll() is None:
        server.serve(NOW_S)
    out, _ = visitor.communicate()
    if "|" in text:
        assert "bad_memory" in out
        assert "group" not in out
    else:
        assert text in out


@needs_local_sockets
def test_a_place_where_no_socket_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="for shared memory"):
        SharedMemoryServer(tmp_path / "missing" / "1.memory")
    monkeypatch.delattr(os, "memfd_create")
    assert not SharedMemoryServer.is_possible()


@needs_local_sockets
def test_memory_waits_with_its_open_and_goes_with_its_producer(server: SharedMemoryServer) -> None:
    token = "1" * 32
    connection = hand_over(server, token)
    server.keep(token, math.inf)
    server.serve(NOW_S + 100 * VISIT_S)
    assert server._visitors
    server.keep(token, NOW_S + 200 * VISIT_S)
    server.serve(NOW_S + 201 * VISIT_S)
    assert not server._visitors, "the `open` was refused, and no other one named it"
    connection.close()
    with hand_over(server, token):
        server.keep(token, math.inf)
    server.serve(NOW_S)
    assert not server._visitors, "its producer is gone"
