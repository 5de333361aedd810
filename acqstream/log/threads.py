"""The threads of a log: each is made here, so that all have names and none keeps the interpreter alive.

While the disk is full they wait at `SpaceGate`, until it has space or waiting is abandoned.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from acqstream.errors import DiskFull


def make_thread(role: str, log_name: str, target: Callable[[], None]) -> threading.Thread:
    """A thread that is not started yet. role: write, commit or checksums. The class that starts it also joins it."""
    return threading.Thread(target=target, name=f"{role}-{log_name}", daemon=True)


RETRY_S = 0.2

_T = TypeVar("_T")


class SpaceGate:
    """Thread-safe. on_change is called when the disk becomes full and when it has space again.

    free_reserve frees space that was kept for the end. It is called when waiting was abandoned and the last small
    writes still find none.
    """

    def __init__(self, on_change: Callable[[], None], free_reserve: Callable[[], None]) -> None:
        self._on_change = on_change
        self._free_reserve = free_reserve
        self._condition = threading.Condition()
        self._waiting: dict[int, DiskFull] = {}  # by thread: why it waits
        self._held_why = ""
        self.is_abandoned = False

    @property
    def error(self) -> DiskFull | None:
        """The error for which writing waits; None while it does not."""
        return next(iter(self._waiting.copy().values()), None)

    @property
    def reason(self) -> str:
        """The reason why no frames are taken for want of space; empty while they are."""
        error = self.error
        return str(error) if error is not None else self._held_why

    def wait(self, error: DiskFull) -> None:
        """For a moment, before the caller tries again. Raises `error` once waiting was abandoned."""
        if self.is_abandoned:
            self.passed()
            raise error
        self._pause(error)

    def passed(self) -> None:
        """The caller waits no longer."""
        if not self._waiting:
            return
        with self._condition:
            was_waiting = self._waiting.pop(threading.get_ident(), None) is not None
        if was_waiting and not self._waiting:
            self._on_change()

    def run(self, action: Callable[[], _T]) -> _T:
        """Repeat `action` until it finds space, and return its result; for the small writes that complete a dataset.

        Raises DiskFull where even the space kept for the end does not help.
        """
        has_freed = False
        while True:
            try:
                result = action()
            except DiskFull as error:
                if not self.is_abandoned:
                    self._pause(error)
                elif has_freed:
                    self.passed()
                    raise
                else:
                    self._free_reserve()
                    has_freed = True
            else:
                self.passed()
                return result

    def hold(self, why: str) -> None:
        """Note that the disk was measured to be nearly full; an empty `why`: it has space again."""
        if why != self._held_why:
            self._held_why = why
            self._on_change()

    def abandon(self) -> None:
        """Wait no longer, now and later."""
        with self._condition:
            self.is_abandoned = True
            self._condition.notify_all()

    def _pause(self, error: DiskFull) -> None:
        with self._condition:
            is_news = not self._waiting
            self._waiting[threading.get_ident()] = error
        if is_news:
            self._on_change()
        with self._condition:
            self._condition.wait_for(lambda: self.is_abandoned, RETRY_S)
