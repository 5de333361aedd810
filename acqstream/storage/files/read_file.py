"""Data files open for reading: at positions, in groups of spans, and in large pieces past the page cache.

A `ReadFile` has no file position and no read-ahead: the file may grow. A `BlockFile` is for passes over a complete
dataset: no byte is copied, and the page cache keeps the files of other programs.
"""

from __future__ import annotations

import errno
import os
import weakref
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from acqstream.errors import CorruptDataset, DatasetError, StorageError, UnsupportedFeature, wrapping
from acqstream.storage.files.boundary import check_boundary
from acqstream.storage.files.disk import using
from acqstream.storage.files.url_path import UNKNOWN_BYTES, RemotePath, is_remote
from acqstream.storage.page_memory import PageMemory
from acqstream.storage.platform import FILES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def data_runs(path: Path) -> list[tuple[int, int]]:
    """Byte ranges [start, end) with data, in order; the bytes between them are holes and read as zeros.

    The complete file is one range if the platform or file system reports no holes. Raises StorageError.
    """
    what = "find the holes"
    with wrapping(str(path), what), using(FILES, FILES.open_for_reading(os.fspath(path))) as descriptor:
        return FILES.data_ranges(descriptor, FILES.size(descriptor))


def read_spans(
    starts: NDArray[np.integer[Any]], ends: NDArray[np.integer[Any]], max_bytes: int, max_gap: int
) -> Iterator[tuple[int, int]]:
    """Runs [low, high) of pieces [start, end) to read together; both sorted, pieces do not overlap, offsets in bytes.

    A run takes at most max_bytes from its first start to its last end, unless it is one piece; it spans no gap of more
    than max_gap bytes.
    """
    import numpy as np

    breaks = np.flatnonzero(starts[1:] - ends[:-1] > max_gap) + 1
    low = 0
    for edge in [*breaks.tolist(), len(starts)]:
        while low < edge:
            high = int(np.searchsorted(ends[low:edge], starts[low] + max_bytes, "right")) + low
            high = max(high, low + 1)
            yield low, high
            low = high


def is_absent(error: StorageError) -> bool:
    """True if the file could not be opened because it does not exist."""
    return error.errno in (errno.ENOENT, errno.ENOTDIR) or isinstance(error.__cause__, FileNotFoundError)


class ReadFile:
    """Reads at any offset, from any thread.

    The descriptor is closed by `close`, or when the last reference goes: a cache may drop a file that another thread
    is still reading. Raises StorageError where a disk call fails, CorruptDataset for a pipe, folder or device. A
    `RemotePath` gives a `RemoteFile`.
    """

    __slots__ = ("_descriptor", "path")

    def __new__(cls, path: Path) -> ReadFile:
        # Here and not in a factory: every caller that opens a path of a dataset reads remote ones, too.
        return object.__new__(RemoteFile if is_remote(path) else cls)

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1  # `close` and `__del__` run also if opening fails
        try:
            self._descriptor = FILES.open_for_reading(os.fspath(path))
            is_regular = FILES.status(self._descriptor).is_regular
        except OSError as error:
            raise StorageError.wrap(error, str(path), "open for reading") from error
        if not is_regular:  # a pipe or device would block, or never end
            self.close()
            raise CorruptDataset("is not a regular file", path=str(path))
        try:
            check_boundary(path, self._descriptor)
        except (DatasetError, StorageError):
            self.close()
            raise

    def size(self) -> int:
        """Length of the file now, in bytes."""
        try:
            return FILES.size(self._descriptor)
        except OSError as error:
            raise StorageError.wrap(error, str(self.path), "get the size") from error

    def reaches(self, end: int) -> bool:
        """True if the file has at least `end` bytes."""
        return self.size() >= end

    def is_in_place(self) -> bool:
        """True if the path still leads to this file: it was neither removed nor replaced."""
        try:
            own, current = FILES.status(self._descriptor), FILES.path_status(os.fspath(self.path))
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StorageError.wrap(error, str(self.path), "get the status") from error
        # Some network file systems give a file a new number at each look: length and time decide then.
        return own.identity == current.identity or own[1:] == current[1:]

    def fileno(self) -> int:
        """The descriptor, for calls that send a part of the file to a socket without a copy."""
        return self._descriptor

    def version(self) -> tuple[object, ...]:
        """Values of which at least one differs after the file was written to or replaced."""
        try:
            status = FILES.status(self._descriptor)
        except OSError as error:
            raise StorageError.wrap(error, str(self.path), "get the status") from error
        # The length, too: two writes may fall into one tick of the clock of a file system.
        return (*status.identity, status.size, status.modified_ns)

    def modified_s(self) -> float:
        """Time of the last write, in seconds since 1970."""
        try:
            return FILES.status(self._descriptor).modified_ns / 1e9
        except OSError as error:
            raise StorageError.wrap(error, str(self.path), "get the time of change") from error

    def read(self, offset: int, count: int) -> bytes:
        """The bytes [offset, offset + count), fewer at the end of the file."""
        # Bounded by the file before memory is taken: a stranger's count may be anything.
        count = max(0, min(count, self.size() - offset))
        try:
            data = FILES.pread(self._descriptor, count, offset)
        except OSError as error:
            raise StorageError.wrap(error, str(self.path), f"read at byte {offset}") from error
        if len(data) == count:  # one call and no copy, the usual case; a short read continues below
            return data
        buffer = bytearray(count)
        length = self.read_into(offset, memoryview(buffer))
        return bytes(memoryview(buffer)[:length])

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill `buffer` (bytes, C order) from `offset` on; return the bytes read, fewer only at the end of the file."""
        done = 0
        try:
            done = FILES.pread_into(self._descriptor, buffer, offset)  # one call, the usual case
            while 0 < done < len(buffer):
                count = FILES.pread_into(self._descriptor, buffer[done:], offset + done)
                if count == 0:
                    break
                done += count
        except OSError as error:
            raise StorageError.wrap(error, str(self.path), f"read at byte {offset + done}") from error
        return done

    def close(self) -> None:
        """Close the descriptor; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            FILES.close(descriptor)

    def __del__(self) -> None:
        self.close()


