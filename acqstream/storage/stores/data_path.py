"""A place that a dataset is read from: all that the readers of chunk formats see of files, folders and URLs."""

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
from acqstream.storage.files.url_path import RemotePath, as_path, is_remote
from acqstream.storage.platform import own_error
from acqstream.storage.stores.http_store import HttpStore
from acqstream.storage.stores.local_store import LocalStore
from acqstream.storage.stores.store import Store


@dataclass(frozen=True, slots=True)
class ReadPlace:
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
    def parent(self) -> ReadPlace:
        """The folder above; the place itself at a root."""
        return ReadPlace(self.path.parent)

    def upwards(self, limit: int) -> Iterator[ReadPlace]:
        """The place and the folders above it, absolute, the nearest first; at most `limit` places."""
        place = self.absolute()
        for _ in range(limit):
            yield place
            above = place.parent
            if above == place:
                return
            place = above

    def absolute(self) -> ReadPlace:
        """The same place by its path from the root; links stay as they are."""
        return ReadPlace(self.path.absolute())

    def folder(self) -> ReadPlace:
        """The place if it is a folder, else the folder above."""
        return self if self.is_folder() else self.parent

    def beside(self, path: str) -> ReadPlace:
        """The place at a relative path with "/" between its parts, of which the first ones may be "..".

        It counts from where the folder really is: a local one may be reached by a link.
        """
        place = self if is_remote(self.path) else ReadPlace(Path(os.path.realpath(self.path)))
        for part in path.split("/"):
            place = place.parent if part == ".." else place / part
        return place

    def is_folder(self) -> bool:
        """Return True if a folder exists here; False without a request for a URL that ends as a dataset's file does."""
        return self.path.is_dir()

    def is_object(self) -> bool:
        """Return True if a file exists here."""
        return self.path.is_file()

    def children(self) -> list[ReadPlace]:
        """The places directly below a folder, in any order. Raises StorageError, FileMissing if it is not a folder."""
        try:
            return [ReadPlace(child) for child in self.path.iterdir()]
        except StorageError:
            raise
        except OSError as error:
            raise self._listing_error(error) from error

    def names(self) -> list[str]:
        """The names of the children. Raises as `children`."""
        try:
            return [child.name for child in self.path.iterdir()]
        except StorageError:
            raise
        except OSError as error:
            raise self._listing_error(error) from error

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

    def __truediv__(self, name: str) -> ReadPlace:
        """The place at the end of a relative path with "/" between its parts."""
        return ReadPlace(self.path / name)

    def __lt__(self, other: ReadPlace) -> bool:
        return self.path < other.path

    def __str__(self) -> str:
        return str(self.path)

    def _listing_error(self, error: OSError) -> StorageError:
        error = own_error(error)
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            return FileMissing(error, str(self), "list the folder")
        return StorageError.wrap(error, str(self), "list the folder")


def place_of(path: str | os.PathLike[str]) -> ReadPlace:
    """The place at a user's path or URL. Raises ConfigError without the library that the URL needs."""
    return ReadPlace(path if isinstance(path, Path) or is_remote(path) else as_path(path))  # type: ignore[arg-type]
