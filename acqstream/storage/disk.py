"""Disk: the calls of the writing side that can fail on a disk; tests replace it by a scripted one.

All methods raise plain OSError; the files built on top add the path and the attempted action. Offsets and lengths are
bytes. Nothing here buffers.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
import threading
from collections.abc import Sequence
from typing import Protocol

_FALLOC_FL_KEEP_SIZE = 1
# Errors of fallocate(2) after which writing continues without reserved space; ENOSPC is not one of them.
_CANNOT_RESERVE = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


class Disk(Protocol):
    """The disk calls of the writing side."""

    def open(self, path: str, *, create: bool, direct: bool = False) -> int:
        """A descriptor for reading and writing. create: the file must not exist. direct: past the page cache."""

    def close(self, fd: int) -> None: ...
    def pwritev(self, fd: int, buffers: Sequence[memoryview | bytes], offset: int) -> int:
        """Bytes written; may be fewer than given."""

    def pread(self, fd: int, length: int, offset: int) -> bytes: ...
    def fdatasync(self, fd: int) -> None: ...
    def reserve(self, fd: int, offset: int, length: int) -> bool:
        """Allocate blocks without changing the visible length. False where the file system cannot."""

    def truncate(self, fd: int, length: int) -> None: ...
    def size(self, fd: int) -> int: ...
    def replace(self, source: str, target: str) -> None: ...
    def unlink(self, path: str) -> None: ...
    def mkdir(self, path: str) -> None: ...
    def sync_directory(self, path: str) -> None: ...
    def free_bytes(self, path: str) -> int: ...


class LocalDisk:
    """The operating system's files, with plain fall-backs where a platform lacks a call."""

    def __init__(self) -> None:
        # For systems without pread and pwritev: a descriptor has one position, which another thread could move.
        self._seek_lock = threading.Lock()
        self._fallocate = _find_fallocate()

    def open(self, path: str, *, create: bool, direct: bool = False) -> int:
        flags = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        if create:
            flags |= os.O_CREAT | os.O_EXCL
        if direct:
            if not hasattr(os, "O_DIRECT"):
                raise OSError(errno.EINVAL, "no direct I/O on this platform", path)
            flags |= os.O_DIRECT
        return os.open(path, flags, 0o666)

    def close(self, fd: int) -> None:
        os.close(fd)

    def pwritev(self, fd: int, buffers: Sequence[memoryview | bytes], offset: int) -> int:
        if hasattr(os, "pwritev"):
            return os.pwritev(fd, buffers, offset)
        with self._seek_lock:
            os.lseek(fd, offset, os.SEEK_SET)
            # One buffer only: after a short write the next one would land at the wrong offset.
            return sum(os.write(fd, buffer) for buffer in buffers[:1])

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        if hasattr(os, "pread"):
            return os.pread(fd, length, offset)
        with self._seek_lock:
            os.lseek(fd, offset, os.SEEK_SET)
            return os.read(fd, length)

    def fdatasync(self, fd: int) -> None:
        # fdatasync is enough for appended data: it forces the length too.
        (os.fdatasync if hasattr(os, "fdatasync") else os.fsync)(fd)

    def reserve(self, fd: int, offset: int, length: int) -> bool:
        if self._fallocate is None:
            return False
        # KEEP_SIZE: the visible length never runs ahead of the data, so readers meet no zeros that are not frames.
        if self._fallocate(fd, _FALLOC_FL_KEEP_SIZE, offset, length) == 0:
            return True
        code = ctypes.get_errno()
        if code in _CANNOT_RESERVE:
            return False
        raise OSError(code, os.strerror(code))

    def truncate(self, fd: int, length: int) -> None:
        os.ftruncate(fd, length)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def replace(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def mkdir(self, path: str) -> None:
        os.mkdir(path)

    def sync_directory(self, path: str) -> None:
        if os.name != "posix":
            return  # Windows cannot force a folder; names are as durable as its file system makes them
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def free_bytes(self, path: str) -> int:
        if hasattr(os, "statvfs"):
            status = os.statvfs(path)
            # f_bavail, not f_bfree: the blocks kept for root are not ours.
            return status.f_bavail * status.f_frsize
        import shutil

        return shutil.disk_usage(path).free


def _find_fallocate() -> ctypes._FuncPointer | None:
    # The raw call, not posix_fallocate: libc's emulation would write every block where it cannot reserve.
    if sys.platform != "linux":
        return None
    function = ctypes.CDLL(None, use_errno=True).fallocate
    function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    function.restype = ctypes.c_int
    return function


def write_all(disk: Disk, fd: int, buffers: Sequence[memoryview | bytes], offset: int, *, step: int = 1) -> int:
    """Write all of `buffers` at `offset`, resuming after short writes; return the offset after the last byte.

    step is the alignment that a resumed write must keep: the block size for direct I/O.
    """
    queue = [memoryview(buffer).cast("B") for buffer in buffers if len(buffer)]
    stuck = False
    while queue:
        written = disk.pwritev(fd, queue[:_IOV_MAX], offset)
        if written <= 0 or (stuck and written < step):
            raise OSError(errno.EIO, "the disk took no bytes")
        stuck = written < step  # less than a block: try once more, then report an error
        written -= written % step
        offset += written
        while queue and written >= len(queue[0]):
            written -= len(queue.pop(0))
        if written:
            queue[0] = queue[0][written:]
    return offset


_IOV_MAX = 512  # buffers a call; the limit of Linux is 1024 (UIO_MAXIOV)
