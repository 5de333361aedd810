"""Golden volumes, and volumes made by hand."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec
from acqstream.formats.chunk_layout import Plan
from acqstream.formats.chunk_reader import ChunkReader
from acqstream.formats.precomputed import FORMAT
from acqstream.formats.precomputed.foreign import open_volume
from acqstream.mirrors.mirror_container import open_publisher
from acqstream.mirrors.publisher import Publisher
from acqstream.storage.stores.data_path import data_path_of
from tests.storage.unforced_disk import UnforcedDisk

GOLDEN = Path(__file__).parents[2] / "golden" / "precomputed"
EXPECTED: Mapping[str, Any] = json.loads((GOLDEN / "expected.json").read_text())
SHARDING = {
    "@type": "neuroglancer_uint64_sharded_v1",
    "preshift_bits": 1,
    "hash": "identity",
    "minishard_bits": 1,
    "shard_bits": 0,
}


def read_all(reader: ChunkReader) -> NDArray[Any]:
    """The array of a scale; missing chunks are zeros."""
    spec = reader.spec
    found = np.zeros(spec.shape, spec.dtype)
    for position in np.ndindex(*spec.grid_shape):
        chunk = reader.read_chunk(position)
        if chunk is not None:
            found[spec.region(position)] = chunk
    return found


def open_at(path: Path) -> Sequence[ChunkReader]:
    return open_volume(data_path_of(path))


def info_of(**scale: Any) -> dict[str, Any]:
    """An `info` of a uint16 volume of 3 x 2 x 2 voxels in chunks of 2 x 2 x 1; None removes a key of the scale."""
    given = {
        "key": "a",
        "size": [3, 2, 2],
        "voxel_offset": [0, 0, 0],
        "resolution": [4, 4, 40],
        "chunk_sizes": [[2, 2, 1]],
        "encoding": "raw",
        **scale,
    }
    entry = {name: value for name, value in given.items() if value is not None}
    return {
        "@type": "neuroglancer_multiscale_volume",
        "type": "image",
        "data_type": "uint16",
        "num_channels": 1,
        "scales": [entry],
    }


def write_info(folder: Path, info: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "info").write_text(json.dumps(info))
    return folder


def words(values: Sequence[int]) -> bytes:
    """Numbers of 64 bits, modulo 2^64."""
    return struct.pack(f"<{len(values)}Q", *(value % 2**64 for value in values))


def values_of(*cells: tuple[int, int, int]) -> bytes:
    """Little-endian values 0x100 * (z + 1) + 0x10 * y + x of voxels (x, y, z)."""
    return struct.pack(f"<{len(cells)}H", *(0x100 * (z + 1) + 0x10 * y + x for x, y, z in cells))


def create(folder: Path, spec: ArraySpec, **options: Any) -> tuple[Publisher, Plan]:
    """The publisher of a new or existing container."""
    parsed = FORMAT.parse_options(options)
    plan = FORMAT.plan(spec, parsed)
    return open_publisher(FORMAT, folder, plan, parsed, UnforcedDisk()), plan


def store_level(writer: Publisher, level: int, spec: ArraySpec, array: NDArray[Any]) -> None:
    """All chunks of a level, each in full size with zeros beyond the array, which is in the order of its axes."""
    for position in np.ndindex(*spec.grid_shape):
        chunk = np.zeros(spec.chunk_shape, spec.dtype)
        part = array[spec.region(position)]
        chunk[tuple(slice(0, size) for size in part.shape)] = part
        writer.store(level, position, writer.encode(level, position, chunk))


def write_container(folder: Path, array: NDArray[Any], axes: Sequence[str], **given: Any) -> list[NDArray[Any]]:
    """A finished container; lower levels take every n-th item. Fields of ArraySpec and options may be mixed.

    Returns the arrays of the levels in the order of their axes.
    """
    options = {
        name: given.pop(name) for name in ("encoding", "chunks", "levels", "shards", "jpeg_quality") if name in given
    }
    spec = ArraySpec(axes=tuple(axes), shape=array.shape, dtype=array.dtype, **given)
    writer, plan = create(folder, spec, **options)
    order = [axes.index(name) for name in plan.full.axes if name in axes]
    moved = array.transpose(order).reshape(plan.full.shape)
    arrays = []
    for number, level in enumerate(plan.levels):
        picked = moved[tuple(slice(None, None, factor) for factor in level.factors)]
        arrays.append(picked[tuple(slice(0, size) for size in level.shape)])
        store_level(writer, number, level, arrays[-1])
    writer.finish(plan.levels)
    return arrays


def example_shard() -> bytes:
    """The four chunks of `info_of(sharding=SHARDING)` in one shard of 152 bytes."""
    data = words([0x0C, 0x3C, 0x48, 0x78])
    for z in (0, 1):
        data += values_of((0, 0, z), (1, 0, z), (0, 1, z), (1, 1, z)) + values_of((2, 0, z), (2, 1, z))
        data += words([2 * z, 1, 0x3C * z, 0, 8, 4])
    return data


def write_example(folder: Path, shard: bytes | None = None, **changes: Any) -> Path:
    """The volume of `example_shard`; changes are those of its sharding."""
    write_info(folder, info_of(sharding={**SHARDING, **changes}))
    (folder / "a").mkdir(exist_ok=True)
    (folder / "a" / "0.shard").write_bytes(example_shard() if shard is None else shard)
    return folder
