"""The desk in-process: who may hand memory over, and what it keeps."""

from __future__ import annotations

import gc
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from acqstream.daemon.shared_memory_server import MAX_VISITORS, VISIT_S, MemoryDesk, memory_of
from acqstream.errors import ConfigError, ProtocolError
from acqstream.protocol import shared_memory as wire
from acqstream.storage.shared_memory import PAGE_BYTES, make_shared_memory

pytestmark = pytest.mark.skipif(not MemoryDesk.is_possible(), reason="no shared memory on this platform")

NOBODY = 65534
NOW_S = 1000.0


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[MemoryDesk]:
    one = MemoryDesk(tmp_path / "1.memory")
    yield one
    one.close()
    assert not list(tmp_path.iterdir())


def visit(desk: MemoryDesk) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(5)
    connection.connect(str(desk.path))
    return connection


def hand_over(desk: MemoryDesk, token: str) -> socket.socket:
    """With the desk served, at NOW_S."""
    pages, descriptor = make_shared_memory(PAGE_BYTES)
    pages[:4] = token[:4].encode()
    connection = visit(desk)
    socket.send_fds(connection, [wire.encode_handover(token)], [descriptor])
    os.close(descriptor)
    desk.serve(NOW_S)  # admits
    desk.serve(NOW_S)  # hears
    wire.parse_handover_answer(connection.recv(4096))
    return connection


def test_an_open_finds_what_was_handed_over_once(desk: MemoryDesk) -> None:
    tokens = [secrets.token_hex(16) for _ in range(3)]
    connections = [hand_over(desk, token) for token in tokens]
    found = [memory_of(desk, wire.MemoryOffer(token)) for token in tokens]
    assert [why for _, why in found] == ["", "", ""]
    memories = [memory for memory, _ in found if memory is not None]
    assert [bytes(one.view[:4]) for one in memories] == [token[:4].encode() for token in tokens]
    assert len({one.generation for one in memories}) == 3
    assert memory_of(desk, wire.MemoryOffer(tokens[0]))[0] is None
    for connection in connections:
        connection.close()


def test_reasons(desk: MemoryDesk) -> None:
    assert memory_of(None, wire.MemoryOffer("0" * 32)) == (None, "this daemon takes no shared memory")
    assert memory_of(desk, wire.MemoryOffer(why="another machine")) == (None, "another machine")
    assert memory_of(desk, wire.MemoryOffer()) == (None, "the producer offered no memory")


def test_parts_of_the_memory(desk: MemoryDesk) -> None:
    with hand_over(desk, "ab" * 16):
        memory = desk.take("ab" * 16)
    mine = memory.generation
    assert bytes(memory.part(wire.MemoryPlace(mine, 1), 2)) == b"ba"
    assert len(memory.part(wire.MemoryPlace(mine, 0), PAGE_BYTES)) == PAGE_BYTES
    for place, length in (((mine, 1), PAGE_BYTES), ((mine, PAGE_BYTES), 1), ((mine, 2**62), 1), ((mine + 1, 0), 1)):
        with pytest.raises(ProtocolError) as caught:
            memory.part(wire.MemoryPlace(*place), length)
        assert caught.value.code == "bad_memory"


def test_what_nobody_names_goes_after_a_while(desk: MemoryDesk) -> None:
    with hand_over(desk, "0" * 32) as connection:
        desk.serve(NOW_S + VISIT_S - 0.1)
        assert desk._visitors
        desk.serve(NOW_S + VISIT_S + 0.1)
        assert not desk._visitors
        assert connection.recv(10) == b""
    assert memory_of(desk, wire.MemoryOffer("0" * 32))[0] is None


def test_too_many_at_once(desk: MemoryDesk) -> None:
    connections = []
    for _ in range(MAX_VISITORS):
        connections.append(visit(desk))
        desk.serve(NOW_S)
    with visit(desk) as late:
        late.send(wire.encode_handover("0" * 32))
        desk.serve(NOW_S)
        desk.serve(NOW_S)
        assert b"just now" in late.recv(4096)
    assert len(desk._visitors) == MAX_VISITORS
    for connection in connections:
        connection.close()
    while desk._visitors:
        desk.serve(NOW_S)


def test_no_descriptor_stays(desk: MemoryDesk) -> None:
    gc.collect()  # what other tests have left goes now
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        hand_over(desk, secrets.token_hex(16)).close()
        desk.serve(NOW_S)
    assert not desk._visitors
    assert len(os.listdir("/proc/self/fd")) == before


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
def test_who_may_come(desk: MemoryDesk, mode: int, group: int, groups: str, text: str) -> None:
    for folder in desk.path.parents:  # pytest's own are for one user only
        if folder.stat().st_mode & 0o005 != 0o005:
            folder.chmod(0o755)
    desk.path.chmod(mode)
    arguments = [str(desk.path), str(NOBODY), str(group), groups]
    visitor = subprocess.Popen([sys.executable, "-c", VISIT_AS, *arguments], stdout=subprocess.PIPE, text=True)
    while visitor.poll() is None:
        desk.serve(NOW_S)
    out, _ = visitor.communicate()
    if "|" in text:
        assert "bad_memory" in out
        assert "group" not in out
    else:
        assert text in out


def test_a_place_where_no_socket_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="for shared memory"):
        MemoryDesk(tmp_path / "missing" / "1.memory")
    monkeypatch.delattr(os, "memfd_create")
    assert not MemoryDesk.is_possible()
