"""Check: can the file system of the data directory be written directly, and reserve space?"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from acqstream.doctor.examination import Examination
from acqstream.doctor.verdict import CheckVerdict, ok, problem, warning
from acqstream.storage.disk import LocalDisk

NAME = "file system"
_RESERVED_BYTES = 2**20
_NETWORK = (
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "smb2",
    "afpfs",
    "9p",
    "fuse.sshfs",
    "fuse.rclone",
    "ceph",
    "lustre",
)
_SMALL_FILES = ("vfat", "msdos", "fat", "fat32")
_IN_MEMORY = ("tmpfs", "ramfs")
_LOCAL = "Use a local disk with ext4, xfs or NTFS, and copy datasets afterwards."


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSystemFacts:
    """kind: its name, empty if not known; is_remote; has_direct, has_reservation: tried with a small file."""

    kind: str = ""
    is_remote: bool = False
    has_direct: bool = True
    has_reservation: bool = True


def gather(examination: Examination) -> FileSystemFacts:
    """Look up the file system, and try it with a file. Raises OSError."""
    kind, is_remote = _kind(examination.data)
    with tempfile.TemporaryDirectory(prefix=".acqstream-doctor-", dir=examination.data) as folder:
        path = str(Path(folder) / "tried")
        disk, has_direct = LocalDisk(), True
        try:
            fd = disk.open(path, create=True, direct=True)
        except OSError:
            has_direct = False
            fd = disk.open(str(Path(folder) / "buffered"), create=True)
        try:
            has_reservation = disk.reserve(fd, 0, _RESERVED_BYTES)
        finally:
            disk.close(fd)
    return FileSystemFacts(kind=kind, is_remote=is_remote, has_direct=has_direct, has_reservation=has_reservation)


def judge(facts: FileSystemFacts) -> CheckVerdict:
    """What the daemon can do there."""
    kind = facts.kind or "The file system"
    if facts.is_remote:
        return problem(f"{kind} is on the network: a cut cable or a busy server stops the recording.", _LOCAL)
    if facts.kind.lower() in _SMALL_FILES:
        return problem(f"{kind} has no files above 4 GB, no reservation and no safe renaming.", _LOCAL)
    if facts.kind.lower() in _IN_MEMORY:
        return warning(f"{kind} is in memory: datasets are lost when the PC starts again.", _LOCAL)
    if not facts.has_direct:
        text = f"{kind} has no direct I/O here: frames go through the page cache, which costs speed and processor time."
        return warning(text, _LOCAL)
    if not facts.has_reservation:
        return warning(f"{kind} cannot reserve space: writes become slower while files grow.", _LOCAL)
    return ok(f"{kind} takes direct writes and reserves space.")


def _kind(folder: Path) -> tuple[str, bool]:
    """The name of the file system that holds the folder, and whether it is on the network."""
    import psutil

    real = os.path.realpath(folder)
    mounts = [one for one in psutil.disk_partitions(all=True) if _contains(one.mountpoint, real)]
    if not mounts:
        return "", real.startswith("\\\\")  # a share of Windows without a drive
    mount = max(mounts, key=lambda one: len(one.mountpoint))
    return mount.fstype, mount.fstype.lower() in _NETWORK or "remote" in mount.opts.split(",")


def _contains(mountpoint: str, path: str) -> bool:
    top = os.path.normcase(mountpoint).rstrip(os.sep)
    return os.path.normcase(path) == top or os.path.normcase(path).startswith(top + os.sep)
