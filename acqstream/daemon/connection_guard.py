"""Limits connections: their number, and the size of an unfinished message.

libzmq keeps a multipart message until its last part has arrived, and has no option that limits its size. So the guard
reads the bytes that each connection has received (TCP_INFO), and shuts down a connection that sent many bytes but no
complete message. It also shuts down one whose message makes the memory grow too much (unfinished_memory.py), over tcp
or a local socket. It counts connections on every system; what they send is measured on Linux only.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable

import zmq
from zmq.utils.monitor import recv_monitor_message

from acqstream.daemon.unfinished_memory import UnfinishedMemory
from acqstream.daemon.watched_connection import WatchedConnection
from acqstream.storage.platform.capabilities import can_shut_down_foreign_sockets, has_process_files

logger = logging.getLogger("acqstream.daemon")

CHECK_S = 0.05
FORGET_S = 1.0  # interval of the search for closed connections whose event the monitor missed
WATCH_POLL_MS = 10  # interval of checks while a connection is suspected
MARGIN_BYTES = 32 * 2**20  # a header, and bytes that kernel and libzmq read ahead
UNOPENED_BYTES = 4 * 2**20  # of a message before `open`: a header of 1 MiB, and another one after it
CHECKS_IDLE = 2  # in a row over the limit, without a message between; before the first, every complete one was received
CHECKS_BUSY = 20  # the same while messages of others wait: each connection has been served many times
LOG_EVERY_S = 1.0
MAX_EVENTS = 64  # in a turn of the loop: a flood of connections must leave it time for frames
_ALL_EVENTS = 10_000  # more than the monitor keeps
_EVENTS = zmq.Event.ACCEPTED | zmq.Event.DISCONNECTED


class ConnectionGuard:
    """Watches the connections of one bound socket. Used by the loop only.

    Of too many connections one without a run is shut down. max_message_bytes counts all parts of a message;
    unopened_bytes is the limit before an accepted `open`. measures: also watch the memory of the process.
    """

    def __init__(
        self,
        guarded: zmq.Socket[bytes],
        *,
        max_connections: int,
        max_message_bytes: int,
        unopened_bytes: int | None = None,
        measures: bool = True,
    ) -> None:
        self.n_refused = 0  # connections shut down because too many were open
        self.n_cut_off = 0  # connections shut down in the middle of a message
        self._guarded = guarded
        self._max_connections = max_connections
        self._limit_bytes = max_message_bytes + MARGIN_BYTES
        self._unopened_bytes = UNOPENED_BYTES if unopened_bytes is None else unopened_bytes
        self._connections: dict[int, WatchedConnection] = {}
        self._message_descriptors: set[int] = set()  # of messages since the last check
        self._checked_s = 0.0
        self._forgot_s = 0.0
        self._logged_s: dict[str, float] = {}
        self._is_watching = False
        self._memory: UnfinishedMemory | None = None
        if measures and has_process_files():
            self._memory = UnfinishedMemory()
        self.monitor: zmq.Socket[bytes] | None = guarded.get_monitor_socket(_EVENTS)

    def __len__(self) -> int:
        return len(self._connections)

    def note(self, part: zmq.Frame) -> None:
        """Note that a complete message arrived on the connection of `part`."""
        if self.monitor is not None:
            with contextlib.suppress(zmq.ZMQError):  # the connection is closed
                self._message_descriptors.add(int(part.get(zmq.SRCFD)))

    def permission(self, part: zmq.Frame) -> Callable[[], None]:
        """Return a function that permits large messages on the connection of `part`, an `open`, once it is accepted.

        The number of a descriptor may belong to another connection by then: so it is looked up now.
        """
        connection = None
        if self.monitor is not None:
            self._take_events(time.monotonic(), _ALL_EVENTS)
            with contextlib.suppress(zmq.ZMQError):  # the connection is closed
                connection = self._connections.get(int(part.get(zmq.SRCFD)))
        return _permit_none if connection is None else connection.permit

    def poll_ms(self, idle_ms: int) -> int:
        """Return how long the loop may sleep, in ms."""
        if self._is_watching:
            return min(idle_ms, WATCH_POLL_MS)
        return min(idle_ms, int(CHECK_S * 1000)) if self._connections else idle_ms

    def check(self, now_s: float, *, is_drained: bool, lent_bytes: int = 0) -> None:
        """Check all connections; called once in each turn of the loop.

        is_drained: no complete message was waiting just before. lent_bytes: memory of the acquisitions.
        """
        self._take_events(now_s, MAX_EVENTS)
        if now_s - self._forgot_s >= FORGET_S:
            self._forgot_s = now_s
            self._forget_closed()
        if now_s - self._checked_s < (WATCH_POLL_MS / 1000 if self._is_watching else CHECK_S):
            return
        self._checked_s = now_s
        senders = {self._connections[key] for key in self._message_descriptors if key in self._connections}
        self._message_descriptors = set()
        max_checks = CHECKS_IDLE if is_drained else CHECKS_BUSY
        self._is_watching = False
        for connection in self._connections.values():
            if connection.is_tcp and not connection.is_cut_off:
                self._check_size(connection, is_sender=connection in senders, max_checks=max_checks, now_s=now_s)
        if self._memory is not None:
            self._memory.note_senders(senders)
            if self._memory.is_due(now_s):
                self._memory.update(self._connections.values(), now_s)
                self._check_memory(self._memory, lent_bytes, max_checks=max_checks, now_s=now_s)
            self._is_watching |= self._memory.is_alarmed

    def close(self) -> None:
        """Stop watching. Call it before the guarded socket is closed."""
        if self.monitor is not None:
            self._guarded.disable_monitor()
            self.monitor.close(linger=0)
            self.monitor = None
        for descriptor in list(self._connections):
            self._forget(descriptor)
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def _check_size(self, connection: WatchedConnection, *, is_sender: bool, max_checks: int, now_s: float) -> None:
        """Shut the connection down if its unfinished message is over the limit in max_checks checks in a row."""
        received = connection.received_bytes()
        limit = self._limit_bytes if connection.is_opened else self._unopened_bytes
        if is_sender or received - connection.bytes_at_message <= limit:
            connection.bytes_at_message = received if is_sender else connection.bytes_at_message
            connection.checks_over = 0
            self._is_watching |= received - connection.bytes_at_message > MARGIN_BYTES
            return
        connection.checks_over += 1
        self._is_watching = True
        if connection.checks_over >= max_checks:
            before = "" if connection.is_opened else " before `open`"
            sent = received - connection.bytes_at_message
            self._cut_off(
                connection, now_s, f"connection cut off: it sent {sent} bytes{before} and no complete message"
            )

    def _check_memory(self, memory: UnfinishedMemory, lent_bytes: int, *, max_checks: int, now_s: float) -> None:
        suspect = memory.suspect(self._connections.values(), lent_bytes)
        if suspect is not None and memory.checks_suspected >= max_checks:
            growth, suspect.blame_bytes, suspect.blame_share_bytes = suspect.blame_bytes, 0, 0
            text = f"connection cut off: it made the memory grow by {growth} bytes and sent no complete message"
            self._cut_off(suspect, now_s, text)

    def _cut_off(self, connection: WatchedConnection, now_s: float, text: str) -> None:
        self.n_cut_off += 1
        self._log("cut off", now_s, text)
        connection.shut_down()

    def _take_events(self, now_s: float, most: int) -> None:
        for _ in range(most):
            if self.monitor is None or not self.monitor.poll(0):
                return
            event = recv_monitor_message(self.monitor)
            descriptor = int(event["value"])
            self._forget(descriptor)
            if event["event"] == zmq.Event.ACCEPTED:
                self._accept(descriptor, now_s)

    def _forget_closed(self) -> None:
        for descriptor, connection in list(self._connections.items()):
            if not connection.is_open_as(descriptor):
                self._forget(descriptor)

    def _forget(self, descriptor: int) -> None:
        connection = self._connections.pop(descriptor, None)
        if connection is not None:
            if self._memory is not None:
                self._memory.remove(connection)
            connection.handle.close()

    def _accept(self, descriptor: int, now_s: float) -> None:
        connection = WatchedConnection.of(descriptor)
        if connection is None:
            return
        is_full = len(self._connections) >= self._max_connections
        self._connections[descriptor] = connection
        if self._memory is not None:
            self._memory.add(connection)
        if is_full:
            self._make_room(descriptor, now_s)

    def _make_room(self, newest: int, now_s: float) -> None:
        """Shut down one connection that no run needs, where libzmq survives that; else log that there are too many.

        Other users of the PC and of the network may open as many as they like. So one goes that has said nothing, then
        one without a run, the oldest first; the newest where all others have one. Local sockets are for their owner.
        """
        self.n_refused += 1
        text = f"max_connections is {self._max_connections}, and as many are open"
        if not can_shut_down_foreign_sockets():
            self._log("refused", now_s, f"{text}; another one came, and cannot be refused on this system")
            return
        least = self._least(newest)
        self._log("refused", now_s, f"{text}; {'the newest' if least == newest else 'one without a run'} is refused")
        self._connections[least].shut_down()
        self._forget(least)

    def _least(self, newest: int) -> int:
        """The descriptor of the connection that no run needs."""
        least = newest
        for descriptor, one in self._connections.items():
            if one.is_tcp and not one.is_opened and not one.is_cut_off and descriptor != newest:
                if not one.bytes_at_message and descriptor not in self._message_descriptors:
                    return descriptor
                least = descriptor if least == newest else least
        return least

    def _log(self, kind: str, now_s: float, text: str) -> None:
        if now_s - self._logged_s.get(kind, -LOG_EVERY_S) >= LOG_EVERY_S:
            self._logged_s[kind] = now_s
            logger.warning("%s", text)


def _permit_none() -> None:
    """Of a connection that is closed, or not watched."""
