"""Indices of shards, as formats write them: at the end, at the start, and a head that points to a tail."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import numpy as np

from acqstream.errors import CorruptDataset
from acqstream.storage.stores.shard_index import Extents
from acqstream.storage.stores.store import Store

SLOTS = 6


def _sealed(extents: Extents) -> bytes:
    content = extents.astype("<u8").tobytes()
    return content + struct.pack("<I", zlib.crc32(content))


def _unsealed(content: bytes | None, key: str) -> Extents:
    if (
        content is None
        or len(content) != 16 * SLOTS + 4
        or zlib.crc32(content[:-4]) != struct.unpack("<I", content[-4:])[0]
    ):
        raise CorruptDataset("its index is damaged", path=key)
    return np.frombuffer(content[:-4], "<u8").reshape(SLOTS, 2).astype(np.uint64)


@dataclass(frozen=True)
class EndIndex:
    """OME-Zarr with index_location end."""

    slots: int = SLOTS
    head_bytes: int = 0

    def encode(self, extents: Extents, end: int) -> tuple[bytes, bytes]:
        return b"", _sealed(extents)

    def decode(self, store: Store, key: str) -> Extents:
        return _unsealed(store.get(key, -(16 * SLOTS + 4)), key)


@dataclass(frozen=True)
class StartIndex:
    """OME-Zarr with index_location start."""

    slots: int = SLOTS
    head_bytes: int = 16 * SLOTS + 4

    def encode(self, extents: Extents, end: int) -> tuple[bytes, bytes]:
        return _sealed(extents), b""

    def decode(self, store: Store, key: str) -> Extents:
        return _unsealed(store.get(key, 0, self.head_bytes), key)


@dataclass(frozen=True)
class PointerIndex:
    """Precomputed: a short head at the start points to an index of its own length at the end."""

    slots: int = SLOTS
    head_bytes: int = 20

    def encode(self, extents: Extents, end: int) -> tuple[bytes, bytes]:
        tail = extents.astype("<u8").tobytes()
        head = struct.pack("<QQ", end, len(tail))
        return head + struct.pack("<I", zlib.crc32(head)), tail

    def decode(self, store: Store, key: str) -> Extents:
        head = store.get(key, 0, 20) or b""
        if len(head) < 20 or zlib.crc32(head[:16]) != struct.unpack_from("<I", head, 16)[0]:
            raise CorruptDataset("its head is damaged", path=key)
        tail = store.get(key, *struct.unpack_from("<QQ", head)) or b""
        if len(tail) != 16 * SLOTS:
            raise CorruptDataset("ends in its index", path=key)
        return np.frombuffer(tail, "<u8").reshape(SLOTS, 2).astype(np.uint64)  # without a checksum, as there


INDICES = [EndIndex(), StartIndex(), PointerIndex()]
