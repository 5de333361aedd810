"""Memory files mapped in huge pages (Linux): direct writes from small pages take three times as long.

Most systems give memory files no huge pages by default; collapsing the range makes them, faster than faulting small
pages in. If neither is possible the pages stay small, which costs only processor time.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref

import numpy as np

_HUGE_PAGE_BYTES = 2 * 2**20
_PROT_NONE, _MAP_FIXED = 0, 0x10  # of Linux, which Python's mmap does not name
_MADV_HUGEPAGE, _MADV_COLLAPSE = 14, 25  # the second one since Linux 6.1


def map_file(descriptor: int, length: int, *, is_ours: bool) -> memoryview:
    """All `length` bytes of a memory file, at a boundary of huge pages, which Python's mmap cannot ask for.

    is_ours: writable, and made into huge pages. Else read-only, and in huge pages if its maker made them. It stays
    mapped as long as there is any view of it. Raises OSError.
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
    if not is_ours:
        return view.toreadonly()
    np.frombuffer(view, dtype=np.uint8)[::_HUGE_PAGE_BYTES] = 0  # a page in each, else there is nothing to collapse
    libc.madvise(start, length - length % _HUGE_PAGE_BYTES, _MADV_COLLAPSE)
    return view


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
