"""Where the chunks of a layout are in a store: an object each, or in shards. For readers."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Protocol

from acqstream.arrays.array_spec import Position
from acqstream.errors import CorruptDataset
from acqstream.formats.chunk_layout import ChunkLayout
from acqstream.storage.stores.shard_index import ShardReader, note_key
from acqstream.storage.stores.store import Store

_MAX_OPEN_SLOTS = 2**20  # of shards whose index is kept: 16 MiB


Damage = Callable[[CorruptDataset], None]


class StoredChunks(Protocol):
    """Encoded chunks of one level; from any thread. Methods raise StorageError, CorruptDataset."""

    def read(self, position: Position) -> bytes | None:
        """A chunk as stored; None if there is none. That is never remembered."""

    def positions(self, on_damage: Damage) -> Iterator[Position]:
        """All stored chunks, also those outside the grid; on_damage gets what is wrong with an index."""


def stored_chunks(layout: ChunkLayout, level: int, store: Store) -> StoredChunks:
    """The chunks of a level. Those of shards are as published by now, or later."""
    return (ShardChunks if layout.needs == "append" else ObjectChunks)(layout, level, store)


class ObjectChunks:
    """StoredChunks with an object each."""

    def __init__(self, layout: ChunkLayout, level: int, store: Store) -> None:
        self._layout = layout
        self._level = level
        self._store = store

    def read(self, position: Position) -> bytes | None:
        """See StoredChunks."""
        key, limit = self._layout.key(self._level, position), self._layout.max_object_bytes(self._level)
        data = self._store.get(key, 0, None if limit is None else limit + 1)
        if data is not None:
            _check_length(data, limit, f"{self._store.url}/{key}")
        return data

    def positions(self, on_damage: Damage) -> Iterator[Position]:
        """See StoredChunks."""
        del on_damage
        for key in self._store.keys(""):
            found = self._layout.parse_key(key)
            if found is not None and found[0] == self._level:
                yield found[1]


class ShardChunks:
    """StoredChunks in shards. Keeps the indices of the shards that were read last; a new object reads them again."""

    def __init__(self, layout: ChunkLayout, level: int, store: Store) -> None:
        self._layout = layout
        self._level = level
        self._store = store
        self._lock = threading.Lock()  # for the two that follow
        self._open: OrderedDict[str, ShardReader] = OrderedDict()  # the one used last at the end
        self._open_slots = 0

    def read(self, position: Position) -> bytes | None:
        """See StoredChunks."""
        key, limit = self._layout.key(self._level, position), self._layout.max_object_bytes(self._level)
        data = self._reader(key).read(self._layout.slot(self._level, position), limit)
        if data is not None:
            _check_length(data, limit, f"{self._store.url}/{key}")
        return data

    def positions(self, on_damage: Damage) -> Iterator[Position]:
        """See StoredChunks."""
        ending = note_key("")
        for key in {key.removesuffix(ending) for key in self._store.keys("")}:
            if self._layout.shard_level(key) != self._level:
                continue
            try:
                slots = list(self._reader(key).stored())
            except CorruptDataset as error:
                on_damage(error)
                continue
            positions = (self._layout.slot_position(key, slot) for slot in slots)
            yield from (position for position in positions if position is not None)

    def _reader(self, key: str) -> ShardReader:
        with self._lock:
            reader = self._open.get(key)
            if reader is not None:
                self._open.move_to_end(key)
                return reader
        index = self._layout.shard_index(key)
        reader = ShardReader(self._store, key, index)  # without the lock: it reads from the store
        with self._lock:
            if key not in self._open:
                self._open[key] = reader
                self._open_slots += index.slots
            while self._open_slots > _MAX_OPEN_SLOTS and len(self._open) > 1:
                _, oldest = self._open.popitem(last=False)
                self._open_slots -= oldest.slots
        return reader


def _check_length(data: bytes, limit: int | None, where: str) -> None:
    if limit is not None and len(data) > limit:
        raise CorruptDataset(f"has more than {limit} bytes, which no chunk takes", path=where, offset=limit)
