"""Files of Windows, by descriptors of the C library."""

from __future__ import annotations

import errno
import importlib
import os
import shutil
import stat
import threading
from collections.abc import Sequence

from acqstream.storage.platform.posix_files import FileStatus

_FLAGS = getattr(os, "O_BINARY", 0) | getattr(os, "O_NOINHERIT", 0)


class WindowsFiles:
    """See `PosixFiles`. Direct I/O, reserved space and forced folders are missing."""

    def __init__(self) -> None:
        # A descriptor has one position, which another thread could move.
        self._seek_lock = threading.Lock()

    def open(self, path: str, *, create: bool, direct: bool = False) -> int:
        if direct:
            raise OSError(errno.EINVAL, "no direct I/O on this platform", path)
        return os.open(path, os.O_RDWR | _FLAGS | (os.O_CREAT | os.O_EXCL if create else 0), 0o666)

    def open_for_reading(self, path: str, *, direct: bool = False) -> int:
        if direct:
            raise OSError(errno.EINVAL, "no direct I/O on this platform", path)
        return os.open(path, os.O_RDONLY | _FLAGS)

    def open_lock_file(self, path: str) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o666)

    def open_null(self) -> int:
        return os.open(os.devnull, os.O_RDWR | _FLAGS)

    def close(self, fd: int) -> None:
        os.close(fd)

    def pwritev(self, fd: int, buffers: Sequence[memoryview | bytes], offset: int) -> int:
        with self._seek_lock:
            os.lseek(fd, offset, os.SEEK_SET)
            # One buffer only: after a short write the next one would land at the wrong offset.
            return sum(os.write(fd, buffer) for buffer in buffers[:1])

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        with self._seek_lock:
            os.lseek(fd, offset, os.SEEK_SET)
            return os.read(fd, length)

    def pread_into(self, fd: int, buffer: memoryview, offset: int) -> int:
        data = self.pread(fd, len(buffer), offset)
        buffer[: len(data)] = data
        return len(data)

    def fdatasync(self, fd: int) -> None:
        os.fsync(fd)

    def reserve(self, fd: int, offset: int, length: int) -> bool:
        return False

    def truncate(self, fd: int, length: int) -> None:
        os.ftruncate(fd, length)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def status(self, fd: int) -> FileStatus:
        return _status(os.fstat(fd))

    def path_status(self, path: str) -> FileStatus:
        return _status(os.stat(path))

    def real_path(self, fd: int, path: str) -> str:
        return os.path.realpath(path)

    def data_ranges(self, fd: int, size: int) -> list[tuple[int, int]]:
        return [(0, size)] if size else []

    def try_lock(self, fd: int) -> bool:
        msvcrt = importlib.import_module("msvcrt")
        os.lseek(fd, 2**20, os.SEEK_SET)  # a byte far after the text, so that the holder's name stays readable
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(fd, 0, os.SEEK_SET)
        return True

    def replace(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def mkdir(self, path: str) -> None:
        os.mkdir(path)

    def sync_directory(self, path: str) -> None:
        return  # Windows cannot force a folder; names are as durable as its file system makes them

    def free_bytes(self, path: str) -> int:
        return shutil.disk_usage(path).free


def _status(status: os.stat_result) -> FileStatus:
    identity = (status.st_dev, status.st_ino)
    return FileStatus(identity, stat.S_ISREG(status.st_mode), status.st_size, status.st_mtime_ns)
