"""The guard of connections, on a socket without a daemon."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import zmq

from acqstream.daemon import connection_guard
from acqstream.daemon.connection_guard import ConnectionGuard
from tests.host_system import descriptors_of
from tests.live.raw_peer import RawPeer, is_closed
from tests.waiting import until

KIB = 2**10
MIB = 2**20
measured = pytest.mark.skipif(sys.platform != "linux", reason="received bytes are counted on Linux only")


@dataclass
class Guarded:
    router: zmq.Socket[bytes]
    guard: ConnectionGuard
    port: int
    now_s: float = 0.0
    messages: int = 0

    def turn(self, *, is_taken: bool = True) -> None:
        """As the daemon's loop, a moment later."""
        self.now_s += connection_guard.CHECK_S
        while is_taken and self.router.poll(0):
            self.router.recv()
            part = self.router.recv(copy=False)
            self.guard.note(part)
            self.messages += 1
            while self.router.get(zmq.RCVMORE):
                self.router.recv()
        self.guard.check(self.now_s, is_drained=is_taken)


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Guarded]:
    monkeypatch.setattr(connection_guard, "MARGIN_BYTES", MIB)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.rcvhwm = 16
    guard = ConnectionGuard(router, max_connections=4, max_message_bytes=MIB)
    one = Guarded(router, guard, router.bind_to_random_port("tcp://127.0.0.1"))
    yield one
    guard.close()
    context.destroy(linger=0)


def turn_until(guarded: Guarded, condition: Callable[[], bool], what: str) -> None:
    def is_reached() -> bool:
        guarded.turn()
        return condition()

    until(is_reached, what)


def wait_for_connections(guarded: Guarded, count: int) -> None:
    turn_until(guarded, lambda: len(guarded.guard) == count, f"{count} connections")


def sending(peer: RawPeer, size: int) -> threading.Thread:
    """A thread that sends twelve messages of this size."""

    def send() -> None:
        for _ in range(12):
            peer.send_part(bytes(size), more=False)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


@measured
def test_a_message_without_end_is_cut_off_and_no_other(guarded: Guarded) -> None:
    with RawPeer(guarded.port) as endless, RawPeer(guarded.port) as good:
        wait_for_connections(guarded, 2)

        def send() -> None:
            with contextlib.suppress(OSError):
                while True:
                    endless.send_part(bytes(64 * KIB), more=True)

        thread = threading.Thread(target=send)
        thread.start()

        def is_cut_off() -> bool:
            good.send_part(bytes(100 * KIB), more=False)
            guarded.turn()
            return guarded.guard.n_cut_off == 1

        until(is_cut_off, "the endless one is cut off")
        thread.join(10)
        assert not thread.is_alive()
        wait_for_connections(guarded, 1)
        before = guarded.messages
        for _ in range(10):
            good.send_part(bytes(100 * KIB), more=False)
        turn_until(guarded, lambda: guarded.messages >= before + 10, "the other one goes on")
        assert guarded.guard.n_cut_off == 1


