"""Mirrors of a finished dataset beside other writers and a codec: tensorstore, acquire-zarr, LZ4."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from acqstream.arrays.array_spec import ArraySpec
from acqstream.bench.child_process import run_measured
from acqstream.bench.comparison import BenchSettings, Observer, started_bench
from acqstream.bench.measurement import BenchReport, Measurement
from acqstream.bench.mirror import (
    BLOSC,
    RAW,
    AloneRow,
    AloneTask,
    MirrorPeer,
    alone_steps,
    alone_table,
    copy_beside,
    n5_alone,
)
from acqstream.bench.producer import transport_for
from acqstream.errors import ConfigError
from acqstream.formats.registry import chunk_format
from acqstream.mirrors.mirror_plan import options_of
from bench.block_peer import compress_blocks, write_blocks
from bench.shard_peer import append_frames, write_volumes, write_zarr_frames, write_zarr_shards

_MAX_COPIES = 3  # the dataset, the mirror with its levels or the peer's files, and what is reserved


def level_of(task: AloneTask) -> ArraySpec:
    """The full resolution of the mirror, cut as its format does it."""
    shape = (-(-task.workload.frames // task.z), task.z, *task.workload.shape)
    array = ArraySpec(axes=("time", "z", "y", "x"), shape=shape, dtype=np.dtype(task.workload.dtype))
    found = chunk_format(str(task.settings["format"]))
    return found.plan(array, options_of(found, task.settings)).levels[0]


def _run(write: Callable[..., Measurement], task: AloneTask, **how: Any) -> Measurement:
    return run_measured(write.__name__, write, task.workload.payload_bytes, workload=task.workload, **how)


def _lz4(task: AloneTask, folder: Path) -> Measurement:
    del folder  # nothing is stored
    return _run(compress_blocks, task)


def _blocks(task: AloneTask, folder: Path) -> Measurement:
    sides = (task.workload.frames, *task.workload.shape)
    blocks = [min(pair) for pair in zip(task.settings["blocks"], sides, strict=True)]
    return _run(write_blocks, task, folder=folder, blocks=blocks, compression=task.settings["compression"])


def _shards(write: Callable[..., Measurement], task: AloneTask, folder: Path) -> Measurement:
    level = level_of(task)
    return _run(write, task, folder=folder, chunk=level.block_shape[-3:], shard=level.shard_shape[-3:])


def _volumes(task: AloneTask, folder: Path) -> Measurement:
    level = level_of(task)
    chunk = [dict(zip(level.axes, level.chunk_shape, strict=True))[axis] for axis in "zyx"]
    return _run(write_volumes, task, folder=folder, z=task.z, chunk=chunk)


def _peer(
    name: str, run: Callable[[AloneTask, Path], Measurement], wanted: float | None, package: str = "tensorstore"
) -> MirrorPeer:
    has_it = importlib.util.find_spec(package.replace("-", "_")) is not None
    return MirrorPeer(name, run, wanted, "" if has_it else f"not measured: pip install {package}")


_BLOCKS = _peer("tensorstore", _blocks, 1.0)


def _shards_of_tensorstore(wanted: float | None) -> MirrorPeer:
    return _peer("tensorstore, shards", partial(_shards, write_zarr_shards), wanted)


def _volumes_of_tensorstore(wanted: float | None) -> MirrorPeer:
    return _peer("tensorstore, precomputed shards", _volumes, wanted)


def _ome_zarr(name: str, *peers: MirrorPeer, **settings: Any) -> AloneRow:
    raw = {"format": "ome-zarr", "compression": "none", "levels": 1, **settings}
    return AloneRow(f"ome-zarr raw {name}", raw, peers)


_WRITERS = (
    copy_beside(0.8),
    _peer("acquire-zarr", partial(_shards, append_frames), 3.0, "acquire-zarr"),
    _shards_of_tensorstore(3.0),
    _peer("tensorstore, frames", partial(_shards, write_zarr_frames), 3.0),
)
_SHARDS = (copy_beside(), _shards_of_tensorstore(None))
_LZ4 = MirrorPeer("lz4.block", _lz4, 0.8)
_PRECOMPUTED = {"format": "precomputed", "levels": 1}

ROWS = (
    n5_alone("raw", RAW, _BLOCKS),
    n5_alone("blosc-lz4", BLOSC, _BLOCKS),
    AloneRow("wkw lz4", {"format": "wkw", "levels": 1, "compression": "lz4"}, (_LZ4,)),
    _ome_zarr("beside writers", *_WRITERS),
    _ome_zarr("whole frames", *_WRITERS, chunks=(1, 2**13, 2**13)),
    _ome_zarr("16 deep", *_SHARDS, chunks=(16, 512, 512)),
    _ome_zarr("64 deep", *_SHARDS, chunks=(64, 128, 128)),
    _ome_zarr("all levels", *_SHARDS, levels="auto"),
    AloneRow("precomputed raw", _PRECOMPUTED, (copy_beside(), _volumes_of_tensorstore(None))),
    AloneRow("precomputed raw shards", {**_PRECOMPUTED, "shards": True}, (copy_beside(), _volumes_of_tensorstore(1.0))),
)


def run_peers_benchmark(
    settings: BenchSettings, observe: Observer, *, names: Sequence[str] = (), shape: tuple[int, int] = (1024, 1024)
) -> BenchReport:
    """Mirrors of these names, by default all, of frames of `shape` (Y, X) uint16. Raises ConfigError."""
    if unknown := set(names) - {row.name for row in ROWS}:
        raise ConfigError(f"unknown mirrors {sorted(unknown)}; there are {[row.name for row in ROWS]}")
    rows = [row for row in ROWS if row.name in names or not names]
    transport = transport_for(settings.rows, "peers")
    steps = settings.pairs * alone_steps(rows) + 1
    with started_bench(settings, observe, steps, _MAX_COPIES * settings.payload_bytes) as bench:
        return bench.report(tables=[alone_table(bench, transport, shape, rows)])
