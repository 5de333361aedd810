"""Folders below one root for many small files: created on first use, synced together."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator, Sequence

from acqstream.errors import DiskFullAtSync, StorageError
from acqstream.storage.atomic import TEMPORARY_SUFFIX, has_content
from acqstream.storage.disk import Disk
from acqstream.storage.platform import FILES
from acqstream.storage.platform.capabilities import is_junction
from acqstream.storage.unforced_files import MAX_EACH, force_each
from acqstream.storage.whole_file import WholeFiles

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
        temporary = self._temporary(f"{folder}/{name}")
        with self._writing(temporary, f"{folder}/{name}"):
            try:
                self._files.make(temporary, content, length, tail, is_forced=is_forced)
            except FileExistsError:  # from a process that crashed
                self._disk.unlink(temporary)
                self._files.make(temporary, content, length, tail, is_forced=is_forced)
        self.place(temporary, folder, name)

    def stage(self, folder: str, name: str, content: bytes) -> str:
        """Write a file for `place`, and return its temporary name; it is not forced."""
        temporary = self._temporary(f"{folder}/{name}")
        with self._writing(temporary, f"{folder}/{name}"):
            with contextlib.suppress(FileNotFoundError):
                self._disk.unlink(temporary)  # from a process that crashed
            self._files.make(temporary, [content], is_forced=False)
        return temporary

    def place(self, temporary: str, folder: str, name: str) -> None:
        """Give a file with a temporary name its own one."""
        with self._writing(temporary, f"{folder}/{name}"):
            self._disk.replace(temporary, f"{folder}/{name}")
        self.mark_unsynced(folder)

    def has(self, folder: str, name: str, content: bytes) -> bool:
        """Return whether the file exists with this content; if so, the next `sync` forces its name."""
        try:
            is_stored = has_content(f"{folder}/{name}", content)
        except OSError as error:
            raise StorageError.wrap(error, f"{folder}/{name}", "cannot read") from error
        if is_stored:
            self.mark_unsynced(folder)
        return is_stored

    def put_new(self, folder: str, name: str, content: bytes) -> bool:
        """As `put`, unless the file exists with this content; return whether it was put."""
        is_put = not self.has(folder, name, content)
        if is_put:
            self.put(folder, name, [content])
        return is_put

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
            try:
                self._disk.sync_directory(folder)
            except OSError as error:
                raise DiskFullAtSync.wrap(error, folder, "cannot force the folder") from error
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
    try:
        found = is_link(path)
    except OSError as error:
        raise StorageError.wrap(error, path, "cannot look at it") from error
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
    try:
        _remove_content(disk, path)
        if os.path.isdir(path):
            FILES.rmdir(path)
    except OSError as error:
        raise StorageError.wrap(error, path, "cannot remove") from error


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
