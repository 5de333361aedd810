"""Files of Linux: direct I/O, reserved space, and the real place of an open file."""

from __future__ import annotations

import ctypes
import errno
import os

from acqstream.storage.platform.posix_files import PosixFiles

_DESCRIPTORS = "/proc/self/fd"
_FALLOC_FL_KEEP_SIZE = 1
# Errors of fallocate(2) after which writing continues without reserved space; ENOSPC is not one of them.
_CANNOT_RESERVE = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


class LinuxFiles(PosixFiles):
    """See `PosixFiles`. Sources: open(2) (O_DIRECT), fallocate(2), fdatasync(2), proc_pid_fd(5)."""

    def __init__(self) -> None:
        # The raw call, not posix_fallocate: libc's emulation would write every block where it cannot reserve.
        self._fallocate = ctypes.CDLL(None, use_errno=True).fallocate
        self._fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
        self._fallocate.restype = ctypes.c_int

    def fdatasync(self, fd: int) -> None:
        # fdatasync is enough for appended data: it forces the length too.
        os.fdatasync(fd)

    def reserve(self, fd: int, offset: int, length: int) -> bool:
        # KEEP_SIZE: the visible length never runs ahead of the data, so readers meet no zeros that are not frames.
        if self._fallocate(fd, _FALLOC_FL_KEEP_SIZE, offset, length) == 0:
            return True
        code = ctypes.get_errno()
        if code in _CANNOT_RESERVE:
            return False
        raise OSError(code, os.strerror(code))

    def real_path(self, fd: int, path: str) -> str:
        try:
            return os.readlink(f"{_DESCRIPTORS}/{fd}")
        except OSError:  # /proc is not mounted
            return super().real_path(fd, path)

    def _direct_flag(self, path: str, direct: bool) -> int:
        return os.O_DIRECT if direct else 0
