"""One writer per data directory: a lock file that names its holder."""

from __future__ import annotations

import os
import socket
import time
from types import TracebackType

from acqstream.errors import DatasetLocked, StorageError

LOCK_NAME = ".acqstream.lock"
_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)  # a pipe: no wait
_ATTEMPTS = 5
_PAUSE_S = 0.01  # a program that asks `is_locked` has the lock for less than that


class DirectoryLock:
    """Locked from construction to `close`; the system releases the lock if the process dies.

    Raises DatasetLocked naming the holder, StorageError if the lock file cannot be created or written.
    """

    def __init__(self, directory: str) -> None:
        self.path = os.path.join(directory, LOCK_NAME)
        try:
            self._fd = os.open(self.path, _FLAGS | os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise StorageError.wrap(error, self.path, "cannot create the lock file") from error
        if not try_lock_repeatedly(self._fd):
            holder = _read_name(self._fd).decode("utf-8", "replace").strip() or "an unknown process"
            os.close(self._fd)
            raise DatasetLocked(
                f"{directory} is in use by {holder}; wait until it is done, stop it, or choose another directory"
            )
        try:
            os.ftruncate(self._fd, 0)
            os.write(self._fd, f"acqstream pid {os.getpid()} on {socket.gethostname()}\n".encode())
        except OSError as error:
            os.close(self._fd)  # and with it the lock
            raise StorageError.wrap(error, self.path, "cannot write the lock file") from error

    def close(self) -> None:
        """Release the lock. The file stays: removing it would race with the next holder."""
        os.close(self._fd)

    def __enter__(self) -> DirectoryLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def try_lock_repeatedly(fd: int) -> bool:
    """`try_lock` with a few attempts: another process may have the lock only for a moment, in `is_locked`."""
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE_S)
        if try_lock(fd):
            return True
    return False


def is_locked(path: str) -> bool:
    """True if a writer has locked the file. Raises OSError if the system cannot lock it.

    The test takes the lock for a moment. Use it only for files in writing, and for lock files of `DirectoryLock`, which
    tries again.
    """
    fd = os.open(path, os.O_RDONLY | _FLAGS)
    try:
        return not try_lock(fd)
    finally:
        os.close(fd)


def _read_name(fd: int) -> bytes:
    try:
        return os.read(fd, 200)
    except BlockingIOError:  # an empty pipe
        return b""


def try_lock(fd: int) -> bool:
    """Lock an open file against other processes until it is closed; False if another one has locked it."""
    try:
        import fcntl
    except ImportError:
        return _try_lock_windows(fd)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _try_lock_windows(fd: int) -> bool:
    import importlib

    msvcrt = importlib.import_module("msvcrt")
    os.lseek(fd, 2**20, os.SEEK_SET)  # a byte far after the text, so that the holder's name stays readable
    try:
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
    except OSError:
        return False
    finally:
        os.lseek(fd, 0, os.SEEK_SET)
    return True
