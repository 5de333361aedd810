"""The disk time that views may use while a log has a backlog: little, but enough to start."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SHARE = 0.05  # of the time, while there is a backlog
BURST_S = 0.5  # at once, after it was not used for BURST_S / SHARE seconds; a read takes twice its time beside the log


class DiskAllowance:
    """is_busy returns whether a log has a backlog; with burst_s of 0 nothing may be used then.

    At its start a view may open its files at once, and read the frames that came before its process. Otherwise all
    later frames would pass by in memory and be read from the disk later. Threads share it without a lock: a lost update
    does no harm.
    """

    def __init__(self, is_busy: Callable[[], bool] = lambda: False, burst_s: float = BURST_S) -> None:
        self._is_busy = is_busy
        self._burst_s = self._left_s = burst_s
        self._as_of_s = time.monotonic()

    def is_free(self) -> bool:
        """Return whether the disk may be used without limit."""
        return not self._is_busy()

    def has_some(self) -> bool:
        """Return whether the disk may be used for a moment, inside of `using`."""
        if self.is_free():
            return True
        now_s = time.monotonic()
        self._left_s = min(self._burst_s, self._left_s + SHARE * (now_s - self._as_of_s))
        self._as_of_s = now_s
        return self._left_s > 0

    @contextmanager
    def using(self) -> Iterator[None]:
        """Count the time in this context, if a log has a backlog."""
        started_s = time.monotonic()
        try:
            yield
        finally:
            if not self.is_free():
                self._left_s -= time.monotonic() - started_s
