"""Page-aligned memory, taken once and touched at once, so that no page fault meets a frame."""

from __future__ import annotations

import mmap

import numpy as np


class PageMemory:
    """A zeroed, page-aligned, prefaulted region, in huge pages where the system has them.

    The region lives as long as any view of it does.
    """

    def __init__(self, length: int) -> None:
        if hasattr(mmap, "MAP_PRIVATE"):
            self._map = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        else:
            self._map = mmap.mmap(-1, length)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            try:
                self._map.madvise(mmap.MADV_HUGEPAGE)
            except OSError:
                pass  # a kernel without huge pages: small ones do as well
        self.view = memoryview(self._map)
        # One byte a page brings the page in; assigning through numpy releases no lock but takes 0.1 s per GiB.
        np.frombuffer(self.view, dtype=np.uint8)[:: mmap.PAGESIZE] = 0

    def __len__(self) -> int:
        return len(self.view)
