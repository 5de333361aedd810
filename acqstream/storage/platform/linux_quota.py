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

from acqstream.storage.platform.posix_files import Quota

_QUOTACTL_FD = 443  # the number of quotactl_fd(2), from Linux 5.14 on
_GET_STATE, _GET_QUOTA = 0x5805, 0x800007  # Q_XGETQSTAT, Q_GETQUOTA: any user asks for himself and his group
_STATE_BYTES, _FLAGS = 256, struct.Struct("=2xH")  # more than struct fs_quota_stat has
_ENFORCED = {0: 1 << 1, 1: 1 << 3}  # USRQUOTA, GRPQUOTA: FS_QUOTA_UDQ_ENFD, FS_QUOTA_GDQ_ENFD
_LIMITS, _LIMIT_BLOCK_BYTES = struct.Struct("=8QI4x"), 1024  # struct if_dqblk
_FS_INFO, _INO_LOOKUP, _SUBVOLUME = 0x8400941F, 0xD0009412, struct.Struct("=QQ4080x")  # BTRFS_IOC_...
_FIRST_INODE, _MAX_REFERENCED, _MAX_EXCLUSIVE = 256, 1, 2
_QGROUPS = "/sys/fs/btrfs/{}/qgroups"
_LIBC = ctypes.CDLL(None, use_errno=True)


def quotas_of_users(fd: int, *, binds_root: bool) -> list[Quota]:
    """The quotas of this user and of the group of new files in the folder `fd`; empty if there are none, or unknown."""
    state, limits = ctypes.create_string_buffer(_STATE_BYTES), ctypes.create_string_buffer(_LIMITS.size)
    if _LIBC.syscall(_QUOTACTL_FD, fd, _GET_STATE << 8, 0, state) != 0:
        return []
    (flags,) = _FLAGS.unpack_from(state)
    folder, user = os.fstat(fd), os.geteuid()
    group = folder.st_gid if folder.st_mode & 0o2000 else os.getegid()
    quotas = [Quota("no user", sys.maxsize)]
    for kind, name, number in ((0, "user", user), (1, "group", group)):
        # Root writes on above the limits of ext4; number 0 of xfs has the limits that others begin with.
        if not flags & _ENFORCED[kind] or not number or not (user or binds_root):
            continue
        if _LIBC.syscall(_QUOTACTL_FD, fd, _GET_QUOTA << 8 | kind, number, limits) == 0:
            quotas.append(Quota(f"{name} {number}", bytes_left(limits.raw)))
    return quotas


def bytes_left(limits: bytes) -> int:
    """What a struct if_dqblk leaves. A soft limit binds once its time of grace has ended."""
    hard, soft, used, _, _, _, grace_end_s, *_ = _LIMITS.unpack(limits)
    if soft and used > soft * _LIMIT_BLOCK_BYTES and 0 < grace_end_s <= time.time():
        return 0
    return max(0, hard * _LIMIT_BLOCK_BYTES - used) if hard else sys.maxsize


def quotas_of_subvolume(fd: int) -> list[Quota]:
    """The limits of the btrfs subvolume of a folder. Who belongs to a group of subvolumes, only root can see."""
    info = fcntl.ioctl(fd, _FS_INFO, bytes(1024))
    subvolume = bytearray(_SUBVOLUME.pack(0, _FIRST_INODE))
    fcntl.ioctl(fd, _INO_LOOKUP, subvolume)
    groups = Path(_QGROUPS.format(uuid.UUID(bytes=info[16:32])))
    own = groups / f"0_{_SUBVOLUME.unpack(subvolume)[0]}"
    others = [Quota(f"qgroup {one.name.replace('_', '/')}", None) for one in groups.glob("[1-9]*_*") if _limits(one)]
    return [Quota(f"qgroup {own.name.replace('_', '/')}", left) for left in _limits(own)] + others


def _limits(group: Path) -> list[int]:
    try:
        value = {one.name: int(one.read_text()) for one in group.iterdir()}
    except OSError:  # no quotas there
        return []
    reserved = sum(size for name, size in value.items() if name.startswith("rsv_"))
    kinds = ((_MAX_REFERENCED, "referenced"), (_MAX_EXCLUSIVE, "exclusive"))
    limits = [name for flag, name in kinds if value["limit_flags"] & flag]
    return [max(0, value[f"max_{name}"] - value[name] - reserved) for name in limits]
