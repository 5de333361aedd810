"""A data file open for positional reads: no file position, no read-ahead, so it may grow meanwhile."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path
from typing import cast

from acqstream.errors import CorruptDataset, DatasetError, StorageError
from acqstream.storage.boundary import check_boundary
from acqstream.storage.remote_path import UNKNOWN_BYTES, RemotePath, is_remote

_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
_HAS_PREADV = hasattr(os, "preadv")


def is_absent(error: StorageError) -> bool:
    """Whether a file could not be opened because there is none."""
    return error.errno in (errno.ENOENT, errno.ENOTDIR) or isinstance(error.__cause__, FileNotFoundError)


class ReadFile:
    """Reads at any offset, from any thread.

    The descriptor is closed by `close`, or when the last reference goes: a cache may drop a file that another thread
    is still reading. Raises StorageError where a disk call fails, CorruptDataset for a pipe, folder or device. A
    `RemotePath` gives a `RemoteFile`.
    """

    __slots__ = ("_descriptor", "_seek_lock", "path")

    def __new__(cls, path: Path) -> ReadFile:
        return object.__new__(RemoteFile if is_remote(path) else cls)

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1
        self._seek_lock = threading.Lock()
        try:
            self._descriptor = os.open(path, _FLAGS)
            mode = os.fstat(self._descriptor).st_mode
        except OSError as error:
            raise StorageError.wrap(error, str(path), "open for reading") from error
        if not stat.S_ISREG(mode):  # a pipe or device would block, or never end
            self.close()
            raise CorruptDataset("is not a regular file", path=str(path))
        try:
            check_boundary(path, self._descriptor)
        except DatasetError:
            self.close()
            raise

    def size(self) -> int:
        """Length of the file now, in bytes."""
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise StorageError.wrap(error, str(self.path), "get the size") from error

    def reaches(self, end: int) -> bool:
        """Whether the file has at least `end` bytes."""
        return self.size() >= end

    def is_in_place(self) -> bool:
        """Whether its path still leads to this file, and not to none or to another one that came in its place."""
        try:
            own, there = os.fstat(self._descriptor), os.stat(self.path)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StorageError.wrap(error, str(self.path), "look at it") from error
        if os.path.samestat(own, there):
            return True  # else some network file systems number a file anew
        return (own.st_size, own.st_mtime_ns) == (there.st_size, there.st_mtime_ns)

    def modified_s(self) -> float:
        """When it was last written to, in seconds since 1970."""
        try:
            return os.fstat(self._descriptor).st_mtime
        except OSError as error:
            raise StorageError.wrap(error, str(self.path), "get the time of change") from error

    def read(self, offset: int, count: int) -> bytes:
        """The bytes [offset, offset + count), fewer at the end of the file."""
        count = max(0, min(count, self.size() - offset))
        if _HAS_PREADV:
            try:
                data = os.pread(self._descriptor, count, offset)
            except OSError as error:
                raise StorageError.wrap(error, str(self.path), f"read at byte {offset}") from error
            if len(data) == count:
                return data
        buffer = bytearray(count)
        length = self.read_into(offset, memoryview(buffer))
        return bytes(memoryview(buffer)[:length])

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill `buffer` (bytes, C order) from `offset` on; how many bytes, less only at the end of the file."""
        done = 0
        try:
            while done < len(buffer):
                count = self._read_once(offset + done, buffer[done:])
                if count == 0:
                    break
                done += count
        except OSError as error:
            raise StorageError.wrap(error, str(self.path), f"read at byte {offset + done}") from error
        return done

    def _read_once(self, offset: int, buffer: memoryview) -> int:
        if _HAS_PREADV:
            return os.preadv(self._descriptor, [buffer], offset)
        with self._seek_lock:  # one position per descriptor
            os.lseek(self._descriptor, offset, os.SEEK_SET)
            data = os.read(self._descriptor, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Close the descriptor; again is harmless."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


class RemoteFile(ReadFile):
    """The same for a place that fsspec reaches: each read is one request for a range of bytes.

    Raises StorageError where its length is not told: it would look empty.
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
            text = "the server does not tell the length of the file"
            raise StorageError.wrap(OSError(text), str(self.path), "get the size")
        return self._known_size

    def reaches(self, end: int) -> bool:
        """Asks only where the size known before does not tell: files grow."""
        return self._known_size >= end or self.size() >= end

    def is_in_place(self) -> bool:
        """There is no telling."""
        return True

    def modified_s(self) -> float:
        """When it was last written to, in seconds since 1970; 0 where that is not known."""
        return self._remote.stat().st_mtime_ns / 1e9

    def read(self, offset: int, count: int) -> bytes:
        """The bytes [offset, offset + count), fewer at the end of the file."""
        if not self.reaches(offset + count):
            count = max(0, self._known_size - offset)
        return self._remote.read(offset, count)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill `buffer` from `offset` on; how many bytes, less only at the end of the file."""
        data = self.read(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)
