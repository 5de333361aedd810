"""Shards of a container are filled in any order, by any thread, with few of them open."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from acqstream.mirrors.open_shards import OpenShards
from acqstream.storage.memory_store import MemoryStore
from acqstream.storage.shard_file import ShardReader
from acqstream.storage.shard_note import MISSING
from tests.storage.shard_indices import SLOTS, EndIndex

INDEX = EndIndex()
PLACES = [(f"0/{shard}.shard", slot) for shard in range(7) for slot in range(SLOTS)]


def content_of(key: str, slot: int) -> bytes:
    return f"{key} {slot}".encode()


def open_shards(store: MemoryStore, most_open: int = 2) -> OpenShards:
    return OpenShards(store, lambda key: INDEX, most_open)


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
        list(pool.map(lambda place: shards.store(place[0], place[1], [content_of(*place)]), places))
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
        killed.store(*place, [content_of(*place)])
    killed.sync()
    killed.store(*PLACES[8], [content_of(*PLACES[8])])  # never published
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
        shards.store(*place, [content_of(*place)])
    shards.finish(PLACES[0][0])
    assert read_foreign(store) == set(PLACES[:3])
    shards.store(*PLACES[3], [content_of(*PLACES[3])])
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

    shards = OpenShards(MemoryStore(), index_of, most_open=2)
    for key in "aabbabcbac":
        shards.store(key, 0, [b"chunk"])
    assert opened == list("abcac")
