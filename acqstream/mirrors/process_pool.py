"""Processes of this machine that run tasks of a mirror."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import Executor, ProcessPoolExecutor
from ctypes import c_bool
from multiprocessing import connection, get_context, parent_process

from acqstream.storage.platform.capabilities import max_pool_processes

_stop: c_bool | None = None


def is_stopped() -> bool:
    """Return, in such a process, whether it is to abandon its task."""
    return _stop is not None and _stop.value


class ProcessPool:
    """A number of processes, as many as the system allows. They end with this one, however it ends."""

    def __init__(self, count: int) -> None:
        self.width = min(count, max_pool_processes())
        context = get_context("spawn")  # this process has threads
        self._stop = context.RawValue(c_bool)  # an event has a lock, which a killed process would keep
        self.executor: Executor = ProcessPoolExecutor(self.width, context, _begin, (self._stop,))

    def close(self) -> None:
        """Have all processes abandon their tasks, and wait for them."""
        self._stop.value = True
        self.executor.shutdown(cancel_futures=True)


def _begin(stop: c_bool) -> None:
    """Prepare the new process. Ctrl-C goes to the process group, but the first process decides when to end."""
    global _stop  # noqa: PLW0603 - a pool passes nothing else to its processes
    _stop = stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, name="watch-parent", daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
