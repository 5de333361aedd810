"""The index of a shard: offset and length of every chunk in it, with a checksum.

Source: Zarr v3, codec `sharding_indexed`. The index is an array of uint64 pairs in C order of the shard's grid of
chunks, at the end of the object or at its start; both numbers are 2^64 - 1 for a chunk that is missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from acqstream.codecs import crc32c
from acqstream.errors import CorruptDataset

MISSING = 2**64 - 1

Extents = NDArray[np.uint64]
"""Shape (chunks, 2): offset from the start of the object and length of each chunk, in bytes."""


@dataclass(frozen=True, slots=True)
class IndexCodec:
    """The bytes of an index of `count` chunks. is_at_end: else at the start; has_checksum: a CRC-32C follows."""

    count: int
    is_at_end: bool = True
    has_checksum: bool = True
    byte_order: str = "<"

    @property
    def length(self) -> int:
        """Bytes of the index."""
        return 16 * self.count + (crc32c.LENGTH if self.has_checksum else 0)

    def encode(self, extents: Extents) -> bytes:
        """The index."""
        content = extents.astype(f"{self.byte_order}u8").tobytes()
        return crc32c.encode(content) if self.has_checksum else content

    def decode(self, content: bytes, object_bytes: int, where: str) -> Extents:
        """The extents in an index of an object of so many bytes, checked. Raises CorruptDataset that names `where`."""
        if len(content) != self.length:
            text = f"has {object_bytes} bytes, the index of {self.count} chunks alone has {self.length}"
            raise CorruptDataset(text, path=where)
        # In errors: the place of the index in the object.
        offset = object_bytes - self.length if self.is_at_end else 0
        try:
            data = crc32c.decode(content, 16 * self.count) if self.has_checksum else content
        except CorruptDataset as error:
            raise CorruptDataset(f"index of the shard: {error}", path=where, offset=offset) from error
        extents = np.frombuffer(data, f"{self.byte_order}u8").reshape(-1, 2).astype(np.uint64)
        is_missing = extents == MISSING
        # Compared with what remains after the offset: a sum could wrap around.
        beyond = (extents[:, 0] > object_bytes) | (
            extents[:, 1] > object_bytes - np.minimum(extents[:, 0], np.uint64(object_bytes))
        )
        wrong = np.flatnonzero(~is_missing.all(axis=1) & (is_missing.any(axis=1) | beyond))
        if len(wrong):
            start, length = extents[wrong[0]].tolist()
            text = f"chunk {wrong[0]} of the shard is at byte {start} with {length} bytes"
            raise CorruptDataset(f"{text}, the object has {object_bytes}", path=where, offset=offset)
        return extents

    def consecutive(self, chunk_bytes: int) -> bytes:
        """The index of a shard in which all chunks have this length and lie one after the other from byte 0 on."""
        # Known before the first chunk is stored, so such a shard is readable from its birth on.
        return _consecutive(self, chunk_bytes)


@lru_cache(maxsize=16)  # of the levels of a few mirrors, asked for with every chunk; each is 256 KiB at most
def _consecutive(index: IndexCodec, chunk_bytes: int) -> bytes:
    lengths = np.full(index.count, chunk_bytes, np.uint64)
    return index.encode(np.stack([np.arange(index.count, dtype=np.uint64) * np.uint64(chunk_bytes), lengths], axis=1))
