"""Files that only their owner can read, by modes: Linux and macOS."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

# By getattr, so that this module can be imported on Windows, where tests compare its names.
NO_LINK: int = getattr(os, "O_NOFOLLOW", 0)
_CLOSE_ON_EXEC = getattr(os, "O_CLOEXEC", 0)
_NO_WAIT = _CLOSE_ON_EXEC | getattr(os, "O_NONBLOCK", 0)
_ALL_USERS, _OTHERS = 0o007, 0o077


def create_private(path: Path) -> None:
    """Create an empty file of mode 0600. Raises OSError, FileExistsError if something has this name."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def exposure(path: Path) -> str:
    """Say how all users of the PC can read or change the file, and the remedy; empty if they cannot. Raises OSError."""
    mode = path.stat().st_mode
    return f"every user can read {path}; set mode 600 (chmod)" if mode & _ALL_USERS else ""


def open_log(path: Path) -> int:
    """A descriptor to append to a file that only this user can read; created where it is missing. Raises OSError.

    Others may write in a folder of data: no link is followed, and a file of another user is refused.
    """
    return open_own(str(path), os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def open_own(path: str, flags: int) -> int:
    """As `open_log`, with these flags of open(2)."""
    with telling_of_links(path):
        fd = os.open(path, flags | _NO_WAIT | NO_LINK, 0o600)
    try:
        found = os.fstat(fd)
        # On a network share all files may belong to the user who mounted it, as the folder does.
        owners = (os.geteuid(), 0, os.stat(os.path.dirname(path) or os.curdir).st_uid)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1 or found.st_uid not in owners:
            text = f"it is no regular file of this user with one name (its owner is user {found.st_uid}); remove it"
            raise OSError(errno.EPERM, text, path)
        if found.st_uid == os.geteuid() and found.st_mode & _OTHERS:
            with contextlib.suppress(PermissionError):  # exFAT has one mode for all files
                os.fchmod(fd, 0o600)
    except BaseException:
        os.close(fd)
        raise
    return fd


@contextlib.contextmanager
def telling_of_links(path: str) -> Iterator[None]:
    """Words for the error of NO_LINK."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a link, which is not followed: remove it", path) from error
        raise
