"""A data file read in large pieces with direct I/O where the system has it.

For passes over a complete dataset: no byte is copied, and the page cache keeps the files of other programs. Use
`ReadFile` for small and repeated reads.
"""

from __future__ import annotations

import errno
import os
import weakref
from collections import deque
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from acqstream.errors import StorageError
from acqstream.storage.memory import PageMemory
from acqstream.storage.platform import FILES
from acqstream.storage.read_file import ReadFile

BLOCK_BYTES = 4096  # alignment of offsets, lengths and memory; a multiple of the sector size of common disks
_HUGE_PAGE_BYTES = 2**21


class BlockMemory:
    """Memory on page boundaries for pieces of `length` bytes (or more, where one is larger).

    It uses huge pages where the system has them, which makes for larger disk requests. New pages cost as much as the
    read itself, so a piece is reused once no view of it is left; at most `kept` free pieces stay.
    """

    def __init__(self, length: int, kept: int) -> None:
        self._length = length
        # Append and popleft of a deque are atomic: a finalizer may run in a thread that has the lock.
        self._free: deque[PageMemory] = deque(maxlen=kept)

    def take(self, length: int) -> NDArray[np.uint8]:
        """A piece of at least `length` bytes, a multiple of the block size; it lives as long as any view of it."""
        try:
            memory = self._free.popleft()
        except IndexError:
            memory = PageMemory(_round_to_pages(self._length))
        if len(memory) < length:
            memory = PageMemory(_round_to_pages(length))
        # Views of the array refer to `piece`; when the last one goes, the memory returns to the free pieces.
        piece = np.frombuffer(memory.view, np.uint8)
        weakref.finalize(piece, self._free.append, memory).atexit = False
        return piece


def _round_to_pages(length: int) -> int:
    return -(-length // _HUGE_PAGE_BYTES) * _HUGE_PAGE_BYTES


class BlockFile:
    """Reads complete blocks, from any thread. Raises as `ReadFile`; the last reference closes it."""

    __slots__ = ("_buffered", "_direct")

    def __init__(self, path: Path) -> None:
        self._direct = -1
        self._buffered = ReadFile(path)
        try:
            self._direct = FILES.open_for_reading(os.fspath(path), direct=True)
        except OSError:
            pass  # no direct I/O on this platform or file system; for any other reason the buffered read raises

    def size(self) -> int:
        """Length of the file now, in bytes."""
        return self._buffered.size()

    def read_blocks(self, offset: int, memory: memoryview) -> int:
        """Fill `memory` (complete blocks, page-aligned) from `offset` on, a multiple of BLOCK_BYTES.

        Return the bytes read, fewer only at the end of the file.
        """
        done = 0
        while self._direct >= 0 and done < len(memory):
            try:
                count = FILES.pread_into(self._direct, memory[done:], offset + done)
            except OSError as error:
                if error.errno == errno.EINVAL:  # opened for direct I/O, but not readable with it (FUSE)
                    break
                path = str(self._buffered.path)
                raise StorageError.wrap(error, path, f"read at byte {offset + done}") from error
            done += count
            if count == 0 or done % BLOCK_BYTES:  # a part of a block is the end of the file
                return done
        return done + self._buffered.read_into(offset + done, memory[done:])

    def __del__(self) -> None:
        if self._direct >= 0:
            FILES.close(self._direct)
