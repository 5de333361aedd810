"""The resources that a daemon has and lends to its acquisitions; work on the disk for requests.

That work is done in a thread, so that a stalled disk does not stall the loop.
"""

from __future__ import annotations

import errno
import logging
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from acqstream.daemon.child_process import replaced_hint
from acqstream.daemon.config import DaemonConfig
from acqstream.daemon.machine_watch import MIRRORS_KEEP, DiskSpace, LoadWatch
from acqstream.daemon.view_process import ViewProcess
from acqstream.errors import AcqStreamError, AcquisitionFailed, ConfigError, StorageError
from acqstream.log.memory import MemoryBudget
from acqstream.mirrors.mirror_plan import MIB
from acqstream.model.view_spec import PYRAMID_KIND
from acqstream.storage.files.disk import Disk
from acqstream.storage.memory_limit import check_memory
from acqstream.storage.platform.capabilities import has_descriptor_limit

logger = logging.getLogger("acqstream.daemon")

_PROGRAM_MB = 96  # this process and the views' process, as long as they do little
_IDLE, _OF_A_RUN, _OF_A_CONNECTION = 28, 9, 2  # descriptors in use: measured, with some that are open for a moment
_SHARE_OF_A_RUN = 20  # with connections: its own, and those of programs that ask
_SPARE = 100  # connections that come at once; libzmq ends the process if there is none for one over a local socket
_MIN_FOR_LOCAL_SOCKETS = 1024
MAX_WAITING = 256  # reads
MAX_WAITING_OF_CLIENT = 8
READ_S = 10.0  # until the client gets an error instead
_Result = TypeVar("_Result")
MAX_DESCRIPTORS = 65536
C_LIBRARY_DESCRIPTORS = 8192
"""On Windows, fixed: files that Python opens. Sockets of libzmq and files by handle do not count."""


class Resources:
    """Memory, the disk and its space, the load, and the view process. wake: wakes the loop, from any thread."""

    def __init__(self, config: DaemonConfig, disk: Disk, wake: Callable[[], None]) -> None:
        self.disk = disk
        self.wake = wake
        check_memory("memory_mb of the daemon", (config.memory_mb + _PROGRAM_MB) * MIB)
        self.budget = MemoryBudget(config.memory_mb * 2**20)
        self.space = DiskSpace(config, disk, wake)
        self.reads = DiskReads(wake)
        self.preparations = DiskReads(wake, name="open-requests", max_s=math.inf)  # the producer decides how long
        self.load = LoadWatch(config.data)
        options = {PYRAMID_KIND: {"memory_bytes": config.pyramid_memory_mb * 2**20}}
        self.views = ViewProcess(
            options=options,
            mirror_memory_mb=config.mirror_memory_mb,
            keep_free_mb=MIRRORS_KEEP * config.reserve_mb,
        )


