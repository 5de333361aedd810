"""Other writers of sharded arrays: frames out of memory, in chunks and shards as the mirror beside them has them."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from acqstream.bench.comparison import force
from acqstream.bench.measurement import Measurement, UsageMeter, reset_peak_memory
from acqstream.bench.workload import Workload
from bench.block_peer import peer_measurement, stacked

_MINISHARD_BITS = 6  # of a shard, which has 64 minishards then
_IN_FLIGHT = 2  # whole shards that tensorstore may be writing: more are no faster, and each is in memory


def write_zarr_shards(folder: Path, workload: Workload, chunk: Sequence[int], shard: Sequence[int]) -> Measurement:
    """Tensorstore, Zarr version 3: an array (z, y, x), a shard by one write; until each file and folder is forced."""
    store, depth = _zarr_array(folder, workload, chunk, shard), shard[0]
    memory = stacked(workload, depth)
    in_flight: deque[Any] = deque()

    def write() -> None:
        for first in range(0, workload.frames, depth):
            count = min(depth, workload.frames - first)
            at = first % len(memory)
            in_flight.append(store[first : first + count].write(memory[at : at + count]).commit)
            if len(in_flight) > _IN_FLIGHT:
                in_flight.popleft().result()
        while in_flight:
            in_flight.popleft().result()

    return _measured(folder, workload, write)


def write_zarr_frames(folder: Path, workload: Workload, chunk: Sequence[int], shard: Sequence[int]) -> Measurement:
    """The same, a frame by one write, in a transaction for each shard: without one each frame writes its shard anew."""
    import tensorstore

    store, depth = _zarr_array(folder, workload, chunk, shard), shard[0]
    pool = workload.pool()

    def write() -> None:
        for first in range(0, workload.frames, depth):
            transaction = tensorstore.Transaction()
            target = store.with_transaction(transaction)
            for number in range(first, min(first + depth, workload.frames)):
                target[number] = pool[number % len(pool)]
            transaction.commit_sync()

    return _measured(folder, workload, write)


def write_volumes(folder: Path, workload: Workload, z: int, chunk: Sequence[int]) -> Measurement:
    """Tensorstore, precomputed: a volume of one shard for each stack of z frames, by one write in a transaction."""
    import tensorstore

    shape = (z, *workload.shape)
    sides = [-(-size // step) for size, step in zip(shape, chunk, strict=True)]
    id_bits = sum((side - 1).bit_length() for side in sides)
    memory = stacked(workload, z)
    sharding = {
        "@type": "neuroglancer_uint64_sharded_v1",
        "hash": "identity",
        "preshift_bits": max(0, id_bits - _MINISHARD_BITS),
        "minishard_bits": min(id_bits, _MINISHARD_BITS),
        "shard_bits": 0,
    }

    def write() -> None:
        for first in range(0, workload.frames, z):
            count, at = min(z, workload.frames - first), first % len(memory)
            store = tensorstore.open(
                {
                    "driver": "neuroglancer_precomputed",
                    "kvstore": {"driver": "file", "path": str(folder / f"peer-{first // z}")},
                    "context": {"file_io_sync": False},  # forced at the end
                    "multiscale_metadata": {"type": "image", "data_type": workload.dtype, "num_channels": 1},
                    "scale_metadata": {
                        "size": [*reversed((count, *workload.shape))],
                        "chunk_size": [*reversed(chunk)],
                        "resolution": [1, 1, 1],
                        "encoding": "raw",
                        "sharding": sharding,
                    },
                },
                create=True,
            ).result()
            transaction = tensorstore.Transaction()
            store.with_transaction(transaction)[..., 0].T.write(memory[at : at + count]).result()
            transaction.commit_sync()

    return _measured(folder, workload, write)


def append_frames(folder: Path, workload: Workload, chunk: Sequence[int], shard: Sequence[int]) -> Measurement:
    """Acquire-zarr: a stream of frames, each by one `append`; until each file and folder is forced."""
    import acquire_zarr as zarr

    kinds = (zarr.DimensionType.TIME, zarr.DimensionType.SPACE, zarr.DimensionType.SPACE)
    array = zarr.ArraySettings(
        data_type=np.dtype(workload.dtype),
        dimensions=[
            zarr.Dimension(name=name, kind=kind, array_size_px=size, chunk_size_px=step, shard_size_chunks=side // step)
            for name, kind, size, step, side in zip("tyx", kinds, (0, *workload.shape), chunk, shard, strict=True)
        ],
    )
    pool = workload.pool()

    def write() -> None:
        stream = zarr.ZarrStream(zarr.StreamSettings(store_path=str(folder / "peer.zarr"), arrays=[array]))
        for number in range(workload.frames):
            stream.append(pool[number % len(pool)])
        stream.close()

    return _measured(folder, workload, write)


def _zarr_array(folder: Path, workload: Workload, chunk: Sequence[int], shard: Sequence[int]) -> Any:
    import tensorstore

    raw = {"name": "bytes", "configuration": {"endian": "little"}}
    sharding = {"chunk_shape": list(chunk), "codecs": [raw], "index_codecs": [raw, {"name": "crc32c"}]}
    return tensorstore.open(
        {
            "driver": "zarr3",
            "kvstore": {"driver": "file", "path": str(folder / "peer.zarr")},
            "context": {"file_io_sync": False},  # forced at the end
            "metadata": {
                "shape": [workload.frames, *workload.shape],
                "data_type": workload.dtype,
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(shard)}},
                "codecs": [{"name": "sharding_indexed", "configuration": sharding}],
            },
        },
        create=True,
    ).result()


def _measured(folder: Path, workload: Workload, write: Callable[[], None]) -> Measurement:
    reset_peak_memory()
    meter, started = UsageMeter(os.getpid()), time.perf_counter()
    write()
    force(folder)
    return peer_measurement(workload, started, meter)
