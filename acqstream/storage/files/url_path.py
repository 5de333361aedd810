"""Places that fsspec reaches (object stores, web servers), with the part of `pathlib.Path` that reading uses."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, cast
from urllib.parse import quote, unquote, urlsplit

from acqstream.errors import ConfigError, StorageError
from acqstream.extras import install_command

_FILE_ENDINGS = (".index", ".tif", ".txt", ".json", ".journal", ".xml")
_CUBE_NAME = re.compile(r"(header|x[0-9]+)\.wkw")  # else a folder: cells.wkw
_URL_MARKS = str.maketrans({sign: quote(sign) for sign in "%?#"})  # the library quotes all others
_HTTP = ("http://", "https://")
_NOT_THERE = (404, 410)  # of HTTP
UNKNOWN_BYTES = -1


class RemoteStatus(NamedTuple):
    """The fields of `os.stat_result` that change with a file.

    A size that the server does not report is UNKNOWN_BYTES, other missing fields are 0.
    """

    st_size: int
    st_mtime_ns: int
    st_ino: int


def as_path(path: str | os.PathLike[str]) -> Path:
    """`path`; a `RemotePath` for a URL. Raises ConfigError without the library that the URL needs, or for no path."""
    text = os.fspath(path)
    if not text:
        raise ConfigError("the path is empty, expected a folder, a file or a URL")
    if "://" not in text:
        return Path(path)
    if text.startswith("file://"):
        from urllib.request import url2pathname  # loads an HTTP client

        return Path(url2pathname(urlsplit(text).path))
    return cast("Path", RemotePath.of_url(text))  # it has what readers use of a path


def is_remote(path: object) -> bool:
    """True for a `RemotePath`."""
    return isinstance(path, RemotePath)


class RemotePath:
    """A file or folder by its URL. Every question is a request; nothing is remembered but that it is a folder."""

    __slots__ = ("_is_folder", "files", "inner", "url")

    def __init__(self, files: Any, inner: str, *, is_folder: bool = False) -> None:
        self._is_folder = is_folder
        self.files = files
        self.inner = inner.rstrip("/")
        self.url: str = files.unstrip_protocol(self.inner)

    @classmethod
    def of_url(cls, url: str) -> RemotePath:
        """Raises ConfigError if fsspec, or what it needs for this kind of URL, is not installed."""
        try:
            from fsspec.core import url_to_fs

            # a cached listing would hide files written since
            options: dict[str, Any] = {"use_listings_cache": False}
            if url.startswith(_HTTP):
                from acqstream.storage.files.http_session import bounded_session

                options["get_client"] = bounded_session
            return cls(*url_to_fs(url, **options))
        except (ImportError, ValueError) as error:
            text = f"{url}: cannot be opened: {error}. Remote data need: {install_command('fsspec')}"
            raise ConfigError(f"{text}, and what fsspec names for this kind of URL") from error

    @property
    def name(self) -> str:
        return PurePosixPath(unquote(self.inner)).name

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.inner).suffix

    @property
    def parent(self) -> RemotePath:
        """The folder above; of a host, bucket or root itself, above which nothing lies."""
        above, slash, _ = self.inner.rpartition("/")
        is_top = not slash or above.endswith((":", ":/"))
        return self if is_top else RemotePath(self.files, above, is_folder=True)

    @property
    def parents(self) -> list[RemotePath]:
        """All folders above, the nearest first."""
        found = [self]
        while found[-1].parent is not found[-1]:
            found.append(found[-1].parent)
        return found[1:]

    def joinpath(self, *names: str) -> RemotePath:
        """The place at the end of these names."""
        place = self
        for name in names:
            place /= name
        return place

    def with_name(self, name: str) -> RemotePath:
        return self.parent / name

    def absolute(self) -> RemotePath:
        return self

    def is_dir(self) -> bool:
        """By name for files of datasets: not every web server lists its folders."""
        if not self._is_folder and not self._has_file_name():
            self._is_folder = self._ask("isdir")
        return self._is_folder

    def is_file(self) -> bool:
        return self._has_file_name() and self.exists()

    def exists(self) -> bool:
        try:
            self._ask("info")  # "exists" of some file systems is false where the server does not answer
        except FileNotFoundError:
            return False
        return True

    def stat(self) -> RemoteStatus:
        """Raises FileNotFoundError, and StorageError where the request fails."""
        info = self._ask("info")
        changed = info.get("mtime") or info.get("LastModified") or info.get("created")
        seconds = changed.timestamp() if hasattr(changed, "timestamp") else float(changed or 0)
        size = info.get("size")
        return RemoteStatus(UNKNOWN_BYTES if size is None else int(size), int(seconds * 1e9), 0)

    def iterdir(self) -> Iterator[RemotePath]:
        """Raises StorageError where the request fails."""
        for inner in self._ask("ls", detail=False):
            yield RemotePath(self.files, inner)

    def read(self, offset: int, count: int) -> bytes:
        """The bytes [offset, offset + count) in one request, fewer at the end of the file."""
        if count <= 0:
            return b""
        data: bytes = self._ask("cat_file", start=offset, end=offset + count)
        if len(data) > count:
            error = OSError("the server sent the complete file instead of a range; it does not support ranges")
            raise StorageError.wrap(error, self.url, f"read at byte {offset}")
        return data

    def _has_file_name(self) -> bool:
        return self.suffix.lower() in _FILE_ENDINGS or _CUBE_NAME.fullmatch(self.name) is not None

    def __truediv__(self, name: str) -> RemotePath:
        place = self
        for part in name.split("/"):  # "./color/1" stands in documents, and servers take dots by the letter
            if part == "..":
                place = place.parent
            elif part not in ("", "."):
                place = RemotePath(self.files, f"{place.inner}/{self._in_url(part)}")
        return place

    def _in_url(self, name: str) -> str:
        """The name in the URL of a web server. Else "%2e%2e" would be the folder above, and "#" the end."""
        protocols = self.files.protocol
        if not {"http", "https"} & {*([protocols] if isinstance(protocols, str) else protocols)}:
            return name
        return name.translate(_URL_MARKS)

    def __str__(self) -> str:
        return self.url

    def __repr__(self) -> str:
        return f"RemotePath({self.url!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemotePath) and self.url == other.url

    def __lt__(self, other: RemotePath) -> bool:
        return self.url < other.url

    def __hash__(self) -> int:
        return hash(self.url)

    def _ask(self, question: str, **arguments: Any) -> Any:
        try:
            return getattr(self.files, question)(self.inner, **arguments)
        except FileNotFoundError as error:
            cause = error.__cause__
            if cause is None or isinstance(cause, FileNotFoundError) or getattr(cause, "status", 0) in _NOT_THERE:
                raise
            reason = OSError(str(cause) or repr(cause))  # fsspec raises FileNotFoundError for refused connections, too
            raise StorageError.wrap(reason, self.url, question) from cause
        except OSError as error:
            cause = error.__cause__ or error  # fsspec's error for a timeout is empty
            known = error if error.strerror else OSError(str(error) or str(cause) or repr(cause))
            raise StorageError.wrap(known, self.url, question) from error
        except Exception as error:  # each of fsspec's libraries has its own classes
            raise StorageError.wrap(OSError(str(error) or repr(error)), self.url, question) from error
