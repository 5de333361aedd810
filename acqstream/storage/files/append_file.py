"""A file that grows by complete entries: the index and the journal."""

from __future__ import annotations

from collections.abc import Sequence

from acqstream.errors import DatasetLocked, StorageError, wrapping
from acqstream.storage.files.directory_lock import try_lock_repeatedly
from acqstream.storage.files.disk import Disk, check_length, write_all


class AppendFile:
    """One writer's growing file. Each `append` is one write call, at the end that this object tracks.

    sync_error: the first sync that failed. The system then takes the lost bytes for written, so no later sync counts.
    """

    def __init__(self, disk: Disk, path: str, *, create: bool, end: int = 0) -> None:
        self.path = path
        self.end = self._longest = end  # an append that failed may have left bytes up to `_longest`
        self.sync_error: StorageError | None = None
        self._disk = disk
        with wrapping(path, "cannot open for appending"):
            self._fd = disk.open(path, create=create)

    def append(self, entries: bytes | Sequence[bytes]) -> None:
        """Add complete entries. After a failure the file is cut back to its old end, so no torn entry stays."""
        buffers = [entries] if isinstance(entries, bytes) else entries
        self._longest = self.end + sum(map(len, buffers))
        try:
            self.end = write_all(self._disk, self._fd, buffers, self.end)
        except OSError as error:
            self._cut_back(error)
            raise StorageError.wrap(error, self.path, "cannot append") from error

    def read_rest(self, max_bytes: int) -> bytes:
        """What the file has after `end`, of another writer, at most max_bytes. Raises StorageError."""
        found = b""
        with wrapping(self.path, "cannot read"):
            while piece := self._disk.pread(self._fd, max_bytes - len(found), self.end + len(found)):
                found += piece  # a read may give less than the file has
            return found

    def rewrite(self, offset: int, content: bytes) -> None:
        """Overwrite bytes inside the file; for fixed-size headers only."""
        with wrapping(self.path, f"cannot rewrite at byte {offset}"):
            write_all(self._disk, self._fd, [content], offset)
        self.end = max(self.end, offset + len(content))

    def cut(self, end: int) -> None:
        """Cut the file to `end` bytes."""
        try:
            self._disk.truncate(self._fd, end)
        except OSError as error:
            raise StorageError(error, self.path, f"cannot cut to {end} bytes") from error
        self.end = self._longest = end

    def check(self) -> None:
        """Raise DatasetLocked if another program has cut the file or written after its end; StorageError."""
        with wrapping(self.path, "cannot read the length"):
            check_length(self._disk, self._fd, self.path, self.end, max(self.end, self._longest))

    def sync(self) -> None:
        """Force everything appended so far to the disk."""
        if self.sync_error is not None:
            raise self.sync_error
        try:
            self._disk.fdatasync(self._fd)
        except OSError as error:
            # Never DiskFull: after a failed sync a second one may succeed without the lost data.
            self.sync_error = StorageError(error, self.path, "cannot force to the disk")
            raise self.sync_error from error

    def lock(self, attempts: int = 5) -> None:
        """Lock the file against other writers until it is closed, see `try_lock_repeatedly`. Raises DatasetLocked."""
        if not try_lock_repeatedly(self._fd, attempts):
            raise DatasetLocked(f"{self.path} is being written by another process")

    def close(self) -> None:
        """Close the file; a second call does nothing. Raises OSError."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._disk.close(fd)

    def _cut_back(self, cause: OSError) -> None:
        try:
            self._disk.truncate(self._fd, self.end)
        except OSError as error:
            cause.add_note(f"cannot cut off the torn entry at byte {self.end}: {error}")
