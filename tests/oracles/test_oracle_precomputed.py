"""tensorstore reads the volumes that our writer writes, and we read those that it writes, in every kind of shards."""

from __future__ import annotations

import math
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import acqstream
from acqstream.arrays.array_spec import ArraySpec
from acqstream.formats.check_report import CheckReport
from acqstream.formats.precomputed.foreign import check
from acqstream.formats.precomputed.metadata import WRITTEN_DTYPES
from acqstream.storage.stores.data_path import data_path_of
from tests.formats.precomputed.precomputed_data import create, store_level, write_container

pytestmark = pytest.mark.oracle

SHARDED = "neuroglancer_uint64_sharded_v1"
HASHES = ("identity", "murmurhash3_x86_128")


def open_theirs(folder: Path, scale: int = 0) -> Any:
    tensorstore = pytest.importorskip("tensorstore")
    kvstore = {"driver": "file", "path": str(folder)}
    spec = {"driver": "neuroglancer_precomputed", "kvstore": kvstore, "scale_index": scale}
    return tensorstore.open(spec, read=True).result()


def read_theirs(folder: Path, scale: int = 0) -> NDArray[Any]:
    """(c, z, y, x)."""
    return open_theirs(folder, scale).read().result().transpose(3, 2, 1, 0)


def write_theirs(folder: Path, array: NDArray[Any], **scale: Any) -> None:
    """Let tensorstore write (c, z, y, x)."""
    tensorstore = pytest.importorskip("tensorstore")
    spec = {
        "driver": "neuroglancer_precomputed",
        "kvstore": {"driver": "file", "path": str(folder)},
        "multiscale_metadata": {"type": "image", "data_type": str(array.dtype), "num_channels": array.shape[0]},
        "scale_metadata": {"size": array.shape[:0:-1], "resolution": [4, 4, 40.5], "encoding": "raw", **scale},
    }
    tensorstore.open(spec, create=True).result().write(array.transpose(3, 2, 1, 0)).result()


