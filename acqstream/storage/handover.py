"""Hands memory and orders to another process on this machine: sealed memory files and local sockets (Linux).

A memory file has no name and exists as long as any process has it open or mapped. Its seals guarantee that it neither
shrinks nor grows nor loses pages, so that no access can fail (memfd_create(2), "File sealing"). Its descriptor travels
over an AF_UNIX socket (unix(7), SCM_RIGHTS), whose peer the kernel identifies (SO_PEERCRED).

Elsewhere this module imports, `unavailable_reason` names the missing function, and functions raise OSError.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from acqstream.storage.huge_pages import map_file
from acqstream.storage.platform.capabilities import has_memory_files, names_socket_peers, uninherited_descriptors_flag

PAGE_BYTES = 4096
MAX_LINE_BYTES = 65536
_F_SEAL_SHRINK, _F_SEAL_GROW = 0x2, 0x4
_F_SEAL_FUTURE_WRITE = 0x10  # Linux 5.1: no process but the owner maps it writable, and no pages are removed
_SIZE_SEALS = _F_SEAL_SHRINK | _F_SEAL_GROW
_SEALS = _SIZE_SEALS | _F_SEAL_FUTURE_WRITE
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid
_DESCRIPTOR = struct.Struct("i")
_SO_PEERGROUPS = 59
_MAX_GROUP_BYTES = 1024  # the largest socket option that Python reads
_MAX_DESCRIPTORS = 16  # in one call; more of one message are closed by the kernel


def unavailable_reason() -> str:
    """Return what this system lacks for memory files to be handed over; empty if it lacks nothing."""
    if not has_memory_files():
        return "this system has no memory files that can be sealed (memfd)"
    return "" if names_socket_peers() else "this system does not name the peer of a local socket"


# Memory.


def make_sealed_memory(length: int) -> tuple[memoryview, int]:
    """Make `length` bytes (whole pages) that are present and sealed; return them and a descriptor to hand over.

    The caller owns the descriptor. The pages stay while any view of them does. Raises OSError.
    """
    if not has_memory_files():
        raise OSError(unavailable_reason())
    import fcntl

    if length > (available := _available_bytes()):  # the system would look for it until it kills a process
        raise OSError(errno.ENOMEM, f"{os.strerror(errno.ENOMEM)}: {length} bytes wanted, {available} available")
    descriptor = os.memfd_create("acqstream-producer", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, length)
        pages = map_file(descriptor, length, is_ours=True)
        os.posix_fallocate(descriptor, 0, length)  # all of it now: a page that is missing later could not be reported
        np.frombuffer(pages, dtype=np.uint8)[::PAGE_BYTES] = 0  # no `put` waits for one either
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS | fcntl.F_SEAL_SEAL)
    except BaseException:
        os.close(descriptor)
        raise
    return pages, descriptor


def seal_memory(descriptor: int) -> None:
    """Seal a mapped memory file of ours: its size is fixed, and only the existing mapping is writable."""
    import fcntl

    try:
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except OSError:  # a kernel before 5.1
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SIZE_SEALS)


def map_memory(descriptor: int) -> memoryview:
    """Map all memory of a process that is trusted, read-only. The descriptor may be closed. Raises OSError."""
    return map_file(descriptor, os.fstat(descriptor).st_size, is_ours=False)


def map_sealed_memory(descriptor: int) -> memoryview:
    """Map all memory of a process that need not be trusted, read-only. The descriptor may be closed.

    Raises OSError, and ValueError for memory that could fail later: not sealed, not present, or not a memory file.
    """
    import fcntl

    try:
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError as error:
        raise ValueError(f"it is not a memory file that can be sealed: {error}") from error
    if seals & _SEALS != _SEALS:
        raise ValueError("it is not sealed against being shrunk, grown and mapped writable again")
    status = os.fstat(descriptor)  # the size is final from here on
    if status.st_size < PAGE_BYTES or status.st_size % PAGE_BYTES:
        raise ValueError(f"it has {status.st_size} bytes; expected whole pages of {PAGE_BYTES}, at least one")
    if status.st_blocks * 512 < status.st_size:
        raise ValueError(f"only {status.st_blocks * 512} of its {status.st_size} bytes are present")
    return map_memory(descriptor)


def _available_bytes() -> int:
    """Return the memory that can be had without swapping, as the kernel estimates it."""
    with Path("/proc/meminfo").open(encoding="ascii") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return sys.maxsize


# Sockets.


class Credentials(NamedTuple):
    """The process at the other end of a local socket, when it connected."""

    process: int
    user: int
    group: int


def peer_credentials(connection: socket.socket) -> Credentials:
    content = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return Credentials(*_CREDENTIALS.unpack(content))


def peer_groups(connection: socket.socket) -> tuple[int, ...]:
    """Return the supplementary groups of the peer; none if unknown (before Linux 4.13, more than 256)."""
    try:
        content = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _MAX_GROUP_BYTES)
    except OSError:
        return ()
    return struct.unpack(f"{len(content) // 4}I", content[: len(content) // 4 * 4])


def receive_descriptors(connection: socket.socket, max_bytes: int) -> tuple[bytes, list[int]]:
    """Receive data and the descriptors that came with it, which the caller owns and no child inherits.

    (`socket.recv_fds` would let children inherit them.) Raises OSError.
    """
    capacity = socket.CMSG_SPACE(_MAX_DESCRIPTORS * _DESCRIPTOR.size)
    data, extras, _, _ = connection.recvmsg(max_bytes, capacity, uninherited_descriptors_flag())
    rights = [content for level, kind, content in extras if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)]
    return data, [number for content in rights for (number,) in _DESCRIPTOR.iter_unpack(content)]


# Orders.


class OrderSender:
    """Sends orders over a stream socket without waiting: lines of JSON, each with descriptors of memory to map.

    The number of descriptors of an order is its field "fds". blocked_since_s: time (monotonic seconds) since which the
    peer reads nothing; None while it reads.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.blocked_since_s: float | None = None
        self._connection = connection
        self._queue: deque[tuple[bytes, list[int]]] = deque()

    def add(self, order: Mapping[str, Any], *descriptors: int) -> None:
        """Queue an order. Descriptors are copied: the caller may close them at once. Raises OSError."""
        copies: list[int] = []
        try:
            for descriptor in descriptors:
                copies.append(os.dup(descriptor))
        except OSError:
            _close_all(copies)
            raise
        line = {**order, "fds": len(copies)} if copies else order
        self._queue.append((json.dumps(line).encode() + b"\n", copies))

    def send(self) -> None:
        """Send what the socket takes now. Raises OSError if the peer is gone."""
        while self._queue:
            line, descriptors = self._queue[0]
            try:
                sent = socket.send_fds(self._connection, [line], descriptors)
            except BlockingIOError:
                self.blocked_since_s = self.blocked_since_s or time.monotonic()
                return
            self.blocked_since_s = None
            _close_all(descriptors)
            if sent < len(line):
                self._queue[0] = (line[sent:], [])
                return
            self._queue.popleft()

    def close(self) -> None:
        """Drop the orders that were not sent. The connection stays the caller's."""
        while self._queue:
            _close_all(self._queue.popleft()[1])


def receive_orders(connection: socket.socket) -> Iterator[tuple[dict[str, Any], list[memoryview]]]:
    """Yield orders with their memory mapped read-only, until the sender closes its end. Raises OSError."""
    pending, descriptors = b"", deque[int]()
    while True:
        try:
            data, received = receive_descriptors(connection, MAX_LINE_BYTES)
        except ConnectionResetError:
            return
        descriptors += received
        if not data:
            return
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            order = json.loads(line)
            own = [descriptors.popleft() for _ in range(order.get("fds", 0))]
            try:
                yield order, [map_memory(descriptor) for descriptor in own]
            finally:
                _close_all(own)


def _close_all(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
