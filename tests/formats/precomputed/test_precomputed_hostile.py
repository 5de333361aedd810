"""Damaged and hostile volumes: an error that names the file, within bounded memory."""

from __future__ import annotations

import gzip
import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acqstream.errors import CorruptDataset, DatasetError, UnsupportedFeature
from acqstream.formats.check_report import CheckReport
from acqstream.formats.precomputed.foreign import check_volume
from acqstream.storage.files.boundary import following_links
from acqstream.storage.stores.data_path import data_path_of
from tests.formats.precomputed.precomputed_data import (
    SHARDING,
    example_shard,
    info_of,
    open_at,
    read_all,
    values_of,
    words,
    write_example,
    write_info,
)

MAX_BYTES = 16 * 2**20
FIRST = values_of((0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0))  # the chunk 0-2_0-2_0-1


def wrong_infos() -> dict[str, tuple[Any, str]]:
    def other(**fields: Any) -> dict[str, Any]:
        return {**info_of(), **fields}

    def sharded(**fields: Any) -> dict[str, Any]:
        return info_of(sharding={**SHARDING, **fields})

    return {
        "a list": ([], "JSON object"),
        "another type": (other(**{"@type": "neuroglancer_legacy_mesh"}), "@type"),
        "kind": (other(type="mesh"), "type"),
        "dtype": (other(data_type="uint24"), "data_type"),
        "no channels": (other(num_channels=0), "num_channels"),
        "many channels": (other(num_channels=2**30), "more than 2147483647 bytes"),
        "no scales": (other(scales=[]), "scales"),
        "scales": (other(scales=[3]), r"scales\[0\]"),
        "two sizes": (info_of(size=[3, 2]), r"scales\[0\].size"),
        "negative size": (info_of(size=[3, 2, -2]), r"size\[2\]"),
        "huge size": (info_of(size=[2**40, 2**40, 2]), "more than 2\\^63"),
        "infinite": (info_of(resolution=[4, 4, float("inf")]), "resolution"),
        "no distance": (info_of(resolution=[4, 4, 0]), "resolution"),
        "no chunk size": (info_of(chunk_sizes=[]), "chunk_sizes"),
        "empty chunk": (info_of(chunk_sizes=[[2, 2, 0]]), "chunk_sizes"),
        "huge chunk": (info_of(chunk_sizes=[[2**20, 2**20, 1]]), "more than 2147483647 bytes"),
        "no encoding": (info_of(encoding=None), "encoding"),
        "no block": (info_of(encoding="compressed_segmentation"), "compressed_segmentation_block_size"),
        "huge block": (
            info_of(encoding="compressed_segmentation", compressed_segmentation_block_size=[2**10, 2**10, 1]),
            "at most 262144 voxels",
        ),
        "key": (info_of(key="a\\b"), "not a relative path"),
        "preshift": (sharded(preshift_bits=64), "preshift_bits"),
        "minishard bits": (sharded(minishard_bits=33), "minishard_bits"),
        "shard bits": (sharded(shard_bits=64), "shard_bits"),
        "index encoding": (sharded(minishard_index_encoding="zstd"), "minishard_index_encoding"),
        "long ids": ({**info_of(size=[2**30, 2**20, 2**9], chunk_sizes=[[1, 1, 1]], sharding=SHARDING)}, "^$"),
    }


WRONG_INFOS = wrong_infos()


@pytest.mark.parametrize("name", [name for name in WRONG_INFOS if name != "long ids"])
def test_a_wrong_info_is_told_with_its_field(tmp_path, name):
    info, text = WRONG_INFOS[name]
    write_info(tmp_path, info)
    with pytest.raises(CorruptDataset, match=text) as caught:
        open_at(tmp_path)
    assert Path(caught.value.path) == tmp_path / "info"
    report = CheckReport()
    assert check_volume(data_path_of(tmp_path), report).arrays == 0
    assert report.problem_count == 1


def test_ids_of_up_to_64_bits_open(tmp_path):
    write_info(tmp_path, WRONG_INFOS["long ids"][0])
    assert open_at(tmp_path)[0].read_chunk((0, 0, 0)) is None


