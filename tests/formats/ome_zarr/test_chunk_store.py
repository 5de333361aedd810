"""Chunks of one array in a store: bounds of what is read, and the cache of indices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from acqstream.errors import CorruptDataset
from acqstream.formats.compression import ZARR_COMPRESSION
from acqstream.formats.ome_zarr import chunk_store
from acqstream.formats.ome_zarr.chunk_store import ChunkStore, IndexCache
from acqstream.formats.ome_zarr.codec import MISSING, ChunkCodecs, IndexCodec, ZarrArray
from tests.storage.memory_store import MemoryStore

CODECS = ChunkCodecs((2, 2), np.dtype("<u2"), (ZARR_COMPRESSION.parse("zstd"),))
ARRAY = ZarrArray(shape=(4, 2), codecs=CODECS, shard_shape=(4, 2), index=IndexCodec(2))


class CountingStore(MemoryStore):
    """Counts the bytes that were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes | None:
        content = super().get(key, start, length)
        self.asked.append(0 if content is None else len(content))
        return content


def shard(extents: list[tuple[int, int]], content: bytes) -> bytes:
    return content + IndexCodec(2).encode(np.array(extents, np.uint64))


def test_a_chunk_that_is_longer_than_any_can_be_is_not_read() -> None:
    store = CountingStore()
    long = 10 * CODECS.max_bytes
    store.put("a/c/0/0", [shard([(0, long), (MISSING, MISSING)], bytes(long))])
    with pytest.raises(CorruptDataset, match=f"{long} bytes, expected at most {CODECS.max_bytes}"):
        ChunkStore(store, "a/", ARRAY, IndexCache(may_change=False)).read((0, 0))
    assert sum(store.asked) == 36


def test_an_object_without_shards_is_read_up_to_the_length_of_a_chunk() -> None:
    store = CountingStore()
    array = ZarrArray(shape=(2, 2), codecs=ChunkCodecs((2, 2), np.dtype("<u2")))
    store.put("c/0/0", [bytes(10_000_000)])
    with pytest.raises(CorruptDataset, match="expected 8"):
        ChunkStore(store, "", array, IndexCache(may_change=False)).read((0, 0))
    assert sum(store.asked) == 9


def test_the_index_of_a_complete_array_is_read_once() -> None:
    store = CountingStore()
    chunk = bytes(CODECS.encode(np.arange(4, dtype="<u2").reshape(2, 2)))
    store.put("c/0/0", [shard([(len(chunk), len(chunk)), (0, len(chunk))], chunk * 2)])
    chunks = ChunkStore(store, "", ARRAY, IndexCache(may_change=False))
    for position in ((0, 0), (1, 0)):
        found = chunks.read(position)
        assert found is not None
        assert found.tolist() == [[0, 1], [2, 3]]
    assert len(store.asked) == 3


def test_a_chunk_beyond_its_object_is_damage() -> None:
    store = MemoryStore()
    store.put("c/0/0", [shard([(0, 100), (MISSING, MISSING)], b"short")])
    with pytest.raises(CorruptDataset, match="at byte 0 with 100 bytes, the object has 41"):
        ChunkStore(store, "", ARRAY, IndexCache(may_change=False)).read((1, 0))  # also where another chunk is asked for


@pytest.mark.parametrize("is_at_end", [True, False])
def test_the_index_of_an_array_that_may_change_is_read_again_when_it_changed(is_at_end: bool) -> None:
    index = IndexCodec(2, is_at_end)
    array = replace(ARRAY, index=index)
    store = CountingStore()
    small, large = (bytes(CODECS.encode(np.full((2, 2), value, "<u2"))) for value in (3, 0xABCD))
    chunks = ChunkStore(store, "", array, IndexCache(may_change=True))

    def put(*parts: bytes) -> None:
        start, extents = 0 if is_at_end else index.length, []
        for part in parts:
            extents.append((start, len(part)))
            start += len(part)
        content, encoded = b"".join(parts), index.encode(np.array(extents, np.uint64))
        store.put("c/0/0", [content, encoded] if is_at_end else [encoded, content])

    def value(row: int) -> int:
        found = chunks.read((row, 0))
        assert found is not None
        return int(found[0, 0])

    put(small, large)
    assert (value(0), value(1)) == (3, 0xABCD)
    put(large, small)  # chunks of other lengths: the kept index names wrong bytes
    store.asked.clear()
    assert (value(1), value(0)) == (3, 0xABCD)
    put(large, large)
    assert value(1) == 0xABCD
    store.asked.clear()
    assert value(1) == 0xABCD
    assert store.asked == [len(large), 4]  # the checksum and the chunk, and no index


def test_an_index_without_a_checksum_is_kept_only_where_nothing_changes() -> None:
    for may_change in (True, False):
        cache = IndexCache(may_change=may_change)
        cache.keep("c/0", np.zeros((2, 2), np.uint64), b"")
        assert (cache.get("c/0") is None) == may_change


def test_kept_indices_take_no_more_than_their_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    extents = np.zeros((2, 2), np.uint64)
    monkeypatch.setattr(chunk_store, "MAX_CACHE_BYTES", 3 * extents.nbytes)
    cache = IndexCache(may_change=False)
    for key in ("a", "b", "c", "a", "d"):
        cache.keep(key, extents, b"")
    assert [key for key in "abcd" if cache.get(key) is not None] == ["a", "c", "d"]
    cache.keep("huge", np.zeros((8, 2), np.uint64), b"")
    assert cache.get("huge") is None


def test_an_object_that_is_replaced_while_a_chunk_is_read_is_read_again() -> None:
    """The index of the old object and the bytes of the new one would be another chunk."""
    store = CountingStore()
    raw = replace(ARRAY, codecs=ChunkCodecs((2, 2), np.dtype("<u2")))
    chunks = ChunkStore(store, "", raw, IndexCache(may_change=True))
    one, two = (np.full((2, 2), value, "<u2").tobytes() for value in (1, 2))
    objects = [shard([(0, 8), (8, 8)], one + two), shard([(8, 8), (0, 8)], two + one)]
    get = store.get

    def get_and_replace(key: str, start: int = 0, length: int | None = None) -> bytes | None:
        content = get(key, start, length)
        store.put(key, [objects[1]])
        return content

    store.put("c/0/0", [objects[0]])
    store.get = get_and_replace  # type: ignore[method-assign] # replaced right after its index was read
    found = chunks.read((0, 0))
    assert found is not None
    assert found.tolist() == [[1, 1], [1, 1]]


def test_a_length_of_another_object_is_no_damage() -> None:
    store = MemoryStore()
    large = shard([(80, 8), (88, 8)], bytes(96))
    store.put("c/0/0", [shard([(0, 8), (8, 8)], bytes(16))])
    size = store.size

    def size_and_replace(key: str) -> int | None:
        found = size(key)
        store.put(key, [large])  # before its index is read
        return found

    store.size = size_and_replace  # type: ignore[method-assign]
    raw = replace(ARRAY, codecs=ChunkCodecs((2, 2), np.dtype("<u2")))
    assert ChunkStore(store, "", raw, IndexCache(may_change=True)).read((0, 0)) is not None
