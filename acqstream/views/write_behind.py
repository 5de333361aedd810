"""Writes to the stack files of levels in a thread of its own, so that tiles are made meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from acqstream.errors import DiskFull
from acqstream.storage.files.stack_file import StackFile


@dataclass(slots=True)
class _Write:
    file: StackFile
    blocks: Sequence[memoryview]
    offset: int
    future: Future[None] | None  # None: it failed and is retried


class WriteBehind:
    """Writes in the order of `submit`. Used by one thread."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="level-writer")
        self._writes: deque[_Write] = deque()

    def submit(self, file: StackFile, blocks: Sequence[memoryview], offset: int) -> None:
        """Order a `StackFile.write`. The blocks stay until `finish`, and must not change before `wait` or `finish`."""
        self._writes.append(_Write(file, blocks, offset, self._thread.submit(file.write, blocks, offset)))

    def finish(self) -> None:
        """Wait until all is written. Raises StorageError; after DiskFull the next call retries the failed write."""
        while self._writes:
            write = self._writes[0]
            if write.future is None:
                self.wait()  # with two threads in a stack file and little space, one may cut off the bytes of the other
                write.file.write(write.blocks, write.offset)
            else:
                try:
                    write.future.result()
                except DiskFull:
                    write.future = None
                    raise
            self._writes.popleft()

    def wait(self) -> None:
        """Wait until no write is running. `finish` raises their errors."""
        wait([write.future for write in self._writes if write.future is not None])

    def close(self) -> None:
        """End the thread, and drop the writes that have not started."""
        self._thread.shutdown(cancel_futures=True)
        self._writes.clear()
