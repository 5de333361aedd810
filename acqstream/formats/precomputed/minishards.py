"""Reads the indices of the minishards of one scale. Source: Neuroglancer precomputed sharded format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from acqstream.codecs import gzip
from acqstream.errors import CorruptDataset
from acqstream.formats.precomputed.sharding import (
    ENTRY_BYTES,
    MAX_INDEX_BYTES,
    MinishardIndex,
    Sharding,
    parse_entries,
    parse_entry,
    parse_minishard_index,
)
from acqstream.storage.stores.store import Store

_AT_ONCE = 65536  # entries of a shard index, which may have 2^32


@dataclass(frozen=True, slots=True)
class MinishardReader:
    """Reads shards by key, and remembers nothing. Methods raise CorruptDataset, StorageError."""

    store: Store
    sharding: Sharding

    def find(self, key: str, minishard: int) -> MinishardIndex | None:
        """The index of a minishard; None if it has no chunks, or there is no such shard."""
        entry = self.store.get(key, minishard * ENTRY_BYTES, ENTRY_BYTES)
        if entry is None:
            return None
        if len(entry) < ENTRY_BYTES:
            raise self._short_index(key)
        return self._index(key, *parse_entry(entry))

    def all(self, key: str) -> Iterator[tuple[int, MinishardIndex]]:
        """The minishards that have chunks, by number, with their indices."""
        count, step = 1 << self.sharding.minishard_bits, _AT_ONCE
        for first in range(0, count, step):
            length = ENTRY_BYTES * min(step, count - first)
            data = self.store.get(key, first * ENTRY_BYTES, length)
            if data is None:
                return  # removed meanwhile
            if len(data) < length:
                raise self._short_index(key)
            entries = parse_entries(data)
            # An empty minishard starts where it ends.
            for row in np.flatnonzero(entries[:, 0] != entries[:, 1]).tolist():
                index = self._index(key, int(entries[row, 0]), int(entries[row, 1]))
                if index is not None:
                    yield first + row, index

    def payload(self, key: str, start: int, size: int) -> bytes:
        """`size` bytes from `start` on, which counts from the end of the shard index."""
        return self._read(key, self.sharding.index_bytes + start, size, "a chunk")

    def _index(self, key: str, start: int, end: int) -> MinishardIndex | None:
        where, offset = f"{self.store.url}/{key}", self.sharding.index_bytes + start
        if start == end:
            return None
        # Checked before the read, which takes so much memory.
        if not 0 < end - start <= MAX_INDEX_BYTES:
            text = f"a minishard index from {start} to {end}, expected 1 to {MAX_INDEX_BYTES} bytes"
            raise CorruptDataset(text, path=where)
        data = self._read(key, offset, end - start, "a minishard index")
        if self.sharding.index_encoding == "gzip":
            data = unpacked(data, MAX_INDEX_BYTES, where, offset)
        return parse_minishard_index(data, where)

    def _read(self, key: str, offset: int, size: int, what: str) -> bytes:
        data = self.store.get(key, offset, size) if offset < 2**63 else b""  # no file is longer
        if data is None or len(data) < size:
            text = f"{what} of {size} bytes reaches beyond the end of the file"
            raise CorruptDataset(text, path=f"{self.store.url}/{key}", offset=offset)
        return data

    def _short_index(self, key: str) -> CorruptDataset:
        text = f"is shorter than its shard index of {self.sharding.index_bytes} bytes"
        return CorruptDataset(text, path=f"{self.store.url}/{key}")


def unpacked(data: bytes, max_bytes: int, where: str, offset: int) -> bytes:
    """The content of gzip data. Raises CorruptDataset."""
    try:
        return gzip.decode_at_most(data, max_bytes)
    except CorruptDataset as error:
        raise CorruptDataset(str(error), path=where, offset=offset) from error
