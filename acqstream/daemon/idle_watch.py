"""Notices that a daemon has had nothing to do for a while. No clock of its own: the loop passes the time."""

from __future__ import annotations

import logging

logger = logging.getLogger("acqstream.daemon")


class IdleWatch:
    """is_over: nothing was to be done for idle_exit_s seconds, until it is busy again. None: never."""

    def __init__(self, idle_exit_s: float | None) -> None:
        self.is_over = False
        self._idle_exit_s = idle_exit_s
        self._idle_since_s: float | None = None

    def look_after(self, now_s: float, *, is_busy: bool) -> None:
        """Note the state at `now_s` (monotonic seconds)."""
        if self._idle_exit_s is None:
            return
        if is_busy:
            self._idle_since_s, self.is_over = None, False
            return
        if self._idle_since_s is None:
            self._idle_since_s = now_s
        if not self.is_over and now_s - self._idle_since_s >= self._idle_exit_s:
            self.is_over = True
            logger.info("no acquisition and no unfinished view for %g s; ending", self._idle_exit_s)
