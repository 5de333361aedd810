"""Limits connections: their number, and the size of an unfinished message.

libzmq keeps a multipart message until its last part has arrived, and has no option that limits its size. So the guard
counts the bytes that libzmq has read from each connection (TCP_INFO, FIONREAD), and shuts down a connection that sent
many bytes but no complete message. It also shuts down one whose message makes the memory grow too much, over tcp or a
local socket. It counts connections on every system; what they send is measured on Linux only.

A part of 2 bytes on the wire takes 64 bytes of memory, one that arrives alone takes up to 18 KiB, and the kernel counts
no bytes of local sockets. So the memory of the process is measured. Its growth is charged to the connections that sent
meanwhile, until their message is complete.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import mmap
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import zmq
from zmq.utils.monitor import recv_monitor_message

from acqstream.storage.platform.capabilities import (
    are_sockets_files,
    can_shut_down_foreign_sockets,
    has_epoll,
    has_process_files,
    has_tcp_info,
)

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
_TCP_INFO_BYTES = 136
_BYTES_RECEIVED = struct.Struct("=128xQ")  # struct tcp_info: 8 bytes, 24 u32, then u64: tcpi_bytes_received is the 4th
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)
_MAX_DRAIN_READS = 1024
_DRAIN_BYTES = 2**18
SLACK_BYTES = 192 * 2**20  # of growth, besides the memory of acquisitions
TIE_BYTES = 192 * 2**20  # further growth, until one of several suspects is chosen
MAX_COST_OF_A_BYTE = 512  # memory for one byte on the wire: a part of 35 bytes that arrives alone
MEASURE_S = 0.05  # interval of measurements: one takes up to half a millisecond
_ARRIVAL = select.EPOLLIN | select.EPOLLOUT | select.EPOLLET if has_epoll() else 0


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
        read = connection.read_bytes()  # what the kernel still has may be complete messages
        limit = self._limit_bytes if connection.is_opened else self._unopened_bytes
        if is_sender or read - connection.bytes_at_message <= limit:
            connection.bytes_at_message = read if is_sender else connection.bytes_at_message
            connection.checks_over = 0
            self._is_watching |= read - connection.bytes_at_message > MARGIN_BYTES
            return
        connection.checks_over += 1
        self._is_watching = True
        if connection.checks_over >= max_checks:
            before = "" if connection.is_opened else " before `open`"
            sent = read - connection.bytes_at_message
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


@dataclass(slots=True, eq=False)
class WatchedConnection:
    """State of one connection. handle duplicates libzmq's descriptor, and stays valid when libzmq closes that."""

    handle: socket.socket
    is_tcp: bool = field(init=False)  # the kernel counts what it receives
    is_opened: bool = False  # it sent an `open` that was accepted
    is_cut_off: bool = False
    bytes_at_message: int = 0  # read when its last complete message was noted
    checks_over: int = 0  # in a row with an unfinished message over the limit
    checks_with_message: int = 0
    bytes_read: int = 0  # by libzmq; 0 for a local socket, as the next one
    bytes_unfinished: int = 0  # read since the last message
    blame_bytes: int = 0  # growth of the memory while it sent, since its last message
    low_bytes: int = 0  # minimum memory since its last message; it cannot have taken more than the growth since
    blame_share_bytes: int = 0  # blame_bytes, divided among all connections that sent

    def __post_init__(self) -> None:
        self.is_tcp = has_tcp_info() and self.handle.family in (socket.AF_INET, socket.AF_INET6)

    def permit(self) -> None:
        """Permit large messages: its `open` was accepted."""
        self.is_opened = True

    @staticmethod
    def of(descriptor: int) -> WatchedConnection | None:
        """Duplicate the descriptor; return None if it is no longer that of a socket."""
        try:
            duplicate = socket.dup(descriptor)  # as os.dup, and for the handles of Windows too
        except OSError:
            return None
        try:
            return WatchedConnection(socket.socket(fileno=duplicate))
        except OSError:  # closed, and its number now belongs to a file
            socket.close(duplicate)
            return None

    def received_bytes(self) -> int:
        """Return the payload bytes that the kernel has received on a tcp connection, unread bytes included."""
        info = self.handle.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        received: int = _BYTES_RECEIVED.unpack_from(info)[0] if len(info) >= _TCP_INFO_BYTES else 0
        return received

    def read_bytes(self) -> int:
        """Return the payload bytes that libzmq has read on a tcp connection."""
        import fcntl  # not on Windows, as the next one
        import termios

        waiting = fcntl.ioctl(self.handle.fileno(), termios.FIONREAD, bytes(4))  # first: more may arrive meanwhile
        return max(0, self.received_bytes() - int.from_bytes(waiting, sys.byteorder))

    def is_open_as(self, descriptor: int) -> bool:
        """Return True if the descriptor still belongs to this connection."""
        try:
            if are_sockets_files():
                return os.path.sameopenfile(descriptor, self.handle.fileno())
            return bool(_peer_of(descriptor) == self.handle.getpeername())
        except OSError:
            return False

    def shut_down(self) -> None:
        """Reset the connection. The handle stays open. Not on Windows, where libzmq would end the process."""
        self.is_cut_off = True
        with contextlib.suppress(OSError):  # closed by the peer meanwhile
            self.handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)  # wakes a blocked sender
            self.handle.shutdown(socket.SHUT_RDWR)
            # The kernel may still have megabytes for libzmq, which take 32 times as much in parts of 2 bytes.
            for _ in range(_MAX_DRAIN_READS):
                if not self.handle.recv(_DRAIN_BYTES, socket.MSG_DONTWAIT):
                    break