@measured
def test_before_an_open_less_may_come(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded.guard, "_unopened_bytes", MIB // 2)
    with RawPeer(guarded.port) as producer, RawPeer(guarded.port) as stranger:
        wait_for_connections(guarded, 2)
        producer.send_part(b"open", more=False)
        assert guarded.router.poll(10_000)
        guarded.router.recv()
        part = guarded.router.recv(copy=False)
        guarded.guard.note(part)
        guarded.guard.permission(part)()
        for peer in (producer, stranger):
            peer.send_part(bytes(MIB), more=True)
        turn_until(guarded, lambda: guarded.guard.n_cut_off == 1, "the stranger is cut off")
        stranger.wait_until_closed()
        producer.send_part(b"", more=False)
        turn_until(guarded, lambda: guarded.messages == 1, "the message of the producer")
    assert guarded.guard.n_cut_off == 1


@measured
def test_messages_that_wait_while_the_daemon_is_busy_are_no_suspects(guarded: Guarded) -> None:
    with RawPeer(guarded.port) as peer:
        wait_for_connections(guarded, 1)
        sending(peer, 500 * KIB).join(10)
        for _ in range(connection_guard.CHECKS_BUSY - 2):
            guarded.turn(is_taken=False)
        turn_until(guarded, lambda: guarded.messages == 12, "all messages")
    assert guarded.guard.n_cut_off == 0


@measured
def test_messages_that_libzmq_has_not_read_yet_are_no_suspects(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread may get no processor for a while: an empty queue does not mean that nothing complete has come."""
    monkeypatch.setattr(guarded.guard, "_unopened_bytes", 100 * KIB)
    guarded.router.rcvhwm = 1  # of connections from now on: one message waits, the next stays with the connection
    endpoint = guarded.router.getsockopt_string(zmq.LAST_ENDPOINT)
    guarded.router.unbind(endpoint)
    guarded.port = guarded.router.bind_to_random_port("tcp://127.0.0.1")
    with RawPeer(guarded.port) as peer:
        wait_for_connections(guarded, 1)
        thread = sending(peer, 32 * KIB)
        (connection,) = guarded.guard._connections.values()
        until(lambda: connection.received_bytes() > 100 * KIB, "the kernel has them")
        for _ in range(3):
            guarded.now_s += connection_guard.CHECK_S
            guarded.guard.check(guarded.now_s, is_drained=True)
        assert guarded.guard.n_cut_off == 0
        turn_until(guarded, lambda: guarded.messages == 12, "all messages")
        thread.join(10)


def test_too_many_are_refused_until_others_go(guarded: Guarded) -> None:
    """First one that has said nothing, then one without a run, the oldest first; at last the newest."""
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(RawPeer(guarded.port)) for _ in range(4)]
        wait_for_connections(guarded, 4)
        for peer in peers[:2]:
            peer.send_part(b"open", more=False)
            turn_until_read(guarded, permits=peer is peers[1])
        peers += [stack.enter_context(RawPeer(guarded.port))]
        turn_until(guarded, lambda: guarded.guard.n_refused == 1, "one has to go")
        if sys.platform == "win32":  # libzmq would end the process
            assert len(guarded.guard) == 5
            return
        gone: list[int] = []

        def has_one_more_gone() -> bool:
            guarded.turn()
            gone[:] = [number for number, peer in enumerate(peers) if is_closed(peer.socket)]
            return len(gone) == guarded.guard.n_refused

        until(has_one_more_gone, "it is gone")
        assert gone == [2], "the oldest that has said nothing"
        for expected in ([2, 3], [2, 3, 4], [2, 3, 4, 5]):
            peers += [stack.enter_context(RawPeer(guarded.port))]
            until(has_one_more_gone, "one more is gone")
            assert gone == expected
            assert len(guarded.guard) == 4
    wait_for_connections(guarded, 0)
    with RawPeer(guarded.port):
        wait_for_connections(guarded, 1)
    assert guarded.guard.n_refused == 4


@pytest.mark.skipif(sys.platform == "win32", reason="connections cannot be refused there")
def test_all_that_have_said_something_go_before_those_with_a_run(guarded: Guarded) -> None:
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(RawPeer(guarded.port)) for _ in range(4)]
        wait_for_connections(guarded, 4)
        for number, peer in enumerate(peers):
            peer.send_part(b"open", more=False)
            turn_until_read(guarded, permits=number in (0, 2))
        guarded.turn()
        for expected in ([1], [1, 3]):
            peers += [stack.enter_context(RawPeer(guarded.port))]
            peers[-1].send_part(b"open", more=False)
            turn_until_read(guarded, permits=True)
            assert [number for number, peer in enumerate(peers) if is_closed(peer.socket)] == expected
        newest = stack.enter_context(socket.create_connection(("127.0.0.1", guarded.port), timeout=10))
        turn_until(guarded, lambda: is_closed(newest), "all others have a run")


@pytest.mark.skipif(sys.platform == "win32", reason="connections cannot be refused there")
def test_one_whose_message_was_not_counted_yet_has_said_something(guarded: Guarded) -> None:
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(RawPeer(guarded.port)) for _ in range(4)]
        wait_for_connections(guarded, 4)
        peers[0].send_part(b"ping", more=False)
        assert guarded.router.poll(10_000)
        guarded.router.recv()
        guarded.guard.note(guarded.router.recv(copy=False))
        newest = [stack.enter_context(RawPeer(guarded.port)) for _ in range(3)]
        assert guarded.guard.monitor is not None
        assert guarded.guard.monitor.poll(10_000)

        def is_done() -> bool:
            guarded.guard.check(guarded.now_s, is_drained=True)  # no later one: nothing else counts the message
            return guarded.guard.n_refused == 3

        until(is_done, "three have to go")
        assert len(guarded.guard) == 4
        assert [is_closed(one.socket) for one in (*peers, *newest)] == [False, *[True] * 3, *[False] * 3]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no local sockets")
def test_local_sockets_are_for_their_owner(guarded: Guarded, tmp_path: Path) -> None:
    """Nobody else reaches them: so they stay, and the newest port goes."""
    guarded.router.bind(f"ipc://{tmp_path}/s")
    with contextlib.ExitStack() as stack:
        own = [stack.enter_context(RawPeer(f"{tmp_path}/s")) for _ in range(4)]
        wait_for_connections(guarded, 4)
        stranger = stack.enter_context(socket.create_connection(("127.0.0.1", guarded.port), timeout=10))
        turn_until(guarded, lambda: guarded.guard.n_refused == 1, "one has to go")
        assert is_closed(stranger)
        assert not any(is_closed(one.socket) for one in own)


def turn_until_read(guarded: Guarded, *, permits: bool) -> None:
    """Until the next message is there; permits: it is an `open` that is accepted."""

    def is_waiting() -> bool:
        guarded.guard.check(guarded.now_s, is_drained=True)
        return guarded.router.poll(0) != 0

    until(is_waiting, "a message")
    guarded.router.recv()
    part = guarded.router.recv(copy=False)
    guarded.guard.note(part)
    if permits:
        guarded.guard.permission(part)()
    guarded.turn()


def test_a_flood_leaves_the_loop_time(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes some events in a turn; but before a run is permitted, all that came before its request."""
    monkeypatch.setattr(connection_guard, "MAX_EVENTS", 2)
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(RawPeer(guarded.port)) for _ in range(4)]
        assert guarded.guard.monitor is not None
        assert guarded.guard.monitor.poll(10_000)
        guarded.turn()
        assert len(guarded.guard) <= 2
        peers[3].send_part(b"open", more=False)
        assert guarded.router.poll(10_000)
        guarded.router.recv()
        permit = guarded.guard.permission(guarded.router.recv(copy=False))
        assert len(guarded.guard) == 4
        permit()
        assert [one.is_opened for one in guarded.guard._connections.values()] == [False, False, False, True]


def test_where_none_can_be_refused_all_are_counted(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connection_guard, "can_shut_down_foreign_sockets", lambda: False)
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(RawPeer(guarded.port))
        wait_for_connections(guarded, 5)
        assert guarded.guard.n_refused == 1
        assert "cannot be refused on this system" in caplog.text
    wait_for_connections(guarded, 0)


def test_what_the_monitor_did_not_tell_is_found(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = RawPeer(guarded.port)
    wait_for_connections(guarded, 1)
    monkeypatch.setattr(guarded.guard, "_take_events", lambda _now_s, _most: None)
    peer.__exit__(None, None, None)
    wait_for_connections(guarded, 0)


@measured
def test_a_connection_that_is_gone_and_whose_number_a_file_has(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon that was held up learns late of connections; by then their descriptors are other things'."""
    gc.collect()  # what other tests have left goes now
    with open(__file__, "rb") as file:
        events = [{"event": zmq.Event.ACCEPTED, "value": file.fileno()}]
        assert guarded.guard.monitor is not None
        polled = iter([1, 0])
        monkeypatch.setattr(connection_guard, "recv_monitor_message", lambda _: events.pop())
        monkeypatch.setattr(type(guarded.guard.monitor), "poll", lambda *_: next(polled))
        own = os.path.realpath(file.name)
        guarded.guard.check(1.0, is_drained=True)
        assert descriptors_of(own)[own] == 1
    assert (len(guarded.guard), events) == (0, [])
