"""The folder of the local sockets, which no other user can write to, and the file with the key that ends the daemon.

A `shutdown` request must have the content of that file: only users who may read it may end the daemon.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from acqstream.errors import AcqStreamError, ConfigError
from acqstream.model.daemon_note import start_mark
from acqstream.protocol.requests import new_shutdown_key
from acqstream.storage.files.atomic_file import write_private
from acqstream.storage.files.boundary import distrust
from acqstream.storage.files.directory_lock import LOCK_NAME, DirectoryLock
from acqstream.storage.platform import FILES
from acqstream.storage.platform.capabilities import effective_user_id

logger = logging.getLogger("acqstream.daemon")

_MODE = 0o700
_REMEDY = "remove it, or set `runtime` to a folder of your own (mode 0700, or 0750 to admit a group)"


def make_runtime_folder(folder: Path) -> None:
    """Create the folder where it is missing.

    Raises ConfigError unless it is a real directory that belongs to this user, and that no other user may write to. The
    temporary directory is open to all users: another one may have created the folder first.
    """
    try:
        folder.mkdir(mode=_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot create runtime directory {folder}: {error}") from error
    user = effective_user_id()
    if user is None:
        return  # Windows: access control lists
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(
            f"runtime directory {folder} is not usable: {error}; expected a directory of this user and not a symbolic "
            f"link; {_REMEDY}"
        ) from error
    try:
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    found = f"it belongs to user {status.st_uid} and has mode {stat.S_IMODE(status.st_mode):04o}"
    if status.st_uid != user or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(
            f"runtime directory {folder} is not safe: {found}; expected user {user}, and write permission for "
            f"no other user, since others could replace the sockets; {_REMEDY}"
        )
    reason = distrust(folder)
    if reason:
        raise ConfigError(f"runtime directory {folder} is not safe: {reason}; name another one as `runtime`")


@contextlib.contextmanager
def marked_start(runtime: Path, endpoint: str) -> Iterator[None]:
    """While the block lasts, clients that find no daemon at the endpoint are told that one is starting."""
    mark, lock = start_mark(runtime.absolute(), endpoint), None
    try:
        try:
            make_runtime_folder(mark.parent)
            mark.mkdir(mode=_MODE, exist_ok=True)
            lock = DirectoryLock(str(mark))
        except (AcqStreamError, OSError) as error:  # the endpoint is not usable, which it tells itself
            logger.info("no mark of the start in %s: %s", mark, error)
        yield
    finally:  # also of a signal in the lines above
        if lock is not None:
            lock.close()
        with contextlib.suppress(OSError):
            if lock is not None:
                (mark / LOCK_NAME).unlink()
            mark.rmdir()


class ShutdownFile:
    """A key of this daemon's own in a file that its user alone can read, until `close`. docs/decisions/037.

    Raises ConfigError if the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._key = new_shutdown_key()
        try:
            write_private(path, self._key.encode("ascii") + b"\n")
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error}; name another folder as `runtime`") from error

    def restore(self) -> None:
        """Write the file again if it was removed. Raises OSError."""
        if not self.path.exists():
            write_private(self.path, self._key.encode("ascii") + b"\n")

    def has_key(self, key: str) -> bool:
        """Return True if the key is that of the file, in a time that does not depend on the key."""
        return hmac.compare_digest(key.encode("utf-8"), self._key.encode("ascii"))

    def close(self) -> None:
        """Remove the file. Without it the key is of no use to the next daemon, which makes its own."""
        try:
            with contextlib.suppress(FileNotFoundError):
                FILES.unlink(str(self.path))  # also if `acqstream shutdown` is reading it, on Windows
        except OSError as error:
            logger.warning("cannot remove %s: %s", self.path, error)
