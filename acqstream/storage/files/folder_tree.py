"""Folders below one root for many small files: created on first use, synced together; files not yet forced."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import secrets
import stat
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

from acqstream.errors import DiskFullAtSync, StorageError, wrapping
from acqstream.storage.files.atomic_file import TEMPORARY_SUFFIX, has_content
from acqstream.storage.files.direct_file import WholeFiles
from acqstream.storage.files.disk import Disk, LocalDisk
from acqstream.storage.platform import FILES
from acqstream.storage.platform.capabilities import is_junction

MAX_FILES = 256  # more are forced before the next write returns
MAX_BYTES = 64 * 2**20  # likewise: the disk writes while chunks are encoded, and not all at the end
MAX_EACH = 4  # files and folders forced one by one; more are forced together
_MAX_THREADS = 16  # each of which waits for the disk


class _WriteSpan(NamedTuple):
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
        self._files: dict[str, _WriteSpan] = {}
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
                self._files[path] = _WriteSpan(number, number, length)
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

    def _settle(self, path: str, seen: _WriteSpan, start: int) -> None:
        """Note that what was seen of a file before `start` is forced."""
        now = self._files.get(path)
        if now == seen:
            del self._files[path]
        elif now is not None:  # written to meanwhile
            self._files[path] = _WriteSpan(start, now.last, max(0, now.length - seen.length))

    def _force(self, path: str) -> None:
        """The file counts as unforced until the return, so a caller that comes meanwhile waits for the disk too."""
        with wrapping(path, "cannot force to the disk", DiskFullAtSync):
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


_LINK_TEXT = "it is a link, and what it leads to stays as it is: remove the link, or put a folder in its place"
_MAX_EXISTING = 100_000  # paths remembered; forgetting them costs a mkdir call each, nothing else


class FolderTree:
    """Creates folders and writes complete files into them; from any thread. Raises StorageError.

    makes_root=False: the root exists and belongs to another program; the folder above it may be unreadable.
    temporary_folder: a folder below the root for files that are not complete; "": they lie beside the complete ones.
    """

    def __init__(self, root: str, disk: Disk, *, makes_root: bool = True, temporary_folder: str = "") -> None:
        self.root = root
        self._temporary_folder = temporary_folder
        self._disk = disk
        self._files = WholeFiles(disk)
        self._lock = threading.Lock()
        self._makes_root = makes_root
        self._existing: set[str] = set()
        self._unsynced: set[str] = set()  # folders with entries that may not survive a power cut

    def folder(self, parts: Sequence[str]) -> str:
        """The path of a folder below the root; missing folders are created."""
        path = "/".join((self.root, *parts))
        with self._lock:
            if path in self._existing:
                return path
            if len(self._existing) >= _MAX_EXISTING:
                self._existing.clear()
            for depth in range(0 if self._makes_root else 1, len(parts) + 1):
                self._make("/".join((self.root, *parts[:depth])))
        return path

    def put(
        self,
        folder: str,
        name: str,
        content: Sequence[bytes | memoryview],
        length: int | None = None,
        tail: Sequence[bytes | memoryview] = (),
        *,
        is_forced: bool = True,
    ) -> None:
        """Write or replace a complete file; readers see the old content or the new, never a part.

        The content is forced on return unless the caller does that, the name when `sync` has returned. No other thread
        may put the same file at the same time. A length beyond the content leaves a hole, with `tail` after it.
        """
        self.place(self.stage(folder, name, content, length, tail, is_forced=is_forced), folder, name)

    def stage(
        self,
        folder: str,
        name: str,
        content: Sequence[bytes | memoryview],
        length: int | None = None,
        tail: Sequence[bytes | memoryview] = (),
        *,
        is_forced: bool = False,
    ) -> str:
        """Write a file as `put` does, for `place`; return its temporary name."""
        temporary = self._temporary(f"{folder}/{name}")
        with self._writing(temporary, f"{folder}/{name}"):
            try:
                self._files.make(temporary, content, length, tail, is_forced=is_forced)
            except FileExistsError:  # from a process that crashed
                self._disk.unlink(temporary)
                self._files.make(temporary, content, length, tail, is_forced=is_forced)
        return temporary

    def place(self, temporary: str, folder: str, name: str) -> None:
        """Give a file with a temporary name its own one."""
        with self._writing(temporary, f"{folder}/{name}"):
            self._disk.replace(temporary, f"{folder}/{name}")
        self.mark_unsynced(folder)

    def has(self, folder: str, name: str, content: bytes) -> bool:
        """Return whether the file exists with this content; if so, the next `sync` forces its name."""
        with wrapping(f"{folder}/{name}", "cannot read"):
            is_stored = has_content(f"{folder}/{name}", content)
        if is_stored:
            self.mark_unsynced(folder)
        return is_stored

    def mark_unsynced(self, folder: str) -> None:
        """Let the next `sync` force the folder: the process that changed it may not have done so."""
        with self._lock:
            self._unsynced.add(folder)

    def remove(self, folder: str, name: str) -> None:
        """Remove a file; a missing file is not an error."""
        try:
            self._disk.unlink(f"{folder}/{name}")
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageError.wrap(error, f"{folder}/{name}", "cannot remove") from error
        with self._lock:
            self._unsynced.add(folder)

    def sync(self, force_files: Callable[[int], bool] = lambda _: False) -> None:
        """Force the names of all files that were put before.

        force_files is called first, with the number of folders; it returns True if it has forced their names too.
        """
        # Swapped under the lock, forced outside it: a stalled disk must not block threads that put files.
        with self._lock:
            unsynced, self._unsynced = self._unsynced, set()
        remaining = set(unsynced)

        def force(folder: str) -> None:
            with wrapping(folder, "cannot force the folder", DiskFullAtSync):
                self._disk.sync_directory(folder)
            remaining.discard(folder)

        try:
            if force_files(len(unsynced)) or (len(unsynced) > MAX_EACH and self._force_file_system()):
                remaining.clear()
            else:
                force_each(sorted(unsynced), force)
        finally:
            with self._lock:
                self._unsynced |= remaining

    def _force_file_system(self) -> bool:
        """Force all names at once; False where the system cannot."""
        fd = self._disk.open_file_system(self.root)
        if fd is None:
            return False
        try:
            self._disk.sync_file_system(fd)
        except OSError as error:
            raise DiskFullAtSync.wrap(error, self.root, "cannot force the file system of") from error
        finally:
            self._disk.close(fd)
        return True

    @contextlib.contextmanager
    def _writing(self, temporary: str, path: str) -> Iterator[None]:
        """Turn an OSError into a StorageError of `path`, and remove the temporary file."""
        try:
            yield
        except OSError as error:
            with contextlib.suppress(OSError):  # the first error counts
                self._disk.unlink(temporary)
            raise StorageError.wrap(error, path, "cannot write") from error

    def _temporary(self, path: str) -> str:
        if not self._temporary_folder:
            return path + TEMPORARY_SUFFIX
        # The key is in the name: no two files that are put at a time share one.
        name = path.removeprefix(f"{self.root}/").replace("/", "~")
        return f"{self.folder(self._temporary_folder.split('/'))}/{name}{TEMPORARY_SUFFIX}"

    def _make(self, path: str) -> None:
        if path in self._existing:
            return
        is_root = path == self.root  # which the owner may have moved behind a link
        make_folder(self._disk, path, follows_links=is_root)
        parent = os.path.dirname(path) or os.curdir
        self._unsynced.add(parent)  # also of an existing folder: its creator may not have forced the name
        self._existing.add(path)


def make_folder(disk: Disk, path: str, *, follows_links: bool = False) -> None:
    """Create a folder unless it exists. Raises StorageError, also for a link in its place: it may lead anywhere."""
    try:
        disk.mkdir(path)
    except FileExistsError as error:  # from an earlier run; if it is a file, writing into it raises
        if not follows_links:
            refuse_link(path, error)
    except OSError as error:
        raise StorageError.wrap(error, path, "cannot create the folder") from error


def walk(path: str) -> Iterator[tuple[str, list[str]]]:
    """Each folder in and below `path` with the names of its files and links; a folder that cannot be read has none.

    As os.walk, which before Python 3.12 goes through junctions: files of other folders would count as ours.
    """
    for folder, folders, names in os.walk(path):
        links = [name for name in folders if is_link(os.path.join(folder, name))]
        folders[:] = [name for name in folders if name not in links]
        yield folder, names + links


def refuse_link(path: str, cause: OSError | None = None) -> None:
    """Raises StorageError for a link or a junction, which may lead anywhere."""
    with wrapping(path, "cannot look at it"):
        found = is_link(path)
    if found:
        raise StorageError(OSError(errno.ELOOP, _LINK_TEXT), path, "cannot use it") from cause


def is_link(path: str) -> bool:
    """Return True for a link or a junction; False for anything else, and where nothing exists. Raises OSError."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:  # removed meanwhile
        return False
    return stat.S_ISLNK(found.st_mode) or is_junction(found)


