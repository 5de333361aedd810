"""Bounds the cost of connections: their number, and the size of a message that does not end.

libzmq holds a multipart message back until its last part is there, and no option of it bounds that. So the bytes that a
connection has received (TCP_INFO) are watched: many bytes and no message is a message without end, and the connection
is shut down. So is one whose message makes the memory grow too much (unfinished_memory.py), over tcp or a local socket.
Linux only.
"""

from __future__ import annotations

import contextlib
import logging
import sys

import zmq
from zmq.utils.monitor import recv_monitor_message

from acqstream.daemon.unfinished_memory import SLACK_BYTES, UnfinishedMemory
from acqstream.daemon.watched_connection import WatchedConnection

logger = logging.getLogger("acqstream.daemon")

CHECK_S = 0.05
FORGET_S = 1.0  # how often connections that are gone are looked for, should the monitor have missed one
WATCH_POLL_MS = 10  # between two looks when a connection is under suspicion
MARGIN_BYTES = 32 * 2**20  # a header, and what kernel and libzmq have read ahead
UNOPENED_BYTES = 4 * 2**20  # of a message before `open`: a header of 1 MiB, and another one behind it
CHECKS_IDLE = 2  # in a row over the limit, without a message in between; at the first one every whole message was taken
CHECKS_BUSY = 20  # the same while messages of others wait: each connection has had its turn many times
LOG_EVERY_S = 1.0
_EVENTS = zmq.Event.ACCEPTED | zmq.Event.DISCONNECTED


