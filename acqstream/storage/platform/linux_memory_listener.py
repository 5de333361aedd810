"""Where a daemon receives memory of other programs on Linux: an AF_UNIX socket with a name, whose peers are known.

The file system decides which users may connect (mode 0660); the credentials of the peer are checked as well
(unix(7), SO_PEERCRED). Each side sends one message, the program's with the descriptor of its memory.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from collections.abc import Callable
from pathlib import Path

from acqstream.storage.platform.capabilities import has_epoll, peer_credentials
from acqstream.storage.platform.linux_memory import receive_attached, unavailable_reason

SOCKET_MODE = 0o660
HAS_NAME = True  # a listener is bound to a path
_SO_PEERGROUPS = 59
_MAX_GROUP_BYTES = 1024  # the largest socket option that Python reads


def is_possible() -> bool:
    """Return True if this system can receive memory of other programs."""
    return not unavailable_reason() and has_epoll()


def peer_groups(connection: socket.socket) -> tuple[int, ...]:
    """Return the supplementary groups of the peer; none if unknown (before Linux 4.13, more than 256)."""
    try:
        content = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _MAX_GROUP_BYTES)
    except OSError:
        return ()
    return struct.unpack(f"{len(content) // 4}I", content[: len(content) // 4 * 4])


# The daemon's side.


class MemoryPeer:
    """A connection of a program that hands memory over."""

    def __init__(self, connection: socket.socket, group: int) -> None:
        self.socket = connection
        self._group = group
        self._received: list[int] = []

    def refusal(self) -> str:
        """Return why this peer is refused; empty for the daemon's user, root, and members of the socket's group."""
        process, user, group = peer_credentials(self.socket)
        if user in (0, os.geteuid()) or self._group in (group, *peer_groups(self.socket)):
            return ""
        return f"process {process} of user {user} is neither of the daemon's user nor of the socket's group"

    def receive(self, max_bytes: int) -> bytes | None:
        """Return a message, empty if the peer has disconnected, None while it is incomplete. Raises OSError."""
        self._drop_received()
        message, self._received = receive_attached(self.socket, max_bytes)
        return message

    def take_memory(self, handle: int | None) -> int:
        """Return the descriptor that came with the last message, which the caller owns. Raises ValueError.

        handle is what the message says of it: nothing here.
        """
        del handle
        if len(self._received) != 1:
            raise ValueError(f"{len(self._received)} descriptors came with the message; expected one, of the memory")
        return self._received.pop()

    def send(self, message: bytes) -> None:
        self.socket.send(message)

    def close(self) -> None:
        self._drop_received()
        self.socket.close()

    def _drop_received(self) -> None:
        while self._received:
            os.close(self._received.pop())


class MemoryListener:
    """Listens at `path`. Raises OSError. `ready` returns descriptors with work; one descriptor reports them all."""

    def __init__(self, path: Path | None) -> None:
        assert path is not None, "a listener of this system has a path"
        self.address = str(path)
        self._listen(path)
        self._ready = select.epoll()
        self._ready.register(self._listener, select.EPOLLIN)

    def _listen(self, path: Path) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            self._listener.bind(self.address)
            path.chmod(SOCKET_MODE)  # in time: no process can connect before `listen`
            self._group = path.stat().st_gid
            self._listener.listen(16)
        except OSError:
            self._listener.close()
            raise

    def restore(self, path: Path) -> None:
        """Listen again at `path`, from where somebody removed the socket. Raises OSError."""
        self._listener.close()
        self._listen(path)
        self._ready.register(self._listener, select.EPOLLIN)

    def register_with(self, register: Callable[[int], None], unregister: Callable[[int], None]) -> None:
        """Register the descriptors to poll, now and later."""
        del unregister
        register(self._ready.fileno())

    def ready(self) -> tuple[bool, list[int]]:
        """Return whether `accept` has work, and the descriptors of peers that sent something. Never waits."""
        numbers = [number for number, _ in self._ready.poll(0)]
        own = self._listener.fileno()
        return own in numbers, [number for number in numbers if number != own]

    def accept(self) -> MemoryPeer:
        """Return the next peer. Raises OSError."""
        connection, _ = self._listener.accept()
        connection.setblocking(False)
        return MemoryPeer(connection, self._group)

    def watch(self, peer: MemoryPeer) -> None:
        """Have `ready` report this peer."""
        self._ready.register(peer.socket, select.EPOLLIN)

    def forget(self, peer: MemoryPeer) -> None:
        self._ready.unregister(peer.socket)

    def close(self) -> None:
        self._ready.close()
        self._listener.close()


# The program's side.


def connect_to(address: str, timeout_s: float) -> socket.socket:
    """Connect to a daemon's listener. Raises OSError; PermissionError if a stranger listens there."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.settimeout(timeout_s)
        connection.connect(address)
        _check_listener(connection, address)
    except OSError:
        connection.close()
        raise
    return connection


def named_handle(handle: int) -> int | None:
    """Return the number that the message names the memory with: none, as its descriptor travels beside."""
    del handle
    return None


def send_memory(connection: socket.socket, message: bytes, handle: int) -> None:
    """Send the one message, with the memory. Raises OSError."""
    socket.send_fds(connection, [message], [handle])


def receive_answer(connection: socket.socket, max_bytes: int) -> bytes:
    """Return the answer, empty if the daemon has closed the connection. Raises OSError."""
    return connection.recv(max_bytes)


def _check_listener(connection: socket.socket, path: str) -> None:
    """Raises PermissionError unless the process that listens is root's, ours, or that of the socket's owner."""
    process, user, _ = peer_credentials(connection)
    owner = os.lstat(path).st_uid
    if user not in (0, os.geteuid(), owner):
        raise PermissionError(f"process {process} of user {user} listens there; the socket belongs to user {owner}")
