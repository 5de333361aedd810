"""Items that are due at a time, for several threads that serve them.

One thread waits for the next time, and serves the item itself when it comes: the others sleep until there is more to do
than it can serve. A view that looks for frames every few milliseconds would otherwise wake all of them each time.
"""

from __future__ import annotations

import heapq
import itertools
import math
import threading
import time
from typing import Generic, TypeVar

_T = TypeVar("_T")


class DueQueue(Generic[_T]):
    """From any thread. Times are those of time.monotonic."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # for all that follows
        self._due: list[tuple[float, int, _T]] = []  # a heap: when, tie-breaker, what
        self._tie = itertools.count()
        self._awaited_s = math.inf  # the earliest time for which a thread waits
        self._is_closed = False

    def push(self, item: _T, due_s: float, *, is_own: bool = False) -> None:
        """Have an item served. is_own: this thread calls `next` at once, so none is woken for it."""
        with self._changed:
            heapq.heappush(self._due, (due_s, next(self._tie), item))
            if not is_own:
                self._wake_one()

    def next(self) -> _T | None:
        """Wait for an item that is due, and take it. None once the queue is closed."""
        with self._changed:
            while not self._is_closed:
                due_s = self._due[0][0] if self._due else math.inf
                wait_s = due_s - time.monotonic()
                if wait_s <= 0:
                    item = heapq.heappop(self._due)[2]
                    self._wake_one()
                    return item
                if due_s < self._awaited_s:
                    self._awaited_s = due_s
                    self._changed.wait(wait_s)
                    if self._awaited_s == due_s:  # else another thread waits for an earlier one
                        self._awaited_s = math.inf
                else:
                    self._changed.wait()
            return None

    def close(self) -> None:
        """End all waiting; what is left is not served any more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def left(self) -> list[_T]:
        """The items that were not taken."""
        with self._changed:
            return [item for _, _, item in self._due]

    def _wake_one(self) -> None:
        """Have a thread wait for the next item, unless one does: whichever is woken looks again."""
        if self._due and self._due[0][0] < self._awaited_s:
            self._changed.notify()
