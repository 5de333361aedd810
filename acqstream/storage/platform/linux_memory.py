"""Memory of Linux: huge pages, settings of glibc's allocator, memory files for other processes, and orders to them.

Memory files are mapped in huge pages: direct writes from small pages take three times as long. Most systems give memory
files no huge pages by default; collapsing the range makes them, faster than faulting small pages in. If neither is
possible the pages stay small, which costs only processor time.

A memory file has no name and exists as long as any process has it open or mapped. Its seals guarantee that it neither
shrinks nor grows nor loses pages, so that no access can fail (memfd_create(2), "File sealing"). Its handle is a
descriptor, which travels over an AF_UNIX socket beside the bytes of an order (unix(7), SCM_RIGHTS).

Other POSIX systems import this module: `unavailable_reason` names the missing function, and functions raise OSError.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import mmap
import os
import platform
import socket
import struct
import sys
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from acqstream.storage.platform.capabilities import (
    can_send_descriptors,
    has_memory_files,
    names_socket_peers,
    uninherited_descriptors_flag,
)

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_LARGEST_HEAP_BLOCK = 32 * 2**20  # the most that glibc takes on 64 bits


def map_private(length: int) -> memoryview:
    """`length` zeroed bytes on a page boundary, in huge pages where the kernel has them; free them by the last view."""
    region = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    with contextlib.suppress(OSError):  # a kernel without huge pages: small ones do as well
        if advice is not None:
            region.madvise(advice)
    return memoryview(region)


def keep_large_blocks(limit_bytes: int) -> None:
    """Keep up to about `limit_bytes` of freed memory for reuse. Call it before threads start; glibc only (mallopt(3)).

    Every received frame is such a block. Returning its pages to the system would cost as much as copying the frame.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    mallopt(_M_MMAP_THRESHOLD, _LARGEST_HEAP_BLOCK)
    mallopt(_M_TRIM_THRESHOLD, min(limit_bytes, 2**31 - 1))
    mallopt(_M_ARENA_MAX, 1)


PAGE_BYTES = 4096
_HUGE_PAGE_BYTES = 2 * 2**20
_PROT_NONE, _MAP_FIXED = 0, 0x10  # of Linux, which Python's mmap does not name
_MADV_HUGEPAGE, _MADV_POPULATE_WRITE, _MADV_COLLAPSE = 14, 23, 25  # the others since Linux 5.14 and 6.1


def map_file(descriptor: int, length: int, *, is_ours: bool) -> memoryview:
    """All `length` bytes of a memory file, at a boundary of huge pages, which Python's mmap cannot ask for.

    is_ours: writable; see `bring_in`. Else read-only, and in huge pages if its maker made them. It stays mapped as long
    as there is any view of it. Raises OSError.
    """
    protection = mmap.PROT_READ | mmap.PROT_WRITE if is_ours else mmap.PROT_READ
    if length < _HUGE_PAGE_BYTES:
        return memoryview(mmap.mmap(descriptor, length, flags=mmap.MAP_SHARED, prot=protection))
    libc = _libc()
    space = length + _HUGE_PAGE_BYTES
    reserved = _map(libc, None, space, (_PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1))
    start = reserved + -reserved % _HUGE_PAGE_BYTES
    try:
        _map(libc, start, length, (protection, mmap.MAP_SHARED | _MAP_FIXED, descriptor))
    except OSError:
        libc.munmap(reserved, space)
        raise
    region = (ctypes.c_ubyte * length).from_address(start)
    weakref.finalize(region, libc.munmap, reserved, space).atexit = False  # views keep the region
    libc.madvise(start, length, _MADV_HUGEPAGE)
    view = memoryview(region).cast("B")
    return view if is_ours else view.toreadonly()


def bring_in(view: memoryview) -> None:
    """Have the pages of a part of our mapped memory, in huge pages where possible: then no access waits for them.

    Contents stay, also while other threads write there. An older kernel brings pages in at their first use.
    """
    import numpy as np

    if not has_memory_files():
        return
    libc, start = _libc(), np.frombuffer(view, np.uint8).ctypes.data
    end = start + len(view)
    first, last = start + -start % _HUGE_PAGE_BYTES, end - end % _HUGE_PAGE_BYTES
    for at in range(first, last, _HUGE_PAGE_BYTES):  # a page in each, else there is nothing to collapse
        libc.madvise(at, PAGE_BYTES, _MADV_POPULATE_WRITE)
    if first < last:
        libc.madvise(first, last - first, _MADV_COLLAPSE)
    libc.madvise(start, len(view), _MADV_POPULATE_WRITE)


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return libc


def _map(libc: ctypes.CDLL, address: int | None, size: int, request: tuple[int, int, int]) -> int:
    """Map memory and return its address. request is protection, flags, descriptor. Raises OSError."""
    result: int = libc.mmap(address, size, *request, 0)
    if result == ctypes.c_void_p(-1).value:
        code = ctypes.get_errno()
        raise OSError(code, f"cannot map {size} bytes: {os.strerror(code)}")
    return result


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
    """Map a memory file of ours, writable, without its pages: see `bring_in`. Raises OSError."""
    return map_file(handle, length, is_ours=True)


def make_sealed_memory(length: int) -> tuple[memoryview, int]:
    """Make `length` bytes (whole pages) that are present and sealed; return them and a handle to hand over.

    The caller owns the handle. The pages stay while any view of them does. Raises OSError.
    """
    import numpy as np

    if has_memory_files() and length > (available := _available_bytes()):
        # The system would look for it until it kills a process.
        raise OSError(errno.ENOMEM, f"{os.strerror(errno.ENOMEM)}: {length} bytes wanted, {available} available")
    handle = create_memory(length, "acqstream-producer")
    import fcntl

    try:
        pages = map_own_memory(handle, length)
        bring_in(pages)
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
