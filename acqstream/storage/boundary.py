"""The folder that all files of a dataset must lie in, so that links in a stranger's dataset do not lead elsewhere.

What counts is where the opened file really lies, asked of its descriptor: nothing can be exchanged in between. The top
folder may itself be a link, and links that stay below it are harmless.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from acqstream.errors import UnsupportedFeature
from acqstream.storage.remote_path import is_remote

_DESCRIPTORS = "/proc/self/fd"
_asked: ContextVar[bool | None] = ContextVar("follow_links", default=None)
_current: ContextVar[Boundary | None] = ContextVar("boundary", default=None)


@contextmanager
def following_links(allowed: bool) -> Iterator[None]:
    """Whether datasets that are opened inside may follow links out of their folders."""
    token = _asked.set(allowed)
    try:
        yield
    finally:
        _asked.reset(token)


def links_asked_for() -> bool | None:
    """What `following_links` says around the caller; None outside of it."""
    return _asked.get()


def check_boundary(path: Path, descriptor: int) -> None:
    """For each file that is opened for reading. Raises UnsupportedFeature if it lies outside the boundary in use."""
    boundary = _current.get()
    if boundary is not None:
        boundary.check(path, descriptor)


class Boundary:
    """The top folder of a dataset; files are held against it in `with boundary.inside()`, in that thread.

    follows: links may lead out. It may be sent to another process.
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
        """Hold what is opened meanwhile against the boundary."""
        token = _current.set(None if self.follows else self)
        try:
            yield
        finally:
            _current.reset(token)

    def check(self, path: Path, descriptor: int) -> None:
        """Raise UnsupportedFeature if the open file does not lie below the top."""
        place = _real_place(path, descriptor)
        if _is_below(place, self._real):
            return
        self._real = os.path.realpath(self.top)  # the dataset may have been moved since
        if not _is_below(place, self._real):
            text = f"{_link_text(path, self.top)} out of the dataset {self.top}, to {place}"
            raise UnsupportedFeature(f"{text}; links out of a dataset are followed with follow_links=True only")


def _boundary(top: Path, follows: bool) -> Boundary:
    return Boundary(top, follows=follows)


def _real_place(path: Path, descriptor: int) -> str:
    try:
        return os.readlink(f"{_DESCRIPTORS}/{descriptor}")
    except OSError:  # not Linux
        return os.path.realpath(path)


def _is_below(place: str, folder: str) -> bool:
    return os.path.normcase(place).startswith(os.path.normcase(folder.rstrip(os.sep) + os.sep))


def _link_text(path: Path, top: Path) -> str:
    """Which link below the top leads away, for the error."""
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
