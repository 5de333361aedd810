"""Memory of Windows, also for other processes and with orders to them. With the names of `linux_memory`.

Memory for other processes is a section without a name, backed by the paging file. It exists as long as any process has
a handle or a mapping of it, and its size is fixed. It is charged when it is made, so that nothing can be missing later
(CreateFileMappingW, "Remarks"). Other processes receive handles duplicated with FILE_MAP_READ: the system refuses them
writable mappings (DuplicateHandle, "File Mapping Security and Access Rights"). A handle that was duplicated into
another process is only a number to the sender; an order names it.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import socket
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from ctypes import byref, c_size_t, c_uint16, c_uint32, c_void_p, sizeof
from typing import Any

from acqstream.storage.platform.windows_api import (
    HANDLE,
    check_success,
    close_handle,
    is_windows,
    kernel32,
    open_process,
    using,
)


def map_private(length: int) -> memoryview:
    """`length` zeroed bytes on a page boundary, backed by the page file; the last view frees them."""
    return memoryview(mmap.mmap(-1, length))


def keep_large_blocks(limit_bytes: int) -> None:
    """Do nothing: the allocator of Windows has no such setting."""


PAGE_BYTES = 4096
PROCESS_DUP_HANDLE = 0x40
_INVALID_HANDLE = c_void_p(-1).value
_PAGE_READWRITE = 0x04
_FILE_MAP_WRITE, FILE_MAP_READ = 0x2, 0x4
_DUPLICATE_CLOSE_SOURCE, _DUPLICATE_SAME_ACCESS = 0x1, 0x2
_MEM_COMMIT, _MEM_MAPPED = 0x1000, 0x40000
_ARM64 = 0xAA64  # IMAGE_FILE_MACHINE_ARM64
_MAX_NAME = 1024  # characters of a mapped file's name; what matters is that there is one


class _MemoryInformation(ctypes.Structure):
    """MEMORY_BASIC_INFORMATION of 64-bit Windows: a run of pages with equal attributes."""

    _fields_ = (
        ("base", c_void_p),
        ("allocation_base", c_void_p),
        ("allocation_protect", c_uint32),
        ("partition", c_uint16),
        ("region_bytes", c_size_t),
        ("state", c_uint32),
        ("protect", c_uint32),
        ("type", c_uint32),
    )


def unavailable_reason() -> str:
    """Return why programs cannot hand memory to a daemon here; empty if they can."""
    if not is_windows():
        return "this system is not Windows"
    return "" if machine() == "amd64" else f"memory of programs is not shared on Windows for {machine()}"


def orders_unavailable_reason() -> str:
    """Return what this system lacks for orders with memory: nothing."""
    return ""


def memory_unavailable_reason() -> str:
    """Return why no memory can be shared with a process of ours: it always can."""
    return ""


def machine() -> str:
    """Return the processor's architecture in lower case, also where x64 programs are emulated (IsWow64Process2)."""
    process, native = c_uint16(), c_uint16()
    kernel = kernel32()
    if kernel.IsWow64Process2(kernel.GetCurrentProcess(), byref(process), byref(native)) and native.value == _ARM64:
        return "arm64"
    return platform.machine().lower()


def create_memory(length: int, name: str) -> int:
    """Make a zeroed section and return its handle, which no child inherits. Raises OSError."""
    del name  # a named section could be opened by any program that guesses the name
    arguments = (_INVALID_HANDLE, None, _PAGE_READWRITE, length >> 32, length & 0xFFFFFFFF, None)
    return check_success(kernel32().CreateFileMappingW(*arguments), f"{length} bytes wanted")


def map_own_memory(handle: int, length: int) -> memoryview:
    """Map a section of ours, writable. It stays mapped as long as there is any view of it. Raises OSError."""
    return _map(handle, _FILE_MAP_WRITE, length)


def bring_in(view: memoryview) -> None:
    """Do nothing: pages come at their first use."""
    del view


def make_sealed_memory(length: int) -> tuple[memoryview, int]:
    """Make `length` bytes (whole pages) that are present; return them and a handle to hand over.

    The caller owns the handle. The pages stay while any view of them does. Raises OSError.
    """
    import numpy as np

    handle = create_memory(length, "")
    try:
        pages = map_own_memory(handle, length)
    except BaseException:
        close_handle(handle)
        raise
    np.frombuffer(pages, dtype=np.uint8)[::PAGE_BYTES] = 0  # no `put` waits for a page
    return pages, handle


def seal_memory(handle: int) -> None:
    """Do nothing: the size of a section is fixed, and its duplicates are read-only."""
    del handle


