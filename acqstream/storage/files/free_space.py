"""Free space that is kept: for finishing intact when the disk is full, and what mirrors and levels leave to the log."""

from __future__ import annotations

import errno
import logging
import os
import threading
import time

from acqstream.errors import ConfigError, DiskFull, StorageError
from acqstream.storage.files.disk import Disk

LOOK_INTERVAL_S = 0.02
HYSTERESIS = 1.125  # times the bound: free space that ends a shortage


class SpaceBound:
    """keep_bytes: the free space that is left alone; with 0 everything may be used. folder: on the watched disk.
    what: stored there, for people; later: the command that makes it later.

    Thread-safe. warning is for the operator, from the first shortage on. file_share: bytes that files take for each
    byte of their items; more than 1 where they are made in full length on a disk without holes.
    """

    def __init__(self, disk: Disk, folder: str, what: str, keep_bytes: int, *, later: str = "acqstream mirror") -> None:
        self.warning = ""
        self.file_share = 1.0
        self._disk = disk
        self._folder = folder
        self._what = what
        self._later = later
        self._keep_bytes = keep_bytes
        self._lock = threading.Lock()
        self._look_at_s = 0.0
        self._error: OSError | None = None  # while space is short
        self._text = ""

    def require(self) -> None:
        """Raises DiskFull while the disk has less free space than is to be left."""
        if not self._keep_bytes:
            return
        with self._lock:
            now_s = time.monotonic()
            if now_s >= self._look_at_s:
                self._look_at_s = now_s + LOOK_INTERVAL_S
                self._look()
            if self._error is not None:
                raise DiskFull(self._error, self._folder, self._text)

    def require_full(self, items: int, planned: int, stored: int) -> None:
        """Note that the disk has no holes. Raises ConfigError unless all planned bytes of files fit."""
        self.file_share = max(1.0, planned / max(1, items))
        needed, free = planned - stored, self._disk.free_bytes(self._folder) - self._keep_bytes
        if needed > free:
            raise ConfigError(
                f"{self._what}: the disk of {self._folder} has no holes, so files take their full length: {needed:,} "
                f"bytes more for {items:,} bytes of pixels, and {max(0, free):,} are free. Ask for smaller cubes or "
                "shards, or for compressed ones, or use a disk with NTFS, ext4 or xfs"
            )

    def _look(self) -> None:
        try:
            free = self._disk.free_bytes(self._folder)
        except OSError:
            return  # the disk is missing: the next write reports the error
        needed = int(self._keep_bytes * (HYSTERESIS if self._error is not None else 1))
        if free >= needed:
            self._error = None
            return
        self._text = (
            f"{self._what}: nothing more is stored, as {free / 1e6:.1f} MB are free and {needed / 1e6:.1f} MB are left "
            f"to the log. It continues when there is space, or later with `{self._later}`"
        )
        self._error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.warning = self.warning or self._text


BALLAST_NAME = ".acqstream.ballast"

logger = logging.getLogger("acqstream.storage")


class Ballast:
    """`length` bytes of a file system, kept by a reserved file in `folder`. Thread-safe.

    Without the ability to reserve space no file is made: a file of holes would keep nothing. The file stays open:
    Windows frees space beyond the end of a file that no process has open.
    """

    def __init__(self, disk: Disk, folder: str, length: int) -> None:
        self.path = os.path.join(folder, BALLAST_NAME)
        self.length = length
        self._disk = disk
        self._lock = threading.Lock()
        self._can_reserve = length > 0
        self._fd = -1
        self.is_reserved = False

    def take(self) -> bool:
        """Reserve the space unless it is reserved already; return `is_reserved`."""
        with self._lock:
            if self.is_reserved or not self._can_reserve:
                return self.is_reserved
            try:
                self._remove()
                self._fd = self._disk.open(self.path, create=True)
                self.is_reserved = self._can_reserve = self._disk.reserve(self._fd, 0, self.length)
                if not self.is_reserved:
                    self._remove()
            except OSError as error:
                self._abandon(error)
            return self.is_reserved

    def release(self) -> None:
        """Free the space. Errors are logged; a write that lacks the space fails by itself."""
        with self._lock:
            self.is_reserved = False
            try:
                self._remove()
            except OSError as error:
                logger.warning("%s", StorageError.wrap(error, self.path, "cannot remove the ballast"))

    def _abandon(self, error: OSError) -> None:
        logger.warning("%s", StorageError.wrap(error, self.path, "cannot reserve the ballast"))
        try:
            self._remove()
        except OSError as again:
            logger.warning("%s", StorageError.wrap(again, self.path, "cannot remove the ballast"))

    def _remove(self) -> None:
        fd, self._fd = self._fd, -1
        try:
            if fd >= 0:
                self._disk.close(fd)
            self._disk.unlink(self.path)
        except FileNotFoundError:
            return
