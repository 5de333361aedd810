"""Bounds what connections can cost: how many there are, and how much of an unfinished message one may pile up.

libzmq holds a multipart message back until its last part is there, and no option of it bounds that. So the bytes that a
connection has received (TCP_INFO) are watched: many bytes and no message is a message without end, and the connection
is shut down. Linux only; local sockets are counted but not watched: the folder they are in is the user's.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
import sys
from dataclasses import dataclass

import zmq
from zmq.utils.monitor import recv_monitor_message

logger = logging.getLogger("acqstream.daemon")

CHECK_S = 0.05
FORGET_S = 1.0  # how often connections that are gone are looked for, should the monitor have missed one
WATCH_POLL_MS = 10  # between two looks when a connection is under suspicion
MARGIN_BYTES = 32 * 2**20  # a header, and what kernel and libzmq have read ahead
CHECKS_IDLE = 2  # in a row over the limit, without a message in between; at the first one every whole message was taken
CHECKS_BUSY = 20  # the same while messages of others wait: each connection has had its turn many times
LOG_EVERY_S = 1.0
_TCP_INFO_BYTES = 136
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)
_BYTES_RECEIVED = struct.Struct("=128xQ")  # struct tcp_info: 8 bytes, 24 u32, then u64: tcpi_bytes_received is the 4th
_EVENTS = zmq.Event.ACCEPTED | zmq.Event.DISCONNECTED


@dataclass(slots=True, eq=False)
class _Connection:
    """handle is a duplicate of libzmq's descriptor: it can be asked and shut down without a race."""

    handle: socket.socket
    is_tcp: bool  # and watched
    bytes_heard: int = 0  # received when the last message from it was noted
    checks_over: int = 0


class ConnectionGuard:
    """Watches the connections of one bound socket. Used by the loop only.

    max_connections: those above it are shut down at once; max_message_bytes: of a whole message, all parts.
    """

    def __init__(self, guarded: zmq.Socket[bytes], *, max_connections: int, max_message_bytes: int) -> None:
        self.refused = 0  # connections shut down because there were too many
        self.cut_off = 0  # connections shut down in the middle of a message
        self._guarded = guarded
        self._max_connections = max_connections
        self._limit_bytes = max_message_bytes + MARGIN_BYTES
        self._connections: dict[int, _Connection] = {}
        self._heard: set[int] = set()
        self._checked_s = 0.0
        self._forgot_s = 0.0
        self._logged_s: dict[str, float] = {}
        self._is_watching = False
        self.monitor: zmq.Socket[bytes] | None = None
        if sys.platform == "linux":
            self.monitor = guarded.get_monitor_socket(_EVENTS)

    def __len__(self) -> int:
        return len(self._connections)

    def note(self, part: zmq.Frame) -> None:
        """A whole message came, this is a part of it."""
        if self.monitor is not None:
            with contextlib.suppress(zmq.ZMQError):  # a message by ZMTP 1 does not say where it came from
                self._heard.add(int(part.get(zmq.SRCFD)))

    def poll_ms(self, idle_ms: int) -> int:
        """How long the loop may sleep."""
        if self._is_watching:
            return min(idle_ms, WATCH_POLL_MS)
        return min(idle_ms, int(CHECK_S * 1000)) if self._connections else idle_ms

    def check(self, now_s: float, *, is_drained: bool) -> None:
        """One turn of the loop; is_drained: no whole message was waiting a moment ago."""
        self._take_events(now_s)
        if now_s - self._forgot_s >= FORGET_S:
            self._forgot_s = now_s
            self._forget_closed()
        if now_s - self._checked_s < (WATCH_POLL_MS / 1000 if self._is_watching else CHECK_S):
            return
        self._checked_s = now_s
        heard, self._heard = self._heard, set()
        most = CHECKS_IDLE if is_drained else CHECKS_BUSY
        self._is_watching = False
        for descriptor, one in self._connections.items():
            if one.is_tcp:
                self._check_one(one, is_heard=descriptor in heard, most=most, now_s=now_s)

    def close(self) -> None:
        """Stop watching. Before the guarded socket is closed."""
        if self.monitor is not None:
            self._guarded.disable_monitor()
            self.monitor.close(linger=0)
            self.monitor = None
        for one in self._connections.values():
            one.handle.close()
        self._connections.clear()

    def _check_one(self, one: _Connection, *, is_heard: bool, most: int, now_s: float) -> None:
        received = _bytes_received(one.handle)
        if is_heard or received - one.bytes_heard <= self._limit_bytes:
            one.bytes_heard = received if is_heard else one.bytes_heard
            one.checks_over = 0
            self._is_watching |= received - one.bytes_heard > MARGIN_BYTES
            return
        one.checks_over += 1
        self._is_watching = True
        if one.checks_over >= most:
            self.cut_off += 1
            self._log(
                "cut off", now_s, f"a connection sent {received - one.bytes_heard} bytes and no whole message; cut off"
            )
            one.is_tcp = False  # seen to
            _shut_down(one.handle)

    def _take_events(self, now_s: float) -> None:
        while self.monitor is not None and self.monitor.poll(0):
            event = recv_monitor_message(self.monitor)
            descriptor = int(event["value"])
            known = self._connections.pop(descriptor, None)
            if known is not None:
                known.handle.close()
            if event["event"] == zmq.Event.ACCEPTED:
                self._accept(descriptor, now_s)

    def _forget_closed(self) -> None:
        for descriptor, one in list(self._connections.items()):
            if not _is_open_as(descriptor, one.handle):
                del self._connections[descriptor]
                one.handle.close()

    def _accept(self, descriptor: int, now_s: float) -> None:
        try:
            duplicate = os.dup(descriptor)
        except OSError:
            return  # gone already
        try:
            handle = socket.socket(fileno=duplicate)
        except OSError:  # gone already, and its number is a file's
            os.close(duplicate)
            return
        if len(self._connections) >= self._max_connections:
            self.refused += 1
            self._log("refused", now_s, f"more than {self._max_connections} connections; the newest is refused")
            _shut_down(handle)
            handle.close()
            return
        self._connections[descriptor] = _Connection(handle, handle.family in (socket.AF_INET, socket.AF_INET6))

    def _log(self, kind: str, now_s: float, text: str) -> None:
        if now_s - self._logged_s.get(kind, -LOG_EVERY_S) >= LOG_EVERY_S:
            self._logged_s[kind] = now_s
            logger.warning("%s", text)


def _bytes_received(handle: socket.socket) -> int:
    """Payload bytes that the kernel has received on a tcp connection, those not read yet included."""
    info = handle.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    received: int = _BYTES_RECEIVED.unpack_from(info)[0] if len(info) >= _TCP_INFO_BYTES else 0
    return received


def _is_open_as(descriptor: int, handle: socket.socket) -> bool:
    """The descriptor is still that of the connection which `handle` is a duplicate of."""
    try:
        return os.path.sameopenfile(descriptor, handle.fileno())
    except OSError:
        return False


def _shut_down(handle: socket.socket) -> None:
    with contextlib.suppress(OSError):  # closed by the peer meanwhile
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)  # a sender that is blocked hears of it
        handle.shutdown(socket.SHUT_RDWR)
