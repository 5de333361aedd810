"""Reads shards that `ShardFile` fills, and those that other software wrote."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from acqstream.storage.shard_note import MISSING, ShardIndex, find_published, object_key
from acqstream.storage.store import Store


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
            self.refresh()  # the object may have been finished or compacted: it has another key then
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