def test_what_is_not_read_is_said(tmp_path):
    for number, change in enumerate([{"@type": "neuroglancer_uint64_sharded_v2"}, {"hash": "crc32"}]):
        folder = write_info(tmp_path / str(number), info_of(sharding={**SHARDING, **change}))
        with pytest.raises(UnsupportedFeature, match="sharding"):
            open_at(folder)
    folder = write_info(tmp_path / "jxl", info_of(encoding="jxl"))
    (folder / "a").mkdir()
    (folder / "a" / "0-2_0-2_0-1").write_bytes(b"123")
    with pytest.raises(UnsupportedFeature, match="encoding 'jxl'; raw, png, jpeg, compressed_segmentation are read"):
        open_at(folder)[0].read_chunk((0, 0, 0))
    with pytest.raises(DatasetError, match="no such file"):
        open_at(tmp_path / "jxl" / "a")


def test_a_scale_outside_of_the_folder_takes_leave(tmp_path):
    write_info(tmp_path / "v", info_of(key="../elsewhere"))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "0-2_0-2_0-1").write_bytes(FIRST)
    with pytest.raises(UnsupportedFeature, match="follow_links=True"):
        open_at(tmp_path / "v")
    with following_links(True):
        (reader,) = open_at(tmp_path / "v")
    assert np.array_equal(reader.read_chunk((0, 0, 0)), [[[0x100, 0x101], [0x110, 0x111]]])


def test_a_scale_may_lie_in_the_folder_itself(tmp_path):
    for number, key in enumerate(["", ".", "b/..", "./b/c"]):
        folder = write_info(tmp_path / str(number), info_of(key=key))
        place = folder / ("b/c" if key == "./b/c" else "")
        place.mkdir(parents=True, exist_ok=True)
        (place / "0-2_0-2_0-1").write_bytes(FIRST)
        assert open_at(folder)[0].read_chunk((0, 0, 0)) is not None


@pytest.mark.parametrize("data", [b"", FIRST[:-1], FIRST + b"0", FIRST * 100_000])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_raw_chunk_has_its_exact_length(tmp_path, data, suffix):
    write_info(tmp_path, info_of())
    path = tmp_path / "a" / f"0-2_0-2_0-1{suffix}"
    path.parent.mkdir()
    path.write_bytes(gzip.compress(data) if suffix else data)
    (reader,) = open_at(tmp_path)
    with pytest.raises(CorruptDataset, match="bytes") as caught:
        reader.read_chunk((0, 0, 0))
    assert Path(caught.value.path) == path
    report = CheckReport()
    check_volume(data_path_of(tmp_path), report)
    assert [Path(problem.path) for problem in report.problems] == [path]


def test_a_plain_file_goes_before_a_packed_one_and_brotli_is_no_zero(tmp_path):
    write_info(tmp_path, info_of())
    (tmp_path / "a").mkdir()
    (reader,) = open_at(tmp_path)
    place = tmp_path / "a" / "0-2_0-2_0-1"
    place.with_name(place.name + ".br").write_bytes(b"\x0b\x02\x80")
    with pytest.raises(UnsupportedFeature, match="brotli"):
        reader.read_chunk((0, 0, 0))
    place.with_name(place.name + ".gz").write_bytes(gzip.compress(bytes(8)))
    assert not reader.read_chunk((0, 0, 0)).any()
    place.write_bytes(FIRST)
    assert reader.read_chunk((0, 0, 0)).any()
    assert [*reader.stored()] == [(0, 0, 0)]


def damaged_shards() -> dict[str, tuple[bytes, str]]:
    good = example_shard()

    def put(offset: int, values: list[int]) -> bytes:
        data = words(values)
        return good[:offset] + data + good[offset + len(data) :]

    return {
        "empty": (b"", "shard index"),
        "half an entry": (good[:10], "shard index"),
        "end before start": (put(0, [0x3C, 0x0C]), "minishard index from 60 to 12"),
        "long index": (put(0, [0, 2**40]), "minishard index from 0 to"),
        "wild start": (put(0, [2**64 - 48, 2**64 - 1]), "reaches beyond the end"),
        "far start": (put(0, [2**40, 2**40 + 48]), "reaches beyond the end"),
        "cut index": (good[:60], "reaches beyond the end"),
        "not rows": (put(0, [0x0C, 0x3B]), "47 bytes, expected a multiple of 24"),
        "far chunk": (put(0x2C + 16, [2**62]), "reaches beyond the end"),
        "wrapping chunk": (put(0x2C + 16, [2**64 - 2]), "reaches beyond the end"),
        "long chunk": (put(0x2C + 32, [2**40]), "chunk of 1099511627776 bytes"),
        "short chunk": (put(0x2C + 32, [7]), "raw chunk of 7 bytes, expected 8"),
        "twice": (put(0x2C, [0, 0]), "lists chunk 0 2 times"),
    }


