"""Raw cube files, written a few runs of blocks at a time in place.

Source: fact sheet sections 4 and 9. A file has its header and its final length before it gets its name, so it can be
read at any moment; blocks not written yet are holes and read as zeros.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from acqstream.errors import StorageError
from acqstream.formats.wkw.header import Header
from acqstream.storage.disk import Disk, write_all
from acqstream.storage.folder_tree import FolderTree

_MOST_UNFORCED = 256  # files; more are forced before the next write is done
_MOST_UNFORCED_BYTES = 64 * 2**20  # alike: the disk writes while chunks are encoded, and not all at the end


class _Unforced(NamedTuple):
    """Of a file: the number of the last write, of all files', and how many bytes were written."""

    number: int
    length: int


class RawCubes:
    """Writes raw cube files below the root of `tree`, from any thread; no file is kept open. Raises StorageError."""

    def __init__(self, tree: FolderTree, header: Header, disk: Disk) -> None:
        self._tree = tree
        self._header = header
        self._disk = disk
        self._lock = threading.Lock()  # for all that follows
        self._there: set[str] = set()
        self._numbers = itertools.count()
        self._unforced: dict[str, _Unforced] = {}
        self._being_forced: set[str] = set()

    def write(self, folder: str, name: str, runs: Iterable[tuple[int, Sequence[memoryview]]]) -> None:
        """Write `runs` (offset in the file, bytes in pieces) into the cube `name`, which is made if it is not there."""
        path, length = f"{folder}/{name}", 0
        with self._lock:
            if path not in self._there:
                self._make(folder, name)
                self._there.add(path)
        try:
            fd = self._disk.open(path, create=False)
            try:
                for offset, data in runs:
                    length += sum(map(len, data))
                    write_all(self._disk, fd, data, offset)
            finally:
                self._disk.close(fd)
        except OSError as error:
            raise StorageError.wrap(error, path, "cannot write the cube") from error
        finally:
            with self._lock:
                before = self._unforced.get(path, _Unforced(0, 0))
                self._unforced[path] = _Unforced(next(self._numbers), before.length + length)
        self._relieve()

    def sync(self) -> None:
        """When this returns, the content of everything written before survives a power cut; names: `tree.sync`."""
        with self._lock:
            paths = sorted(self._unforced)
        for path in paths:
            self._force(path)

    def _relieve(self) -> None:
        """Force a file if there is much that is not."""
        with self._lock:
            is_much = sum(one.length for one in self._unforced.values()) > _MOST_UNFORCED_BYTES
            left = self._unforced.keys() - self._being_forced
            if not left or not (is_much or len(left) > _MOST_UNFORCED):
                return
            path = max(left, key=lambda one: self._unforced[one].length)
            self._being_forced.add(path)
        try:
            self._force(path)
        finally:
            with self._lock:
                self._being_forced.discard(path)

    def _make(self, folder: str, name: str) -> None:
        if os.path.exists(f"{folder}/{name}"):
            self._tree.mark_unsynced(folder)
            return  # from before a restart: it got its name with its length
        self._tree.put(folder, name, [self._header.encode(self._header.first_block)], self._header.raw_file_bytes)

    def _force(self, path: str) -> None:
        """It counts as not forced until this has returned: who comes meanwhile waits for the disk, too."""
        with self._lock:
            seen = self._unforced.get(path)
        if seen is None:
            return
        try:
            fd = self._disk.open(path, create=False)
            try:
                self._disk.fdatasync(fd)
            finally:
                self._disk.close(fd)
        except OSError as error:
            raise StorageError.wrap(error, path, "cannot force to the disk") from error
        with self._lock:
            now = self._unforced.get(path)
            if now == seen:
                del self._unforced[path]
            elif now is not None:  # it was written to meanwhile
                self._unforced[path] = now._replace(length=max(0, now.length - seen.length))
