"""Processes of this machine that make parts of a mirror."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import connection, get_context, parent_process
from multiprocessing.synchronize import Event

_stop: Event | None = None


def is_stopped() -> bool:
    """In such a process: whether it is to give up what it does."""
    return _stop is not None and _stop.is_set()


class ProcessPool:
    """So many processes. They end with this one, however it ends."""

    def __init__(self, count: int) -> None:
        self.width = count
        context = get_context("spawn")  # this process has threads
        self._stop = context.Event()
        self.executor: Executor = ProcessPoolExecutor(count, context, _begin, (self._stop,))

    def close(self) -> None:
        """Have all processes give up what they do, and wait for them."""
        self._stop.set()
        self.executor.shutdown(cancel_futures=True)


def _begin(stop: Event) -> None:
    """In the new process. Ctrl-C goes to the whole group: the first process says when to end."""
    global _stop  # noqa: PLW0603 - there is no other way into a process of a pool
    _stop = stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, name="watch-parent", daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
