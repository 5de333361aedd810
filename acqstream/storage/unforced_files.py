"""Files that were written and not yet forced to the disk: a bounded number of files and bytes."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from acqstream.errors import DiskFullAtSync, StorageError
from acqstream.storage.disk import Disk

MAX_FILES = 256  # more are forced before the next write returns
MAX_BYTES = 64 * 2**20  # likewise: the disk writes while chunks are encoded, and not all at the end


class _Written(NamedTuple):
    """The numbers of the first and last unforced write to a file, counted over all files, and the bytes of them all."""

    first: int
    last: int
    length: int


class UnforcedFiles:
    """Remembers by path which files to force; from any thread. No file stays open. Raises StorageError."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._names = threading.Lock()  # a file keeps its path while this is held; taken before `_lock`
        self._lock = threading.Lock()  # for all that follows
        self._numbers = itertools.count()
        self._files: dict[str, _Written] = {}
        self._being_forced: set[str] = set()
        self._failure: StorageError | None = None  # of `relieve`, until a caller of `force_all` gets it

    def add(self, path: str, length: int) -> None:
        """Note that `length` bytes of a file were written, also by a write that failed."""
        with self._lock:
            number, before = next(self._numbers), self._files.get(path)
            if before is None:
                self._files[path] = _Written(number, number, length)
            else:
                self._files[path] = before._replace(last=number, length=before.length + length)

    def relieve(self) -> None:
        """Force a file if too much is not forced. The next `force_all` raises its error.

        The file may be another one than the caller's, and a second attempt may succeed although its bytes are lost.
        """
        with self._lock:
            is_much = sum(written.length for written in self._files.values()) > MAX_BYTES
            remaining = self._files.keys() - self._being_forced
            if not remaining or not (is_much or len(remaining) > MAX_FILES):
                return
            path = max(remaining, key=lambda name: self._files[name].length)
            self._being_forced.add(path)
        failure = None
        try:
            self._force(path)
        except StorageError as error:
            failure = error
        finally:
            with self._lock:
                self._being_forced.discard(path)
                self._failure = self._failure or failure

    def force_all(self) -> None:
        """When this returns, the content of every file added before survives a power cut; names may not."""
        with self._lock:
            end, failure, self._failure = next(self._numbers), self._failure, None
        if failure is not None:
            raise failure
        while paths := self._written_before(end):  # again, for a file that got another path meanwhile
            for path in paths:
                self._force(path)

    def discard(self, path: str) -> None:
        """Forget a file that is removed after this."""
        with self._names, self._lock:
            self._files.pop(path, None)

    @contextmanager
    def renaming(self, source: str, target: str) -> Iterator[None]:
        """The caller gives a file another path within this; no thread looks for the file meanwhile."""
        with self._names:
            yield
            with self._lock:
                written = self._files.pop(source, None)
                self._files.pop(target, None)
                if written is not None:
                    self._files[target] = written

    def _written_before(self, end: int) -> list[str]:
        with self._lock:
            return sorted(path for path, written in self._files.items() if written.first < end)

    def _force(self, path: str) -> None:
        """The file counts as unforced until the return, so a caller that comes meanwhile waits for the disk too."""
        try:
            with self._names:
                with self._lock:
                    seen, start = self._files.get(path), next(self._numbers)
                if seen is None:
                    return
                fd = self._disk.open(path, create=False)
            try:
                self._disk.fdatasync(fd)
            finally:
                self._disk.close(fd)
        except OSError as error:
            raise DiskFullAtSync.wrap(error, path, "cannot force to the disk") from error
        with self._lock:
            now = self._files.get(path)
            if now == seen:
                del self._files[path]
            elif now is not None:  # written to meanwhile
                self._files[path] = _Written(start, now.last, max(0, now.length - seen.length))
