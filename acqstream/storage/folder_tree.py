"""Folders below one root that many small files go to: made when first needed, forced together."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from acqstream.errors import StorageError
from acqstream.storage.atomic import TEMPORARY_SUFFIX, has_content
from acqstream.storage.disk import Disk
from acqstream.storage.whole_file import WholeFiles

_MAX_KNOWN = 100_000
_MOST_UNNAMED, _MOST_UNNAMED_BYTES = 32, 64 * 2**20  # files that are forced together


@dataclass(frozen=True, slots=True)
class _Unnamed:
    """A file that is written, and neither forced nor named."""

    fd: int
    folder: str
    path: str
    length: int


class FolderTree:
    """Makes folders and puts whole files into them; from any thread. Raises StorageError."""

    def __init__(self, root: str, disk: Disk) -> None:
        self.root = root
        self._disk = disk
        self._files = WholeFiles(disk)
        self._lock = threading.Lock()
        self._known: set[str] = set()
        self._changed: set[str] = set()  # folders whose names are not forced yet
        self._unnamed: dict[str, _Unnamed] = {}
        self._being_named: set[str] = set()
        self._naming = threading.Lock()  # who comes second waits until the first is done

    def folder(self, parts: Sequence[str]) -> str:
        """The path of a folder below the root; it and those above it are made where they are not there."""
        path = "/".join((self.root, *parts))
        with self._lock:
            if path in self._known:
                return path
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            for depth in range(len(parts) + 1):
                self._make("/".join((self.root, *parts[:depth])))
        return path

    def put(self, folder: str, name: str, content: Sequence[bytes | memoryview], length: int | None = None) -> None:
        """Write a file whole, or replace it: readers see the old content or the new, never a part, nor nothing.

        Its content is forced, its name when `sync` returned. Nobody else may put the same file meanwhile. length makes
        the file longer than its content, with a hole behind it.
        """
        path = f"{folder}/{name}"
        temporary = path + TEMPORARY_SUFFIX
        try:
            try:
                self._files.make(temporary, content, length)
            except FileExistsError:  # left by a crash
                self._disk.unlink(temporary)
                self._files.make(temporary, content, length)
            self._disk.replace(temporary, path)
        except OSError as error:
            with contextlib.suppress(OSError):  # the first error counts
                self._disk.unlink(temporary)
            raise StorageError.wrap(error, path, "cannot write") from error
        with self._lock:
            self._changed.add(folder)

    def put_soon(self, folder: str, name: str, content: Sequence[bytes | memoryview]) -> None:
        """As `put`, but the file gets its name together with others: with `name_all`, or once many wait for that.

        Forcing them together takes a third of the time. Raises StorageError, which may tell of one of the others.
        """
        path = f"{folder}/{name}"
        with self._lock:
            before = self._unnamed.pop(path, None)
            is_being_named = path in self._being_named
        if before is not None:
            self._disk.close(before.fd)
        if is_being_named:
            self.name_all()
        fd = self._write(path, content)
        with self._lock:
            self._unnamed[path] = _Unnamed(fd, folder, path, sum(memoryview(part).nbytes for part in content))
            lengths = [one.length for one in self._unnamed.values()]
        if len(lengths) >= _MOST_UNNAMED or sum(lengths) >= _MOST_UNNAMED_BYTES:
            self.name_all()

    def name_all(self) -> None:
        """Force all files that were put soon, then give them their names. Raises StorageError.

        After DiskFull it can be called again; after any other error some of the files are lost.
        """
        with self._naming:
            with self._lock:
                group = list(self._unnamed.values())
                self._unnamed.clear()
                self._being_named = {one.path for one in group}
            try:
                self._force(group)
                self._name(group)
            finally:
                with self._lock:
                    self._being_named.clear()

    def close(self) -> None:
        """Drop the files that have no name yet."""
        with self._lock:
            dropped, self._unnamed = self._unnamed, {}
        for one in dropped.values():
            self._drop(one)

    def put_new(self, folder: str, name: str, content: bytes) -> None:
        """As `put`, unless the file is there with this content."""
        try:
            is_there = has_content(f"{folder}/{name}", content)
        except OSError as error:
            raise StorageError.wrap(error, f"{folder}/{name}", "cannot read") from error
        if not is_there:
            self.put(folder, name, [content])
            return
        with self._lock:
            self._changed.add(folder)  # who wrote it may not have forced its name

    def remove(self, folder: str, name: str) -> None:
        """Remove a file; that it is not there is no error."""
        try:
            self._disk.unlink(f"{folder}/{name}")
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageError.wrap(error, f"{folder}/{name}", "cannot remove") from error
        with self._lock:
            self._changed.add(folder)

    def sync(self) -> None:
        """Force the names of all files that were put before."""
        self.name_all()
        with self._lock:
            changed, self._changed = self._changed, set()
        left = set(changed)
        try:
            for folder in sorted(changed):
                self._disk.sync_directory(folder)
                left.discard(folder)
        except OSError as error:
            with self._lock:
                self._changed |= left
            raise StorageError.wrap(error, folder, "cannot force the folder") from error

    def _make(self, path: str) -> None:
        if path in self._known:
            return
        try:
            self._disk.mkdir(path)
        except FileExistsError:
            pass  # from before, or a file: putting something into it will tell
        except OSError as error:
            raise StorageError.wrap(error, path, "cannot make the folder") from error
        else:
            self._changed.add(path.rpartition("/")[0] or "/")
        self._known.add(path)

    def _write(self, path: str, content: Sequence[bytes | memoryview]) -> int:
        """A new file beside `path`, written and not forced."""
        temporary = path + TEMPORARY_SUFFIX
        try:
            try:
                return self._files.begin(temporary, content)
            except FileExistsError:  # left by a crash
                self._disk.unlink(temporary)
                return self._files.begin(temporary, content)
        except OSError as error:
            with contextlib.suppress(OSError):  # the first error counts
                self._disk.unlink(temporary)
            raise StorageError.wrap(error, path, "cannot write") from error

    def _force(self, group: Sequence[_Unnamed]) -> None:
        try:
            for one in group:
                self._disk.fdatasync(one.fd)
        except OSError as error:
            for other in group:
                self._drop(other)
            raise StorageError(error, one.path, "cannot force to the disk") from error  # not again: the pages are gone

    def _name(self, group: Sequence[_Unnamed]) -> None:
        left = list(group)
        try:
            for one in group:
                self._disk.replace(one.path + TEMPORARY_SUFFIX, one.path)
                left.remove(one)
                self._disk.close(one.fd)
                with self._lock:
                    self._changed.add(one.folder)
        except OSError as error:
            with self._lock:
                self._unnamed = {one.path: one for one in left} | self._unnamed
            raise StorageError.wrap(error, one.path, "cannot name the file") from error

    def _drop(self, one: _Unnamed) -> None:
        with contextlib.suppress(OSError):
            self._disk.close(one.fd)
        with contextlib.suppress(OSError):
            self._disk.unlink(one.path + TEMPORARY_SUFFIX)


def remove_tree(disk: Disk, path: str) -> None:
    """Remove a folder and all below it; what is gone already is no error. Raises StorageError."""
    try:
        for folder, folders, files in os.walk(path, topdown=False, onerror=_raise_unless_gone):
            for name in files:
                disk.unlink(f"{folder}/{name}")
            for name in folders:
                below = f"{folder}/{name}"
                disk.unlink(below) if os.path.islink(below) else os.rmdir(below)
        if os.path.isdir(path):
            os.rmdir(path)
    except OSError as error:
        raise StorageError.wrap(error, path, "cannot remove") from error


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
