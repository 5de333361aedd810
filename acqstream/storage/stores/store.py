"""Store: objects by key, the only interface through which formats and mirrors read and write.

A key is a relative path with "/" between its parts. A store that can only put complete objects serves most formats; the
words in `capabilities` name further abilities.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, Protocol

from acqstream.errors import ConfigError
from acqstream.storage.files.disk import Content, Run

Capability = Literal["whole", "append", "in_place"]
"""whole: `put`, `delete`. append: `append`, `rename` too. in_place: `write` too."""


ALL_CAPABILITIES: frozenset[Capability] = frozenset({"whole", "append", "in_place"})

_ABILITY = {"whole": "put complete objects", "append": "append to objects", "in_place": "write inside objects"}


class Store(Protocol):
    """Objects by key, to read; from any thread. Keys that no store accepts raise ValueError.

    Disk and network calls that fail raise StorageError.
    """

    @property
    def url(self) -> str:
        """The place of the store, for messages: a local path or a URL."""

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes | None:
        """`length` bytes of an object from byte `start` on, fewer at its end; None if no such object exists.

        Without a length the answer reaches to the end. A negative start counts from the end, as in a slice: start=-20
        gives the last 20 bytes, or all of a shorter object.
        """

    def size(self, key: str) -> int | None:
        """Length of an object in bytes; None if it does not exist."""

    def keys(self, prefix: str = "") -> Iterator[str]:
        """All keys that begin with `prefix`, in any order. Objects that come or go meanwhile may be missed."""

    def children(self, folder: str = "") -> Iterator[str]:
        """Names directly below a folder ("" is the top), in any order; those of folders end with "/".

        A folder may be empty where the store has real ones. A folder that does not exist has no children.
        """


class WritableStore(Store, Protocol):
    """A store that is written to, too. A method that its `capabilities` do not name raises ConfigError.

    Several processes may write other keys of one place at a time, each through a store of its own.

    An object store (S3, Google Cloud Storage) fits as follows. `get` is a request with a Range header; a negative start
    is a suffix range. `put` is one PUT, or a multipart upload that is completed last; both are atomic. `keys` is a
    listing by prefix, `children` one with "/" as the delimiter. It has no rename, no append and no writes inside:
    `capabilities` is {"whole"}. An answered PUT is durable, so `sync` has nothing to force. One process writes a key,
    so `put` takes no condition; a note that keeps a second writer out is put with one (`If-None-Match: *`,
    `ifGenerationMatch=0`) and gets a method of its own then.
    """

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The abilities of the store besides reading."""

    def put(self, key: str, content: Content) -> None:
        """Store a complete object. Readers see the old content or the new, never a part; so it is after a crash.

        The caller keeps `content` unchanged until the return. Two threads must not put the same key at a time.
        """

    def put_new(self, key: str, content: Content) -> None:
        """As `put`, for an object that no stored document names yet.

        If it does not exist, it is forced by `sync`, with others; until then a power cut may leave a part of it.
        """

    def ensure(self, key: str, content: bytes) -> None:
        """Put a small object unless it has this content already. `sync` makes it durable in both cases."""

    def ensure_all(self, documents: Mapping[str, bytes]) -> None:
        """As `ensure` for each of them; they and all objects before are forced together, before any gets its key."""

    def append(self, key: str, content: Content) -> int:
        """Add `content` to the end of an object, which is made if it does not exist; the offset where it begins.

        Readers may see a part. Without an error all of it is stored; after one, nothing or unused bytes. One writer
        appends to a key at a time.
        """

    def write(self, key: str, runs: Iterable[Run], *, head: Content, length: int, tail: Content = ()) -> None:
        """Write runs of bytes inside an object of a fixed length.

        An object that does not exist is made of `length` bytes that begin with `head` and end with `tail`, zeros
        between them; readers never see it shorter or without them. Readers may see a part of the runs. An existing
        object keeps its length, and `head` and `tail` are ignored.
        """

    def rename(self, source: str, target: str) -> None:
        """Give an object another key; readers of `target` see the old object or the new one."""

    def delete(self, key: str) -> None:
        """Remove an object; it need not exist."""

    def sync(self) -> None:
        """When this returns, all that this store wrote before survives a power cut.

        After a failure it is unknown which of it does; what was appended or written in place must be written again.
        """


def require(store: WritableStore, needs: Capability, format_name: str) -> None:
    """Raise ConfigError, with store and format, if the store lacks what the format's layout needs."""
    if needs not in store.capabilities:
        abilities = ", ".join(_ABILITY[name] for name in sorted(store.capabilities))
        text = f"{format_name} needs a store that can {_ABILITY[needs]} ({needs!r})"
        raise ConfigError(f"{store.url}: {text}; this one can {abilities}")


def check_key(key: str) -> str:
    """The key. Raises ValueError if it is not a relative path of plain parts."""
    if not key or key.startswith("/") or "\\" in key or "\0" in key or any(_is_odd(part) for part in key.split("/")):
        raise ValueError(f"{key!r} is not a key: expected a relative path of plain names such as '0/1/c.json'")
    if not key.isascii():
        os.fsencode(key)  # raises UnicodeEncodeError, a ValueError, for half a surrogate pair
    return key


def _is_odd(part: str) -> bool:
    return part in ("", ".", "..")


def byte_range(size: int, start: int, length: int | None) -> tuple[int, int]:
    """First byte and number of bytes of a range of `Store.get` in an object of `size` bytes."""
    first = max(0, size + start) if start < 0 else min(start, size)
    return first, size - first if length is None else max(0, min(length, size - first))
