"""Memory of Linux: huge pages, and settings of glibc's allocator."""

from __future__ import annotations

import contextlib
import ctypes
import mmap

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
