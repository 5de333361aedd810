"""Which connection makes the memory grow: with real local sockets, and a memory that the test sets."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from acqstream.daemon.connection_guard import SLACK_BYTES, TIE_BYTES, ProcessMemory, UnfinishedMemory, WatchedConnection

MIB = 2**20
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="connections are watched on Linux only")


class Scene:
    """Three connections, all opened. `turn` lets some of them send, the memory grow, and messages be complete."""

    def __init__(self, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
        self.used_bytes = 100 * MIB
        monkeypatch.setattr(ProcessMemory, "used_bytes", lambda _: self.used_bytes)
        self.memory = UnfinishedMemory()
        stack.callback(self.memory.close)
        self.peers: list[socket.socket] = []
        self.connections: list[WatchedConnection] = []
        for _ in range(3):
            peer, accepted = socket.socketpair()
            stack.enter_context(peer)
            with accepted:
                one = WatchedConnection.of(accepted.fileno())
            assert one is not None
            stack.enter_context(one.handle)
            one.is_opened = True
            self.peers.append(peer)
            self.connections.append(one)
            self.memory.add(one)
        self.memory.update(self.connections, 0.0)

    def turn(self, senders: str, growth_bytes: int, heard: str = "") -> None:
        for name in senders:
            self.peers["abc".index(name)].send(b"x")
            self.connections["abc".index(name)].handle.recv(1)  # as libzmq, which is faster than the guard
        self.used_bytes += growth_bytes
        self.memory.note_senders([self.connections["abc".index(name)] for name in heard])
        self.memory.update(self.connections, 0.0)

    def suspect(self, lent_bytes: int = 0) -> str:
        found = self.memory.suspect(self.connections, lent_bytes)
        return "" if found is None else "abc"[self.connections.index(found)]


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(stack, monkeypatch)


def test_the_one_that_sends_while_the_memory_grows(scene: Scene) -> None:
    scene.turn("b", SLACK_BYTES - 1)
    assert scene.suspect() == ""
    scene.turn("", 500 * MIB)  # nobody sends: it is something else
    assert scene.suspect() == ""
    scene.turn("b", 2)
    assert scene.suspect() == "b"
    assert scene.suspect(lent_bytes=10) == ""


def test_complete_messages_clear_a_connection(scene: Scene) -> None:
    for _ in range(100):
        scene.turn("ac", 50 * MIB, heard="a")
        scene.turn("a", 50 * MIB)
        scene.turn("ac", -100 * MIB, heard="ac")
    assert scene.suspect() == ""


def test_with_two_suspects_there_is_time_until_one_is_cleared(scene: Scene) -> None:
    scene.turn("ab", SLACK_BYTES + MIB)
    assert scene.suspect() == ""
    scene.turn("b", MIB, heard="a")
    assert scene.suspect() == ""  # its share alone is not too much
    scene.turn("b", SLACK_BYTES // 2 + MIB)
    assert scene.suspect() == "b"


def test_the_memory_is_bounded_also_where_several_are_suspect(scene: Scene) -> None:
    scene.turn("a", MIB, heard="a")  # a producer at work
    scene.turn("ab", SLACK_BYTES + TIE_BYTES - MIB)
    assert scene.suspect() == ""
    scene.turn("ab", 4 * MIB)
    assert scene.suspect() == "b"


def test_one_without_an_acquisition_is_suspected_first(scene: Scene) -> None:
    scene.connections[2].is_opened = False
    scene.turn("abc", SLACK_BYTES + MIB)
    assert scene.suspect() == "c"


def test_many_that_stop_early_count_together(scene: Scene) -> None:
    for name in "abc":
        scene.turn(name, SLACK_BYTES // 3)
    scene.turn("c", MIB)
    assert scene.suspect() in ("", "c")
    scene.turn("c", TIE_BYTES)
    assert scene.suspect() == "c"


def test_a_replied_to_connection_is_no_sender(scene: Scene) -> None:
    scene.connections[0].handle.send(b"reply")
    scene.turn("", SLACK_BYTES + MIB)
    assert scene.connections[0].blame_bytes == 0


def test_memory_that_comes_and_goes_is_charged_to_nobody_who_only_reads(scene: Scene) -> None:
    """A peer that takes its status looks like one that sends: bytes that leave it look like bytes that arrive."""
    for _ in range(100):
        scene.turn("a", 40 * MIB)
        scene.turn("", -40 * MIB)
    assert scene.suspect() == ""
    assert scene.connections[0].blame_bytes <= 40 * MIB
    scene.turn("a", SLACK_BYTES)
    scene.turn("a", 41 * MIB)
    assert scene.suspect() == "a"
