"""Files that were written and not yet forced to the disk: a bounded number of files and bytes."""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

from acqstream.errors import DiskFullAtSync, StorageError
from acqstream.storage.disk import Disk

MAX_FILES = 256  # more are forced before the next write returns
MAX_BYTES = 64 * 2**20  # likewise: the disk writes while chunks are encoded, and not all at the end
MAX_EACH = 4  # files and folders forced one by one; more are forced together
_MAX_THREADS = 16  # each of which waits for the disk


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
        self._can_join = True  # the file system forces all files at once
        self._file_system: tuple[int, Callable[[], object]] | None = None  # while files are unforced: descriptor, close
        self._failure: StorageError | None = None  # of `relieve`, until a caller of `force_all` gets it

    def add(self, path: str, length: int) -> None:
        """Note that `length` bytes of a file were written, also by a write that failed."""
        with self._lock:
            if self._can_join and self._file_system is None:
                fd = self._disk.open_file_system(os.path.dirname(path))
                self._can_join = fd is not None
                if fd is not None:
                    self._file_system = fd, weakref.finalize(self, self._disk.close, fd)
            number, before = next(self._numbers), self._files.get(path)
            if before is None:
                self._files[path] = _Written(number, number, length)
            else:
                self._files[path] = before._replace(last=number, length=before.length + length)

    def relieve(self) -> None:
        """Force the largest files if too much is not forced. The next `force_all` raises an error of them.

        They may be others than the caller's, and a second attempt may succeed although their bytes are lost.
        """
        with self._lock:
            total = sum(written.length for written in self._files.values())
            remaining = self._files.keys() - self._being_forced
            if not remaining or not (total > MAX_BYTES or len(remaining) > MAX_FILES):
                return
            paths, taken = [], 0
            for path in sorted(remaining, key=lambda name: -self._files[name].length):
                paths.append(path)
                taken += self._files[path].length
                if len(paths) >= MAX_FILES // 2 or taken >= MAX_BYTES // 2:
                    break
            self._being_forced.update(paths)
        failure = None
        try:
            self._force_together(paths)
        except StorageError as error:
            failure = error
        finally:
            with self._lock:
                self._being_forced.difference_update(paths)
                self._failure = self._failure or failure

    def force_all(self, folders: int = 0) -> bool:
        """When this returns, the content of every file added before survives a power cut.

        Return True if the file system was forced, so the names in all folders too. Many folders are a reason to.
        """
        with self._lock:
            end, failure, self._failure = next(self._numbers), self._failure, None
        if failure is not None:
            raise failure
        is_joint = False
        while paths := self._written_before(end):  # again, for a file that got another path meanwhile
            is_joint = self._force_together(paths, folders) or is_joint
        with self._lock:
            if not self._files:
                self._close_file_system()
        return is_joint

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

    def _force_together(self, paths: Collection[str], folders: int = 0) -> bool:
        """Force files; True if the file system was forced."""
        with self._lock:
            file_system = self._file_system if len(paths) + folders > MAX_EACH else None
            if file_system is not None:
                self._file_system = None  # files added from now on have a descriptor of their own
            seen, start = self._files.copy(), next(self._numbers)
        if file_system is None:
            force_each(paths, self._force)
            return False
        try:
            self._disk.sync_file_system(file_system[0])
        except OSError as error:
            raise DiskFullAtSync.wrap(error, os.path.dirname(min(paths)), "cannot force the file system of") from error
        finally:
            file_system[1]()
        with self._lock:
            for path, written in seen.items():
                self._settle(path, written, start)
        return True

    def _close_file_system(self) -> None:
        file_system, self._file_system = self._file_system, None
        if file_system is not None:
            file_system[1]()

    def _settle(self, path: str, seen: _Written, start: int) -> None:
        """Note that what was seen of a file before `start` is forced."""
        now = self._files.get(path)
        if now == seen:
            del self._files[path]
        elif now is not None:  # written to meanwhile
            self._files[path] = _Written(start, now.last, max(0, now.length - seen.length))

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
            self._settle(path, seen, start)


def force_each(paths: Collection[str], force: Callable[[str], None]) -> None:
    """Force files or folders, many of them in threads: a disk forces several in the time of one."""
    if len(paths) <= MAX_EACH:
        for path in paths:
            force(path)
        return
    with ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="force") as threads:
        for _ in threads.map(force, paths):
            pass