def samples(shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    kind, randomness = np.dtype(dtype), np.random.default_rng(8)
    if kind.kind == "f":
        return randomness.normal(size=shape).astype(kind)
    return randomness.integers(np.iinfo(kind).min, np.iinfo(kind).max, shape, kind, endpoint=True)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", WRITTEN_DTYPES)
@pytest.mark.parametrize("chunks", [[1, 512, 512], [4, 16, 8], [3, 7, 64]])
def test_they_read_every_dtype_and_level(tmp_path, dtype, chunks):
    array = samples((5, 70, 41), dtype)
    written = write_container(tmp_path, array, ("z", "y", "x"), chunks=chunks, levels=3)
    for number, expected in enumerate(written):
        found = read_theirs(tmp_path, number)
        assert found.dtype == np.dtype(dtype)
        assert np.array_equal(found[0], expected)


@pytest.mark.parametrize(
    ("dtype", "components", "encoding"),
    [
        ("uint8", 1, "png"),
        ("uint8", 3, "png"),
        ("uint8", 4, "raw"),
        ("uint16", 1, "png"),
        ("uint16", 2, "png"),
        ("uint16", 4, "png"),
        ("uint16", 3, "raw"),
        ("uint32", 1, "compressed_segmentation"),
        ("uint64", 1, "compressed_segmentation"),
    ],
)
def test_they_read_every_encoding(tmp_path, dtype, components, encoding):
    array = samples((6, 50, 60, components), dtype)
    array[2:4, 10:40] = 7
    write_container(
        tmp_path,
        array,
        ("z", "y", "x", "c"),
        chunks=[4, 32, 48],
        encoding=encoding,
        levels=2,
        units=("um",) * 3 + ("",),
    )
    assert np.array_equal(read_theirs(tmp_path), np.moveaxis(array, -1, 0))
    assert np.array_equal(read_theirs(tmp_path, 1), np.moveaxis(array[:, ::2, ::2], -1, 0))


@pytest.mark.parametrize("components", [1, 3])
@pytest.mark.parametrize("shards", [False, True])
def test_they_read_our_jpeg_as_we_do(tmp_path, components, shards):
    y, x = np.mgrid[:50, :60]
    array = np.stack([np.clip(3 * y + 2 * x - 40 * n, 0, 255).astype(np.uint8) for n in range(components)], -1)
    array = np.stack([array, array[::-1], array[:, ::-1]])
    form = {"encoding": "jpeg", "jpeg_quality": 95, "chunks": [2, 32, 48], "levels": 1, "shards": shards}
    write_container(tmp_path, array, ("z", "y", "x", "c"), **form)
    theirs = np.moveaxis(read_theirs(tmp_path), 0, -1).astype(int)
    with acqstream.open(tmp_path) as ds:
        assert ds.levels[0].axes == ("c", "z", "y", "x")
        ours = np.moveaxis(ds.levels[0].read(), 0, -1).astype(int)
    assert np.abs(theirs - ours).max() <= 3  # decoders round in their own ways
    assert np.abs(theirs - array).max() < 16


def test_members_are_volumes_of_their_own(tmp_path):
    array = samples((2, 3, 4, 10, 12), "uint16")
    write_container(tmp_path, array, ("time", "channel", "z", "y", "x"))
    for time, channel in np.ndindex(2, 3):
        assert np.array_equal(read_theirs(tmp_path / f"time{time}" / f"channel{channel}")[0], array[time, channel])


def test_they_take_our_distances(tmp_path):
    space = {"scale": (2.5, 0.65, 0.65), "units": ("um",) * 3}
    write_container(tmp_path, samples((4, 30, 40), "uint8"), ("z", "y", "x"), levels=2, **space)
    for scale, expected in ((0, [650, 650, 2500]), (1, [1300, 1300, 2500])):
        units = open_theirs(tmp_path, scale).dimension_units
        assert [(unit.multiplier, unit.base_unit) for unit in units[:3]] == [(size, "nm") for size in expected]


@pytest.mark.parametrize("declared", [0, 11])
def test_a_volume_that_grows_is_right_at_every_moment(tmp_path, declared):
    array = samples((11, 20, 30), "uint16")
    spec = ArraySpec(axes=("z", "y", "x"), shape=(declared, 20, 30), dtype=array.dtype)
    writer, plan = create(tmp_path, spec, chunks=[4, 16, 16], levels=1)
    for size in (3, 4, 6, 8, 11):
        part = array.copy()
        part[size:] = 0
        level = replace(plan.full, shape=(size, 20, 30))
        store_level(writer, 0, level, part[:size])
        writer.grow(0, (max(size, declared), 20, 30))
        found = read_theirs(tmp_path)[0]
        depth = declared or -(-size // 4) * 4  # complete chunks, unless a size was declared
        assert found.shape == (depth, 20, 30)
        assert np.array_equal(found[: min(depth, 11)], part[: min(depth, 11)])
        assert not found[11:].any()
        with acqstream.open(tmp_path) as ds:
            assert ds.shape == (max(size, declared), 20, 30)
            assert np.array_equal(ds.levels[0].read(), part[: ds.shape[0]])
    writer.finish([replace(plan.full, shape=array.shape)])
    with acqstream.open(tmp_path) as ds:
        assert np.array_equal(ds.levels[0].read(), array)
    files = {path.name.rpartition("_")[2] for path in (tmp_path / "s0").iterdir()}
    assert files == {"0-4", "4-8", "8-11" if declared else "8-12"}  # none was left under another name


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", HASHES)
@pytest.mark.parametrize("index", ["raw", "gzip"])
@pytest.mark.parametrize("data", ["raw", "gzip"])
@pytest.mark.parametrize(
    "bits", [{}, {"preshift_bits": 2}, {"preshift_bits": 1, "minishard_bits": 3, "shard_bits": 30}]
)
def test_they_read_our_shards(tmp_path, name, index, data, bits):
    for number, (shape, chunks) in enumerate(
        [((9, 70, 41), [4, 16, 8]), ((1, 40, 40), [1, 8, 8]), ((20, 9, 9), [1, 9, 9])]
    ):
        array, folder = samples(shape, "uint16"), tmp_path / str(number)
        shards = {"hash": name, "minishard_index_encoding": index, "data_encoding": data, **bits}
        written = write_container(folder, array, ("z", "y", "x"), chunks=chunks, levels=2, shards=shards)
        for scale, expected in enumerate(written):
            found = read_theirs(folder, scale)[0]
            assert np.array_equal(found[: len(expected)], expected)
            assert found.shape[1:] == expected.shape[1:]
            assert not found[len(expected) :].any()
        with acqstream.open(folder) as ds:
            assert np.array_equal(ds.levels[0].read(), array)
        report = CheckReport()
        check(data_path_of(folder), report)
        assert not report.problems


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    shape=st.tuples(*[st.integers(1, 20)] * 3),
    chunk=st.tuples(*[st.integers(1, 6)] * 3),
    preshift=st.none() | st.integers(0, 5),
    minishard=st.none() | st.integers(0, 3),
    name=st.sampled_from(HASHES),
    declared=st.booleans(),
)
def test_they_read_shards_that_grew(shape, chunk, preshift, minishard, name, declared):
    array = np.arange(1, 1 + math.prod(shape), dtype=np.uint16).reshape(shape)
    bits = {"preshift_bits": preshift, "minishard_bits": minishard}
    shards = {"hash": name, **{key: value for key, value in bits.items() if value is not None}}
    size = shape[0] if declared or name == HASHES[1] else 0
    spec = ArraySpec(axes=("z", "y", "x"), shape=(size, *shape[1:]), dtype=array.dtype)
    with tempfile.TemporaryDirectory(prefix="acqstream-precomputed-") as folder:
        writer, plan = create(Path(folder), spec, chunks=[*chunk], levels=1, shards=shards)
        level = plan.full.chunk_shape[0]
        for stop in range(level, shape[0] + level, level):
            known = array[: min(stop, shape[0])]
            store_level(writer, 0, replace(plan.full, shape=known.shape), known)
            writer.grow(0, (max(len(known), size), *shape[1:]))
            assert np.array_equal(read_theirs(Path(folder))[0][: len(known)], known)
        writer.finish([replace(plan.full, shape=shape)])
        found = read_theirs(Path(folder))[0]
        assert np.array_equal(found[: shape[0]], array)
        assert not found[shape[0] :].any()


def check_ours(folder: Path, array: NDArray[Any]) -> None:
    with acqstream.open(folder) as ds:
        expected = array if array.shape[0] > 1 else array[0]
        found = ds.levels[0].read()
        assert found.dtype == array.dtype
        assert np.array_equal(found, expected)
    report = CheckReport()
    check(data_path_of(folder), report)
    assert not report.problems


def check_shards(array: NDArray[Any], scale: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory(prefix="acqstream-precomputed-") as folder:
        write_theirs(Path(folder), array, **scale)
        check_ours(Path(folder), array)


@pytest.mark.parametrize("dtype", WRITTEN_DTYPES)
@pytest.mark.parametrize("components", [1, 2])
def test_we_read_every_dtype(tmp_path, dtype, components):
    array = samples((components, 9, 21, 30), dtype)
    write_theirs(tmp_path / "files", array, chunk_size=[8, 9, 4], voxel_offset=[-5, 6, 2**40])
    check_ours(tmp_path / "files", array)
    sharding = {"@type": SHARDED, "preshift_bits": 2, "hash": HASHES[1], "minishard_bits": 1, "shard_bits": 3}
    write_theirs(tmp_path / "shards", array, chunk_size=[8, 9, 4], voxel_offset=[-5, 6, 7], sharding=sharding)
    check_ours(tmp_path / "shards", array)


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("dtype", "components", "encoding"),
    [
        ("uint8", 1, "png"),
        ("uint8", 2, "png"),
        ("uint8", 3, "png"),
        ("uint8", 4, "png"),
        ("uint16", 1, "png"),
        ("uint16", 2, "png"),
        ("uint16", 3, "png"),
        ("uint16", 4, "png"),
        ("uint32", 2, "compressed_segmentation"),
        ("uint64", 1, "compressed_segmentation"),
    ],
)
@pytest.mark.parametrize("is_sharded", [False, True])
def test_we_read_every_encoding(dtype, components, encoding, is_sharded):
    array = samples((components, 9, 21, 30), dtype)
    array[:, :, :5] = 3
    scale: dict[str, Any] = {"chunk_size": [16, 9, 5], "encoding": encoding}
    if encoding == "compressed_segmentation":
        scale["compressed_segmentation_block_size"] = [8, 4, 2]
    if is_sharded:
        bits = {"preshift_bits": 1, "minishard_bits": 1, "shard_bits": 1}
        scale["sharding"] = {"@type": SHARDED, "hash": HASHES[0], **bits, "data_encoding": "gzip"}
    check_shards(array, scale)


@pytest.mark.parametrize("components", [1, 3])
def test_we_read_their_jpeg_as_they_do(tmp_path, components):
    y, x = np.mgrid[:24, :32]
    array = np.stack([(4 * y + 3 * x + 30 * n).astype(np.uint8) for n in range(components)])[:, None]
    write_theirs(tmp_path, array, chunk_size=[32, 24, 1], encoding="jpeg", jpeg_quality=95)
    with acqstream.open(tmp_path) as ds:
        ours = ds.levels[0].read().reshape(array.shape).astype(int)
    assert np.abs(ours - read_theirs(tmp_path)).max() <= 3  # decoders round in their own ways
    assert np.abs(ours - array).max() < 16


@pytest.mark.parametrize("name", HASHES)
@pytest.mark.parametrize("index", ["raw", "gzip"])
@pytest.mark.parametrize("data", ["raw", "gzip"])
def test_we_read_every_kind_of_shards(name, index, data):
    array = samples((1, 9, 21, 30), "uint16")
    for preshift, minishard, shard in ((0, 0, 0), (0, 3, 0), (9, 0, 2), (1, 2, 4), (3, 0, 20), (60, 1, 1), (0, 6, 0)):
        bits = {"preshift_bits": preshift, "minishard_bits": minishard, "shard_bits": shard}
        kind = {"@type": SHARDED, "hash": name, "minishard_index_encoding": index, "data_encoding": data, **bits}
        check_shards(array, {"chunk_size": [8, 9, 4], "sharding": kind})


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    shape=st.tuples(*[st.integers(1, 14)] * 3),
    chunk=st.tuples(*[st.integers(1, 6)] * 3),
    bits=st.tuples(st.integers(0, 12), st.integers(0, 5), st.integers(0, 12)),
    name=st.sampled_from(HASHES),
    packed=st.sampled_from(["raw", "gzip"]),
    offset=st.tuples(*[st.integers(-99, 99)] * 3),
)
def test_we_read_shards_of_any_shape(shape, chunk, bits, name, packed, offset):
    array = np.arange(1, 1 + math.prod(shape), dtype=np.uint16).reshape(1, *shape)
    kind = dict(zip(("preshift_bits", "minishard_bits", "shard_bits"), bits, strict=True))
    sharding = {"@type": SHARDED, "hash": name, "minishard_index_encoding": packed, "data_encoding": packed, **kind}
    check_shards(array, {"chunk_size": chunk, "voxel_offset": offset, "sharding": sharding})
