"""Keys, shards, their index and codecs, by examples that other software wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.errors import CorruptDataset, UnsupportedFeature
from acqstream.formats.ome_zarr.chunk_store import ChunkStore, IndexCache
from acqstream.formats.ome_zarr.codec import ChunkCodecs, KeyEncoding, ZarrArray
from acqstream.formats.ome_zarr.zarr_json import parse_array
from acqstream.storage.stores.data_path import data_path_of

_BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
_ITEMS = np.arange(1, 7, dtype="<u2")
_SHARD = bytes.fromhex(
    "01000200040005000300000006000000"
    "07000800 0a000b00 0000000000000000"
    "0800000000000000 0800000000000000"
    "0800000000000000 1000000000000000"
    "0800000000000000 ffffffffffffffff"
    "ffffffffffffffff 21502b4c"
)


def _array(shape: list[int], chunk_shape: list[int], codecs: list[Any]) -> ZarrArray:
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": "uint16",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk_shape}},
        "chunk_key_encoding": {"name": "default"},
        "fill_value": 0,
        "codecs": codecs,
    }
    return parse_array(json.dumps(document).encode(), "zarr.json")


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        (KeyEncoding(), "c/1/23/45"),
        (KeyEncoding(True, "."), "c.1.23.45"),
        (KeyEncoding(False, "/"), "1/23/45"),
        (KeyEncoding(False, "."), "1.23.45"),
    ],
)
def test_keys(keys: KeyEncoding, key: str) -> None:
    assert keys.key((1, 23, 45)) == key
    assert keys.parse(key, 3) == (1, 23, 45)
    for wrong in (key + "x", "x" + key, key[:-1] + "-5", key.replace("23", "023"), "zarr.json"):
        assert keys.parse(wrong, 3) is None
    assert keys.parse(key, 2) is None


@pytest.mark.parametrize(
    ("codecs", "stored"),
    [
        ([{"name": "crc32c"}], "010002000300040005000600b19a482f"),
        ([{"name": "blosc"}], "0201330 20c0000000c0000001c000000010002000300040005000600".replace(" ", "")),
        ([{"name": "zstd"}], "28b52ffd200c610000010002000300040005000600"),
        ([{"name": "zstd"}], "28b52ffd240c6100000100020003000400050006008dbb06f3"),
    ],
)
def test_codecs(codecs: list[Any], stored: str) -> None:
    array = _array([6], [6], [_BYTES, *codecs])
    data = bytes.fromhex(stored)
    np.testing.assert_array_equal(array.codecs.decode(data, "x"), _ITEMS)
    for wrong in (data[:-1], data + b"\0", b""):
        with pytest.raises(CorruptDataset, match="x: "):
            array.codecs.decode(wrong, "x")


def test_that_a_checksum_may_follow_a_compressor() -> None:
    array = _array([6], [6], [_BYTES, {"name": "crc32c"}, {"name": "zstd"}, {"name": "crc32c"}])
    assert [one.name for one in array.codecs.compressors] == ["crc32c", "zstd", "crc32c"]
    with pytest.raises(CorruptDataset):
        array.codecs.decode(b"123", "x")
    with pytest.raises(UnsupportedFeature, match="a compressor after another one"):
        _array([6], [6], [_BYTES, {"name": "gzip"}, {"name": "zstd"}])


def test_a_chain_of_codecs_is_bounded() -> None:
    """Each takes time for every chunk."""
    swap = {"name": "transpose", "configuration": {"order": [1, 0]}}
    assert not _array([2, 3], [2, 3], [*[swap] * 98, _BYTES]).codecs.order
    with pytest.raises(CorruptDataset, match="at most 100 codecs"):
        _array([2, 3], [2, 3], [*[swap] * 100, _BYTES])


def test_a_shard(tmp_path: Path) -> None:
    configuration = {
        "chunk_shape": [1, 2, 2],
        "codecs": [_BYTES],
        "index_codecs": [_BYTES, {"name": "crc32c"}],
        "index_location": "end",
    }
    array = _array([2, 2, 3], [2, 2, 4], [{"name": "sharding_indexed", "configuration": configuration}])
    file = tmp_path / "c" / "0" / "0" / "0"
    file.parent.mkdir(parents=True)
    file.write_bytes(_SHARD)
    store = data_path_of(tmp_path).store(follows_links=False)
    chunks = ChunkStore(store, "", array, IndexCache(may_change=False))
    found = [None if chunk is None else chunk.tolist() for chunk in map(chunks.read, array.chunks_of((0, 0, 0)))]
    assert found == [[[[1, 2], [4, 5]]], [[[3, 0], [6, 0]]], [[[7, 8], [10, 11]]], None]
    assert list(chunks.stored()) == [(0, 0, 0), (0, 0, 1), (1, 0, 0)]
    for at in (0x20, 0x5C - 1):
        damaged = bytearray(_SHARD)
        damaged[at] ^= 1
        file.write_bytes(damaged)
        with pytest.raises(CorruptDataset):
            ChunkStore(store, "", array, IndexCache(may_change=False)).read((0, 0, 0))


_COUNTS = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(0, 50)), min_size=1, max_size=4)


@given(_COUNTS)
def test_that_place_and_chunks_of_are_inverse(axes: list[tuple[int, int, int]]) -> None:
    chunk_shape = tuple(step for step, _, _ in axes)
    counts = tuple(count for _, count, _ in axes)
    shard = tuple(at for _, _, at in axes)
    array = ZarrArray(
        shape=(1000,) * len(axes),
        codecs=ChunkCodecs(chunk_shape, np.dtype("u1")),
        shard_shape=tuple(step * count for step, count in zip(chunk_shape, counts, strict=True)),
    )
    places = [array.place(position) for position in array.chunks_of(shard)]
    assert places == [(shard, number) for number in range(int(np.prod(counts)))]