def remove_tree(disk: Disk, path: str) -> None:
    """Remove a folder and all below it; missing entries are not errors. Raises StorageError.

    A link below it is removed, and not what it leads to; a link in its place is an error.
    """
    refuse_link(path)
    with wrapping(path, "cannot remove"):
        _remove_content(disk, path)
        if os.path.isdir(path):
            FILES.rmdir(path)


def _remove_content(disk: Disk, folder: str) -> None:
    try:
        with os.scandir(folder) as found:
            entries = list(found)
    except FileNotFoundError:
        return
    for entry in entries:
        path = f"{folder}/{entry.name}"
        # Not by os.walk: before Python 3.12 it goes through junctions, and files of other folders would be removed.
        if not entry.is_dir(follow_symlinks=False) or is_junction(entry.stat(follow_symlinks=False)):
            disk.unlink(path)
        else:
            _remove_content(disk, path)
            FILES.rmdir(path)


class OwnNamesDisk(LocalDisk):
    """Gives temporary files names that no other process uses, so two processes can put the same file safely.

    A killed process leaves its temporary files; `remove_temporaries` removes them.
    """

    def __init__(self) -> None:
        super().__init__()
        # The process id alone is not enough: hosts that share a folder may use the same number.
        self._ending = f".{os.getpid():x}-{secrets.token_hex(4)}{TEMPORARY_SUFFIX}"

    def open(self, path: str, *, create: bool, direct: bool = False) -> int:
        return super().open(self._own(path), create=create, direct=direct)

    def replace(self, source: str, target: str) -> None:
        super().replace(self._own(source), self._own(target))

    def unlink(self, path: str) -> None:
        super().unlink(self._own(path))

    def _own(self, path: str) -> str:
        return path.removesuffix(TEMPORARY_SUFFIX) + self._ending if path.endswith(TEMPORARY_SUFFIX) else path


def remove_temporaries(disk: Disk, path: str) -> None:
    """Remove temporary files of killed processes in a folder tree that no process writes to. Raises StorageError."""
    for folder, names in walk(path):
        for name in names:
            if name.endswith(TEMPORARY_SUFFIX):
                try:
                    disk.unlink(f"{folder}/{name}")
                except FileNotFoundError:
                    continue
                except OSError as error:
                    raise StorageError.wrap(error, f"{folder}/{name}", "cannot remove") from error
