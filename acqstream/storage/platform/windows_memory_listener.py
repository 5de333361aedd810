"""Where a daemon receives memory of other programs on Windows: TCP on loopback, whose peers the system names.

The program sends one message that names a handle of its own process. The daemon asks the system which process made
the connection (psutil, GetExtendedTcpTable), opens that one, which the system allows for programs of the same user,
and duplicates the handle out of it. So no program can name memory of another one. Messages are preceded by their
length, 4 bytes, little-endian.
"""

from __future__ import annotations

import errno
import select
import socket
import struct
from collections.abc import Callable
from ctypes import byref, c_uint64
from pathlib import Path
from urllib.parse import urlsplit

from acqstream.storage.platform.windows_api import (
    check_success,
    file_time,
    kernel32,
    open_process,
    using,
)
from acqstream.storage.platform.windows_memory import FILE_MAP_READ, PROCESS_DUP_HANDLE, duplicate, unavailable_reason

HAS_NAME = False  # a listener is bound to a port that the system chooses
_HOST = "127.0.0.1"
_LENGTH = struct.Struct("<I")
_PROCESS_QUERY_LIMITED_INFORMATION = 0x1000


def is_possible() -> bool:
    """Return True if this system can receive memory of other programs."""
    return not unavailable_reason()


def owner_of(connection: socket.socket) -> int:
    """Return the number of the process that made the other end of a TCP connection on this machine (IPv4).

    Raises OSError if the system does not name it.
    """
    import psutil  # here: a producer does not need it

    ends = connection.getpeername(), connection.getsockname()
    try:
        connections = psutil.net_connections("tcp4")
    except (RuntimeError, psutil.Error) as error:  # the call of Windows failed
        raise OSError(str(error)) from error
    for one in connections:
        if (one.laddr, one.raddr) == ends and one.pid:  # 0: the process has ended
            return int(one.pid)
    raise ConnectionError("the system does not name the process at the other end; it may have disconnected")


# The daemon's side.


class MemoryPeer:
    """A connection of a program that hands memory over."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._accepted_at = file_time()
        self._pending = b""

    def refusal(self) -> str:
        """Return why this peer is refused before its message is known: never."""
        return ""

    def receive(self, max_bytes: int) -> bytes | None:
        """Return a message, empty if the peer has disconnected, None while it is incomplete.

        Raises OSError, and ValueError for a message of more than max_bytes.
        """
        try:
            data = self.socket.recv(_LENGTH.size + max_bytes - len(self._pending))
        except BlockingIOError:
            return None
        if not data:
            return b""
        self._pending += data
        if len(self._pending) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._pending)
        if not 0 < length <= max_bytes:
            raise ValueError(f"a message of {length} bytes; expected 1 to {max_bytes}")
        if len(self._pending) < _LENGTH.size + length:
            return None
        message = self._pending[_LENGTH.size : _LENGTH.size + length]
        self._pending = self._pending[_LENGTH.size + length :]
        return message

    def take_memory(self, handle: int | None) -> int:
        """Duplicate a handle out of the peer's process; the caller owns the duplicate. Raises OSError, ValueError."""
        if handle is None:
            raise ValueError("the message has no 'handle'; expected that of the memory")
        process = owner_of(self.socket)
        # A service may open processes of all users; it takes from each only what that one names itself.
        with using(open_process(process, PROCESS_DUP_HANDLE | _PROCESS_QUERY_LIMITED_INFORMATION)) as source:
            if _start_of(source) > self._accepted_at:
                # The program that connected has ended, and the system gave its number to another one.
                raise PermissionError(f"process {process} started after its connection was made")
            return duplicate(source, handle, kernel32().GetCurrentProcess(), access=FILE_MAP_READ)

    def send(self, message: bytes) -> None:
        """Raises OSError, also if the peer reads nothing: a message is smaller than the socket's buffer."""
        self.socket.sendall(_LENGTH.pack(len(message)) + message)

    def close(self) -> None:
        self.socket.close()


def _start_of(process: int) -> int:
    """Return when a process started, as a FILETIME. process is a handle. Raises OSError."""
    times = [c_uint64() for _ in range(4)]
    check_success(kernel32().GetProcessTimes(process, *map(byref, times)), "cannot query when the process started")
    return times[0].value


class MemoryListener:
    """Listens on loopback, at `address`. Raises OSError. `path` is for other platforms."""

    def __init__(self, path: Path | None = None) -> None:
        del path
        self._listener = socket.create_server((_HOST, 0), backlog=16)
        self._listener.setblocking(False)
        self.address = f"tcp://{_HOST}:{self._listener.getsockname()[1]}"
        self._peers: list[socket.socket] = []
        self._register: Callable[[int], None] = lambda _: None  # no loop has asked for it
        self._unregister: Callable[[int], None] = lambda _: None

    def restore(self, path: Path) -> None:
        """Do nothing: a pipe has no file that somebody could remove."""

    def register_with(self, register: Callable[[int], None], unregister: Callable[[int], None]) -> None:
        """Register the sockets to poll, now and later."""
        self._register, self._unregister = register, unregister
        register(self._listener.fileno())

    def ready(self) -> tuple[bool, list[int]]:
        """Return whether `accept` has work, and the numbers of peers that sent something. Never waits."""
        numbers = [one.fileno() for one in select.select([self._listener, *self._peers], [], [], 0)[0]]
        own = self._listener.fileno()
        return own in numbers, [number for number in numbers if number != own]

    def accept(self) -> MemoryPeer:
        """Return the next peer. Raises OSError."""
        connection, _ = self._listener.accept()
        connection.setblocking(False)
        return MemoryPeer(connection)

    def watch(self, peer: MemoryPeer) -> None:
        """Have `ready` report this peer."""
        self._peers.append(peer.socket)
        self._register(peer.socket.fileno())

    def forget(self, peer: MemoryPeer) -> None:
        self._peers.remove(peer.socket)
        self._unregister(peer.socket.fileno())

    def close(self) -> None:
        self._listener.close()


# The program's side.


def connect_to(address: str, timeout_s: float) -> socket.socket:
    """Connect to a daemon's listener. Raises OSError.

    Any program may listen there. Only one that may open this process gains anything from a handle's number.
    """
    parts = urlsplit(address)
    if parts.scheme != "tcp" or parts.hostname != _HOST or not parts.port:
        raise OSError(errno.EINVAL, f"not an address on loopback; expected tcp://{_HOST}:PORT")
    return socket.create_connection((_HOST, parts.port), timeout_s)


def named_handle(handle: int) -> int | None:
    """Return the number that the message names the memory with."""
    return handle


def send_memory(connection: socket.socket, message: bytes, handle: int) -> None:
    """Send the one message, which names the memory's handle. Raises OSError."""
    del handle
    connection.sendall(_LENGTH.pack(len(message)) + message)


def receive_answer(connection: socket.socket, max_bytes: int) -> bytes:
    """Return the answer, empty if the daemon has closed the connection. Raises OSError."""
    peer = MemoryPeer(connection)
    while (message := peer.receive(max_bytes)) is None:
        pass  # the socket waits, up to its timeout
    return message
