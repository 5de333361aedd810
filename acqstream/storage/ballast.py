"""A file that keeps some space for the end: given up last, so that what runs can always be closed whole."""

from __future__ import annotations

import logging
import os
import threading

from acqstream.errors import StorageError
from acqstream.storage.disk import Disk

BALLAST_NAME = ".acqstream.ballast"

logger = logging.getLogger("acqstream.storage")


class Ballast:
    """`length` bytes of a file system, held by a reserved file in `folder`. Thread-safe.

    Where space cannot be reserved there is none: a file of holes would keep nothing.
    """

    def __init__(self, disk: Disk, folder: str, length: int) -> None:
        self.path = os.path.join(folder, BALLAST_NAME)
        self.length = length
        self._disk = disk
        self._lock = threading.Lock()
        self._can_reserve = length > 0
        self.is_held = False

    def take(self) -> bool:
        """Reserve the space, if it is not held; whether it is held now."""
        with self._lock:
            if self.is_held or not self._can_reserve:
                return self.is_held
            try:
                self._remove()
                fd = self._disk.open(self.path, create=True)
                try:
                    self.is_held = self._can_reserve = self._disk.reserve(fd, 0, self.length)
                finally:
                    self._disk.close(fd)
                if not self.is_held:
                    self._remove()
            except OSError as error:
                self._give_up_after(error)
            return self.is_held

    def give_up(self) -> None:
        """Free the space. Trouble with it is logged: whoever needs the space learns it from the disk."""
        with self._lock:
            self.is_held = False
            try:
                self._remove()
            except OSError as error:
                logger.warning("%s", StorageError.wrap(error, self.path, "cannot remove the ballast"))

    def _give_up_after(self, error: OSError) -> None:
        logger.warning("%s", StorageError.wrap(error, self.path, "cannot reserve the ballast"))
        try:
            self._remove()
        except OSError as again:
            logger.warning("%s", StorageError.wrap(again, self.path, "cannot remove the ballast"))

    def _remove(self) -> None:
        try:
            self._disk.unlink(self.path)
        except FileNotFoundError:
            return
