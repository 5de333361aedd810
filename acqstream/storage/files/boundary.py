"""The folder that must contain all files of a dataset, so that links in an untrusted dataset cannot lead elsewhere.

The check takes the real path of the opened file from its descriptor, so nothing can be exchanged in between. The top
folder may itself be a link, and links that stay below it are harmless.

`distrust` judges who could have put something at a path. A local socket is only as safe as its folders: in a
folder of a stranger, or in one where all users may write, a stranger can replace the socket and receive what is sent to
it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from acqstream.errors import StorageError, UnsupportedFeature
from acqstream.storage.files.url_path import is_remote
from acqstream.storage.platform import FILES
from acqstream.storage.platform.capabilities import ROOT_USER, effective_user_id

_MAX_LINKS = 40  # as Linux


def distrust(path: Path) -> str:
    """The reason why a stranger could control `path`, naming the file or folder; empty if no stranger can.

    Strangers are all users but root and the present one. A folder that is writable for its owner or group only vouches
    for its entries of any owner: root made /run/acqstream for the account of the service. In a folder where all
    users may write, which must have the sticky bit (/tmp), entries of root and of the present user count only. What
    does not exist yet is judged by the folders that do. Empty on systems without user ids (Windows).
    """
    user = effective_user_id()
    if user is None:
        return ""
    trusted = (ROOT_USER, user)
    folder, links = Path(path.anchor or Path.cwd().anchor), 0
    names = list(reversed((Path.cwd() / path).parts[1:]))
    try:
        while names:
            name = names.pop()
            if name == "..":
                folder = folder.parent
                continue
            entry, mode = folder / name, folder.stat().st_mode
            if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
                return f"all users may write in {folder} (mode {stat.S_IMODE(mode):04o})"
            status = entry.lstat()
            if mode & stat.S_IWOTH and status.st_uid not in trusted:
                return f"{entry} belongs to user {status.st_uid}, in a folder where all users may write"
            if not stat.S_ISLNK(status.st_mode):
                folder = entry
                continue
            links += 1
            if links > _MAX_LINKS:
                return f"{entry} is one of more than {_MAX_LINKS} symbolic links"
            target = entry.readlink()
            names.extend(reversed(target.parts[1:] if target.is_absolute() else target.parts))
            folder = Path(target.anchor) if target.is_absolute() else folder
    except OSError:
        return ""  # missing or unreachable: connecting reports it
    return ""


_requested: ContextVar[bool | None] = ContextVar("follow_links", default=None)
_current: ContextVar[Boundary | None] = ContextVar("boundary", default=None)


@contextmanager
def following_links(allowed: bool) -> Iterator[None]:
    """Allow or forbid links out of their folders to datasets that are opened in the `with` block."""
    token = _requested.set(allowed)
    try:
        yield
    finally:
        _requested.reset(token)


def requested_links() -> bool | None:
    """The value of the enclosing `following_links`; None outside of one."""
    return _requested.get()


def check_boundary(path: Path, descriptor: int) -> None:
    """Check a file that was opened for reading. Raises UnsupportedFeature if it is outside the current boundary."""
    boundary = _current.get()
    if boundary is not None:
        boundary.check(path, descriptor)


def leads_out(*parts: str) -> bool:
    """Return True if a path made of these parts may lie outside of the folder where it begins, or names no file."""
    depth = 0
    for part in parts:
        try:
            os.fsencode(part)
        except UnicodeEncodeError:  # half a surrogate pair, which JSON can bring in
            return True
        if part.startswith(("/", "\\")) or "://" in part or "\0" in part or Path(part).is_absolute():
            return True
        for name in part.replace("\\", "/").split("/"):
            depth += -1 if name == ".." else name not in ("", ".")
            if depth < 0:
                return True
    return False


class Boundary:
    """The top folder of a dataset. Files that a thread opens in `with boundary.inside()` must lie below it.

    follows: links may lead out. A boundary can be sent to another process.
    """

    __slots__ = ("_real", "follows", "top")

    def __init__(self, top: Path, *, follows: bool) -> None:
        self.top = top
        self.follows = follows or is_remote(top)
        self._real = "" if self.follows else os.path.realpath(top)

    def __reduce__(self) -> tuple[object, ...]:
        return _boundary, (self.top, self.follows)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Check files that this thread opens in the `with` block against the boundary."""
        token = _current.set(None if self.follows else self)
        try:
            yield
        finally:
            _current.reset(token)

    def check(self, path: Path, descriptor: int) -> None:
        """Raises UnsupportedFeature if the open file is not below the top, StorageError if it was moved meanwhile."""
        place = FILES.real_path(descriptor, os.fspath(path))
        if _is_below(place, self._real):
            return
        self._real = os.path.realpath(self.top)  # the dataset may have been moved since
        if not _is_below(place, self._real):
            if not os.path.lexists(path):  # no link: its folder was renamed, moved or deleted since it was opened
                raise StorageError.wrap(FileNotFoundError(errno.ENOENT, "it is gone"), str(path), "open for reading")
            text = f"{_link_text(path, self.top)} out of the dataset {self.top}, to {place}"
            raise UnsupportedFeature(f"{text}; pass follow_links=True to follow links out of a dataset")


def _boundary(top: Path, follows: bool) -> Boundary:
    return Boundary(top, follows=follows)


def _is_below(place: str, folder: str) -> bool:
    return os.path.normcase(place).startswith(os.path.normcase(folder.rstrip(os.sep) + os.sep))


def _link_text(path: Path, top: Path) -> str:
    """The link below the top that leads away, for the error."""
    place = Path(top)
    try:
        parts = path.absolute().relative_to(top.absolute()).parts
    except ValueError:
        return f"{path} leads"
    for part in parts:
        place /= part
        if place.is_symlink():
            return f"{place} is a link to {os.readlink(place)!r} and leads"
    return f"{path} leads"
