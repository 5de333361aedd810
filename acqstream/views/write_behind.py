"""Writes to the stack files of levels, in a thread of their own: tiles are made while earlier ones are written."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from acqstream.errors import DiskFull
from acqstream.storage.stack_file import StackFile


@dataclass(slots=True)
class _Write:
    file: StackFile
    blocks: Sequence[memoryview]
    offset: int
    future: Future[None] | None  # None: to be done again


class WriteBehind:
    """Used by one thread."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="level-writer")
        self._writes: deque[_Write] = deque()

    def submit(self, file: StackFile, blocks: Sequence[memoryview], offset: int) -> None:
        """As `StackFile.write`, soon. The blocks stay until `finish`, and are not changed before `wait` or `finish`."""
        self._writes.append(_Write(file, blocks, offset, self._thread.submit(file.write, blocks, offset)))

    def finish(self) -> None:
        """Until all is written. Raises StorageError; after DiskFull the next call writes again what failed."""
        while self._writes:
            write = self._writes[0]
            if write.future is None:
                self.wait()  # two threads in a stack file: where space is short one may cut off what the other wrote
                write.file.write(write.blocks, write.offset)
            else:
                try:
                    write.future.result()
                except DiskFull:
                    write.future = None
                    raise
            self._writes.popleft()

    def wait(self) -> None:
        """Until nothing is being written, however that ends: `finish` tells."""
        wait([write.future for write in self._writes if write.future is not None])

    def close(self) -> None:
        """What has not begun to be written is not written any more."""
        self._thread.shutdown(cancel_futures=True)
        self._writes.clear()
