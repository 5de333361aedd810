"""Pieces of memory that are made before they are needed, by a thread of their own.

The first touch of a page takes long where the system has to clear it, or a host has to find it: half a millisecond for
each MiB on some virtual machines.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor

from acqstream.storage.memory import PageMemory


class MemoryAhead:
    """Pieces of `length` bytes, at most `ahead` of them before they are asked for; `most` in all. Of one thread."""

    def __init__(self, length: int, *, ahead: int, most: int | None = None) -> None:
        self._length = length
        self._ahead = ahead
        self._left = most
        self._coming: deque[Future[PageMemory]] = deque()
        self._maker = ThreadPoolExecutor(1, thread_name_prefix="memory-ahead")

    def take(self) -> PageMemory:
        """The next piece, of zeros. Raises MemoryError or OSError if there is none."""
        while len(self._coming) <= self._ahead and self._left != 0:
            self._coming.append(self._maker.submit(PageMemory, self._length))
            if self._left is not None:
                self._left -= 1
        return self._coming.popleft().result()

    def close(self) -> None:
        """End the thread; what was made and not taken goes."""
        self._coming.clear()
        self._maker.shutdown(wait=False, cancel_futures=True)
