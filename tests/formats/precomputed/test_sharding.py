"""Ids, hashes and indices of shards: published vectors and one shard byte for byte."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from acqstream.errors import CorruptDataset
from acqstream.formats.precomputed.sharding import (
    Sharding,
    cell_of,
    chunk_id,
    id_bits,
    murmur_hash,
    parse_minishard_index,
)
from tests.formats.precomputed.precomputed_data import example_shard, open_at, read_all, words, write_example

IDS = [
    ((3, 1, 4), (5, 4, 5), 139),
    ((4, 3, 4), (5, 4, 5), 210),
    ((1, 0, 7), (2, 1, 9), 15),
    ((5, 2, 200), (8, 3, 256), 6481),
    ((0, 0, 9), (1, 1, 10), 9),
]
HASHES = {
    0: 0x4772B084E028AE41,
    1: 0xE8BD67D616D4CE9A,
    2: 0xD62F9CD21B013F5A,
    3: 0x6B596E4F0E43E4D1,
    0x123456789ABCDEF0: 0x535693D33DD34552,
}


def sharding(**given) -> Sharding:
    fields = {"preshift_bits": 0, "hash": "identity", "minishard_bits": 0, "shard_bits": 0}
    return Sharding(**{**fields, "index_encoding": "raw", "data_encoding": "raw", **given})


@pytest.mark.parametrize(("cell", "grid", "expected"), IDS)
def test_ids_are_compressed_morton_codes(cell, grid, expected):
    assert chunk_id(cell, grid) == expected
    assert cell_of(expected, grid) == cell


def test_each_cell_has_an_id_of_its_own():
    grid = (5, 1, 6)
    cells = [*itertools.product(*map(range, grid))]
    ids = [chunk_id(cell, grid) for cell in cells]
    assert len(set(ids)) == len(cells)
    assert [cell_of(one, grid) for one in ids] == cells
    assert all(cell_of(one, grid) is None for one in set(range(128)) - set(ids))


def test_ids_of_more_than_64_bits_are_told():
    assert id_bits((2**21, 2**21, 2**22)) == 64
    assert id_bits((2**21, 2**22, 2**22)) == 65


@pytest.mark.parametrize(("value", "expected"), HASHES.items())
def test_the_hash_is_murmurhash3(value, expected):
    assert murmur_hash(value) == expected


def test_shards_are_chosen_by_the_bits_after_those_of_the_minishard():
    assert sharding(preshift_bits=1, minishard_bits=2, shard_bits=3).place(0b1_101_10_1) == (0b101, 0b10)
    hashed = sharding(hash="murmurhash3_x86_128", preshift_bits=1, minishard_bits=4, shard_bits=8)
    assert hashed.place(2) == (0xE9, 0xA) == hashed.place(3)


@pytest.mark.parametrize(
    ("bits", "shard", "name"),
    [(0, 0, "0.shard"), (4, 10, "a.shard"), (5, 10, "0a.shard"), (64, 1, "0" * 15 + "1.shard")],
)
def test_names_of_shards_have_the_digits_of_their_bits(bits, shard, name):
    kind = sharding(shard_bits=bits)
    assert kind.shard_name(shard) == name
    assert kind.parse_shard_name(name) == shard
    for other in ("x.shard", ".shard", name + ".part", "0" + name, "0.index"):
        assert kind.parse_shard_name(other) is None


def test_differences_of_an_index_wrap():
    index = parse_minishard_index(words([9, -4, 2, 100, -60, 10, 8, 4, 6]), "here")
    assert index.ids.tolist() == [9, 5, 7]
    assert index.starts.tolist() == [100, 48, 62]
    assert index.sizes.tolist() == [8, 4, 6]
    assert index.find(5, "here") == (48, 4)
    assert index.find(6, "here") is None
    with pytest.raises(CorruptDataset, match="here: a minishard index lists chunk 9 2 times"):
        parse_minishard_index(words([9, 0, 0, 0, 8, 8]), "here").find(9, "here")
    with pytest.raises(CorruptDataset, match="of 25 bytes, expected a multiple of 24"):
        parse_minishard_index(bytes(25), "here")


def test_a_shard_byte_for_byte(tmp_path):
    assert len(example_shard()) == 152
    (reader,) = open_at(write_example(tmp_path))
    expected = [[[0x100 * (z + 1) + 0x10 * y + x for x in range(3)] for y in range(2)] for z in range(2)]
    assert np.array_equal(read_all(reader), expected)
    assert sorted(reader.stored()) == [(0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 0, 1)]
    assert reader.spec.scale == (0.04, 0.004, 0.004)
