"""Places for frames in a ring of bytes: variable sizes, given back in the order they were taken. Pure."""

from __future__ import annotations

from collections import deque

SLOT_ALIGNMENT = 64  # a cache line: neighbouring frames never share one
PAGE_BYTES = 4096
LARGE_FRAME_BYTES = 256 * 2**10
"""Frames of this size start on a page: a daemon that shares this memory writes them to the disk from where they are."""


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
        start = _round_up(self._head, PAGE_BYTES) if size >= LARGE_FRAME_BYTES else self._head
        if self._head <= tail:  # the free range lies between the youngest and the oldest slot
            return start if start + length <= tail else None
        if start + length <= self.capacity:
            return start
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


def _round_up(size: int, step: int) -> int:
    return -(-size // step) * step
