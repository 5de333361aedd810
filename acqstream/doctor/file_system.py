"""Check: does the file system of the data directory do what the daemon asks of it?"""

from __future__ import annotations

import mmap
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from acqstream.doctor.examination import Examination
from acqstream.doctor.verdict import CheckVerdict, ok, problem, warning
from acqstream.errors import FULL_DISK_ERRNOS
from acqstream.storage.files.disk import LocalDisk
from acqstream.storage.platform import FILES

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
_SMALL_FILES = ("vfat", "msdos", "fat", "fat12", "fat16", "fat32")
_NO_HOLES = ("exfat", "fuse.exfat")
_IN_MEMORY = ("tmpfs", "ramfs")
_BY_PROGRAM = ("fuse", "fuseblk")  # FUSE: NTFS and exFAT of older systems, and all kinds of folders
_GOOD = ("ext4", "xfs", "NTFS")
_QUOTAS = {"quota", "usrquota", "grpquota", "usrjquota", "grpjquota"}  # options of a mount
_BLOCK_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSystemFacts:
    """kind: its name, empty if not known; is_remote; has_direct, has_reservation: tried with a small file.

    failure: the step that failed, with the reason of the system; empty if all went well.
    """

    kind: str = ""
    is_remote: bool = False
    has_direct: bool = True
    has_reservation: bool = True
    cached_reason: str = ""  # direct writes are taken, and go through a page cache
    failure: str = ""


def gather(examination: Examination) -> FileSystemFacts:
    """Look up the file system, and do with a small file what the daemon does with its own."""
    kind, is_remote = _kind(examination.data)
    tried = _Trial(LocalDisk())
    try:
        with tempfile.TemporaryDirectory(prefix=".acqstream-doctor-", dir=examination.data) as folder:
            tried.run(folder)
    except OSError as error:
        tried.failure = f"cannot {tried.step}: {error.strerror or error}"
        if error.errno in FULL_DISK_ERRNOS and (quota := quota_text(examination.data)):
            tried.failure = f"{tried.failure}; {quota}"
    return FileSystemFacts(
        kind=kind,
        is_remote=is_remote,
        has_direct=tried.has_direct,
        has_reservation=tried.has_reservation,
        cached_reason=tried.cached_reason,
        failure=tried.failure,
    )


class _Trial:
    """Makes the calls that the daemon makes, in the same order. step names the current one, for the error message."""

    def __init__(self, disk: LocalDisk) -> None:
        self._disk = disk
        self.step = "create a folder"
        self.failure = self.cached_reason = ""
        self.has_direct = self.has_reservation = True

    def run(self, folder: str) -> None:
        disk, path = self._disk, os.path.join(folder, "tried")
        self.step = "create a file"
        try:
            fd = disk.open(path, create=True, direct=True)
        except OSError:
            self.has_direct = False
            path = os.path.join(folder, "buffered")
            fd = disk.open(path, create=True)
        try:
            self.step = "reserve space"
            self.has_reservation = disk.reserve(fd, 0, _RESERVED_BYTES)
            self._write(fd)
            if self.has_direct:
                self.cached_reason = FILES.why_cached(path)
        finally:
            disk.close(fd)
        self.step = "rename a file"
        disk.replace(path, f"{path}.new")
        self.step = "force the names in a folder"
        disk.sync_directory(folder)
        self._read_and_lock(f"{path}.new")

    def _write(self, fd: int) -> None:
        with mmap.mmap(-1, _BLOCK_BYTES) as block:  # at the start of a page, as direct writes need it
            block[:4] = b"acqs"
            self.step = "write"
            with memoryview(block) as view:
                self._disk.pwritev(fd, [view], 0)
            self.step = "force a file to the disk"
            self._disk.fdatasync(fd)

    def _read_and_lock(self, path: str) -> None:
        self.step = "open a file again"
        first = self._disk.open(path, create=False)
        try:
            self.step = "cut a file"
            self._disk.truncate(first, _BLOCK_BYTES)
            self.step = "read"
            if self._disk.pread(first, _BLOCK_BYTES, 0)[:4] != b"acqs":
                self.failure = "gives other bytes than were written"
            self.step = "lock a file"
            second = FILES.open_for_reading(path)
            try:
                if not FILES.try_lock(first) or FILES.try_lock(second):
                    self.failure = "locks do not work: a second daemon could write into the same folder"
            finally:
                FILES.close(second)
        finally:
            self._disk.close(first)


