"""Work on the disk that answers a request: done in a thread, so that a stalled disk does not hold the loop."""

from __future__ import annotations

import errno
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from acqstream.daemon.exit_text import unexpected
from acqstream.errors import AcqStreamError, StorageError

logger = logging.getLogger("acqstream.daemon")

MAX_WAITING = 256  # reads
MAX_WAITING_OF_CLIENT = 8
READ_S = 10.0  # until the client gets an error instead

_Result = TypeVar("_Result")


class DiskReads:
    """One thread that reads, and answers in the order of the requests. All methods are for the loop.

    wake wakes the loop, from any thread. name is that of the thread. max_s: see `submit`; None: READ_S.
    """

    def __init__(self, wake: Callable[[], None], *, name: str = "disk-reads", max_s: float | None = None) -> None:
        self._wake = wake
        self._name = name
        self._max_s = READ_S if max_s is None else max_s
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

        A read that takes longer than max_s is refused with StorageError (ETIMEDOUT); its result is dropped. Raises
        StorageError (EBUSY) if too many reads wait, in all or of this client.
        """
        of_client = sum(one.client == client for one in self._waiting)
        if len(self._waiting) >= MAX_WAITING or of_client >= MAX_WAITING_OF_CLIENT:
            raise _failure(errno.EBUSY, f"{len(self._waiting)} requests wait for the disk")
        one = _Read(client, read, answer, refuse, self._max_s)
        self._waiting.append(one)
        if self._thread is None:  # most daemons need none
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._n_submitted += 1
        self._orders.put(one)

    def look_after(self, now_s: float) -> None:
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
        while (one := self._orders.get()) is not None:
            one.run()
            self._n_run += 1
            self._wake()


class _Read:
    """One request. outcome is its result or its error; the thread sets it, or the loop when the read is overdue.

    It is one value because both may set it at the same moment: whichever the loop reads is complete.
    """

    def __init__(
        self,
        client: bytes,
        read: Callable[[], Any],
        answer: Callable[[Any], None],
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


def _failure(number: int, text: str) -> StorageError:
    return StorageError(OSError(number, text), "the data directory", "cannot read")
