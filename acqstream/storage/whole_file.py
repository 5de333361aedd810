"""Files written once, complete: large ones in aligned pieces with direct I/O where the system has it.

The page cache copies each byte and writes it when the file is forced. For blocks of some MiB that takes three times the
processor time, and half the rate on a busy machine.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from acqstream.storage.block_file import BLOCK_BYTES, BlockMemory
from acqstream.storage.disk import Disk, write_all

PIECE_BYTES = 4 * 2**20
MIN_DIRECT_BYTES = 2**20  # below, the copy and the cut at the end cost more than they save
_KEPT_PIECES = 4


class WholeFiles:
    """Creates files, from any thread. A large one takes PIECE_BYTES of memory while it is written."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._memory = BlockMemory(PIECE_BYTES, _KEPT_PIECES)
        self._can_direct = True

    def make(
        self,
        path: str,
        content: Sequence[bytes | memoryview],
        length: int | None = None,
        tail: Sequence[bytes | memoryview] = (),
        *,
        is_forced: bool = True,
    ) -> None:
        """Write a new file and force it, unless the caller does. A length beyond the content leaves a hole.

        `tail` comes last.

        Raises OSError; a part of the file may exist then.
        """
        total = sum(len(part) for part in content)
        if self._can_direct and length is None and total >= MIN_DIRECT_BYTES:
            try:
                self._make_direct(path, content, total, is_forced)
                return
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
            self._can_direct = False  # opening fails, or only writing does (FUSE, network mounts)
            with contextlib.suppress(FileNotFoundError):
                self._disk.unlink(path)
        fd = self._disk.open(path, create=True)
        try:
            if length is not None:
                self._disk.truncate(fd, length)
            write_all(self._disk, fd, content, 0)
            if tail and length is not None:
                write_all(self._disk, fd, tail, length - sum(map(len, tail)))
            if is_forced:
                self._disk.fdatasync(fd)
        finally:
            self._disk.close(fd)

    def _make_direct(self, path: str, content: Sequence[bytes | memoryview], total: int, is_forced: bool) -> None:
        fd = self._disk.open(path, create=True, direct=True)
        try:
            self._disk.reserve(fd, 0, total)
            memory, offset = self._memory.take(PIECE_BYTES), 0
            for filled in _pieces(content, memory[:PIECE_BYTES]):
                # Direct I/O takes complete blocks only: the last one is filled with zeros, which truncate cuts off.
                padded = -(-filled // BLOCK_BYTES) * BLOCK_BYTES
                memory[filled:padded] = 0
                write_all(self._disk, fd, [memory[:padded].data], offset, step=BLOCK_BYTES)
                offset += filled
            if total % BLOCK_BYTES:
                self._disk.truncate(fd, total)
            if is_forced:
                self._disk.fdatasync(fd)
        finally:
            self._disk.close(fd)


def _pieces(content: Sequence[bytes | memoryview], memory: NDArray[np.uint8]) -> Iterator[int]:
    """Copy `content` into `memory` piece by piece; yield the bytes of each piece. Only the last one may be shorter."""
    filled = 0
    for part in content:
        data, start = np.frombuffer(part, np.uint8), 0
        while start < len(data):
            count = min(len(data) - start, len(memory) - filled)
            memory[filled : filled + count] = data[start : start + count]
            filled, start = filled + count, start + count
            if filled == len(memory):
                yield filled
                filled = 0
    if filled:
        yield filled
