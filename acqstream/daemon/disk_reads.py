"""Reads of the disk that answer a request: done in a thread, so that a stalled disk does not hold the loop."""

from __future__ import annotations

import errno
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from acqstream.errors import AcqStreamError, AcquisitionFailed, StorageError

logger = logging.getLogger("acqstream.daemon")

MAX_WAITING = 256  # reads
MAX_WAITING_OF_CLIENT = 8
READ_S = 10.0  # until the client gets an error instead

_Result = TypeVar("_Result")


class DiskReads:
    """One thread that reads, and answers in the order of the requests. All methods are for the loop.

    wake wakes the loop, from any thread.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._waiting: deque[_Read] = deque()
        self._orders: queue.SimpleQueue[_Read | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._n_submitted = 0
        self._n_run = 0  # by the thread

    def submit(
        self,
        client: bytes,
        read: Callable[[], _Result],
        answer: Callable[[_Result], None],
        refuse: Callable[[AcqStreamError], None],
    ) -> None:
        """Call `read` in the thread; later `look_after` calls `answer` with its result, or `refuse` with its error.

        A read that takes longer than READ_S is refused with StorageError (ETIMEDOUT); its result is dropped. Raises
        StorageError (EBUSY) if too many reads wait, in all or of this client.
        """
        of_client = sum(one.client == client for one in self._waiting)
        if len(self._waiting) >= MAX_WAITING or of_client >= MAX_WAITING_OF_CLIENT:
            raise _failure(errno.EBUSY, f"{len(self._waiting)} requests wait for the disk")
        one = _Read(client, read, answer, refuse)
        self._waiting.append(one)
        if self._thread is None:  # most daemons need none
            self._thread = threading.Thread(target=self._work, name="disk-reads", daemon=True)
            self._thread.start()
        self._n_submitted += 1
        self._orders.put(one)

    def look_after(self, now_s: float) -> None:
        """Answer the requests that are read or overdue."""
        while self._waiting and self._waiting[0].is_answerable(now_s):
            one = self._waiting.popleft()
            if one.error is not None:
                one.refuse(one.error)
            else:
                one.answer(one.result)

    def close(self) -> None:
        """End the thread; a stalled read is left behind, without an answer."""
        self._orders.put(None)
        if self._thread is not None and self._n_run == self._n_submitted:
            self._thread.join()

    def _work(self) -> None:
        while (one := self._orders.get()) is not None:
            one.run()
            self._n_run += 1
            self._wake()


class _Read:
    """One request. Its thread sets result or error, then is_read; the loop reads them after it."""

    def __init__(
        self,
        client: bytes,
        read: Callable[[], Any],
        answer: Callable[[Any], None],
        refuse: Callable[[AcqStreamError], None],
    ) -> None:
        self.client = client
        self.answer = answer
        self.refuse = refuse
        self.result: Any = None
        self.error: AcqStreamError | None = None
        self.is_read = False
        self._read = read
        self._until_s = time.monotonic() + READ_S
        self._is_overdue = False

    def is_answerable(self, now_s: float) -> bool:
        """Return True if there is a result or an error; an overdue read has the error from here on."""
        if not self.is_read and now_s >= self._until_s:
            self._is_overdue = True
            self.error = _failure(errno.ETIMEDOUT, f"the disk did not answer within {READ_S:g} s")
        return self.is_read or self._is_overdue

    def run(self) -> None:
        """In the thread. Nothing reads what was refused already."""
        if self._is_overdue:
            return
        result, error = None, None
        try:
            result = self._read()
        except AcqStreamError as known:
            error = known
        except Exception as fault:
            logger.exception("unexpected error in a read that answers a request")
            error = AcquisitionFailed(f"a fault in the daemon: {type(fault).__name__}: {fault}")
        if not self._is_overdue:
            self.result, self.error = result, error
            self.is_read = True


def _failure(number: int, text: str) -> StorageError:
    return StorageError(OSError(number, text), "the data directory", "cannot read")
