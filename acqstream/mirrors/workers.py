"""The threads of a mirror that encode, store and reduce."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from acqstream.errors import DiskFull

HELD_POLL_S = 0.01
QUEUED_TASKS = 4  # for each thread: more keep no thread busier


class Workers:
    """Runs tasks, the oldest first, in named threads. The caller bounds their number.

    They pause when the disk is full: `check` raises DiskFull once, then the task is tried again. The first other error
    ends them, and `check` raises it from then on. may_use_disk returns whether the disk may be used now; require_space
    raises DiskFull while nothing may be stored.
    """

    def __init__(
        self,
        count: int,
        name: str,
        may_use_disk: Callable[[], bool],
        require_space: Callable[[], None] = lambda: None,
    ) -> None:
        self._require_space = require_space
        self._may_use_disk = may_use_disk
        self._changed = threading.Condition()
        self._tasks: deque[Callable[[], None]] = deque()
        self._full: DiskFull | None = None
        self._error: Exception | None = None
        self._is_closed = False
        self._threads = [threading.Thread(target=self._work, name=f"{name}-{n}", daemon=True) for n in range(count)]
        for thread in self._threads:
            thread.start()

    def submit(self, task: Callable[[], None]) -> None:
        with self._changed:
            self._tasks.append(task)
            self._changed.notify()

    @property
    def thread_count(self) -> int:
        return len(self._threads)

    @property
    def is_behind(self) -> bool:
        """True while enough tasks wait to keep all threads busy and the disk may be used."""
        return len(self._tasks) >= QUEUED_TASKS * len(self._threads) and self._may_use_disk()

    @property
    def is_busy(self) -> bool:
        """True while a task waits for each thread and the disk may be used."""
        return len(self._tasks) >= len(self._threads) and self._may_use_disk()

    def check(self) -> None:
        """Raise the error of a task."""
        with self._changed:
            if self._error is not None:
                raise self._error
            if self._full is not None:
                error, self._full = self._full, None
                self._changed.notify_all()
                raise error

    def wait_for_disk(self) -> bool:
        """Wait, in a task, until the disk may be used. False if the mirror was closed meanwhile. Raises DiskFull."""
        while not self._may_use_disk():
            with self._changed:
                if self._changed.wait_for(lambda: self._is_closed, HELD_POLL_S):
                    return False
        self._require_space()
        return not self._is_closed

    def close(self) -> None:
        """End all threads after their current tasks; drop the other tasks."""
        with self._changed:
            self._is_closed = True
            self._tasks.clear()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (task := self._next()) is not None:
            try:
                task()
            except DiskFull as error:
                with self._changed:
                    self._full = error
                    if not self._is_closed:
                        self._tasks.appendleft(task)
            except Exception as error:  # noqa: BLE001 - the thread's edge: its owner raises it
                with self._changed:
                    self._error = self._error or error

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_closed or (self._tasks and self._full is None and self._error is None)
            )
            return None if self._is_closed else self._tasks.popleft()
