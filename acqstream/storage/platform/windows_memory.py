"""Memory of Windows, with the names of `linux_memory`."""

from __future__ import annotations

import mmap


def map_private(length: int) -> memoryview:
    """`length` zeroed bytes on a page boundary, backed by the page file; the last view frees them."""
    return memoryview(mmap.mmap(-1, length))


def keep_large_blocks(limit_bytes: int) -> None:
    """Do nothing: the allocator of Windows has no such setting."""
