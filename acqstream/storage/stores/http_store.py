"""A store that reads what a web server, or any other place that fsspec reaches, has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NoReturn

from acqstream.errors import StorageError
from acqstream.storage.files.disk import Content, Run
from acqstream.storage.files.url_path import UNKNOWN_BYTES, RemotePath
from acqstream.storage.stores.store import Capability, byte_range, check_key, require


class HttpStore:
    """A Store that only reads. Each question is one request, and nothing is cached: objects may grow.

    `keys` and `children` need a server that lists its folders, as object stores and simple web servers do. With
    other servers they raise StorageError.
    """

    def __init__(self, root: RemotePath) -> None:
        self._root = root
        self.url = root.url
        self.capabilities: frozenset[Capability] = frozenset()

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

    def put(self, key: str, content: Content) -> None:
        self._refuse("whole")

    put_new = put

    def ensure(self, key: str, content: bytes) -> None:
        self._refuse("whole")

    def ensure_all(self, documents: Mapping[str, bytes]) -> None:
        self._refuse("whole")

    def append(self, key: str, content: Content) -> int:
        self._refuse("append")

    def write(self, key: str, runs: Iterable[Run], *, head: Content, length: int, tail: Content = ()) -> None:
        self._refuse("in_place")

    def rename(self, source: str, target: str) -> None:
        self._refuse("append")

    def delete(self, key: str) -> None:
        self._refuse("whole")

    def clear(self) -> None:
        self._refuse("whole")

    def sync(self) -> None:
        """Nothing was written."""

    def _refuse(self, needs: Capability) -> NoReturn:
        require(self, needs, "writing")
        raise AssertionError("a store that only reads has no capability")

    def _size(self, place: RemotePath) -> int:
        size = place.stat().st_size
        if size == UNKNOWN_BYTES:
            raise StorageError.wrap(OSError("the server does not report the length"), str(place), "get the size")
        return size
