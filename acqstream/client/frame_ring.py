"""Places for frames in a ring of bytes: variable sizes, freed in the order they were taken. Pure."""

from __future__ import annotations

ALIGNMENT = 64  # a cache line
PAGE_BYTES = 4096
LARGE_FRAME_BYTES = 256 * 2**10
"""Frames of this size start on a page: a daemon that shares this memory writes them to the disk from where they are."""


class FrameRing:
    """Hands out byte ranges of a buffer of `capacity` bytes. None crosses the end of the buffer.

    Small frames lie back to back with those of the same size before them, so that they can share a message; others
    begin on a cache line. goes_round: large frames use all of the buffer in turn, so that what they leave lasts long;
    else an empty ring begins at its start, where the memory is in the processor's cache.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.goes_round = False
        self._head = 0  # the offset after the youngest frame
        self._tail: int | None = None  # offset of the oldest frame; None for an empty ring
        self._last_size = 0

    @property
    def head(self) -> int:
        """The offset after the youngest frame."""
        return self._head

    @property
    def used_bytes(self) -> int:
        """From the oldest frame to the youngest, gaps included."""
        if self._tail is None:
            return 0
        used = self._head - self._tail
        return used if used > 0 else used + self.capacity

    def place(self, size: int) -> int | None:
        """Offset for `size` bytes, or None while the ring is full. Takes no bytes; see `take`.

        May be called while another thread frees frames; the answer may then be out of date, which is safe.
        """
        tail = self._tail
        if tail is None:
            if self.goes_round and size >= LARGE_FRAME_BYTES:
                start = _round_up(self._head, PAGE_BYTES)
                if start + size <= self.capacity:
                    return start
            return 0 if size <= self.capacity else None
        start = self._head
        if size >= LARGE_FRAME_BYTES:
            start = _round_up(start, PAGE_BYTES)
        elif size != self._last_size:
            start = _round_up(start, ALIGNMENT)
        if self._head <= tail:  # the free range lies between the youngest and the oldest frame
            return start if start + size <= tail else None
        if start + size <= self.capacity:
            return start
        return 0 if size <= tail else None

    def take(self, start: int, size: int) -> None:
        """Make the range that `place` returned the youngest frame; size is above 0."""
        if self._tail is None:
            self._tail = start
        self._head = start + size
        self._last_size = size

    def free(self, end: int) -> None:
        """Free the oldest frames up to the one that ends at `end`."""
        self._tail = None if end == self._head else end


def _round_up(size: int, step: int) -> int:
    return -(-size // step) * step
