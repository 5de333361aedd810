"""Reads shards, and keeps the note of a shard in writing.

The note is a small object beside the shard with the published chunks, replaced at each sync: `<key>.shard-note`,
little-endian: 8 bytes magic, uint64 generation, uint64 number of slots, then offset and length of every slot as uint64
pairs, then the XXH3-64 of all bytes before. Docs: docs/decisions/030-shards.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import xxhash
from numpy.typing import NDArray

from acqstream.errors import CorruptDataset
from acqstream.storage.stores.store import Store

MISSING = 2**64 - 1
"""Offset and length of a slot without a chunk."""

Extents = NDArray[np.uint64]
"""Shape (slots, 2): offset in the object and length of each chunk, in bytes; MISSING for both without one."""

_MAGIC = b"ACQSHRD1"
_HEADER = struct.Struct("<8sQQ")
_SUM = struct.Struct("<Q")


class ShardIndex(Protocol):
    """Encodes and decodes the places of chunks in a shard, in the bytes of a format. For `ShardFile`."""

    @property
    def slots(self) -> int:
        """Number of chunks in a complete shard."""

    @property
    def head_bytes(self) -> int:
        """Fixed length of the part of the index at the start of the object; 0 if all of it is at the end."""

    def encode(self, extents: Extents, end: int) -> tuple[bytes, bytes]:
        """The index in two parts: a head of head_bytes, and a tail for byte `end`, after all chunks."""

    def decode(self, store: Store, key: str) -> Extents:
        """The index of a complete object. Raises CorruptDataset, StorageError."""


@dataclass(frozen=True, slots=True)
class ShardNote:
    """Places of the published chunks, in the object of a generation; 0 is the object at the key itself."""

    generation: int
    extents: Extents

    def encode(self) -> bytes:
        content = _HEADER.pack(_MAGIC, self.generation, len(self.extents)) + self.extents.astype("<u8").tobytes()
        return content + _SUM.pack(xxhash.xxh3_64_intdigest(content))


def note_key(key: str) -> str:
    """The key of the note of the shard `key`."""
    return f"{key}.shard-note"


def object_key(key: str, generation: int) -> str:
    """The key of the object that has the chunks. No format takes it for the key of a chunk or shard."""
    return f"{key}.part{generation}" if generation else key


def read_note(store: Store, key: str, slots: int) -> ShardNote | None:
    """The note of a shard; None if it has none. Raises CorruptDataset, StorageError."""
    content = store.get(note_key(key))
    if content is None:
        return None
    # The length is known beforehand, so a stranger's count of slots decides about no memory.
    expected = _HEADER.size + 16 * slots + _SUM.size
    if len(content) != expected:
        raise _damage(store, key, f"{len(content)} bytes, expected {expected} for {slots} slots")
    magic, generation, count = _HEADER.unpack_from(content)
    if (magic, count) != (_MAGIC, slots):
        raise _damage(store, key, f"magic {magic!r} and {count} slots, expected {_MAGIC!r} and {slots}")
    if _SUM.unpack_from(content, expected - _SUM.size)[0] != xxhash.xxh3_64_intdigest(content[: -_SUM.size]):
        raise _damage(store, key, "the checksum does not match")
    # A copy: the bytes of an object are read-only, and the writer changes its extents.
    extents = np.frombuffer(content, "<u8", 2 * slots, _HEADER.size).reshape(slots, 2)
    return ShardNote(generation, extents.astype(np.uint64))


def find_published(store: Store, key: str, index: ShardIndex) -> ShardNote | None:
    """Places of the published chunks of a shard; None without any. Raises CorruptDataset, StorageError."""
    note = read_note(store, key, index.slots)
    if note is None:  # a finished shard has no note, its own index counts
        return None if store.size(key) is None else ShardNote(0, _checked(store, key, index.decode(store, key)))
    size = store.size(object_key(key, note.generation))
    if size is None and note.generation:
        # The last step of publishing renames the object; the note of the step before is still right about its chunks.
        note = ShardNote(0, note.extents)
        size = store.size(key)
    if size is None:
        raise _damage(store, key, "the object with its chunks is missing")
    _checked(store, object_key(key, note.generation), note.extents)
    return note


def _checked(store: Store, key: str, extents: Extents) -> Extents:
    """Raises CorruptDataset for a chunk that does not lie inside the object."""
    size = store.size(key) or 0
    is_missing = extents == MISSING  # both numbers are MISSING, or the slot is damaged
    # The length is compared with what remains after the offset: a sum could wrap around.
    too_long = (extents[:, 0] > size) | (extents[:, 1] > size - np.minimum(extents[:, 0], np.uint64(size)))
    wrong = np.flatnonzero(is_missing.any(axis=1) & ~is_missing.all(axis=1) | too_long & ~is_missing.all(axis=1))
    if len(wrong):
        offset, length = extents[wrong[0]].tolist()
        text = f"slot {wrong[0]} is at byte {offset} with {length} bytes, the object has {size}"
        raise CorruptDataset(text, path=f"{store.url}/{key}")
    return extents


def _damage(store: Store, key: str, text: str) -> CorruptDataset:
    return CorruptDataset(text, path=f"{store.url}/{note_key(key)}")


class ShardReader:
    """Reads the published chunks of a shard, also while another process fills it."""

    def __init__(self, store: Store, key: str, index: ShardIndex) -> None:
        self._store = store
        self._key = key
        self._index = index
        self._note = find_published(store, key, index)

    def refresh(self) -> None:
        """Read again what is published."""
        self._note = find_published(self._store, self._key, self._index)

    @property
    def slots(self) -> int:
        """Number of chunks in a complete shard."""
        return self._index.slots

    def stored(self) -> Iterator[int]:
        """The slots that had a chunk when this reader last looked, in order."""
        if self._note is not None:
            yield from np.flatnonzero(self._note.extents[:, 0] != MISSING).tolist()

    def read(self, slot: int, max_bytes: int | None = None) -> bytes | None:
        """The chunk as published when this reader last looked, or later; None if there is none.

        Of a longer one max_bytes + 1 bytes.
        """
        content = self._read(slot, max_bytes)
        if content is None:
            self.refresh()  # the object may have been finished: it has another key then
            content = self._read(slot, max_bytes)
        return content

    def _read(self, slot: int, max_bytes: int | None) -> bytes | None:
        if self._note is None:
            return None
        offset, length = self._note.extents[slot].tolist()
        if offset == MISSING:
            return None
        length = length if max_bytes is None else min(length, max_bytes + 1)
        content = self._store.get(object_key(self._key, self._note.generation), offset, length)
        # A shorter one: the object has this key again, and is being copied.
        return content if content is not None and len(content) == length else None
