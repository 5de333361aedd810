"""Page-aligned memory, taken once and touched at once, so that no page fault meets a frame.

Other processes may map it too, read-only, where the system has sealed memory files (Linux).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import weakref

import numpy as np

_F_SEAL_FUTURE_WRITE = 0x10  # Linux 5.1, in Python's fcntl since 3.13: nobody maps it writable after us
_STRONGLY_ORDERED = frozenset({"x86_64", "amd64"})
_HUGE_PAGE_BYTES = 2 * 2**20
_PROT_NONE, _MAP_FIXED = 0, 0x10  # of Linux, which Python's mmap does not name
_MADV_HUGEPAGE, _MADV_COLLAPSE = 14, 25  # the second one since Linux 6.1


class PageMemory:
    """A zeroed, page-aligned, prefaulted region, in huge pages where the system has them.

    The region lives as long as any view of it does. shared: as a sealed memory file that other processes can map with
    `map_memory` through `descriptor`; where that is not possible it is None, and `private_reason` says why.
    """

    def __init__(self, length: int, *, shared: bool = False) -> None:
        self.descriptor, self.private_reason = _memory_file(length) if shared else (None, "it was not asked for")
        if self.descriptor is not None:
            self.view = _map_aligned(self.descriptor, length)
            _seal(self.descriptor)
        else:
            self.view = _map_private(length)
        # One byte a page brings the page in; assigning through numpy releases no lock but takes 0.1 s per GiB.
        np.frombuffer(self.view, dtype=np.uint8)[:: mmap.PAGESIZE] = 0

    def __len__(self) -> int:
        return len(self.view)

    def __del__(self) -> None:
        descriptor = getattr(self, "descriptor", None)
        if descriptor is not None:
            os.close(descriptor)  # the mapping stays while there are views


def map_memory(descriptor: int) -> memoryview:
    """All of another process's memory, read-only. The descriptor may be closed. Raises OSError."""
    return memoryview(mmap.mmap(descriptor, 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ))


def _map_private(length: int) -> memoryview:
    if not hasattr(mmap, "MAP_PRIVATE"):
        return memoryview(mmap.mmap(-1, length))
    region = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            region.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            pass  # a kernel without huge pages: small ones do as well
    return memoryview(region)


def _map_aligned(descriptor: int, length: int) -> memoryview:
    """A memory file where it can lie in huge pages: at a boundary of them, which Python's mmap cannot ask for.

    Most systems give memory files no huge pages of themselves. What is collapsed gets them, and faster than small ones.
    Where neither is possible the pages stay small: that costs some processor time, and nothing else.
    """
    if length < _HUGE_PAGE_BYTES:
        return memoryview(mmap.mmap(descriptor, length, flags=mmap.MAP_SHARED))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

    def map_at(address: int | None, size: int, protection: int, flags: int, file: int) -> int:
        result: int = libc.mmap(address, size, protection, flags, file, 0)
        if result == ctypes.c_void_p(-1).value:
            code = ctypes.get_errno()
            raise OSError(code, f"cannot map {size} bytes: {os.strerror(code)}")
        return result

    room = length + _HUGE_PAGE_BYTES
    reserved = map_at(None, room, _PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
    start = reserved + -reserved % _HUGE_PAGE_BYTES
    map_at(start, length, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | _MAP_FIXED, descriptor)
    region = (ctypes.c_ubyte * length).from_address(start)
    weakref.finalize(region, libc.munmap, reserved, room).atexit = False  # views keep the region
    libc.madvise(start, length, _MADV_HUGEPAGE)
    view = memoryview(region).cast("B")
    np.frombuffer(view, dtype=np.uint8)[::_HUGE_PAGE_BYTES] = 0  # a page in each, for there to be something to collapse
    libc.madvise(start, length - length % _HUGE_PAGE_BYTES, _MADV_COLLAPSE)
    return view


def _seal(descriptor: int) -> None:
    """Neither shrunk nor grown, by nobody, so that no reader meets a missing page; and not written to by others."""
    import fcntl

    size_seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
    try:
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, size_seals | _F_SEAL_FUTURE_WRITE)
    except OSError:  # a kernel before 5.1
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, size_seals)


def _memory_file(length: int) -> tuple[int | None, str]:
    """A descriptor, or None and why there is none."""
    machine = platform.machine().lower()
    if not hasattr(os, "memfd_create"):
        return None, "this system has no memory files that can be sealed (memfd)"
    if machine not in _STRONGLY_ORDERED:
        # Readers find out without a lock whether bytes were overwritten: stores must be seen in their order.
        return None, f"on {machine} another process may see stores out of order"
    descriptor = -1
    try:
        descriptor = os.memfd_create("acqstream", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(descriptor, length)
    except OSError as error:
        if descriptor >= 0:
            os.close(descriptor)
        return None, f"no memory file of {length} bytes can be made: {error}"
    return descriptor, ""
