"""A small file system of its own, in a file and mounted through a loop device, or in memory. Needs root."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import Self

from tests.waiting import until

_SHUTDOWN = 0x8004587D  # XFS_IOC_GOINGDOWN, EXT4_IOC_SHUTDOWN
_NO_LOG_FLUSH = 2
_LOOP_GET_STATUS64, _LOOP_SET_STATUS64, _LOOP_INFO_BYTES, _SIZE_LIMIT_AT = 0x4C05, 0x4C04, 232, 32
_MAKERS = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-m", "0"],
    "xfs": ["mkfs.xfs", "-q", "-f"],
    "btrfs": ["mkfs.btrfs", "-q", "-f"],
    "exfat": ["mkfs.exfat"],
    "vfat": ["mkfs.vfat"],
    "tmpfs": [],
}
COMMAND_S = 60
TRIAL_BYTES = 512 * 2**20  # xfs takes no less than 300 MiB


class LoopDisk:
    """A new file system, mounted at `place` while used as a context manager. kind is ext4, xfs, btrfs, vfat, exfat or
    tmpfs; quota: a mount option of ext4 and xfs.
    """

    def __init__(self, kind: str, image: Path, place: Path, size_bytes: int, quota: str = "") -> None:
        self.place = place
        self._image = image
        place.mkdir()
        self._root: int | None = None
        if kind == "tmpfs":
            self._mounting = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(place)]
            return
        by_program = ["-t", "exfat-fuse"] if kind == "exfat" and shutil.which("mount.exfat-fuse") else []
        self._mounting = ["mount", *by_program, "-o", "loop" + (quota and f",{quota}"), str(image), str(place)]
        with image.open("wb") as file:
            file.truncate(size_bytes)
        making = ["-O", "quota,project", "-E", f"quotatype={quota}"] if quota and kind == "ext4" else []
        _run(*_MAKERS[kind], *making, str(image))

    def mount(self) -> None:
        _run(*self._mounting)
        self._root = os.open(self.place, os.O_RDONLY | os.O_DIRECTORY)

    def cut(self) -> None:
        """As if the power went: nothing more reaches the image, the journal is not flushed, every later call fails."""
        assert self._root is not None
        fcntl.ioctl(self._root, _SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))

    def fail(self) -> None:
        """Let the device answer every request with EIO, as if it had shrunk to one block, until `mend`."""
        self._limit(4096)

    def mend(self) -> None:
        """The device has all its blocks again; the file system may have ended itself meanwhile."""
        self._limit(0)

    def _limit(self, size_bytes: int) -> None:
        found = subprocess.run(["losetup", "-j", self._image, "-n", "-O", "NAME"], capture_output=True, check=True)
        for device in found.stdout.decode().split():
            fd = os.open(device, os.O_RDWR)
            try:
                info = bytearray(_LOOP_INFO_BYTES)
                fcntl.ioctl(fd, _LOOP_GET_STATUS64, info)
                struct.pack_into("<Q", info, _SIZE_LIMIT_AT, size_bytes)
                fcntl.ioctl(fd, _LOOP_SET_STATUS64, info)
            finally:
                os.close(fd)

    def reconnect(self) -> None:
        """Mount the image once more over a lazy unmount, through a new device, as when a disk is plugged in again."""
        assert self._root is not None
        os.close(self._root)
        _run("umount", "-l", str(self.place))
        found = subprocess.run(["losetup", "-f", "--show", self._image], capture_output=True, check=True)
        device = found.stdout.decode().strip()
        _run("mount", device, str(self.place))
        _run("losetup", "-d", device)  # when it is unmounted
        self._root = os.open(self.place, os.O_RDONLY | os.O_DIRECTORY)

    def free_bytes(self) -> int:
        status = os.statvfs(self.place)
        return status.f_bavail * status.f_frsize

    def fill(self, free_bytes: int, name: str = "filler") -> Path:
        """Leave so much space, by a file whose removal gives the rest back."""
        filler = self.place / name
        with filler.open("wb") as file:
            until(lambda: self._has_taken(file.fileno(), free_bytes), "the space is taken")
        return filler

    def _has_taken(self, fd: int, free_bytes: int) -> bool:
        surplus = self.free_bytes() - free_bytes
        if surplus <= 0:
            return True
        try:
            os.posix_fallocate(fd, 0, os.fstat(fd).st_size + surplus)
        except OSError as error:  # somebody else has taken some in between
            if error.errno != errno.ENOSPC:
                raise
            return False
        return True

    def unmount(self) -> None:
        """Once nobody holds it any more."""
        if self._root is None:
            return
        os.close(self._root)
        self._root = None
        until(self._is_unmounted, f"{self.place} is let go")

    def _is_unmounted(self) -> bool:
        return subprocess.run(["umount", str(self.place)], check=False, capture_output=True).returncode == 0

    def __enter__(self) -> Self:
        self.mount()
        return self

    def __exit__(self, *error: object) -> None:
        self.unmount()


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=COMMAND_S)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"


@functools.cache
def why_not(kind: str) -> str:
    """Why there can be no such disk here; empty where there can: it is tried."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "mounting takes root"
    for program in (*_MAKERS[kind][:1], "mount", "umount"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    with tempfile.TemporaryDirectory(prefix="acqstream-") as folder, contextlib.ExitStack() as stack:
        try:
            disk = LoopDisk(kind, Path(folder, "image"), Path(folder, "disk"), TRIAL_BYTES)
            stack.enter_context(disk)
            if kind in ("ext4", "xfs"):
                disk.cut()
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            return f"no {kind} that can be mounted here, and shut down: {error}"
    return ""