class ConnectionGuard:
    """Watches the connections of one bound socket. Used by the loop only.

    max_connections: those above it are shut down at once; max_message_bytes: of a whole message, all parts;
    unopened_bytes: the same of a connection without an acquisition; measures: the memory of the process is watched too.
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
        self.refused = 0  # connections shut down because there were too many
        self.cut_off = 0  # connections shut down in the middle of a message
        self._guarded = guarded
        self._max_connections = max_connections
        self._limit_bytes = max_message_bytes + MARGIN_BYTES
        self._unopened_bytes = UNOPENED_BYTES if unopened_bytes is None else unopened_bytes
        self._connections: dict[int, WatchedConnection] = {}
        self._heard: set[int] = set()
        self._opened: set[int] = set()
        self._checked_s = 0.0
        self._forgot_s = 0.0
        self._logged_s: dict[str, float] = {}
        self._is_watching = False
        self._checks_suspected = 0
        self._heard_since: set[WatchedConnection] = set()  # the memory was measured
        self._measured_s = 0.0
        self._is_alarmed = False  # somebody has made the memory grow by half of what is cut off
        self._memory: UnfinishedMemory | None = None
        self.monitor: zmq.Socket[bytes] | None = None
        if sys.platform == "linux":
            self._memory = UnfinishedMemory() if measures else None
            self.monitor = guarded.get_monitor_socket(_EVENTS)

    def __len__(self) -> int:
        return len(self._connections)

    def note(self, part: zmq.Frame) -> None:
        """A whole message came, this is a part of it."""
        if self.monitor is not None:
            with contextlib.suppress(zmq.ZMQError):  # the connection is gone
                self._heard.add(int(part.get(zmq.SRCFD)))

    def note_opened(self, part: zmq.Frame) -> None:
        """The message was an `open` that was accepted: large messages are expected from its connection."""
        if self.monitor is not None:
            with contextlib.suppress(zmq.ZMQError):
                self._opened.add(int(part.get(zmq.SRCFD)))

    def poll_ms(self, idle_ms: int) -> int:
        """How long the loop may sleep."""
        if self._is_watching:
            return min(idle_ms, WATCH_POLL_MS)
        return min(idle_ms, int(CHECK_S * 1000)) if self._connections else idle_ms

    def check(self, now_s: float, *, is_drained: bool, lent_bytes: int = 0) -> None:
        """One turn of the loop; is_drained: no whole message was waiting a moment ago; lent_bytes: to acquisitions."""
        self._take_events(now_s)
        if now_s - self._forgot_s >= FORGET_S:
            self._forgot_s = now_s
            self._forget_closed()
        if now_s - self._checked_s < (WATCH_POLL_MS / 1000 if self._is_watching else CHECK_S):
            return
        self._checked_s = now_s
        heard = {self._connections[one] for one in self._heard if one in self._connections}
        for descriptor in self._opened:
            if descriptor in self._connections:
                self._connections[descriptor].is_opened = True
        self._heard, self._opened = set(), set()
        most = CHECKS_IDLE if is_drained else CHECKS_BUSY
        self._is_watching = False
        for one in self._connections.values():
            if one.is_tcp and not one.is_cut_off:
                self._check_one(one, is_heard=one in heard, most=most, now_s=now_s)
        if self._memory is not None:
            self._heard_since |= heard
            if self._is_alarmed or now_s - self._measured_s >= CHECK_S:  # it takes up to half a millisecond
                self._measured_s = now_s
                self._memory.update(self._connections.values(), self._heard_since)
                self._heard_since = set()
                self._check_memory(self._memory, lent_bytes, most=most, now_s=now_s)
            self._is_watching |= self._is_alarmed

    def close(self) -> None:
        """Stop watching. Before the guarded socket is closed."""
        if self.monitor is not None:
            self._guarded.disable_monitor()
            self.monitor.close(linger=0)
            self.monitor = None
        for descriptor in list(self._connections):
            self._forget(descriptor)
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def _check_one(self, one: WatchedConnection, *, is_heard: bool, most: int, now_s: float) -> None:
        received = one.received_bytes()
        if is_heard or received - one.bytes_heard <= (self._limit_bytes if one.is_opened else self._unopened_bytes):
            one.bytes_heard = received if is_heard else one.bytes_heard
            one.checks_over = 0
            self._is_watching |= received - one.bytes_heard > MARGIN_BYTES
            return
        one.checks_over += 1
        self._is_watching = True
        if one.checks_over >= most:
            before = "" if one.is_opened else " before `open`"
            text = f"a connection sent {received - one.bytes_heard} bytes{before} and no whole message; cut off"
            self._cut_off(one, now_s, text)

    def _check_memory(self, memory: UnfinishedMemory, lent_bytes: int, *, most: int, now_s: float) -> None:
        suspect = memory.suspect(self._connections.values(), lent_bytes)
        self._is_alarmed = any(one.blame_bytes > SLACK_BYTES // 2 for one in self._connections.values())
        self._checks_suspected = 0 if suspect is None else self._checks_suspected + 1
        if suspect is not None and self._checks_suspected >= most:
            grown, suspect.blame_bytes, suspect.blame_share_bytes = suspect.blame_bytes, 0, 0
            text = f"a connection made the memory grow by {grown} bytes and sent no whole message; cut off"
            self._cut_off(suspect, now_s, text)

    def _cut_off(self, one: WatchedConnection, now_s: float, text: str) -> None:
        self.cut_off += 1
        self._log("cut off", now_s, text)
        one.shut_down()

    def _take_events(self, now_s: float) -> None:
        while self.monitor is not None and self.monitor.poll(0):
            event = recv_monitor_message(self.monitor)
            descriptor = int(event["value"])
            self._forget(descriptor)
            if event["event"] == zmq.Event.ACCEPTED:
                self._accept(descriptor, now_s)

    def _forget_closed(self) -> None:
        for descriptor, one in list(self._connections.items()):
            if not one.is_open_as(descriptor):
                self._forget(descriptor)

    def _forget(self, descriptor: int) -> None:
        one = self._connections.pop(descriptor, None)
        if one is not None:
            if self._memory is not None:
                self._memory.remove(one)
            one.handle.close()

    def _accept(self, descriptor: int, now_s: float) -> None:
        one = WatchedConnection.of(descriptor)
        if one is None:
            return
        if len(self._connections) >= self._max_connections:
            self.refused += 1
            self._log("refused", now_s, f"more than {self._max_connections} connections; the newest is refused")
            one.shut_down()
            one.handle.close()
            return
        self._connections[descriptor] = one
        if self._memory is not None:
            self._memory.add(one)

    def _log(self, kind: str, now_s: float, text: str) -> None:
        if now_s - self._logged_s.get(kind, -LOG_EVERY_S) >= LOG_EVERY_S:
            self._logged_s[kind] = now_s
            logger.warning("%s", text)
