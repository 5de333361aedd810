"""One writer per data directory: a lock file that names its holder."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from types import TracebackType

from acqstream.errors import DatasetLocked, StorageError
from acqstream.storage.platform import FILES

LOCK_NAME = ".acqstream.lock"
_ATTEMPTS = 5
_MAX_TEXT_BYTES = 8192
_PAUSE_S = 0.01  # a program that asks `is_locked` has the lock for less than that


@dataclass(frozen=True, slots=True)
class LockHolder:
    """The process that holds a lock. name: its number and its machine; note: see `DirectoryLock.write_note`."""

    name: str
    note: str = ""


class DirectoryLock:
    """Locked from construction to `close`; the system releases the lock if the process dies.

    Raises DatasetLocked naming the holder, StorageError if the lock file cannot be created or written.
    """

    def __init__(self, directory: str) -> None:
        self.path = os.path.join(directory, LOCK_NAME)
        try:
            self._fd = FILES.open_lock_file(self.path)
        except OSError as error:
            raise StorageError.wrap(error, self.path, "cannot create the lock file") from error
        if not try_lock_repeatedly(self._fd):
            holder = _read_holder(self._fd).name
            FILES.close(self._fd)
            raise DatasetLocked(
                f"{directory} is in use by {holder}; wait until it is done, stop it, or choose another directory"
            )
        try:
            FILES.truncate(self._fd, 0)
            self._name = f"acqstream pid {os.getpid()} on {socket.gethostname()}\n".encode()
            FILES.pwritev(self._fd, [self._name], 0)
        except OSError as error:
            FILES.close(self._fd)  # and with it the lock
            raise StorageError.wrap(error, self.path, "cannot write the lock file") from error

    def write_note(self, note: str) -> None:
        """Write a line for programs that ask who holds the lock. Raises StorageError if it cannot be written."""
        try:
            FILES.pwritev(self._fd, [f"{note}\n".encode()], len(self._name))
        except OSError as error:
            raise StorageError.wrap(error, self.path, "cannot write the lock file") from error

    def close(self) -> None:
        """Release the lock. The file stays: removing it would race with the next holder."""
        FILES.close(self._fd)

    def __enter__(self) -> DirectoryLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def try_lock_repeatedly(fd: int) -> bool:
    """Lock an open file until it is closed; False if another process has locked it.

    Tries a few times: another process may have the lock only for a moment, in `is_locked`."""
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE_S)
        if FILES.try_lock(fd):
            return True
    return False


def is_locked(path: str) -> bool:
    """True if a writer has locked the file. Raises OSError if the system cannot lock it.

    The test takes the lock for a moment. Use it only for files in writing, and for lock files of `DirectoryLock`, which
    tries again.
    """
    fd = FILES.open_for_reading(path)
    try:
        return not FILES.try_lock(fd)
    finally:
        FILES.close(fd)


def holder_of(directory: str) -> LockHolder | None:
    """Return the process that has locked the directory; None if no process has. Raises StorageError.

    The note is empty while the holder has not written it.
    """
    path = os.path.join(directory, LOCK_NAME)
    try:
        fd = FILES.open_for_reading(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError.wrap(error, path, "cannot read the lock file") from error
    try:
        return None if FILES.try_lock(fd) else _read_holder(fd)
    except OSError as error:
        raise StorageError.wrap(error, path, "cannot read the lock file") from error
    finally:
        FILES.close(fd)


def _read_holder(fd: int) -> LockHolder:
    try:
        text = FILES.pread(fd, _MAX_TEXT_BYTES, 0).decode("utf-8", "replace")
    except OSError:  # a pipe has no position
        text = ""
    name, _, rest = text.partition("\n")
    note, end, _ = rest.partition("\n")
    return LockHolder(name.strip() or "an unknown process", note if end else "")
