"""What stands beside a mirror of a finished dataset: a copy of its files, other writers, a codec."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from acqstream.arrays.array_spec import ArraySpec
from acqstream.bench.child_process import run_measured
from acqstream.bench.limit import measure_copy
from acqstream.bench.measurement import Measurement
from acqstream.bench.workload import Workload
from acqstream.formats.registry import chunk_format
from acqstream.mirrors.chunk_plan import options_of

COPY, LZ4, TENSORSTORE = "direct copy", "lz4.block", "tensorstore"
TENSORSTORE_VOLUMES = "tensorstore, precomputed shards"
TENSORSTORE_SHARDS, TENSORSTORE_FRAMES, ACQUIRE = "tensorstore, shards", "tensorstore, frames", "acquire-zarr"


@dataclass(frozen=True, slots=True)
class PeerTask:
    """dataset was written from `workload`, in stacks of z frames; a mirror with these settings is made of it."""

    dataset: Path
    workload: Workload
    z: int
    settings: Mapping[str, Any]

    def level(self) -> ArraySpec:
        """The full resolution of the mirror, cut as its format does it."""
        shape = (-(-self.workload.frames // self.z), self.z, *self.workload.shape)
        array = ArraySpec(axes=("time", "z", "y", "x"), shape=shape, dtype=np.dtype(self.workload.dtype))
        found = chunk_format(str(self.settings["format"]))
        return found.plan(array, options_of(found, self.settings)).levels[0]


@dataclass(frozen=True, slots=True)
class MirrorPeer:
    """run takes an empty folder. module is what Python imports and package what pip installs, if anything."""

    run: Callable[[PeerTask, Path], Measurement]
    module: str = ""
    package: str = ""

    def absent(self) -> str:
        """The reason why it cannot be measured here; empty if it can."""
        has = not self.module or importlib.util.find_spec(self.module)
        return "" if has else f"not measured: pip install {self.package}"


def _copy(task: PeerTask, folder: Path) -> Measurement:
    return measure_copy(sorted(task.dataset.glob("*.tif")), folder)


def _lz4(task: PeerTask, folder: Path) -> Measurement:
    del folder  # nothing is stored
    return run_measured("lz4 blocks", task.workload.payload_bytes, workload=task.workload)


def _blocks(task: PeerTask, folder: Path) -> Measurement:
    sides = (task.workload.frames, *task.workload.shape)
    how = {
        "blocks": [min(pair) for pair in zip(task.settings["blocks"], sides, strict=True)],
        "compression": task.settings["compression"],
    }
    return run_measured("tensorstore blocks", task.workload.payload_bytes, folder=folder, workload=task.workload, **how)


def _shards(run: str, task: PeerTask, folder: Path) -> Measurement:
    level = task.level()
    how = {"chunk": level.block_shape[-3:], "shard": level.shard_shape[-3:]}
    return run_measured(run, task.workload.payload_bytes, folder=folder, workload=task.workload, **how)


def _volumes(task: PeerTask, folder: Path) -> Measurement:
    level = task.level()
    how = {"z": task.z, "chunk": [dict(zip(level.axes, level.chunk_shape, strict=True))[axis] for axis in "zyx"]}
    size = task.workload.payload_bytes
    return run_measured("tensorstore volumes", size, folder=folder, workload=task.workload, **how)


def _of_tensorstore(run: Callable[[PeerTask, Path], Measurement]) -> MirrorPeer:
    return MirrorPeer(run, "tensorstore", "tensorstore")


MIRROR_PEERS = {
    COPY: MirrorPeer(_copy),
    LZ4: MirrorPeer(_lz4),
    TENSORSTORE: _of_tensorstore(_blocks),
    TENSORSTORE_SHARDS: _of_tensorstore(partial(_shards, "tensorstore shards")),
    TENSORSTORE_FRAMES: _of_tensorstore(partial(_shards, "tensorstore frames")),
    TENSORSTORE_VOLUMES: _of_tensorstore(_volumes),
    ACQUIRE: MirrorPeer(partial(_shards, "acquire-zarr shards"), "acquire_zarr", "acquire-zarr"),
}
"""By the name that tables give them."""
