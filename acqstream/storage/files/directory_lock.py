"""One writer per data directory: a lock file with its holder; a folder that is found again when it moves."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from acqstream.errors import DatasetLocked, StorageError, wrapping
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

    def was_moved(self) -> bool:
        """Return True if it was moved since the last call. Raises StorageError if it was deleted."""
        before, self.place = self.place, self.at(self.path)
        return self.place != before

    def at(self, path: str) -> str:
        """Return where the folder, or a file in it that is named by its first path, lies now. Raises as `was_moved`."""
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


LOCK_NAME = ".acqstream.lock"
_MAX_TEXT_BYTES = 8192
_UNKNOWN = "an unknown process"
_PAUSE_S = 0.01  # a program that asks `is_locked` has the lock for less than that


@dataclass(frozen=True, slots=True)
class LockHolder:
    """The process that holds a lock. name: its number and its machine; others: see `DirectoryLock`."""

    name: str
    note: str = ""
    process: str = ""
    beat: str = ""


class DirectoryLock:
    """Locked from construction to `close`; the system releases the lock if the process dies.

    process identifies the holder for programs to which the lock does not show, and is written with a number that grows.
    why_in_use: returns the sign of life of such a holder, which is the last one that the file names; may take seconds.
    Raises DatasetLocked naming the holder, StorageError if the lock file cannot be created or written.
    """

    def __init__(
        self,
        directory: str,
        process: str = "",
        why_in_use: Callable[[str, LockHolder], str] = lambda _directory, _holder: "",
    ) -> None:
        self.directory = directory
        self.path = os.path.join(directory, LOCK_NAME)
        self._note, self._process, self._beats = "", process, 0
        with wrapping(self.path, "cannot create the lock file"):
            self._fd = FILES.open_lock_file(self.path)
        try:
            holder = _read_holder(self._fd)
            why = why_in_use(directory, holder) if try_lock_repeatedly(self._fd) else "it has locked the directory"
            if why:
                raise self._locked_by(holder, why)
            FILES.truncate(self._fd, 0)
            self._name = f"acqstream pid {os.getpid()} on {socket.gethostname()}"
            FILES.pwritev(self._fd, [self._text()], 0)
        except BaseException as error:
            FILES.close(self._fd)  # and with it the lock
            if isinstance(error, OSError):
                raise StorageError.wrap(error, self.path, "cannot write the lock file") from error
            raise

    def write_note(self, note: str) -> None:
        """Write a line for programs that ask who holds the lock. Raises as `refresh`."""
        self._note = note
        self.refresh()

    def refresh(self) -> None:
        """Write the file again, with a larger number, and make and lock it where it was removed or renamed.

        Raises DatasetLocked if another process has the directory now, StorageError if the file cannot be written.
        """
        self._beats += 1
        with wrapping(self.path, "cannot write the lock file"):
            fd = FILES.open_lock_file(self.path)  # opened and closed each time: so network mounts show it to others
            try:
                is_same = FILES.status(fd).identity == FILES.status(self._fd).identity
                holder = _read_holder(fd)
                is_own = holder.name == _UNKNOWN or (holder.name, holder.process) == (self._name, self._process)
                if not (is_own if is_same else try_lock_repeatedly(fd)):
                    raise self._locked_by(holder, "it has taken the directory from this process")
                FILES.pwritev(fd, [self._text()], 0)
                if not is_same:
                    fd, self._fd = self._fd, fd
            finally:
                FILES.close(fd)

    def close(self) -> None:
        """Release the lock. The file stays, empty: removing it would race with the next holder."""
        with contextlib.suppress(OSError):  # the next holder finds out that this one has ended
            if self._process:
                FILES.truncate(self._fd, 0)
        FILES.close(self._fd)

    def _text(self) -> bytes:
        beat = f"{self._process} {self._beats:020d}\n" if self._process else ""  # of one length: sizes may be cached
        return f"{self._name}\n{self._note}\n{beat}".encode()

    def _locked_by(self, holder: LockHolder, why: str) -> DatasetLocked:
        advice = "wait until it is done, stop it, or choose another directory"
        return DatasetLocked(f"{self.directory} is in use by {holder.name}; {advice} ({why})")

    def __enter__(self) -> DirectoryLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def try_lock_repeatedly(fd: int, attempts: int = 5) -> bool:
    """Lock an open file until it is closed; False if another process has locked it.

    attempts: a hundredth of a second apart; another process may have the lock only for a moment, in `is_locked`."""
    for attempt in range(attempts):
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
        fd = FILES.open_lock_file(path, is_made=False)
    except FileNotFoundError:
        return None
    except PermissionError as error:
        what = "cannot read the lock file; if the daemon of another user has the folder, connect to it by its endpoint"
        raise StorageError.wrap(error, path, what) from error
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
    note, end, rest = rest.partition("\n")
    line, is_complete, _ = rest.partition("\n")
    process, _, beat = line.rpartition(" ") if is_complete else ("", "", "")
    return LockHolder(name.strip() or _UNKNOWN, note if end else "", process, beat)


def read_holder(directory: str) -> LockHolder:
    """Return the last process that the lock file names, also if it holds no lock. Raises OSError."""
    fd = FILES.open_for_reading(os.path.join(directory, LOCK_NAME))
    try:
        return _read_holder(fd)
    finally:
        FILES.close(fd)
