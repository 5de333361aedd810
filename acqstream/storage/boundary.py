"""The folder that must contain all files of a dataset, so that links in an untrusted dataset cannot lead elsewhere.

The check takes the real place of the opened file from its descriptor, so nothing can be exchanged in between. The top
folder may itself be a link, and links that stay below it are harmless.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from acqstream.errors import StorageError, UnsupportedFeature
from acqstream.storage.platform import FILES
from acqstream.storage.remote_path import is_remote

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
