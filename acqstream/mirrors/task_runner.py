"""Runs calls in other processes, of a pool here or of a Dask cluster; repeats a call whose process died."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from ctypes import c_bool
from importlib import import_module
from multiprocessing import connection, get_context, parent_process
from types import TracebackType
from typing import Any, Protocol

from acqstream.errors import ConfigError, DatasetError, DiskFull
from acqstream.extras import install_command
from acqstream.storage.platform.capabilities import max_pool_processes

MAX_BREAKS = 5  # losses of the processes without a finished call between
_AHEAD = 2  # calls submitted for each process, so that none is idle between two


class ProcessGroup(Protocol):
    """Processes, and the number of calls that they run at once: ProcessPool, DaskCluster."""

    @property
    def executor(self) -> Executor: ...
    @property
    def width(self) -> int: ...
    def close(self) -> None: ...


class TaskRunner:
    """gather gets the processes, again whenever all are lost; threads is the number that each call may use."""

    def __init__(self, gather: Callable[[], ProcessGroup], threads: int) -> None:
        self.threads = threads
        self._gather = gather
        self._group: ProcessGroup | None = None
        self._call: Callable[[Any], Any] = _nothing
        self._arguments: Sequence[Any] = ()
        self._due: deque[int] = deque()
        self._running: dict[Future[Any], int] = {}
        self._breaks = 0

    @property
    def width(self) -> int:
        """Number of calls that run at once now."""
        return self._processes().width

    def begin(self, call: Callable[[Any], Any], arguments: Sequence[Any]) -> None:
        """Begin a call with each of these arguments, in any order. No other calls may be running."""
        self._call, self._arguments = call, arguments
        self._due, self._running = deque(range(len(arguments))), {}

    def is_done(self) -> bool:
        return not self._due and not self._running

    def poll(self, timeout_s: float) -> list[tuple[int, Any]]:
        """Wait for calls, and return the numbers of their arguments and their results.

        Raises the error of a call; after DiskFull the next `poll` repeats it. Raises DatasetError if the processes die
        repeatedly.
        """
        done: list[tuple[int, Any]] = []
        try:
            self._submit()
            ended, _ = wait(self._running, timeout_s, FIRST_COMPLETED)
            for future in ended:
                number = self._running.pop(future)
                self._due.append(number)  # to repeat it, unless it has a result
                done.append((number, future.result()))
                self._due.pop()
        except (BrokenExecutor, CancelledError) as error:
            self._abandon_group(error)
        except DiskFull:
            if not done:
                raise  # else return the others first: the next poll finds the disk full again
        if done:
            self._breaks = 0
        return done

    def close(self) -> None:
        """Drop all calls."""
        self._due.clear()
        self._running.clear()
        if self._group is not None:
            self._group.close()
            self._group = None

    def __enter__(self) -> TaskRunner:
        """Gather the processes. Raises the errors of `gather`."""
        self._processes()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _processes(self) -> ProcessGroup:
        if self._group is None:
            self._group = self._gather()
        return self._group

    def _submit(self) -> None:
        crowd = self._processes()
        while self._due and len(self._running) < _AHEAD * crowd.width:
            future = crowd.executor.submit(self._call, self._arguments[self._due[0]])
            self._running[future] = self._due.popleft()

    def _abandon_group(self, error: BaseException) -> None:
        self._breaks += 1
        if self._breaks > MAX_BREAKS:
            text = f"the processes were lost {self._breaks} times, and nothing got done"
            raise DatasetError(f"{text}: {error}") from error
        self._due.extendleft(sorted(self._running.values(), reverse=True))
        self._running.clear()
        crowd, self._group = self._group, None
        if crowd is not None:
            crowd.close()


def _nothing(_argument: Any) -> None:
    pass


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


DASK_TIMEOUT_S = 10


class DaskCluster:
    """The workers of a scheduler. Dask gives the tasks of a lost worker to others."""

    def __init__(self, scheduler: str) -> None:
        """Raises ConfigError without Dask, DatasetError if no scheduler answers."""
        try:
            distributed: Any = import_module("distributed")
        except ImportError as error:
            raise ConfigError(f"a Dask cluster needs Dask ({error}): {install_command('dask')}") from error
        try:
            self._client: Any = distributed.Client(scheduler, timeout=DASK_TIMEOUT_S, set_as_default=False)
        except (OSError, ValueError) as error:
            raise DatasetError(f"no Dask scheduler answers at {scheduler}: {error}") from error
        self.executor: Executor = self._client.get_executor(pure=False)

    @property
    def width(self) -> int:
        """Number of tasks that can run at once now."""
        threads: dict[str, int] = self._client.nthreads()
        return max(1, sum(threads.values()))

    def close(self) -> None:
        """Drop the tasks that have not started."""
        self.executor.shutdown(wait=False)
        self._client.close()
