"""Memory of macOS, with the names of `linux_memory`."""

from __future__ import annotations

import mmap


def map_private(length: int) -> memoryview:
    """`length` zeroed bytes on a page boundary; the last view frees them."""
    return memoryview(mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def keep_large_blocks(limit_bytes: int) -> None:
    """Do nothing: the allocator of macOS has no such setting."""
