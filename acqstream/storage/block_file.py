"""A data file read in large pieces, past the page cache where the system can (direct I/O).

For passes over a whole dataset: nothing is copied, the processor is left to whoever uses the data, and what others have
in the page cache stays there. Small and repeated reads are better off with `ReadFile`.
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
from acqstream.storage.read_file import ReadFile

BLOCK_BYTES = 4096
_HUGE_PAGE_BYTES = 2**21


class BlockMemory:
    """Memory on page boundaries for pieces of `length` bytes (or more, where one is larger).

    It is in huge pages where the system has them: a disk then takes more at once. New pages cost as much as the
    reading, so a piece is used again when nobody refers to it any more; so many are `kept`.
    """

    def __init__(self, length: int, kept: int) -> None:
        self._length = length
        self._free: deque[PageMemory] = deque(maxlen=kept)

    def take(self, length: int) -> NDArray[np.uint8]:
        """A piece of at least `length` bytes, whole blocks, for as long as any view of it lives."""
        try:
            memory = self._free.popleft()
        except IndexError:
            memory = PageMemory(_whole_pages(self._length))
        if len(memory) < length:
            memory = PageMemory(_whole_pages(length))
        piece = np.frombuffer(memory.view, np.uint8)
        weakref.finalize(piece, self._free.append, memory).atexit = False
        return piece


def _whole_pages(length: int) -> int:
    return -(-length // _HUGE_PAGE_BYTES) * _HUGE_PAGE_BYTES


class BlockFile:
    """Reads whole blocks, from any thread. Errors as `ReadFile`; closed with the last reference."""

    __slots__ = ("_buffered", "_direct")

    def __init__(self, path: Path) -> None:
        self._direct = -1
        self._buffered = ReadFile(path)
        try:
            self._direct = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT | os.O_NONBLOCK)
        except (OSError, AttributeError):
            pass  # a platform or file system without it; other reasons show when the other descriptor reads

    def size(self) -> int:
        """Length of the file now, in bytes."""
        return self._buffered.size()

    def read_blocks(self, offset: int, memory: memoryview) -> int:
        """Fill `memory` (whole blocks, on a page boundary) from `offset` on, a multiple of BLOCK_BYTES.

        How many bytes, less only at the end of the file.
        """
        done = 0
        while self._direct >= 0 and done < len(memory):
            try:
                count = os.preadv(self._direct, [memory[done:]], offset + done)
            except OSError as error:
                if error.errno == errno.EINVAL:  # opened, but cannot be read so
                    break
                path = str(self._buffered.path)
                raise StorageError.wrap(error, path, f"read at byte {offset + done}") from error
            done += count
            if count == 0 or done % BLOCK_BYTES:
                return done
        return done + self._buffered.read_into(offset + done, memory[done:])

    def __del__(self) -> None:
        if self._direct >= 0:
            os.close(self._direct)
