"""Quotas of Linux file systems that statvfs(2) does not show: of users, groups and btrfs subvolumes.

It does show those of projects (ext4, xfs). Sources: quotactl(2), <linux/quota.h>, <linux/btrfs.h>, fs/btrfs/sysfs.c.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
import sys
import time
import uuid
from pathlib import Path

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
