"""Memory for other processes on Linux: memory files, sealed (memfd_create(2), "File sealing").

A memory file has no name and exists as long as any process has it open or mapped. Its seals guarantee that it neither
shrinks nor grows nor loses pages, so that no access can fail. Its handle is a descriptor, which travels over an AF_UNIX
socket (unix(7), SCM_RIGHTS).

Other POSIX systems import this module: `unavailable_reason` names the missing function, and functions raise OSError.
"""

from __future__ import annotations

import errno
import os
import platform
import socket
import struct
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from acqstream.storage.platform.capabilities import (
    can_send_descriptors,
    has_memory_files,
    names_socket_peers,
    uninherited_descriptors_flag,
)
from acqstream.storage.platform.linux_huge_pages import map_file

PAGE_BYTES = 4096
_F_SEAL_SHRINK, _F_SEAL_GROW = 0x2, 0x4
_F_SEAL_FUTURE_WRITE = 0x10  # Linux 5.1: no process but the owner maps it writable, and no pages are removed
_SIZE_SEALS = _F_SEAL_SHRINK | _F_SEAL_GROW
_SEALS = _SIZE_SEALS | _F_SEAL_FUTURE_WRITE
_DESCRIPTOR = struct.Struct("i")
_MAX_DESCRIPTORS = 16  # in one call; more of one message are closed by the kernel


def unavailable_reason() -> str:
    """Return what this system lacks for memory files to be handed over; empty if it lacks nothing."""
    if reason := memory_unavailable_reason():
        return reason
    return "" if names_socket_peers() else "this system does not name the peer of a local socket"


def memory_unavailable_reason() -> str:
    """Return why no memory can be shared with a process of ours; empty if it can."""
    return "" if has_memory_files() else "this system has no memory files that can be sealed (memfd)"


def orders_unavailable_reason() -> str:
    """Return what this system lacks for orders with memory; empty if it lacks nothing."""
    return "" if can_send_descriptors() else "this system has no sockets that descriptors can be sent over"


def machine() -> str:
    """Return the processor's architecture in lower case."""
    return platform.machine().lower()


# Memory.


def create_memory(length: int, name: str) -> int:
    """Make a zeroed memory file and return its handle. name is for /proc. Raises OSError."""
    if reason := memory_unavailable_reason():
        raise OSError(reason)
    handle = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(handle, length)
    except OSError:
        os.close(handle)
        raise
    return handle


def map_own_memory(handle: int, length: int) -> memoryview:
    """Map a memory file of ours, writable, in huge pages where possible. Raises OSError."""
    return map_file(handle, length, is_ours=True)


def make_sealed_memory(length: int) -> tuple[memoryview, int]:
    """Make `length` bytes (whole pages) that are present and sealed; return them and a handle to hand over.

    The caller owns the handle. The pages stay while any view of them does. Raises OSError.
    """
    if has_memory_files() and length > (available := _available_bytes()):
        # The system would look for it until it kills a process.
        raise OSError(errno.ENOMEM, f"{os.strerror(errno.ENOMEM)}: {length} bytes wanted, {available} available")
    handle = create_memory(length, "acqstream-producer")
    import fcntl

    try:
        pages = map_own_memory(handle, length)
        os.posix_fallocate(handle, 0, length)  # all of it now: a page that is missing later could not be reported
        np.frombuffer(pages, dtype=np.uint8)[::PAGE_BYTES] = 0  # no `put` waits for one either
        fcntl.fcntl(handle, fcntl.F_ADD_SEALS, _SEALS | fcntl.F_SEAL_SEAL)
    except BaseException:
        os.close(handle)
        raise
    return pages, handle


def seal_memory(handle: int) -> None:
    """Seal a mapped memory file of ours: its size is fixed, and only the existing mapping is writable."""
    import fcntl

    try:
        fcntl.fcntl(handle, fcntl.F_ADD_SEALS, _SEALS)
    except OSError:  # a kernel before 5.1
        fcntl.fcntl(handle, fcntl.F_ADD_SEALS, _SIZE_SEALS)


def map_memory(handle: int) -> memoryview:
    """Map all memory of a process that is trusted, read-only. The handle may be closed. Raises OSError."""
    return map_file(handle, os.fstat(handle).st_size, is_ours=False)


def map_sealed_memory(handle: int) -> memoryview:
    """Map all memory of a process that need not be trusted, read-only. The handle may be closed.

    Raises OSError, and ValueError for memory that could fail later: not sealed, not present, or not a memory file.
    """
    import fcntl

    try:
        seals = fcntl.fcntl(handle, fcntl.F_GET_SEALS)
    except OSError as error:
        raise ValueError(f"it is not a memory file that can be sealed: {error}") from error
    if seals & _SEALS != _SEALS:
        raise ValueError("it is not sealed against being shrunk, grown and mapped writable again")
    status = os.fstat(handle)  # the size is final from here on
    if status.st_size < PAGE_BYTES or status.st_size % PAGE_BYTES:
        raise ValueError(f"it has {status.st_size} bytes; expected whole pages of {PAGE_BYTES}, at least one")
    if status.st_blocks * 512 < status.st_size:
        raise ValueError(f"only {status.st_blocks * 512} of its {status.st_size} bytes are present")
    return map_memory(handle)


def duplicate_handle(handle: int) -> int:
    """Return another handle of the same memory. Raises OSError."""
    return os.dup(handle)


def close_handle(handle: int) -> None:
    """Close a handle. Mappings stay. Raises OSError."""
    os.close(handle)


def _available_bytes() -> int:
    """Return the memory that can be had without swapping, as the kernel estimates it."""
    with Path("/proc/meminfo").open(encoding="ascii") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return sys.maxsize


# Orders with memory: the descriptors travel beside the bytes.


def attach_memory(handles: Sequence[int], process: int) -> tuple[dict[str, Any], list[int]]:
    """Prepare descriptors for an order: its fields ("fds", a count) and copies for `send_attached`. Raises OSError."""
    del process  # of the receiver: the socket knows it
    copies: list[int] = []
    try:
        for handle in handles:
            copies.append(os.dup(handle))
    except OSError:
        for copy in copies:
            os.close(copy)
        raise
    return ({"fds": len(copies)} if copies else {}), copies


def send_attached(connection: socket.socket, data: bytes, copies: list[int]) -> int:
    """Send as much of data as the socket takes now, and all copies; return the number of bytes. Raises OSError."""
    return socket.send_fds(connection, [data], copies)


def receive_attached(connection: socket.socket, max_bytes: int) -> tuple[bytes, list[int]]:
    """Receive data and the descriptors that came with it, which the caller owns and no child inherits.

    (`socket.recv_fds` would let children inherit them.) Raises OSError.
    """
    capacity = socket.CMSG_SPACE(_MAX_DESCRIPTORS * _DESCRIPTOR.size)
    data, extras, _, _ = connection.recvmsg(max_bytes, capacity, uninherited_descriptors_flag())
    rights = [content for level, kind, content in extras if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)]
    return data, [number for content in rights for (number,) in _DESCRIPTOR.iter_unpack(content)]


def attached_memory(order: Mapping[str, Any], received: deque[int]) -> list[int]:
    """Return the handles of an order, which the caller owns. received: all that came and belong to no order yet."""
    return [received.popleft() for _ in range(order.get("fds", 0))]