def fitting(config: DaemonConfig, limit: int) -> DaemonConfig:
    """Return the configuration with fewer acquisitions and connections if it needs more than `limit` descriptors.

    Raises ConfigError if not even one acquisition fits.
    """
    needed = _IDLE + _OF_A_RUN * config.max_acquisitions + _OF_A_CONNECTION * config.max_connections + _SPARE
    if limit >= needed:
        return config
    text = f"this process may open {limit} files and connections; its configuration needs {needed}"
    advice = "raise that limit (ulimit -n, LimitNOFILE of a service)"
    has_tcp = any(endpoint.startswith("tcp:") for endpoint in config.endpoints)
    if limit < (_IDLE + _SHARE_OF_A_RUN if has_tcp else _MIN_FOR_LOCAL_SOCKETS):
        raise ConfigError(f"{text}, and it is too little for one acquisition: {advice}")
    has_ipc = limit >= _MIN_FOR_LOCAL_SOCKETS
    free = limit - _IDLE - (_SPARE if has_ipc else 0)
    runs = min(config.max_acquisitions, free // _SHARE_OF_A_RUN)
    connections = min(config.max_connections, (free - _OF_A_RUN * runs) // _OF_A_CONNECTION)
    without = "" if has_ipc else ", none over the local socket"
    logger.warning("%s; at most %d acquisitions and %d connections%s: %s", text, runs, connections, without, advice)
    fewer = {"max_acquisitions": runs, "max_connections": connections, "ipc": config.ipc and has_ipc}
    return config.model_copy(update=fewer)


class DiskReads:
    """One thread that reads, and answers in the order of the requests. All methods are for the loop.

    wake wakes the loop, from any thread. name is that of the thread. max_s: see `submit`; None: READ_S.
    """

    def __init__(self, wake: Callable[[], None], *, name: str = "disk-reads", max_s: float | None = None) -> None:
        self._wake = wake
        self._name = name
        self._max_s = READ_S if max_s is None else max_s
        self._waiting: deque[_ReadRequest] = deque()
        self._orders: queue.SimpleQueue[_ReadRequest | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._n_submitted = 0
        self._n_run = 0  # by the thread

    def submit(
        self,
        client: bytes,
        read: Callable[[], _Result],
        answer: Callable[[_Result], object],
        refuse: Callable[[AcqStreamError], None],
    ) -> None:
        """Call `read` in the thread; later `tick` calls `answer` with its result, or `refuse` with its error.

        A read that takes longer than max_s is refused with StorageError (ETIMEDOUT); its result is dropped. Raises
        StorageError (EBUSY) if too many reads wait, in all or of this client.
        """
        of_client = sum(one.client == client for one in self._waiting)
        if len(self._waiting) >= MAX_WAITING or of_client >= MAX_WAITING_OF_CLIENT:
            raise _failure(errno.EBUSY, f"{len(self._waiting)} requests wait for the disk")
        one = _ReadRequest(client, read, answer, refuse, self._max_s)
        self._waiting.append(one)
        if self._thread is None:  # most daemons need none
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._n_submitted += 1
        self._orders.put(one)

    def tick(self, now_s: float) -> None:
        """Answer the requests that are read or overdue."""
        while self._waiting and self._waiting[0].is_answerable(now_s):
            one = self._waiting.popleft()
            assert one.outcome is not None
            result, error = one.outcome
            if error is not None:
                one.refuse(error)
            else:
                one.answer(result)

    def close(self) -> None:
        """End the thread. A stalled read is abandoned without an answer."""
        self._orders.put(None)
        if self._thread is not None and self._n_run == self._n_submitted:
            self._thread.join()

    def _work(self) -> None:
        while self._run_next():
            pass

    def _run_next(self) -> bool:
        """Run the next request; False at the end. While it waits it keeps none: one may hold an ended acquisition."""
        one = self._orders.get()
        if one is None:
            return False
        one.run()
        self._n_run += 1
        self._wake()
        return True


class _ReadRequest:
    """One request. outcome is its result or its error; the thread sets it, or the loop when the read is overdue.

    It is one value because both may set it at the same moment: whichever the loop reads is complete.
    """

    def __init__(
        self,
        client: bytes,
        read: Callable[[], Any],
        answer: Callable[[Any], object],
        refuse: Callable[[AcqStreamError], None],
        max_s: float = READ_S,
    ) -> None:
        self.client = client
        self.answer = answer
        self.refuse = refuse
        self.outcome: tuple[Any, AcqStreamError | None] | None = None
        self._read = read
        self._max_s = max_s
        self._until_s = time.monotonic() + max_s

    def is_answerable(self, now_s: float) -> bool:
        """Return True if there is a result or an error; an overdue read has the error from here on."""
        if self.outcome is None and now_s >= self._until_s:
            self.outcome = None, _failure(errno.ETIMEDOUT, f"the disk did not answer within {self._max_s:g} s")
        return self.outcome is not None

    def run(self) -> None:
        """Read, in the thread. A request that was refused meanwhile is not read any more."""
        if self.outcome is not None:
            return
        outcome: tuple[Any, AcqStreamError | None]
        try:
            outcome = self._read(), None
        except AcqStreamError as error:
            outcome = None, error
        except Exception as error:
            logger.exception("unexpected error in a read that answers a request")
            outcome = None, unexpected(error)
        if self.outcome is None:
            self.outcome = outcome


def unexpected(error: Exception) -> AcqStreamError:
    """Return what a client is told of an error: what the disk said, else a fault of the daemon."""
    if isinstance(error, OSError):
        return StorageError.wrap(error, str(error.filename or "the data directory"), "a disk call failed")
    # Modules that are loaded late do not fit to those of another version.
    text, hint = f"{type(error).__name__}: {error}", replaced_hint()
    return AcquisitionFailed(f"{hint} ({text})" if hint else f"a fault in the daemon: {text}")


def _failure(number: int, text: str) -> StorageError:
    return StorageError(OSError(number, text), "the data directory", "cannot read")


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open descriptors up to MAX_DESCRIPTORS, or the hard limit; return the new limit."""
    if not has_descriptor_limit():
        return C_LIBRARY_DESCRIPTORS
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(MAX_DESCRIPTORS, hard)
    if soft == resource.RLIM_INFINITY or soft >= target:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    except (ValueError, OSError) as error:
        logger.warning("the limit of %d open descriptors cannot be raised to %d: %s", soft, target, error)
        return soft
    return target
