"""Shards of a container are filled in any order, by any thread, with few of them open."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from acqstream.errors import StorageError
from acqstream.mirrors.open_shards import SLOT_BYTES, OpenShards
from acqstream.storage.stores.shard_index import MISSING, ShardReader
from tests.storage.memory_store import MemoryStore
from tests.storage.shard_indices import INDICES, SLOTS, EndIndex

INDEX = EndIndex()
PLACES = [(f"0/{shard}.shard", slot) for shard in range(7) for slot in range(SLOTS)]


def content_of(key: str, slot: int) -> bytes:
    return f"{key} {slot}".encode()


def open_shards(store: MemoryStore, most_open: int = 2) -> OpenShards:
    return OpenShards(store, lambda key: INDEX, most_open * SLOT_BYTES * SLOTS)


def store_in(shards: OpenShards, key: str, slot: int) -> None:
    shards.store(key, [(slot, [content_of(key, slot)])])


def read_ours(store: MemoryStore) -> set[tuple[str, int]]:
    found = {place: ShardReader(store, place[0], INDEX).read(place[1]) for place in PLACES}
    assert all(content in (None, content_of(*place)) for place, content in found.items())
    return {place for place, content in found.items() if content is not None}


def read_foreign(store: MemoryStore) -> set[tuple[str, int]]:
    found = set()
    for key in {key for key, _ in PLACES if store.size(key) is not None}:
        for slot, (offset, length) in enumerate(INDEX.decode(store, key).tolist()):
            if offset != MISSING:
                assert store.get(key, offset, length) == content_of(key, slot)
                found.add((key, slot))
    return found


@pytest.mark.parametrize("most_open", [1, 3, 100])
def test_threads_fill_more_shards_than_are_open(most_open: int) -> None:
    store = MemoryStore()
    shards = open_shards(store, most_open)
    places = random.Random(most_open).sample(PLACES, len(PLACES))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda place: shards.store(place[0], [(place[1], [content_of(*place)])]), places))
    shards.sync()
    assert read_ours(store) == set(PLACES)
    assert read_foreign(store) == set()
    shards.finish_all()
    assert read_ours(store) == read_foreign(store) == set(PLACES)
    assert set(store.keys()) == {key for key, _ in PLACES}


def test_a_killed_process_leaves_shards_that_the_next_one_finishes() -> None:
    store = MemoryStore()
    killed = open_shards(store, most_open=10)
    for place in PLACES[:8]:
        store_in(killed, *place)
    killed.sync()
    store_in(killed, *PLACES[8])  # never published
    shards = open_shards(store)
    shards.resume()
    assert read_ours(store) == set(PLACES[:8])
    shards.finish_all()
    assert read_foreign(store) == set(PLACES[:8])
    assert set(store.keys()) == {key for key, _ in PLACES[:8]}


def test_a_finished_shard_takes_a_late_chunk() -> None:
    store = MemoryStore()
    shards = open_shards(store)
    for place in PLACES[:3]:
        store_in(shards, *place)
    shards.finish(PLACES[0][0])
    assert read_foreign(store) == set(PLACES[:3])
    store_in(shards, *PLACES[3])
    shards.sync()
    assert read_foreign(store) == set(PLACES[:3])
    assert read_ours(store) == set(PLACES[:4])
    shards.finish_all()
    assert read_foreign(store) == set(PLACES[:4])


def test_the_shard_used_longest_ago_is_closed() -> None:
    opened = []

    def index_of(key: str) -> EndIndex:
        opened.append(key)
        return INDEX

    shards = OpenShards(MemoryStore(), index_of, 2 * SLOT_BYTES * SLOTS)
    for key in "aabbabcbac":
        shards.store(key, [(0, [b"chunk"])])
    assert opened == list("abcac")


class CountingStore(MemoryStore):
    syncs = 0
    failing = False

    def sync(self) -> None:
        self.syncs += 1
        if self.failing:
            raise StorageError.wrap(OSError("the disk fails"), "memory", "cannot sync")
        super().sync()


@pytest.mark.parametrize("index", INDICES)
def test_all_shards_are_published_with_as_many_syncs_as_one(index: EndIndex) -> None:
    counts = []
    for keys in (["0/a"], ["0/a", "0/b", "0/c", "0/d"]):
        store = CountingStore()
        shards = OpenShards(store, lambda key: index, 2**20)
        for round_ in range(2):
            for key in keys:
                shards.store(key, [(round_, [content_of(key, round_)]), (4, [content_of(key, 4)])])
            store.syncs = 0
            shards.sync()
        counts.append(store.syncs)
        for key in keys:
            reader = ShardReader(store, key, index)
            assert [reader.read(slot) for slot in (0, 1, 2, 4)] == [
                content_of(key, 0),
                content_of(key, 1),
                None,
                content_of(key, 4),
            ]
            if index.head_bytes:  # so does a foreign reader
                offset, length = index.decode(store, key)[1].tolist()
                assert store.get(key, offset, length) == content_of(key, 1)
    assert counts[0] == counts[1]


@pytest.mark.parametrize("index", INDICES)
def test_after_a_failed_sync_no_shard_claims_anything(index: EndIndex) -> None:
    store = CountingStore()
    shards = OpenShards(store, lambda key: index, 2**20)
    keys = ["0/a", "0/b"]
    for key in keys:
        shards.store(key, [(0, [b"before"])])
    shards.sync()
    for key in keys:
        shards.store(key, [(1, [b"lost"])])
    store.failing = True
    with pytest.raises(StorageError, match="the disk fails"):
        shards.sync()
    store.failing = False
    for key in keys:
        with pytest.raises(StorageError, match="an earlier sync failed"):
            shards.store(key, [(2, [b"more"])])
    again = OpenShards(store, lambda key: index, 2**20)
    again.resume()
    again.finish_all()
    for key in keys:
        reader = ShardReader(store, key, index)
        assert [reader.read(0), reader.read(2)] == [b"before", None]
