"""A place that a dataset is read from: all that the readers of chunk formats see of files, folders and URLs.

A URL is read by a store that reads what a web server, or any other place that fsspec reaches, has.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from acqstream.errors import DatasetError, FileMissing, StorageError
from acqstream.storage.files.boundary import Boundary, requested_links
from acqstream.storage.files.disk import LocalDisk
from acqstream.storage.files.read_file import ReadFile, is_absent
from acqstream.storage.files.small_file import MAX_FILE_BYTES, read_small_file
from acqstream.storage.files.url_path import UNKNOWN_BYTES, RemotePath, as_path, is_remote
from acqstream.storage.platform import own_error
from acqstream.storage.stores.local_store import LocalStore
from acqstream.storage.stores.store import Store, byte_range, check_key


class HttpStore:
    """A Store at a URL. Each question is one request, and nothing is cached: objects may grow.

    `keys` and `children` need a server that lists its folders, as object stores and simple web servers do. With
    other servers they raise StorageError.
    """

    def __init__(self, root: RemotePath) -> None:
        self._root = root
        self.url = root.url

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes | None:
        place = self._root / check_key(key)
        try:
            if start >= 0 and length is not None:
                try:
                    return place.read(start, length)
                except StorageError:  # also for a range after the end
                    if self._size(place) > start:
                        raise
                    return b""
            return place.read(*byte_range(self._size(place), start, length))
        except FileNotFoundError:
            return None

    def size(self, key: str) -> int | None:
        try:
            return self._size(self._root / check_key(key))
        except FileNotFoundError:
            return None

    def keys(self, prefix: str = "") -> Iterator[str]:
        top = prefix.rpartition("/")[0]
        for name in self.children(top):
            key = f"{top}/{name}" if top else name
            if not name.endswith("/"):
                yield from [key] if key.startswith(prefix) else []
            elif key.startswith(prefix):
                yield from self.keys(key)

    def children(self, folder: str = "") -> Iterator[str]:
        place = self._root / check_key(folder) if folder else self._root
        try:
            entries = list(place.iterdir())
        except FileNotFoundError:
            return
        for entry in entries:
            yield f"{entry.name}/" if entry.is_dir() else entry.name

    def _size(self, place: RemotePath) -> int:
        size = place.stat().st_size
        if size == UNKNOWN_BYTES:
            raise StorageError.wrap(OSError("the server does not report the length"), str(place), "get the size")
        return size


@dataclass(frozen=True, slots=True)
class DataPath:
    """An object (a file), a folder, or a name without either, on this machine or at a URL; it only reads.

    Every question is a call of the file system or a request; nothing is cached. Text, as in messages, is the path or
    URL as the user wrote it. A place can be sent to another process. Files that are opened here are checked against the
    boundary of the thread. path is for callers outside of `acqstream.formats`: a `RemotePath` for a URL.
    """

    path: Path

    @property
    def name(self) -> str:
        """The last part of the path; of a URL without its escapes."""
        return self.path.name

    @property
    def suffix(self) -> str:
        """The end of the name from its last dot on; "" without one."""
        return self.path.suffix

    @property
    def parent(self) -> DataPath:
        """The folder above; the place itself at a root."""
        return DataPath(self.path.parent)

    def upwards(self, limit: int) -> Iterator[DataPath]:
        """The place and the folders above it, absolute, the nearest first; at most `limit` places."""
        place = self.absolute()
        for _ in range(limit):
            yield place
            above = place.parent
            if above == place:
                return
            place = above

    def absolute(self) -> DataPath:
        """The same place by its path from the root; links stay as they are."""
        return DataPath(self.path.absolute())

    def folder(self) -> DataPath:
        """The place if it is a folder, else the folder above."""
        return self if self.is_folder() else self.parent

    def beside(self, path: str) -> DataPath:
        """The place at a relative path with "/" between its parts, of which the first ones may be "..".

        It counts from where the folder really is: a local one may be reached by a link.
        """
        place = self if is_remote(self.path) else DataPath(Path(os.path.realpath(self.path)))
        for part in path.split("/"):
            place = place.parent if part == ".." else place / part
        return place

    def is_folder(self) -> bool:
        """Return True if a folder exists here; False without a request for a URL that ends as a dataset's file does."""
        return self.path.is_dir()

    def is_object(self) -> bool:
        """Return True if a file exists here."""
        return self.path.is_file()

    def children(self) -> list[DataPath]:
        """The places directly below a folder, in any order. Raises StorageError, FileMissing if it is not a folder."""
        try:
            return [DataPath(child) for child in self.path.iterdir()]
        except StorageError:
            raise
        except OSError as error:
            own = own_error(error)
            if isinstance(own, FileNotFoundError | NotADirectoryError):
                raise FileMissing(own, str(self), "list the folder") from error
            raise StorageError.wrap(own, str(self), "list the folder") from error

    def names(self) -> list[str]:
        """The names of the children. Raises as `children`."""
        return [child.name for child in self.children()]

    def content(self, max_bytes: int = MAX_FILE_BYTES) -> bytes:
        """All bytes of an object of at most max_bytes.

        Raises FileMissing, CorruptDataset if it is larger or not a regular file, UnsupportedFeature for a link that
        leads out of the boundary, StorageError.
        """
        return read_small_file(self.path, max_bytes)

    def open(self) -> ReadFile:
        """The object for reading ranges of one version; the caller closes it. Raises as `content` without a limit."""
        try:
            return ReadFile(self.path)
        except StorageError as error:
            if is_absent(error):
                raise FileMissing(error, str(self), "open for reading") from error
            raise

    def is_link(self) -> bool:
        """Return True for a link, wherever it leads. Places at URLs are none."""
        return not is_remote(self.path) and self.path.is_symlink()

    def real(self) -> str:
        """The path without links, or the URL: equal for two ways to one folder."""
        return str(self.path) if is_remote(self.path) else os.path.realpath(self.path)

    def boundary(self) -> Boundary:
        """Around this folder, with the links that the enclosing `following_links` allows."""
        return Boundary(self.path, follows=requested_links() is True)

    def store(self, *, follows_links: bool) -> Store:
        """The store with this folder as its root. It makes and reads objects by its own rules for links."""
        if is_remote(self.path):
            return HttpStore(cast("RemotePath", self.path))
        return LocalStore(self.path, LocalDisk(), follows_links=follows_links)

    def require(self) -> None:
        """Raise DatasetError if nothing exists here, StorageError where looking fails."""
        try:
            self.path.stat()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise DatasetError(f"{self}: no such file or folder") from error
        except OSError as error:
            raise StorageError.wrap(error, str(self), "open the dataset") from error

    def __truediv__(self, name: str) -> DataPath:
        """The place at the end of a relative path with "/" between its parts."""
        return DataPath(self.path / name)

    def __lt__(self, other: DataPath) -> bool:
        return self.path < other.path

    def __str__(self) -> str:
        return str(self.path)


def data_path_of(path: str | os.PathLike[str]) -> DataPath:
    """The place at a user's path or URL. Raises ConfigError without the library that the URL needs."""
    return DataPath(path if isinstance(path, Path) or is_remote(path) else as_path(path))  # type: ignore[arg-type]
