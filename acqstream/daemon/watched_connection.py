"""One connection of a bound ZeroMQ socket, as the kernel sees it. Linux only."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
from dataclasses import dataclass, field

_TCP_INFO_BYTES = 136
_BYTES_RECEIVED = struct.Struct("=128xQ")  # struct tcp_info: 8 bytes, 24 u32, then u64: tcpi_bytes_received is the 4th
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)
_MAX_DRAIN_READS = 1024
_DRAIN_BYTES = 2**18


@dataclass(slots=True, eq=False)
class WatchedConnection:
    """handle is a duplicate of libzmq's descriptor: it can be asked and shut down without a race."""

    handle: socket.socket
    is_tcp: bool = field(init=False)  # the kernel counts what it receives
    is_opened: bool = False  # it has sent an `open` that was accepted
    is_cut_off: bool = False
    bytes_heard: int = 0  # received when the last message from it was noted
    checks_over: int = 0
    checks_heard: int = 0  # with a message since the check before
    bytes_read: int = 0  # by libzmq; 0 for a local socket, as the next one
    bytes_unfinished: int = 0  # read since the last message
    blame_bytes: int = 0  # growth of the memory while it sent, since its last message
    low_bytes: int = 0  # least memory since its last message: it cannot have taken more than what is above
    blame_share_bytes: int = 0  # the same, divided among all that sent

    def __post_init__(self) -> None:
        self.is_tcp = self.handle.family in (socket.AF_INET, socket.AF_INET6)

    @staticmethod
    def of(descriptor: int) -> WatchedConnection | None:
        """None if the descriptor is no longer that of a socket."""
        try:
            duplicate = os.dup(descriptor)
        except OSError:
            return None
        try:
            return WatchedConnection(socket.socket(fileno=duplicate))
        except OSError:  # gone already, and its number is a file's
            os.close(duplicate)
            return None

    def received_bytes(self) -> int:
        """Payload bytes that the kernel has received on a tcp connection, those not read yet included."""
        info = self.handle.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        received: int = _BYTES_RECEIVED.unpack_from(info)[0] if len(info) >= _TCP_INFO_BYTES else 0
        return received

    def read_bytes(self) -> int:
        """Payload bytes that libzmq has taken from the kernel on a tcp connection."""
        import fcntl  # not on Windows, as the next one
        import termios

        waiting = fcntl.ioctl(self.handle.fileno(), termios.FIONREAD, bytes(4))  # first: more may arrive meanwhile
        return max(0, self.received_bytes() - int.from_bytes(waiting, sys.byteorder))

    def is_open_as(self, descriptor: int) -> bool:
        """The descriptor is still that of this connection."""
        try:
            return os.path.sameopenfile(descriptor, self.handle.fileno())
        except OSError:
            return False

    def shut_down(self) -> None:
        self.is_cut_off = True
        with contextlib.suppress(OSError):  # closed by the peer meanwhile
            self.handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)  # a blocked sender hears of it
            self.handle.shutdown(socket.SHUT_RDWR)
            # The kernel may still have megabytes, which libzmq would read: 32 times as much in parts of 2 bytes.
            for _ in range(_MAX_DRAIN_READS):
                if not self.handle.recv(_DRAIN_BYTES, socket.MSG_DONTWAIT):
                    break
