"""Files of Linux: direct I/O, reserved space, the real path of an open file, quotas; and the identity of the machine.

The quotas are those that statvfs(2) does not show: of users, groups and btrfs subvolumes. It does show those of
projects (ext4, xfs). Sources: quotactl(2), <linux/quota.h>, <linux/btrfs.h>, fs/btrfs/sysfs.c.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import re
import struct
import sys
import time
import uuid
from pathlib import Path

from acqstream.storage.platform.posix_files import RESERVE_STEP_BYTES, PosixFiles

_QUOTACTL_FD = 443  # the number of quotactl_fd(2), from Linux 5.14 on
_GET_STATE, _GET_QUOTA = 0x5805, 0x800007  # Q_XGETQSTAT, Q_GETQUOTA: any user asks for himself and his group
_STATE, _LIMITS = struct.Struct("=2xH252x"), struct.Struct("=8QI4x")  # flags of struct fs_quota_stat; struct if_dqblk
_LIMIT_BLOCK_BYTES = 1024
_FS_INFO, _INO_LOOKUP, _SUBVOLUME = 0x8400941F, 0xD0009412, struct.Struct("=QQ4080x")  # BTRFS_IOC_...
_FIRST_INODE = 256  # of the subvolume of an open folder: any user may look it up
_LIBC = ctypes.CDLL(None, use_errno=True)


def quotas_of_users(fd: int, *, binds_root: bool) -> dict[str, int | None]:
    """The quotas of this user and of the group of new files in the folder `fd`; empty if there are none, or unknown."""
    state, limits = ctypes.create_string_buffer(_STATE.size), ctypes.create_string_buffer(_LIMITS.size)
    if _LIBC.syscall(_QUOTACTL_FD, fd, _GET_STATE << 8, 0, state) != 0:
        return {}
    (flags,), folder, user = _STATE.unpack(state), os.fstat(fd), os.geteuid()
    group = folder.st_gid if folder.st_mode & 0o2000 else os.getegid()
    quotas: dict[str, int | None] = {"none that binds": sys.maxsize}  # not empty: the system reports its quotas
    for kind, name, number in ((0, "user", user), (1, "group", group)):
        # Root writes on above the limits of ext4; number 0 of xfs has the limits that others begin with.
        is_enforced = flags & 2 << 2 * kind and number and (user or binds_root)
        if is_enforced and _LIBC.syscall(_QUOTACTL_FD, fd, _GET_QUOTA << 8 | kind, number, limits) == 0:
            quotas[f"{name} {number}"] = bytes_left(limits.raw)
    return quotas


def bytes_left(limits: bytes) -> int:
    """What a struct if_dqblk leaves. A soft limit binds once its time of grace has ended."""
    hard, soft, used, _, _, _, grace_end_s, *_ = _LIMITS.unpack(limits)
    if soft and used > soft * _LIMIT_BLOCK_BYTES and 0 < grace_end_s <= time.time():
        return 0
    return max(0, hard * _LIMIT_BLOCK_BYTES - used) if hard else sys.maxsize


def quotas_of_subvolume(fd: int) -> dict[str, int | None]:
    """The limit of the btrfs subvolume of a folder. Who belongs to a group of subvolumes, only root can see."""
    info, subvolume = fcntl.ioctl(fd, _FS_INFO, bytes(1024)), bytearray(_SUBVOLUME.pack(0, _FIRST_INODE))
    fcntl.ioctl(fd, _INO_LOOKUP, subvolume)
    own = f"0_{_SUBVOLUME.unpack(subvolume)[0]}"
    quotas: dict[str, int | None] = {}
    for group in Path(f"/sys/fs/btrfs/{uuid.UUID(bytes=info[16:32])}/qgroups").glob("*_*/"):
        if group.name == own or not group.name.startswith("0_"):
            value = {one.name: int(one.read_text()) for one in group.iterdir()}
            taken = sum(size for name, size in value.items() if name.startswith("rsv_"))
            kinds = [kind for flag, kind in ((1, "referenced"), (2, "exclusive")) if value["limit_flags"] & flag]
            left = [max(0, value[f"max_{kind}"] - value[kind] - taken) for kind in kinds]
            if left:
                quotas[f"qgroup {group.name.replace('_', '/')}"] = min(left) if group.name == own else None
    return quotas


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
