"""Writes the checkpoint of a live view in a thread of its own.

For that, files of the view are forced to the disk, which takes a while on a busy one. The view goes on taking frames
meanwhile, as they stay in memory for a short time only.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

_Point = TypeVar("_Point")


class CheckpointThread(Generic[_Point]):
    """Used by one thread, which gets the errors of `write`; one checkpoint at a time."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._running: tuple[Future[None], _Point] | None = None

    @property
    def is_busy(self) -> bool:
        """A checkpoint was begun, and `take_done` has not returned it."""
        return self._running is not None

    def begin(self, write: Callable[[], None], point: _Point) -> None:
        """Have `write` called, which makes `point` the saved one. Not while one is running."""
        self._running = self._thread.submit(write), point

    def take_done(self, *, waits: bool = False) -> _Point | None:
        """Return a point that is saved now; None while nothing is. Raises the error of `write`, once."""
        if self._running is None or not (waits or self._running[0].done()):
            return None
        (future, point), self._running = self._running, None
        future.result()
        return point

    def close(self) -> None:
        """Wait for the end of a running `write`; its outcome is dropped."""
        self._running = None
        self._thread.shutdown()
