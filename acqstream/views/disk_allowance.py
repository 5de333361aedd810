"""How much of the disk views may use while a log has a backlog: next to nothing, but so that they can begin."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SHARE = 0.05  # of the time, while there is a backlog
BURST_S = 0.5  # at once, after it was not used for BURST_S / SHARE seconds; a read takes twice its time beside the log


class DiskAllowance:
    """is_busy tells whether a log has a backlog; burst_s of 0: nothing then. Losing an update does no harm.

    What a view lacks for its first frames (files to be opened, the frames that came before its process was there) it
    may read at once; otherwise all frames after those would pass by in memory and be read from the disk later.
    """

    def __init__(self, is_busy: Callable[[], bool] = lambda: False, burst_s: float = BURST_S) -> None:
        self._is_busy = is_busy
        self._burst_s = self._left_s = burst_s
        self._as_of_s = time.monotonic()

    def is_free(self) -> bool:
        """The disk may be used as one likes."""
        return not self._is_busy()

    def has_some(self) -> bool:
        """The disk may be used for a moment, inside of `using`."""
        if self.is_free():
            return True
        now_s = time.monotonic()
        self._left_s = min(self._burst_s, self._left_s + SHARE * (now_s - self._as_of_s))
        self._as_of_s = now_s
        return self._left_s > 0

    @contextmanager
    def using(self) -> Iterator[None]:
        """The time that this takes counts, if there is a backlog."""
        started_s = time.monotonic()
        try:
            yield
        finally:
            if not self.is_free():
                self._left_s -= time.monotonic() - started_s
