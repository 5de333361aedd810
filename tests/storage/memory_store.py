"""A store in memory: for tests, and for what is made and served without a disk."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterable, Iterator, Mapping

from acqstream.errors import StorageError
from acqstream.storage.files.disk import Content, Run
from acqstream.storage.stores.store import ALL_CAPABILITIES, Capability, byte_range, check_key, require


class MemoryStore:
    """A WritableStore whose objects live as long as it does. `capabilities` may be fewer, as other stores' are."""

    def __init__(self, capabilities: Iterable[Capability] = ALL_CAPABILITIES) -> None:
        self.url = "memory"
        self.capabilities = frozenset(capabilities)
        self._objects: dict[str, bytearray] = {}
        self._lock = threading.Lock()

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes | None:
        with self._lock:
            content = self._objects.get(check_key(key))
            if content is None:
                return None
            # A copy, made with the lock: an append could resize the object meanwhile.
            first, count = byte_range(len(content), start, length)
            return bytes(memoryview(content)[first : first + count])

    def size(self, key: str) -> int | None:
        with self._lock:
            content = self._objects.get(check_key(key))
            return None if content is None else len(content)

    def keys(self, prefix: str = "") -> Iterator[str]:
        with self._lock:
            # A snapshot: the caller may write while it iterates.
            keys = [key for key in self._objects if key.startswith(prefix)]
        yield from keys

    def children(self, folder: str = "") -> Iterator[str]:
        top = f"{check_key(folder)}/" if folder else ""
        names = {key[len(top) :].partition("/") for key in self.keys(top)}
        yield from {name + slash for name, slash, _ in names}

    def put(self, key: str, content: Content) -> None:
        require(self, "whole", "put")
        with self._lock:
            self._objects[check_key(key)] = bytearray().join(content)

    def put_new(self, key: str, content: Content) -> None:
        self.put(key, content)

    def ensure(self, key: str, content: bytes) -> None:
        self.put(key, [content])

    def ensure_all(self, documents: Mapping[str, bytes]) -> None:
        for key, content in documents.items():
            self.ensure(key, content)

    def append(self, key: str, content: Content) -> int:
        require(self, "append", "append")
        with self._lock:
            known = self._objects.setdefault(check_key(key), bytearray())
            offset = len(known)
            known += b"".join(content)  # all parts at once, so that no reader sees a part
            return offset

    def write(self, key: str, runs: Iterable[Run], *, head: Content, length: int, tail: Content = ()) -> None:
        require(self, "in_place", "write")
        with self._lock:
            known = self._objects.get(check_key(key))
            if known is None:  # it appears at its final length, as a file does
                known = bytearray().join(head)
                known += bytes(length - len(known) - sum(map(len, tail))) + b"".join(tail)
                self._objects[key] = known
            for offset, content in runs:
                data = b"".join(content)
                known[offset : offset + len(data)] = data

    def rename(self, source: str, target: str) -> None:
        require(self, "append", "rename")
        with self._lock:
            if check_key(source) not in self._objects:
                raise StorageError(FileNotFoundError(errno.ENOENT, "no such object"), source, "cannot rename")
            self._objects[check_key(target)] = self._objects.pop(source)

    def delete(self, key: str) -> None:
        require(self, "whole", "delete")
        with self._lock:
            self._objects.pop(check_key(key), None)

    def sync(self) -> None:
        """Nothing in memory survives a power cut."""