def judge(facts: FileSystemFacts) -> CheckVerdict:
    """What the daemon can do there."""
    kind = facts.kind or "The file system"
    # fuseblk may be NTFS.
    good = [one for one in _GOOD if one.lower() not in facts.kind.lower().replace("fuseblk", "ntfs")]
    remedy = f"Use a local disk with {', '.join(good[:-1])} or {good[-1]}, and copy datasets afterwards."
    if facts.failure:
        return problem(f"{kind}: {facts.failure}. Nothing can be recorded there.", "Look at the disk, or use another.")
    if facts.is_remote:
        return problem(f"{kind} is on the network: a cut cable or a busy server stops the recording.", remedy)
    if facts.kind.lower() in _SMALL_FILES:
        return problem(f"{kind} has no files above 4 GB, no reservation and no safe renaming.", remedy)
    if facts.kind.lower() in _NO_HOLES:
        text = f"{kind} has no holes and no safe renaming: files take their full length, which is long for WKW."
        return warning(text, remedy)
    if facts.kind.lower() in _IN_MEMORY:
        return warning(f"{kind} is in memory: datasets are lost when the PC starts again.", remedy)
    if facts.kind.lower().partition(".")[0] in _BY_PROGRAM:
        return warning(f"{kind} is served by a program (FUSE): each write takes processor time.", remedy)
    if not facts.has_direct:
        text = f"{kind} has no direct I/O here: frames go through the page cache, which costs speed and processor time."
        return warning(text, remedy)
    if facts.cached_reason:
        text = f"{kind} takes direct writes, but {facts.cached_reason}, which costs processor time."
        plain = "`chattr +C` on the data directory while it is empty: the journal has the checksums."
        return warning(text, plain if facts.kind == "btrfs" else remedy)
    if not facts.has_reservation:
        return warning(f"{kind} cannot reserve space: writes become slower while files grow.", remedy)
    return ok(f"{kind} takes direct writes and reserves space.")


def quota_text(folder: Path) -> str:
    """The quota that leaves less than the disk has, or that cannot be read here, for people; empty without one."""
    free, quotas = FILES.free_bytes(str(folder)), FILES.quotas(str(folder))
    if tight := [name for name, left in quotas.items() if left is not None and left <= free]:
        return f"the quota of {tight[0]} leaves no more: ask for a larger one"
    hidden = [name for name, left in quotas.items() if left is None]
    if not quotas:
        hidden = sorted({option.partition("=")[0] for option in _mount(folder)[1]} & _QUOTAS)
    return f"there are quotas that cannot be read here: {', '.join(hidden)}" if hidden else ""


def _kind(folder: Path) -> tuple[str, bool]:
    """The name of the file system that holds the folder, and whether it is on the network."""
    kind, options = _mount(folder)
    return kind, kind.lower() in _NETWORK or "remote" in options


def _mount(folder: Path) -> tuple[str, list[str]]:
    """The name of the file system that holds the folder, and the options of its mount."""
    import psutil

    real = os.path.realpath(folder)
    mounts = [one for one in psutil.disk_partitions(all=True) if _contains(one.mountpoint, real)]
    if not mounts:
        return "", ["remote"] * real.startswith("\\\\")  # a share of Windows without a drive
    mount = max(mounts, key=lambda one: len(one.mountpoint))
    return mount.fstype, mount.opts.split(",")


def _contains(mountpoint: str, path: str) -> bool:
    top = os.path.normcase(mountpoint).rstrip(os.sep)
    return os.path.normcase(path) == top or os.path.normcase(path).startswith(top + os.sep)
