"""Baselines for mirror benchmarks: tensorstore writing complete N5 blocks, and LZ4 compression that stores nothing."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lz4.block
import numpy as np
from numpy.typing import NDArray

from acqstream.bench.comparison import force
from acqstream.bench.measurement import Measurement, UsageMeter, latency_of, reset_peak_memory
from acqstream.bench.mirror import PEER_ROLE
from acqstream.bench.workload import Workload

LZ4_SIDE = 32  # of a block of WKW, in voxels
_IN_FLIGHT = 4  # layers of blocks that tensorstore may be writing


def write_blocks(
    folder: Path, workload: Workload, blocks: Sequence[int], compression: Mapping[str, Any]
) -> Measurement:
    """All frames as one array (z, y, x), in runs of frames as deep as a block; until each file and folder is forced."""
    import tensorstore

    depth = blocks[0]
    memory = stacked(workload, depth)
    store = tensorstore.open(
        {
            "driver": "n5",
            "kvstore": {"driver": "file", "path": str(folder / "peer.n5")},
            "context": {"file_io_sync": False},  # forced at the end
            "metadata": {
                "dimensions": [*reversed(workload.shape), workload.frames],
                "blockSize": list(reversed(blocks)),
                "dataType": workload.dtype,
                "compression": dict(compression),
            },
        },
        create=True,
    ).result()
    store = store.T  # (z, y, x)
    in_flight: deque[Any] = deque()
    reset_peak_memory()
    meter, started = UsageMeter(os.getpid()), time.perf_counter()
    for first in range(0, workload.frames, depth):
        count = min(depth, workload.frames - first)
        at = first % len(memory)
        in_flight.append(store[first : first + count].write(memory[at : at + count]).commit)
        if len(in_flight) > _IN_FLIGHT:
            in_flight.popleft().result()
    while in_flight:
        in_flight.popleft().result()
    force(folder)
    return peer_measurement(workload, started, meter)


def compress_blocks(workload: Workload) -> Measurement:
    """Compress the bytes of the workload with LZ4, in complete blocks of its frames, on all processors."""
    memory = stacked(workload, LZ4_SIDE)
    sides = [size // LZ4_SIDE for size in memory.shape]
    cut = memory[tuple(slice(0, side * LZ4_SIDE) for side in sides)]
    split = cut.reshape([item for side in sides for item in (side, LZ4_SIDE)]).transpose(0, 2, 4, 1, 3, 5)
    blocks = [block.reshape(-1).view(np.uint8).data for block in np.ascontiguousarray(split).reshape(-1, LZ4_SIDE**3)]
    wanted = -(-workload.payload_bytes // blocks[0].nbytes)
    cores = os.cpu_count() or 1

    def compress(worker: int) -> None:
        for number in range(worker, wanted, cores):
            lz4.block.compress(blocks[number % len(blocks)], store_size=False)

    meter, started = UsageMeter(os.getpid()), time.perf_counter()
    with ThreadPoolExecutor(cores, thread_name_prefix="lz4") as pool:
        list(pool.map(compress, range(cores)))
    return peer_measurement(workload, started, meter)


def stacked(workload: Workload, depth: int) -> NDArray[Any]:
    """The distinct frames of the workload as one array (z, y, x), cut to a multiple of `depth`."""
    pool = workload.pool()
    count = max(len(pool) // depth, 1) * depth
    return np.stack([pool[number % len(pool)] for number in range(count)])


def peer_measurement(workload: Workload, started: float, meter: UsageMeter) -> Measurement:
    """The measurement of a workload that was written since `started`."""
    seconds = time.perf_counter() - started
    return Measurement(
        payload_bytes=workload.payload_bytes,
        frames=workload.frames,
        seconds=seconds,
        latency=latency_of([int(seconds * 1e9)]),
        processes={PEER_ROLE: meter.cost()},
    )
