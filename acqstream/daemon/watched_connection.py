"""One connection of a bound ZeroMQ socket, as the kernel sees it."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
from dataclasses import dataclass, field

from acqstream.storage.platform.capabilities import are_sockets_files, has_tcp_info

_TCP_INFO_BYTES = 136
_BYTES_RECEIVED = struct.Struct("=128xQ")  # struct tcp_info: 8 bytes, 24 u32, then u64: tcpi_bytes_received is the 4th
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)
_MAX_DRAIN_READS = 1024
_DRAIN_BYTES = 2**18


@dataclass(slots=True, eq=False)
class WatchedConnection:
    """State of one connection. handle duplicates libzmq's descriptor, and stays valid when libzmq closes that."""

    handle: socket.socket
    is_tcp: bool = field(init=False)  # the kernel counts what it receives
    is_opened: bool = False  # it sent an `open` that was accepted
    is_cut_off: bool = False
    bytes_at_message: int = 0  # received when its last complete message was noted
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
