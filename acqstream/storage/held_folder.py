"""A folder in use that is found again where somebody renames or moves it."""

from __future__ import annotations

import errno
import os

from acqstream.errors import StorageError
from acqstream.storage.platform import FILES


class HeldFolder:
    """Follows the folder at `path` by an open descriptor, from `hold` to `close`. place: where it was seen last.

    Windows moves no folder with open files. A folder that another machine moves counts as deleted.
    """

    def __init__(self, path: str) -> None:
        self.path = self.place = path
        self._fd = -1

    def hold(self) -> None:
        self._fd = FILES.open_for_reading(self.path)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            FILES.close(fd)

    def look(self) -> bool:
        """Return True if it was moved since the last look. Raises StorageError if it was deleted."""
        before, self.place = self.place, self.at(self.path)
        return self.place != before

    def at(self, path: str) -> str:
        """Return where the folder, or a file in it that is named by its first path, lies now. Raises as `look`."""
        is_inside = path == self.path or path.startswith(self.path + os.sep)
        if self._fd < 0 or not is_inside or self._is_at(self.path):
            return path
        place = FILES.real_path(self._fd, self.path)
        if not self._is_at(place):
            gone = FileNotFoundError(errno.ENOENT, "another program deleted the folder, or moved it to another disk")
            raise StorageError(gone, self.path, "cannot go on")
        return place + path[len(self.path) :]

    def _is_at(self, place: str) -> bool:
        try:
            return FILES.path_status(place).identity == FILES.status(self._fd).identity
        except OSError:
            return False
