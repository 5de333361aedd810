"""A file that reserves space for finishing: removed when the disk is full, so acquisitions can close intact."""

from __future__ import annotations

import logging
import os
import threading

from acqstream.errors import StorageError
from acqstream.storage.disk import Disk

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
