"""What a writer has to write in a benchmark: so many frames of one shape, through one `put` after the other."""

from __future__ import annotations

import json
import math
import os
import time
from array import array
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.bench.measurement import Measurement, latency_of
from acqstream.bench.process_usage import UsageMeter, reset_peak_memory
from acqstream.simulate.frame_pool import FramePool

POOL_FRAMES = 8
_POOL_BYTES = 64 * 2**20  # of small frames more are prepared, so that they do not stay in the processor's cache


@dataclass(frozen=True, slots=True)
class Workload:
    """`frames` frames of `shape` (Y, X) and dtype "uint8" or "uint16"."""

    shape: tuple[int, ...]
    dtype: str
    frames: int

    @property
    def frame_bytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def payload_bytes(self) -> int:
        return self.frames * self.frame_bytes

    def as_argument(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_argument(text: str) -> Workload:
        values = json.loads(text)
        return Workload(tuple(values["shape"]), values["dtype"], values["frames"])


def workload_of(shape: tuple[int, ...], dtype: str, payload_bytes: int) -> Workload:
    """As many frames as hold `payload_bytes`, at least one."""
    one = Workload(shape, dtype, 1).frame_bytes
    return Workload(shape, dtype, max(1, payload_bytes // one))


def run_workload(
    workload: Workload,
    put: Callable[[NDArray[Any], int], None],
    finish: Callable[[], None],
    *,
    role: str,
) -> Measurement:
    """Put all frames and `finish`, which returns when they are durable; measures this process as `role`."""
    count = min(workload.frames, max(POOL_FRAMES, _POOL_BYTES // workload.frame_bytes))
    pool = FramePool(workload.shape, workload.dtype, count=count)
    durations_ns = array("q", bytes(8 * workload.frames))
    clock_ns = time.perf_counter_ns
    reset_peak_memory()  # preparing the pool takes more than the run
    meter = UsageMeter(os.getpid())
    started_ns = clock_ns()
    for number in range(workload.frames):
        image = pool.take(number)
        before_ns = clock_ns()
        put(image, number)
        durations_ns[number] = clock_ns() - before_ns
    finish()
    seconds = (clock_ns() - started_ns) / 1e9
    return Measurement(
        payload_bytes=workload.payload_bytes,
        frames=workload.frames,
        seconds=seconds,
        latency=latency_of(durations_ns),
        processes={role: meter.cost()},
    )


def print_measurement(measurement: Measurement) -> None:
    """One JSON line on stdout, for the process that started this one."""
    print(json.dumps(asdict(measurement)), flush=True)
