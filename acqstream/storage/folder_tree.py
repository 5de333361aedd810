"""Folders below one root that many small files go to: made when first needed, forced together."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence

from acqstream.errors import StorageError
from acqstream.storage.atomic import TEMPORARY_SUFFIX, has_content
from acqstream.storage.disk import Disk
from acqstream.storage.whole_file import WholeFiles

_MAX_KNOWN = 100_000


class FolderTree:
    """Makes folders and puts whole files into them; from any thread. Raises StorageError.

    makes_root=False: the root exists and is not ours: the folder above it need not even be readable.
    """

    def __init__(self, root: str, disk: Disk, *, makes_root: bool = True) -> None:
        self.root = root
        self._disk = disk
        self._files = WholeFiles(disk)
        self._lock = threading.Lock()
        self._makes_root = makes_root
        self._known: set[str] = set()
        self._changed: set[str] = set()  # folders whose names are not forced yet

    def folder(self, parts: Sequence[str]) -> str:
        """The path of a folder below the root; it and those above it are made where they are not there."""
        path = "/".join((self.root, *parts))
        with self._lock:
            if path in self._known:
                return path
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            for depth in range(0 if self._makes_root else 1, len(parts) + 1):
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

    def put_new(self, folder: str, name: str, content: bytes) -> None:
        """As `put`, unless the file is there with this content."""
        try:
            is_there = has_content(f"{folder}/{name}", content)
        except OSError as error:
            raise StorageError.wrap(error, f"{folder}/{name}", "cannot read") from error
        if not is_there:
            self.put(folder, name, [content])
            return
        self.mark_unsynced(folder)

    def mark_unsynced(self, folder: str) -> None:
        """A file is there from before: who wrote it may not have forced its name."""
        with self._lock:
            self._changed.add(folder)

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
        parent = path.rpartition("/")[0] or "/"
        self._changed.add(parent)  # even if the folder was there: who made it may not have forced its name
        self._known.add(path)


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
