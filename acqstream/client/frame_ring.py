"""Places for frames in a ring of bytes: variable sizes, given back in the order they were taken. Pure."""

from __future__ import annotations

import mmap
from collections import deque

SLOT_ALIGNMENT = 64  # a cache line: neighbouring frames never share one


def allocate_pages(size: int) -> mmap.mmap:
    """`size` bytes of page-aligned private memory, faulted in now where the platform can: no `put` waits for a page."""
    if not hasattr(mmap, "MAP_POPULATE"):
        return mmap.mmap(-1, size)
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)


class FrameRing:
    """Hands out byte ranges of a buffer of `capacity` bytes. A slot never crosses the end of the buffer."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.used_bytes = 0
        self.peak_bytes = 0
        self._slots: deque[tuple[int, int]] = deque()  # (start, length), oldest first
        self._head = 0

    def __len__(self) -> int:
        return len(self._slots)

    def place(self, size: int) -> int | None:
        """Where `size` bytes would go now, or None while there is no room. Takes nothing: see `take`."""
        length = _slot_length(size)
        if not self._slots:
            return 0 if length <= self.capacity else None
        tail = self._slots[0][0]
        if self._head <= tail:  # the free range lies between the youngest and the oldest slot
            return self._head if self._head + length <= tail else None
        if self._head + length <= self.capacity:
            return self._head
        return 0 if length <= tail else None

    def take(self, start: int, size: int) -> None:
        """Make the range that `place` returned the youngest slot."""
        length = _slot_length(size)
        self._slots.append((start, length))
        self._head = start + length
        self.used_bytes += length
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)

    def give_back(self) -> None:
        """Free the oldest slot."""
        _, length = self._slots.popleft()
        self.used_bytes -= length


def _slot_length(size: int) -> int:
    return -(-max(size, 1) // SLOT_ALIGNMENT) * SLOT_ALIGNMENT