class RemoteFile(ReadFile):
    """A `ReadFile` for a place that fsspec reaches; each read is one request for a range of bytes.

    Raises StorageError if the server does not report the length: the file would look empty.
    """

    __slots__ = ("_known_size", "_remote")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1
        self._remote = cast("RemotePath", path)
        try:
            self.size()
        except FileNotFoundError as error:
            raise StorageError.wrap(error, str(path), "open for reading") from error

    def size(self) -> int:
        """Length of the file now, in bytes: a request."""
        self._known_size = self._remote.stat().st_size
        if self._known_size == UNKNOWN_BYTES:
            text = "the server does not report the length of the file"
            raise StorageError.wrap(OSError(text), str(self.path), "get the size")
        return self._known_size

    def reaches(self, end: int) -> bool:
        """As `ReadFile.reaches`; a request only if the last known size is smaller, because files grow."""
        return self._known_size >= end or self.size() >= end

    def fileno(self) -> int:
        """Raises UnsupportedFeature: a place at a URL has no descriptor."""
        raise UnsupportedFeature(f"{self.path}: a file at a URL has no descriptor")

    def version(self) -> tuple[object, ...]:
        """As `ReadFile.version`, by length and time of change: two requests."""
        return str(self.path), self.size(), self.modified_s()

    def is_in_place(self) -> bool:
        """Always true, because a server does not report which file it reads."""
        return True

    def modified_s(self) -> float:
        """Time of the last write, in seconds since 1970; 0 if unknown."""
        return self._remote.stat().st_mtime_ns / 1e9

    def read(self, offset: int, count: int) -> bytes:
        """The bytes [offset, offset + count), fewer at the end of the file."""
        if not self.reaches(offset + count):
            count = max(0, self._known_size - offset)
        return self._remote.read(offset, count)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill `buffer` from `offset` on; return the bytes read, fewer only at the end of the file."""
        data = self.read(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)


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
        import numpy as np

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
    """Reads complete blocks, from any thread. Raises as `ReadFile`; the last reference closes it.

    is_cached: through the page cache of the system, for what is read more than once.
    """

    __slots__ = ("_buffered", "_direct")

    def __init__(self, file: ReadFile, *, is_cached: bool = False) -> None:
        self._direct = -1
        self._buffered = file
        if is_cached:
            return
        try:
            self._direct = FILES.open_for_reading(os.fspath(file.path), direct=True)
        except OSError:
            return  # no direct I/O on this platform or file system; for any other reason the buffered read raises
        if not file.is_in_place():  # another file has its name now
            direct, self._direct = self._direct, -1
            FILES.close(direct)

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