def _peer_of(descriptor: int) -> object:
    """Address of the other end of a connection that somebody else owns. Raises OSError if it is none."""
    borrowed = socket.socket(fileno=descriptor)
    try:
        return borrowed.getpeername()
    finally:
        borrowed.detach()


class UnfinishedMemory:
    """Measures at each `update`. Used by the loop only, on Linux.

    is_alarmed: one connection has made the memory grow by half of SLACK_BYTES. checks_suspected counts the checks in a
    row that had a suspect.
    """

    def __init__(self) -> None:
        self.is_alarmed = False
        self.checks_suspected = 0
        self._senders: set[WatchedConnection] = set()  # of complete messages since the last update
        self._measured_s = 0.0
        self._memory = ProcessMemory()
        self._unexplained_bytes = self._memory.used_bytes()
        # Edge-triggered, for readable and writable: reports each arrival, also of bytes that libzmq has read since.
        self._arrivals = select.epoll()

    def add(self, connection: WatchedConnection) -> None:
        connection.low_bytes = self._unexplained_bytes
        if not connection.is_tcp:
            self._arrivals.register(connection.handle, _ARRIVAL)

    def remove(self, connection: WatchedConnection) -> None:
        """Forget a connection. Call it before its handle is closed."""
        if not connection.is_tcp:
            self._arrivals.unregister(connection.handle)

    def note_senders(self, senders: Collection[WatchedConnection]) -> None:
        """Note connections that sent a complete message."""
        self._senders.update(senders)

    def is_due(self, now_s: float) -> bool:
        """Return True if it is time for `update`: always after an alarm, else every MEASURE_S."""
        return self.is_alarmed or now_s - self._measured_s >= MEASURE_S

    def update(self, connections: Collection[WatchedConnection], now_s: float) -> None:
        """Measure, and charge the growth to the connections that sent and whose message is not complete."""
        self._measured_s = now_s
        complete, self._senders = self._senders, set()
        used, before = self._memory.used_bytes(), self._unexplained_bytes
        arrived = {descriptor for descriptor, _ in self._arrivals.poll(0, max(1, len(connections)))}
        senders = []
        for one in connections:
            read = max(one.bytes_read, one.read_bytes()) if one.is_tcp else 0
            if one in complete:
                one.checks_with_message += 1
                one.blame_bytes = one.blame_share_bytes = one.bytes_unfinished = 0
            elif read > one.bytes_read or one.handle.fileno() in arrived:
                one.bytes_unfinished += read - one.bytes_read
                senders.append(one)
            one.bytes_read = read
            used -= one.bytes_unfinished  # explained by large parts
        self._unexplained_bytes = used
        for one in senders:
            one.blame_bytes = max(0, one.blame_bytes + used - before)
            one.blame_share_bytes = max(0, one.blame_share_bytes + (used - before) // len(senders))
        # Memory that comes and goes belongs to no connection. Without this bound its increases alone would add up, and
        # be charged to connections that send little.
        for one in connections:
            one.low_bytes = used if one in complete else min(one.low_bytes, used)
            one.blame_bytes = min(one.blame_bytes, used - one.low_bytes)
            one.blame_share_bytes = min(one.blame_share_bytes, used - one.low_bytes)

    def suspect(self, connections: Collection[WatchedConnection], lent_bytes: int) -> WatchedConnection | None:
        """Return the connection that made the memory grow too much; None if none did, or the choice is unclear.

        Among several, one without an acquisition comes first, then one with fewer messages. lent_bytes is the memory of
        the acquisitions, which honest producers never exceed. Updates is_alarmed and checks_suspected.
        """
        self.is_alarmed = any(one.blame_bytes > SLACK_BYTES // 2 for one in connections)
        suspect = self._suspect(connections, lent_bytes)
        self.checks_suspected = 0 if suspect is None else self.checks_suspected + 1
        return suspect

    def _suspect(self, connections: Collection[WatchedConnection], lent_bytes: int) -> WatchedConnection | None:
        excess = sum(one.blame_share_bytes for one in connections) - SLACK_BYTES - lent_bytes
        if excess <= 0:
            return None
        largest = max(one.blame_bytes for one in connections)
        suspects = [one for one in connections if one.blame_bytes > largest // 2 and _is_plausible(one)]
        suspects = [one for one in suspects if not one.is_opened] or suspects
        if not suspects or (len(suspects) > 1 and excess <= TIE_BYTES):
            return None
        return min(suspects, key=lambda one: (one.checks_with_message, -one.blame_bytes))

    def close(self) -> None:
        self._memory.close()
        self._arrivals.close()


def _is_plausible(one: WatchedConnection) -> bool:
    return not one.is_cut_off and (not one.is_tcp or one.bytes_unfinished * MAX_COST_OF_A_BYTE >= one.blame_bytes // 2)


class _HeapInfo(ctypes.Structure):
    """`struct mallinfo2` of glibc 2.33 (mallinfo(3)); fordblks is the size of free blocks in the heap, bytes."""

    _fields_ = [
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks")),
        *((name, ctypes.c_size_t) for name in ("uordblks", "fordblks", "keepcost")),
    ]


class ProcessMemory:
    """Measures memory in use. Linux with glibc 2.33 or newer; elsewhere `is_possible` is False.

    Counts resident pages of no file and no shared memory, without free blocks of the heap. Memory that was allocated
    but not touched does not count, nor does memory that the heap keeps for reuse (`keep_large_blocks`).
    """

    def __init__(self) -> None:
        self._heap_info = None
        self._pages = -1
        if not has_process_files():
            return
        heap_info = getattr(ctypes.CDLL(None), "mallinfo2", None)
        if heap_info is None:
            return
        heap_info.restype = _HeapInfo
        self._heap_info = heap_info
        self._pages = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)

    @property
    def is_possible(self) -> bool:
        return self._heap_info is not None

    def used_bytes(self) -> int:
        """Return the bytes in use; 0 if this platform cannot measure them."""
        if self._heap_info is None:
            return 0
        _, resident, shared = os.pread(self._pages, 128, 0).split()[:3]
        free: int = self._heap_info().fordblks
        return (int(resident) - int(shared)) * mmap.PAGESIZE - free

    def close(self) -> None:
        self._heap_info = None
        if self._pages >= 0:
            os.close(self._pages)
            self._pages = -1
