"""Ids, shards and slots of chunks: each cell has a place of its own, which never changes while a volume grows."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from acqstream.arrays.array_spec import ArraySpec
from acqstream.errors import ConfigError, CorruptDataset
from acqstream.formats.chunk_layout import Plan
from acqstream.formats.precomputed.metadata import ShardOptions
from acqstream.formats.precomputed.shard_layout import choose_shards
from acqstream.formats.precomputed.shard_slots import ShardSlots, SlotIndex
from acqstream.formats.precomputed.sharding import Sharding, cell_of, chunk_id, murmur_hash
from acqstream.storage.stores.shard_index import MISSING
from tests.storage.memory_store import MemoryStore

MURMUR = "murmurhash3_x86_128"


def slots_of(
    shape: tuple[int, ...], chunk: tuple[int, ...] = (1, 1, 1), dtype: str = "u2", **options: Any
) -> ShardSlots:
    """Those of an array (z, y, x); 0 planes: their number is not known."""
    level = ArraySpec(axes=("z", "y", "x"), shape=shape, dtype=np.dtype(dtype), chunk_shape=chunk)
    (found,) = choose_shards(Plan(levels=(level,)), ShardOptions(**options))
    return found


def cells_in(x: int, y: int, z: int) -> list[tuple[int, int, int]]:
    return [(a, b, c) for c, b, a in itertools.product(range(z), range(y), range(x))]


@given(
    grid=st.tuples(*[st.integers(1, 9)] * 3),
    name=st.sampled_from(["identity", MURMUR]),
    bits=st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 12)),
)
def test_every_cell_has_a_slot_of_its_own(grid: tuple[int, int, int], name: Any, bits: tuple[int, int, int]) -> None:
    assume(name == MURMUR or sum(bits) >= sum((size - 1).bit_length() for size in grid))
    slots = ShardSlots(Sharding(bits[0], name, bits[1], bits[2], "raw", "raw"), grid)
    assert slots.is_bounded
    places = {slots.place(cell): cell for cell in cells_in(*grid)}
    assert len(places) == math.prod(grid)
    for (shard, slot), cell in places.items():
        assert slots.cell(shard, slot) == cell
        index = slots.index(shard)
        assert index.ids[slot] == chunk_id(cell, grid)
        assert shard == slots.sharding.place(chunk_id(cell, grid))[0]  # where readers look for it
    for shard in {shard for shard, _ in places}:
        index = slots.index(shard)
        assert np.all(np.diff(index.ids.astype(np.int64)) > 0)
        known = {slot for slot in range(index.slots) if slots.cell(shard, slot) is not None}
        assert known == {slot for at, slot in places if at == shard}


@given(x=st.integers(1, 9), y=st.integers(1, 9), planned=st.integers(0, 40), more=st.integers(0, 200))
def test_ids_are_those_of_every_size_that_info_may_state(x: int, y: int, planned: int, more: int) -> None:
    slots = slots_of((planned, y, x))
    depth = min(slots.min_depth + more, slots.cells[2])
    for cell in [(x - 1, y - 1, 0), (0, y - 1, depth - 1), (x - 1, 0, depth // 2)]:
        assert chunk_id(cell, (x, y, depth)) == chunk_id(cell, slots.cells)
    assert not planned or slots.min_depth <= planned <= slots.cells[2]


def test_fewer_planes_would_give_other_ids() -> None:
    slots = slots_of((0, 8, 8))
    assert slots.min_depth == 3
    assert chunk_id((4, 0, 1), (8, 8, 2)) != chunk_id((4, 0, 1), slots.cells)


@given(value=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20))
def test_arrays_are_hashed_as_numbers_are(value: list[int]) -> None:
    assert murmur_hash(np.array(value, np.uint64)).tolist() == [murmur_hash(one) for one in value]


@given(cell=st.tuples(*[st.integers(0, 2**20)] * 3), more=st.tuples(*[st.integers(1, 99)] * 3))
def test_cells_and_ids_are_inverse(cell: tuple[int, int, int], more: tuple[int, int, int]) -> None:
    grid = tuple(at + size for at, size in zip(cell, more, strict=True))
    assert cell_of(chunk_id(cell, grid), grid) == cell


@given(
    name=st.sampled_from(["identity", MURMUR]),
    bits=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    packed=st.sampled_from(["raw", "gzip"]),
    data=st.data(),
)
def test_an_index_is_read_as_it_was_written(name: Any, bits: tuple[int, int], packed: Any, data: Any) -> None:
    slots = ShardSlots(Sharding(bits[0], name, bits[1], 6 - sum(bits), packed, "raw"), (4, 4, 4))
    shard = slots.place((data.draw(st.integers(0, 3)), 2, 1))[0]
    index = slots.index(shard)
    extents = np.full((index.slots, 2), MISSING, np.uint64)
    end = index.head_bytes
    content = bytearray(end)
    for slot in data.draw(st.lists(st.integers(0, index.slots - 1), unique=True)):  # in any order of arrival
        length = data.draw(st.integers(0, 9))
        extents[slot] = end, length
        content += bytes(length)
        end += length
    head, tail = index.encode(extents, end)
    content[: len(head)] = head
    store = MemoryStore()
    store.put("0.shard", [bytes(content) + tail])
    assert len(head) == index.head_bytes
    assert np.array_equal(index.decode(store, "0.shard"), extents)


def test_an_index_with_chunks_of_another_shard_is_damage() -> None:
    ours, other = (slots_of((64, 1, 1), preshift_bits=2, minishard_bits=1).index(shard) for shard in (0, 3))
    extents = np.array([[32 + 4 * at, 4] for at in range(8)], np.uint64)
    head, tail = other.encode(extents, 64)
    store = MemoryStore()
    store.put("0.shard", [head, bytes(32), tail])
    assert np.array_equal(other.decode(store, "0.shard"), extents)
    with pytest.raises(CorruptDataset, match="do not belong to it"):
        ours.decode(store, "0.shard")
    wrong = SlotIndex(Sharding(0, "identity", 1, 3, "gzip", "raw"), ours.ids)
    with pytest.raises(CorruptDataset, match="do not belong to it"):
        wrong.decode(store, "0.shard")


def test_shards_are_chosen_by_their_size() -> None:
    found = slots_of((0, 2048, 2048), (1, 512, 512)).sharding
    assert (found.preshift_bits, found.minishard_bits, found.shard_bits) == (9, 2, 2 + 2 + 32 - 11)
    found = slots_of((0, 2048, 2048), (64, 64, 64)).sharding
    assert (found.preshift_bits, found.minishard_bits) == (9, 2)  # 1 GiB
    found = slots_of((100, 40, 40), (1, 8, 8)).sharding
    assert 1 << (found.preshift_bits + found.minishard_bits) == 2**13
    found = slots_of((0, 2048, 2048), (64, 64, 64), preshift_bits=9, minishard_bits=0).sharding
    assert (found.minishard_bits, found.shard_bits) == (0, 5 + 5 + 32 - 9)  # 8 x 8 x 8 chunks: 512 voxels a side


@pytest.mark.parametrize(
    ("shape", "given_", "text"),
    [
        ((9, 9, 9), {"preshift_bits": 10, "minishard_bits": 7}, "at most 65536 chunks a shard"),
        ((9, 9, 9), {"preshift_bits": 1, "minishard_bits": 1, "shard_bits": 9}, "bits for all ids"),
        ((0, 9, 9), {"hash": MURMUR}, "need to know how long 'z' will be"),
        ((2**20, 9, 9), {"hash": MURMUR}, "at most 65536 chunks a shard"),
        ((0, 2**20, 2**20), {}, "at most 65536 chunks a shard, and bits for all ids"),
    ],
)
def test_shards_that_cannot_hold_the_chunks_are_refused(
    shape: tuple[int, ...], given_: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        slots_of(shape, **given_)
