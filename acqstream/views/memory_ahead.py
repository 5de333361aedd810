"""Pieces of memory that a thread of its own makes in advance.

The first touch of a page is slow where the system clears it or a host allocates it: half a millisecond for each MiB on
some virtual machines.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from acqstream.storage.memory_reserve import VIEW_MEMORY


class MemoryAhead:
    """Pieces of `length` bytes, at most `ahead` in advance and max_pieces in all. Used by one thread."""

    def __init__(self, length: int, *, ahead: int, max_pieces: int | None = None) -> None:
        self._length = length
        self._ahead = ahead
        self._remaining = max_pieces
        self._coming: deque[Future[NDArray[np.uint8]]] = deque()
        self._maker = ThreadPoolExecutor(1, thread_name_prefix="memory-ahead")

    def take(self) -> NDArray[np.uint8]:
        """Return the next piece, zeros of shape (length,). Raises MemoryError or OSError if there is no memory."""
        while len(self._coming) <= self._ahead and self._remaining != 0:
            self._coming.append(self._maker.submit(VIEW_MEMORY.take, self._length))
            if self._remaining is not None:
                self._remaining -= 1
        return self._coming.popleft().result()

    def close(self) -> None:
        """End the thread and free the pieces that were not taken."""
        self._coming.clear()
        self._maker.shutdown(wait=False, cancel_futures=True)
