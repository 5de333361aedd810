"""Workload of a benchmark: a number of camera-like frames of one shape, written by one `put` after the other."""

from __future__ import annotations

import math
import os
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.bench.measurement import Measurement, UsageMeter, reset_peak_memory

POOL_BYTES = 128 * 2**20  # more than a processor's cache holds
_POOL_FRAMES = 2


@dataclass(frozen=True, slots=True)
class Workload:
    """`frames` frames of `shape` (Y, X) and dtype "uint8" or "uint16".

    pool_bytes of frames are prepared before, at least two of them, and handed out in turn. bits: how bright they are,
    None: as bright as they usually are.
    """

    shape: tuple[int, ...]
    dtype: str
    frames: int
    pool_bytes: int = POOL_BYTES
    bits: int | None = None

    @property
    def frame_bytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def payload_bytes(self) -> int:
        return self.frames * self.frame_bytes

    def pool(self) -> list[NDArray[Any]]:
        """The frames to send: camera-like, structure under Poisson noise."""
        count = min(self.frames, max(_POOL_FRAMES, self.pool_bytes // self.frame_bytes))
        return camera_frames(count, self.shape, self.dtype, self.bits)


def workload_of(shape: tuple[int, ...], dtype: str, payload_bytes: int, max_frames: int | None = None) -> Workload:
    """As many frames as hold `payload_bytes`, at least one, at most `max_frames`."""
    frames = max(1, payload_bytes // Workload(shape, dtype, 1).frame_bytes)
    return Workload(shape, dtype, frames if max_frames is None else min(frames, max_frames))


def run_workload(
    workload: Workload,
    put: Callable[[NDArray[Any], int], None],
    finish: Callable[[], None],
    *,
    prepared: Callable[[], None] | None = None,
    together: int | None = None,
) -> Measurement:
    """Put all frames and `finish`, which returns when they are durable; measures this process as "producer".

    put takes one frame (Y, X) and its number, or as many as `together` (N, Y, X) and the first number. prepared is
    called when the frames exist, before the time runs.
    """
    pool = workload.pool()
    stack = None if together is None else np.stack(pool)
    durations_ns = array("q")
    clock_ns = time.perf_counter_ns
    if prepared is not None:
        prepared()
    reset_peak_memory()  # preparing the pool takes more than the run
    meter = UsageMeter(os.getpid())
    started_ns = clock_ns()
    number = 0
    while number < workload.frames:
        at = number % len(pool)
        count = min(together or 1, workload.frames - number, len(pool) - at)
        image = pool[at] if stack is None else stack[at : at + count]
        before_ns = clock_ns()
        put(image, number)
        durations_ns.append(clock_ns() - before_ns)
        number += count
    finish()
    seconds = (clock_ns() - started_ns) / 1e9
    cost = {"producer": meter.cost()}
    return Measurement.of(workload.payload_bytes, durations_ns, seconds, cost, frames=workload.frames)


_BACKGROUND = 100.0  # camera offset, counts
_SPACING_PX = 64  # of the bright spots


def camera_frames(count: int, shape: tuple[int, ...], dtype: str, bits: int | None = None) -> list[NDArray[Any]]:
    """Frames as of a camera: bright spots on a slope, Poisson noise; C order, each its own array.

    All but the first are the first one drifted, noise included: drawing noise for each would take seconds.
    """
    kind = np.dtype(dtype)
    top = 2 ** (bits or kind.itemsize * 8) - 1
    rng = np.random.default_rng(5271)
    rows, columns = np.ogrid[: shape[0], : shape[1]]
    spots = np.sin(np.pi * rows / _SPACING_PX) ** 8 * np.sin(np.pi * columns / _SPACING_PX) ** 8
    light = 0.1 + 0.2 * columns / shape[1] + 0.6 * spots
    scale = min(top / 2, 2000.0)
    mean = _BACKGROUND * scale / 2000.0 + scale * light
    if len(shape) == 3:
        mean = np.repeat(mean[:, :, np.newaxis], shape[2], axis=2)
    first = np.minimum(rng.poisson(mean), top).astype(kind)
    return [np.roll(first, (37 * index, 61 * index), axis=(0, 1)) for index in range(count)]
