"""Files of Linux: direct I/O, reserved space, and the real place of an open file."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import re
import sys

from acqstream.storage.platform.linux_quota import quotas_of_subvolume, quotas_of_users
from acqstream.storage.platform.posix_files import RESERVE_STEP_BYTES, PosixFiles

_DESCRIPTORS = "/proc/self/fd"
_FALLOC_FL_KEEP_SIZE = 1
_BTRFS = 0x9123683E  # f_type of statfs(2); a cut frees no part of an extent there
_XFS = 0x58465342
_FREES_CUT_SPACE = {0xEF53, _XFS, 0x01021994}  # ext4, xfs, tmpfs
_FUSE = 0x65735546
_FORCES_ALL = {0xEF53, _XFS, _BTRFS}  # not FUSE and overlays: the file system behind them is not asked
_REPORTS_ERRORS = (5, 8)  # the kernel from which syncfs(2) reports failed writes of any file
_GET_FLAGS, _NO_COW = 0x80086601, 0x00800000  # FS_IOC_GETFLAGS, FS_NOCOW_FL: `chattr +C`
_BUFFERS_CHECKSUMS = (6, 14)  # the kernel from which btrfs takes direct writes of files with checksums so
_OTHER_STEP_BYTES = 8 * 2**20  # the file system under an overlay or FUSE is unknown
_STATFS_BYTES = 512  # more than any system's `struct statfs`
# Errors of fallocate(2) after which writing continues without reserved space; ENOSPC is not one of them.
_CANNOT_RESERVE = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


class LinuxFiles(PosixFiles):
    """See `PosixFiles`. Sources: open(2) (O_DIRECT), fallocate(2), fdatasync(2), proc_pid_fd(5)."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        # The raw call, not posix_fallocate: libc's emulation would write every block where it cannot reserve.
        self._fallocate = libc.fallocate
        self._fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
        self._fallocate.restype = ctypes.c_int
        self._fstatfs = libc.fstatfs
        self._syncfs = libc.syncfs

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

    def reserve_step(self, fd: int) -> int:
        kind = self._kind(fd)
        if kind == _BTRFS:
            return 0
        return RESERVE_STEP_BYTES if kind in _FREES_CUT_SPACE else _OTHER_STEP_BYTES

    def why_cached(self, path: str) -> str:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            kind = self._kind(fd)
            if kind == _FUSE:
                return "a program (FUSE) takes them, into its own page cache"
            if kind != _BTRFS or _kernel() < _BUFFERS_CHECKSUMS:
                return ""
            flags = fcntl.ioctl(fd, _GET_FLAGS, bytes(8))
            has_checksums = not int.from_bytes(flags[:4], sys.byteorder) & _NO_COW
            return "btrfs puts them into the page cache for its checksums" if has_checksums else ""
        finally:
            os.close(fd)

    def open_file_system(self, folder: str) -> int | None:
        try:
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:  # too many open files: the next call reports it
            return None
        if self._kind(fd) in _FORCES_ALL and _kernel() >= _REPORTS_ERRORS:
            return fd
        os.close(fd)
        return None

    def sync_file_system(self, fd: int) -> None:
        if self._syncfs(fd) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    def free_bytes(self, path: str) -> int:
        return min([super().free_bytes(path), *(left for left in self.quotas(path).values() if left is not None)])

    def quotas(self, folder: str) -> dict[str, int | None]:
        with contextlib.suppress(OSError), contextlib.ExitStack() as opened:  # statvfs(2) or the next write says why
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            opened.callback(os.close, fd)
            kind = self._kind(fd)
            return quotas_of_subvolume(fd) if kind == _BTRFS else quotas_of_users(fd, binds_root=kind == _XFS)
        return {}

    def real_path(self, fd: int, path: str) -> str:
        try:
            return os.readlink(f"{_DESCRIPTORS}/{fd}")
        except OSError:  # /proc is not mounted
            return super().real_path(fd, path)

    def _kind(self, fd: int) -> int:
        """The f_type of statfs(2); 0 if it is not known."""
        status = ctypes.create_string_buffer(_STATFS_BYTES)
        if self._fstatfs(fd, status) != 0:
            return 0
        return ctypes.c_long.from_buffer(status).value & 0xFFFFFFFF

    def _direct_flag(self, path: str, direct: bool) -> int:
        return os.O_DIRECT if direct else 0


def _kernel() -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))
