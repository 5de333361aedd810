"""Raw cube files, written a few runs of blocks at a time in place.

Source: fact sheet sections 4 and 9. A file has its header and its final length before it gets its name, so it can be
read at any moment; blocks not written yet are holes and read as zeros.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

from acqstream.errors import StorageError
from acqstream.formats.wkw.header import Header
from acqstream.storage.disk import Disk, write_all
from acqstream.storage.folder_tree import FolderTree

_MOST_UNFORCED = 256  # files; more are forced before the next write is done


class RawCubes:
    """Writes raw cube files below the root of `tree`, from any thread; no file is kept open. Raises StorageError."""

    def __init__(self, tree: FolderTree, header: Header, disk: Disk) -> None:
        self._tree = tree
        self._header = header
        self._disk = disk
        self._lock = threading.Lock()
        self._syncing = threading.Lock()  # who comes second waits until the first is done
        self._there: set[str] = set()
        self._unforced: set[str] = set()

    def write(self, folder: str, name: str, runs: Sequence[tuple[int, memoryview]]) -> None:
        """Write `runs` (offset in the file, bytes) into the cube `name`, which is made if it is not there."""
        path = f"{folder}/{name}"
        with self._lock:
            if path not in self._there:
                self._make(folder, name)
                self._there.add(path)
        try:
            fd = self._disk.open(path, create=False)
            try:
                for offset, data in runs:
                    write_all(self._disk, fd, [data], offset)
            finally:
                self._disk.close(fd)
        except OSError as error:
            raise StorageError.wrap(error, path, "cannot write the cube") from error
        with self._lock:
            self._unforced.add(path)
            many = len(self._unforced) > _MOST_UNFORCED
        if many:
            self.sync()

    def sync(self) -> None:
        """When this returns, the content of everything written before survives a power cut; names: `tree.sync`."""
        with self._syncing:
            with self._lock:
                left = set(self._unforced)
            try:
                for path in sorted(left):
                    with self._lock:
                        self._unforced.discard(path)  # before: it may be written to meanwhile
                    self._force(path)
                    left.discard(path)
            finally:
                with self._lock:
                    self._unforced |= left

    def _make(self, folder: str, name: str) -> None:
        if os.path.exists(f"{folder}/{name}"):
            return  # from before a restart: it got its name with its length
        self._tree.put(folder, name, [self._header.encode(self._header.first_block)], self._header.raw_file_bytes)

    def _force(self, path: str) -> None:
        try:
            fd = self._disk.open(path, create=False)
            try:
                self._disk.fdatasync(fd)
            finally:
                self._disk.close(fd)
        except OSError as error:
            raise StorageError.wrap(error, path, "cannot force to the disk") from error