def map_memory(handle: int) -> memoryview:
    """Map all memory of a process that is trusted, read-only. The handle may be closed. Raises OSError."""
    return _map(handle, FILE_MAP_READ, 0)


def map_sealed_memory(handle: int) -> memoryview:
    """Map all memory of a process that need not be trusted, read-only. The handle may be closed.

    Raises OSError, and ValueError for memory that could fail later: backed by a file (whose disk or network share can
    fail), an image, or pages that are only reserved.
    """
    import numpy as np

    # A handle of another kind of object cannot be mapped: error 6.
    view = map_memory(handle)
    address = np.frombuffer(view, np.uint8).ctypes.data
    information = _query(address)
    name = ctypes.create_unicode_buffer(_MAX_NAME)
    if information.type != _MEM_MAPPED or kernel32().K32GetMappedFileNameW(
        kernel32().GetCurrentProcess(), address, name, _MAX_NAME
    ):
        raise ValueError("it is backed by a file; expected memory backed by the paging file")
    return view


def duplicate_handle(handle: int) -> int:
    """Return another handle of the same memory. Raises OSError."""
    own = kernel32().GetCurrentProcess()
    return duplicate(own, handle, own, access=None)


def duplicate(source: int, handle: int, target: int, *, access: int | None) -> int:
    """Duplicate a handle between processes, given by handles of their own; return the number it has in the target.

    access: its rights, None for those of the original. Raises OSError.
    """
    copy = HANDLE()
    options = _DUPLICATE_SAME_ACCESS if access is None else 0
    done = kernel32().DuplicateHandle(source, handle, target, byref(copy), access or 0, False, options)
    check_success(done, f"cannot duplicate handle {handle}")
    assert copy.value is not None, "a duplicate is not 0"
    return copy.value


def _map(handle: int, access: int, length: int) -> memoryview:
    """Map a section from its start: `length` bytes, or for 0 all pages that are present. Raises OSError, ValueError."""
    kernel = kernel32()
    what = f"cannot map {length or 'all'} bytes of handle {handle}"
    address = check_success(kernel.MapViewOfFile(handle, access, 0, 0, length), what)
    try:
        information = _query(address)
        # Pages that are only reserved would fault. Those that are present stay so: no process can decommit pages of a
        # mapped view (VirtualFree).
        if information.state != _MEM_COMMIT:
            raise ValueError("its pages are only reserved; expected them to be committed")
        size = length or information.region_bytes
        if information.region_bytes < size:
            raise ValueError(f"only {information.region_bytes} of {size} bytes are present")
    except BaseException:
        kernel.UnmapViewOfFile(address)
        raise
    region = (ctypes.c_ubyte * size).from_address(address)
    weakref.finalize(region, kernel.UnmapViewOfFile, address).atexit = False  # views keep the region
    view = memoryview(region).cast("B")
    return view if access == _FILE_MAP_WRITE else view.toreadonly()


def _query(address: int) -> _MemoryInformation:
    information = _MemoryInformation()
    size = kernel32().VirtualQuery(address, byref(information), sizeof(information))
    check_success(size, f"cannot query the memory at {address:#x}")
    return information


def attach_memory(handles: Sequence[int], process: int) -> tuple[dict[str, Any], list[int]]:
    """Duplicate handles into the process with this number, read-only, for an order: its fields. Raises OSError.

    An order that is not sent leaves them there until that process ends.
    """
    if not handles:
        return {}, []
    own, numbers = kernel32().GetCurrentProcess(), list[int]()
    with using(open_process(process, PROCESS_DUP_HANDLE)) as receiver:
        try:
            for handle in handles:
                numbers.append(duplicate(own, handle, receiver, access=FILE_MAP_READ))
        except OSError:
            for number in numbers:
                kernel32().DuplicateHandle(receiver, number, None, None, 0, False, _DUPLICATE_CLOSE_SOURCE)
            raise
    return {"handles": numbers}, []


def send_attached(connection: socket.socket, data: bytes, copies: list[int]) -> int:
    """Send as much of data as the socket takes now; return the number of bytes. Raises OSError."""
    del copies  # in the receiver already
    return connection.send(data)


def receive_attached(connection: socket.socket, max_bytes: int) -> tuple[bytes, list[int]]:
    """Receive data; orders name their handles. Raises OSError."""
    return connection.recv(max_bytes), []


def attached_memory(order: Mapping[str, Any], received: deque[int]) -> list[int]:
    """Return the handles of an order, which the caller owns."""
    del received
    return list(order.get("handles", ()))