DAMAGED = damaged_shards()


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_shard_is_told(tmp_path, name):
    data, text = DAMAGED[name]
    (reader,) = open_at(write_example(tmp_path, data))
    tracemalloc.start()
    with pytest.raises(CorruptDataset, match=text) as caught:
        reader.read_chunk((0, 0, 0))
    assert Path(caught.value.path) == tmp_path / "a" / "0.shard"
    report = CheckReport()
    check_volume(data_path_of(tmp_path), report)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert report.problem_count
    assert peak < MAX_BYTES


def test_a_chunk_in_a_wrong_minishard_is_told_by_check(tmp_path):
    data = bytearray(example_shard())
    data[0x2C : 0x2C + 8] = words([2])  # chunks 2 and 3, which belong to the other minishard
    write_example(tmp_path, bytes(data))
    report = CheckReport()
    check_volume(data_path_of(tmp_path), report)
    assert "does not belong to minishard 0" in report.problems[0].text


def test_a_chunk_that_is_listed_often_is_told_once_and_not_read(tmp_path):
    often = words([*[0] * 50, *[0] * 50, 8, *[0] * 49])  # ids, starts and sizes of chunk 0
    write_example(tmp_path, words([0, len(often), 0, 0]) + often)
    report = CheckReport()
    check_volume(data_path_of(tmp_path), report)
    assert [problem.text for problem in report.problems] == ["lists a chunk of minishard 0 twice"]


def test_an_empty_minishard_is_zeros(tmp_path):
    (reader,) = open_at(write_example(tmp_path, words([5, 5]) + example_shard()[16:]))
    assert reader.read_chunk((0, 0, 0)) is None
    assert reader.read_chunk((1, 0, 0)) is not None
    assert sorted(reader.stored()) == [(1, 0, 0), (1, 0, 1)]


def test_many_minishards_take_no_memory(tmp_path):
    (reader,) = open_at(write_example(tmp_path, minishard_bits=32, preshift_bits=0))
    tracemalloc.start()
    with pytest.raises(CorruptDataset, match="shorter than its shard index of 68719476736 bytes"):
        list(reader.stored())
    with pytest.raises(CorruptDataset, match="reaches beyond the end"):  # the entry exists, what it names does not
        reader.read_chunk((0, 0, 0))
    assert tracemalloc.get_traced_memory()[1] < MAX_BYTES
    tracemalloc.stop()


def test_gzip_bombs_take_no_memory(tmp_path):
    bomb = gzip.compress(bytes(2**26), 9)
    shard = words([0, len(bomb), 0, 0]) + bomb
    (reader,) = open_at(write_example(tmp_path / "index", shard, minishard_index_encoding="gzip"))
    with pytest.raises(CorruptDataset, match="multiple of 24"):  # the bound of an index, which is no chunk's
        reader.read_chunk((0, 0, 0))
    index = words([0, 0, len(bomb)])
    shard = words([len(bomb), len(bomb) + 24, 0, 0]) + bomb + index
    (reader,) = open_at(write_example(tmp_path / "data", shard, data_encoding="gzip"))
    tracemalloc.start()
    with pytest.raises(CorruptDataset, match="gzip: holds more than"):
        reader.read_chunk((0, 0, 0))
    assert tracemalloc.get_traced_memory()[1] < MAX_BYTES
    tracemalloc.stop()


def test_noise_as_a_shard_raises_or_is_zeros(tmp_path):
    randomness = np.random.default_rng(5)
    good, names = example_shard(), set()
    for number in range(300):
        data = bytearray(good)
        for at in randomness.integers(0, len(data), 3):
            data[at] = randomness.integers(0, 256)
        (reader,) = open_at(write_example(tmp_path / str(number), bytes(data[: randomness.integers(100, 153)])))
        try:
            read_all(reader)
            list(reader.stored())
        except CorruptDataset as error:
            names.add(Path(error.path).name)
    assert names == {"0.shard"}


def test_the_info_is_bounded(tmp_path):
    path = Path(write_info(tmp_path, info_of())) / "info"
    os.truncate(path, 2**40)
    with pytest.raises(CorruptDataset, match="more than 16777216 bytes"):
        open_at(tmp_path)
    path.write_text(json.dumps(info_of())[:-3])
    with pytest.raises(CorruptDataset, match="not valid JSON"):
        open_at(tmp_path)
