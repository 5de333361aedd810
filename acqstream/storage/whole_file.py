"""Files that are written once and whole: large ones in large aligned pieces, past the page cache where the system can.

What goes through the page cache is copied by the system, and written by it when the file is forced: thrice the
processor time for blocks of some MiB, and half the rate on a busy machine.
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
LEAST_DIRECT_BYTES = 2**20  # smaller files are not worth the copy and the cut at the end
_KEPT_PIECES = 4


class WholeFiles:
    """Makes files, from any thread. Large ones take PIECE_BYTES of memory meanwhile."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._memory = BlockMemory(PIECE_BYTES, _KEPT_PIECES)
        self._can_direct = True

    def make(self, path: str, content: Sequence[bytes | memoryview], length: int | None = None) -> None:
        """Write a file that is not there yet, and force it. length makes it longer, with a hole behind the content.

        Raises OSError; there may be a part of it then.
        """
        total = sum(len(part) for part in content)
        if self._can_direct and length is None and total >= LEAST_DIRECT_BYTES:
            try:
                self._make_direct(path, content, total)
                return
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
            self._can_direct = False  # opening tells, or writing (FUSE, network mounts)
            with contextlib.suppress(FileNotFoundError):
                self._disk.unlink(path)
        fd = self._disk.open(path, create=True)
        try:
            if length is not None:
                self._disk.truncate(fd, length)
            write_all(self._disk, fd, content, 0)
            self._disk.fdatasync(fd)
        finally:
            self._disk.close(fd)

    def _make_direct(self, path: str, content: Sequence[bytes | memoryview], total: int) -> None:
        fd = self._disk.open(path, create=True, direct=True)
        try:
            self._disk.reserve(fd, 0, total)
            memory, offset = self._memory.take(PIECE_BYTES), 0
            for filled in _pieces(content, memory[:PIECE_BYTES]):
                whole = -(-filled // BLOCK_BYTES) * BLOCK_BYTES
                memory[filled:whole] = 0
                write_all(self._disk, fd, [memory[:whole].data], offset, step=BLOCK_BYTES)
                offset += filled
            if total % BLOCK_BYTES:
                self._disk.truncate(fd, total)
            self._disk.fdatasync(fd)
        finally:
            self._disk.close(fd)


def _pieces(content: Sequence[bytes | memoryview], memory: NDArray[np.uint8]) -> Iterator[int]:
    """Fill `memory` with what comes next, again and again; how many bytes, less than all of it only at the end."""
    filled = 0
    for part in content:
        data, taken = np.frombuffer(part, np.uint8), 0
        while taken < len(data):
            count = min(len(data) - taken, len(memory) - filled)
            memory[filled : filled + count] = data[taken : taken + count]
            filled, taken = filled + count, taken + count
            if filled == len(memory):
                yield filled
                filled = 0
    if filled:
        yield filled
