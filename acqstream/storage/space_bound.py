"""The free space that mirrors and levels leave to the log: below it they store nothing more."""

from __future__ import annotations

import errno
import os
import threading
import time

from acqstream.errors import ConfigError, DiskFull
from acqstream.storage.disk import Disk

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
