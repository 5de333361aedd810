"""A store in a folder of this machine."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from acqstream.errors import AcqStreamError, DiskFull, StorageError, wrapping
from acqstream.storage.files.atomic_file import TEMPORARY_SUFFIX
from acqstream.storage.files.boundary import Boundary
from acqstream.storage.files.direct_file import InPlaceFiles, consists_of_blocks
from acqstream.storage.files.disk import Content, Disk, Run, write_all
from acqstream.storage.files.folder_tree import FolderTree, UnforcedFiles
from acqstream.storage.files.read_file import BLOCK_BYTES, ReadFile, is_absent
from acqstream.storage.platform import FILES, own_error
from acqstream.storage.platform.capabilities import is_junction, max_path_characters
from acqstream.storage.stores.store import ALL_CAPABILITIES, byte_range, check_key

_HEAD_SPACE_BYTES = 2**24  # free space that suffices for the head of a file, unless its length takes space too
_MAX_KNOWN = 100_000  # keys of fixed length whose file exists


class LocalStore:
    """A WritableStore whose keys are paths below `root`. No file stays open.

    Every write goes through `disk`. Names that end with TEMPORARY_SUFFIX belong to the store and are never listed.
    makes_root: the first write makes the root. temporary_folder: see FolderTree. follows_links: reading may follow
    links out of the folder, else it raises UnsupportedFeature. on_full is called when the first file of fixed
    length takes all of it: the disk has no holes. It gets the bytes of all files.
    """

    def __init__(
        self,
        root: Path,
        disk: Disk,
        *,
        follows_links: bool = False,
        makes_root: bool = True,
        temporary_folder: str = "",
        on_full: Callable[[int], None] | None = None,
    ) -> None:
        self.root = root.absolute()
        self.url = str(self.root)
        self.capabilities = ALL_CAPABILITIES
        self._disk = disk
        self._boundary = Boundary(self.root, follows=follows_links)
        self._tree = FolderTree(self.url, disk, makes_root=makes_root, temporary_folder=temporary_folder)
        self._unforced = UnforcedFiles(disk)
        self._in_place = InPlaceFiles(disk)
        self._lock = threading.Lock()  # for `_fixed`, and for making files of fixed length
        self._fixed: set[str] = set()
        self._on_full = on_full
        self._max_key_characters = max_path_characters() - len(self.url) - 1 - len(TEMPORARY_SUFFIX)
        if temporary_folder:
            self._max_key_characters -= len(temporary_folder) + 1

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes | None:
        file = self._open(key)
        if file is None:
            return None
        try:
            return file.read(*byte_range(file.size(), start, length))
        finally:
            file.close()

    def size(self, key: str) -> int | None:
        path = self.root / check_key(key)
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StorageError.wrap(error, str(path), "get the size") from error
        if stat.S_ISREG(found.st_mode) and os.path.realpath(path) == str(path):
            return found.st_size  # not opened: on network drives that costs several round trips
        file = self._open(key)  # this checks where links lead
        if file is None:
            return None
        try:
            return file.size()
        finally:
            file.close()

    def keys(self, prefix: str = "") -> Iterator[str]:
        top = prefix.rpartition("/")[0]
        for entry in self._entries(top):
            key = f"{top}/{entry.name}" if top else entry.name
            if not key.startswith(prefix):
                continue
            if not entry.is_dir():
                yield key
            elif not (entry.is_symlink() or is_junction(entry.stat(follow_symlinks=False))):  # they may form a ring
                yield from self.keys(f"{key}/")

    def children(self, folder: str = "") -> Iterator[str]:
        for entry in self._entries(folder):
            yield f"{entry.name}/" if entry.is_dir() else entry.name

    def put(self, key: str, content: Content) -> None:
        folder, name = self._make_folder(key)
        self._tree.put(folder, name, content)
        self._unforced.discard(f"{folder}/{name}")  # what was appended to the old file is gone

    def put_new(self, key: str, content: Content) -> None:
        folder, name = self._make_folder(key)
        path = f"{folder}/{name}"
        if os.path.lexists(path):
            self.put(key, content)
            return
        self._tree.put(folder, name, content, is_forced=False)
        self._unforced.add(path, sum(map(len, content)))
        self._unforced.relieve()

    def ensure(self, key: str, content: bytes) -> None:
        folder, name = self._make_folder(key)
        if self._tree.has(folder, name, content):
            self._unforced.add(f"{folder}/{name}", len(content))  # its writer may not have forced it
        else:
            self._tree.put(folder, name, [content])

    def ensure_all(self, documents: Mapping[str, bytes]) -> None:
        staged: list[tuple[str, str, str]] = []
        for key, content in documents.items():
            folder, name = self._make_folder(key)
            path = f"{folder}/{name}"
            if not self._tree.has(folder, name, content):
                path = self._tree.stage(folder, name, [content])
                staged.append((path, folder, name))
            self._unforced.add(path, len(content))
        self._unforced.force_all()
        for path, folder, name in staged:
            with self._unforced.renaming(path, f"{folder}/{name}"):  # another thread may be forcing it, too
                self._tree.place(path, folder, name)

    def append(self, key: str, content: Content) -> int:
        folder, name = self._make_folder(key)
        path = f"{folder}/{name}"
        with wrapping(path, "cannot append"):
            fd = self._open_or_create(folder, path)
            try:
                offset = self._append(fd, path, content)
            finally:  # a part may have arrived
                self._unforced.add(path, sum(map(len, content)))
                self._disk.close(fd)
        self._unforced.relieve()
        return offset

    def write(self, key: str, runs: Iterable[Run], *, head: Content, length: int, tail: Content = ()) -> None:
        folder, name = self._make_folder(key)
        path, written = f"{folder}/{name}", 0
        self._need_fixed(folder, name, head, length, tail)
        try:
            written = self._in_place.write(path, runs)
        except OSError as error:
            raise StorageError.wrap(error, path, "cannot write") from error
        finally:  # a run may have arrived before the failure
            self._unforced.add(path, written)
        self._unforced.relieve()

    def rename(self, source: str, target: str) -> None:
        old_folder, old_name = self._make_folder(source)
        folder, name = self._make_folder(target)
        old_path, path = f"{old_folder}/{old_name}", f"{folder}/{name}"
        what = f"cannot rename {old_name} to it"
        with wrapping(path, what), self._unforced.renaming(old_path, path):
            self._disk.replace(old_path, path)
        with self._lock:
            self._fixed.discard(old_path)
        self._tree.mark_unsynced(old_folder)
        self._tree.mark_unsynced(folder)

    def delete(self, key: str) -> None:
        folder, _, name = f"{self.url}/{check_key(key)}".rpartition("/")
        self._unforced.discard(f"{folder}/{name}")
        with self._lock:
            self._fixed.discard(f"{folder}/{name}")
        self._tree.remove(folder, name)

    def sync(self) -> None:
        # Contents first: a name must not survive a power cut that its content does not.
        self._tree.sync(self._unforced.force_all)

    def _open(self, key: str) -> ReadFile | None:
        try:
            with self._boundary.inside():
                return ReadFile(self.root / check_key(key))
        except StorageError as error:
            if is_absent(error):
                return None
            raise

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        place = self.root / check_key(folder.removesuffix("/")) if folder else self.root
        try:
            with os.scandir(place) as entries:
                return [entry for entry in entries if not entry.name.endswith(TEMPORARY_SUFFIX)]
        except OSError as error:
            own = own_error(error)
            if isinstance(own, FileNotFoundError | NotADirectoryError):
                return []
            raise StorageError.wrap(own, str(place), "list the folder") from error

    def _open_or_create(self, folder: str, path: str) -> int:
        try:
            return self._disk.open(path, create=False)
        except FileNotFoundError:
            fd = self._disk.open(path, create=True)  # one writer appends to a key: no other creates it in between
            self._tree.mark_unsynced(folder)
            return fd

    def _make_folder(self, key: str) -> tuple[str, str]:
        *folders, name = check_key(key).split("/")
        if len(key) > self._max_key_characters:  # no other program would see the file, nor would our own later
            text = f"its path has {len(key) - self._max_key_characters} characters too many: docs/windows.md"
            raise StorageError.wrap(OSError(errno.ENAMETOOLONG, text), f"{self.url}/{key}", "cannot write")
        return self._tree.folder(folders), name

    def _append(self, fd: int, path: str, content: Content) -> int:
        offset = self._disk.size(fd)
        try:
            if offset % BLOCK_BYTES == 0 and consists_of_blocks(content):
                self._in_place.write(path, [(offset, content)])
            else:
                write_all(self._disk, fd, content, offset)
        except OSError as error:
            try:  # else the part would stay as unused bytes
                self._disk.truncate(fd, offset)
            except OSError as second:
                error.add_note(f"and its part at byte {offset} could not be cut off: {second}")
            raise
        return offset

    def _need_fixed(self, folder: str, name: str, head: Content, length: int, tail: Content) -> None:
        """A file gets its name with its length, head and tail, so that it can be read at any moment."""
        path = f"{folder}/{name}"
        with self._lock:
            if path in self._fixed:
                return
            first = b"".join(head)
            # A head without a tail is never changed: it shows whether a power cut has spared the file.
            is_checked = bool(first) and not tail
            key = path.removeprefix(f"{self.url}/")
            kept = (self.size(key), self.get(key, 0, len(first))) if is_checked else (length, first)
            if os.path.exists(path) and kept == (length, first):
                self._tree.mark_unsynced(folder)  # an earlier process may not have forced its name
            else:
                try:
                    self._tree.put(folder, name, head, length, tail, is_forced=not is_checked)
                    if self._on_full is not None and FILES.stored_bytes(path) >= length:
                        self._check_full(self._on_full, folder, name)
                    self._on_full = None
                except DiskFull:
                    if self._on_full is not None and self._disk.free_bytes(folder) > _HEAD_SPACE_BYTES:
                        self._check_full(self._on_full, folder, name)
                    raise
            if len(self._fixed) >= _MAX_KNOWN:
                self._fixed.clear()
            self._fixed.add(path)

    def _check_full(self, on_full: Callable[[int], None], folder: str, name: str) -> None:
        """Remove a new file that `on_full` refuses: it has nothing but its head."""
        try:
            on_full(sum(self.size(key) or 0 for key in [*self.keys()]))
        except AcqStreamError:
            self._tree.remove(folder, name)
            raise
