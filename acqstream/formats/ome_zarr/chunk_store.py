"""Reads the chunks of one Zarr array from a store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import Position
from acqstream.errors import CorruptDataset
from acqstream.formats.chunk_reader import RecentlyUsed
from acqstream.formats.ome_zarr.codec import MISSING, Extents, IndexCodec, ZarrArray
from acqstream.storage.stores.store import Store

_ATTEMPTS = 20  # to read a chunk of an object that is being replaced
MAX_CACHE_BYTES = 32 * 2**20  # of the indices of a level: one may have 64 MiB


class IndexCache(RecentlyUsed[str, tuple[Extents, bytes]]):
    """Indices of the shards that were read last, each with its checksum, by the key of the object.

    may_change: the array may still be written. An index counts then while the object has the same checksum of it, which
    is read again for every chunk; indices without one are not kept.
    """

    def __init__(self, *, may_change: bool) -> None:
        super().__init__(MAX_CACHE_BYTES)
        self.may_change = may_change

    def keep(self, key: str, extents: Extents, checksum: bytes) -> None:
        """Keep an index."""
        if checksum or not self.may_change:
            self.put(key, (extents, checksum), extents.nbytes)


class ChunkStore:
    """The chunks of an array below a prefix of a store, "" or a path that ends with "/".

    cache: of the indices of shards.
    """

    def __init__(self, store: Store, prefix: str, array: ZarrArray, cache: IndexCache) -> None:
        self._store = store
        self._prefix = prefix
        self._array = array
        self._cache = cache

    def read(self, position: Sequence[int]) -> NDArray[np.generic] | None:
        """The chunk at a position of the grid, a new array of the full chunk shape; None if it is missing.

        Raises CorruptDataset, StorageError.
        """
        shard, number = self._array.place(position)
        key, codecs = self.key(shard), self._array.codecs
        where, index = f"{self._store.url}/{key}", self._array.index
        if index is None:
            # One byte more than a chunk can have: a longer object is damage, and its length costs no memory.
            data = self._store.get(key, 0, codecs.max_bytes + 1)
            return None if data is None else codecs.decode(data, where, 0)
        for attempt in range(_ATTEMPTS):
            try:
                found = self._read_part(index, key, number)
                chunk = None if found is None else codecs.decode(found[1], where, found[0])
            except CorruptDataset:
                if attempt + 1 == _ATTEMPTS or self._is_current(index, key):
                    raise
            else:
                if self._is_current(index, key):
                    return chunk
            # Replaced meanwhile: an index and bytes of two objects give wrong items.
            self._cache.drop(key)
        raise CorruptDataset(f"was replaced {_ATTEMPTS} times while chunk {number} of it was read", path=where)

    def stored(self) -> Iterator[Position]:
        """Positions of all stored chunks, also outside the grid; the indices of shards are read for it.

        A damaged shard counts as complete: reading its chunks reports it.
        """
        folder = self._array.keys.folder if self._array.shape else ""
        for key in self._store.keys(self._prefix + folder):
            # Documents and foreign files lie among the chunks.
            shard = self._array.keys.parse(key.removeprefix(self._prefix), len(self._array.shape))
            if shard is None:
                continue
            extents = self._extents(key)
            for number, position in enumerate(self._array.chunks_of(shard)):
                if extents is None or extents[number, 0] != MISSING:
                    yield position

    def key(self, shard: Sequence[int]) -> str:
        """The key of an object by its position in the grid of shards, or of chunks without shards."""
        return self._prefix + self._array.keys.key(shard)

    def _extents(self, key: str) -> Extents | None:
        if self._array.index is None:
            return None
        if not self._is_current(self._array.index, key):
            self._cache.drop(key)
        try:
            return self._index(self._array.index, key)
        except CorruptDataset:
            return None

    def _read_part(self, index: IndexCodec, key: str, number: int) -> tuple[int, bytes] | None:
        """Offset and bytes of a chunk in a shard; None if it is missing."""
        extents = self._index(index, key)
        if extents is None:
            return None
        offset, length = extents[number].tolist()
        if offset == MISSING:  # zeros
            return None
        where, max_bytes = f"{self._store.url}/{key}", self._array.codecs.max_bytes
        if length > max_bytes:
            text = f"chunk {number} of the shard has {length} bytes, expected at most {max_bytes}"
            raise CorruptDataset(text, path=where, offset=offset)
        data = self._store.get(key, offset, length)
        if data is None or len(data) != length:
            raise CorruptDataset(f"chunk {number} of the shard is cut off", path=where, offset=offset)
        return offset, data

    def _index(self, index: IndexCodec, key: str) -> Extents | None:
        kept = self._cache.get(key)
        if kept is not None:
            return kept[0]
        for attempt in range(_ATTEMPTS):
            size = self._store.size(key)
            # A suffix range: the object may be replaced between the two calls, and its end is where the index is.
            start = -index.length if index.is_at_end else 0
            content = None if size is None else self._store.get(key, start, index.length)
            if size is None or content is None:
                return None
            try:
                extents = index.decode(content, size, f"{self._store.url}/{key}")
            except CorruptDataset:
                if attempt + 1 == _ATTEMPTS or self._store.size(key) == size:
                    raise
            else:
                self._cache.keep(key, extents, content[16 * index.count :])
                return extents
        raise AssertionError("the last attempt returns or raises")

    def _is_current(self, index: IndexCodec, key: str) -> bool:
        """Whether the object still has the kept index. True where nothing is kept that could tell."""
        kept = self._cache.get(key) if self._cache.may_change else None
        if kept is None:
            return True
        checksum = kept[1]
        start = -len(checksum) if index.is_at_end else 16 * index.count
        return self._store.get(key, start, len(checksum)) == checksum
