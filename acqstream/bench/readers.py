"""Readers of the benchmarks, each in a child process: opening, all frames, single frames, following."""

from __future__ import annotations

import os
import random
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from acqstream.bench.child_process import hold
from acqstream.bench.limit import measure_direct_reads
from acqstream.bench.measurement import Measurement, UsageMeter, latency_of
from acqstream.dataset.dataset import open_dataset
from acqstream.errors import AcquisitionFailed
from acqstream.formats.ndtiff.index_entries import INDEX_NAME
from acqstream.formats.ndtiff.reader import open_readers
from acqstream.storage.platform.capabilities import drop_from_cache

ROLE = "reader"
FIRST_AXES: dict[str, Any] = {"time": 0, "channel": "DAPI", "z": 0}
"""Axes of the first frame of the dataset to open."""

_WARM_BYTES = 200 * 2**20  # frames of so many bytes, from the page cache, in random order
_ROUNDS = 5


def measure_opening(path: Path) -> Measurement:
    """Until the first frame was read. The dataset's folder is named by its number of frames."""

    def run() -> Any:
        dataset = open_dataset(path)
        dataset.read_frame(FIRST_AXES)
        return dataset

    return _opening(path, run)


def measure_opening_ndstorage(path: Path) -> Measurement:
    """The same with ndstorage."""
    from ndstorage import NDTiffDataset

    def run() -> Any:
        dataset = NDTiffDataset(str(path))
        dataset.read_image(**FIRST_AXES)
        return dataset

    return _opening(path, run)


def _opening(path: Path, run: Callable[[], Any]) -> Measurement:
    frames = int(path.name)
    before = psutil.Process().memory_info().rss
    meter, started = UsageMeter(os.getpid()), time.perf_counter()
    dataset = run()
    seconds = time.perf_counter() - started
    grown = psutil.Process().memory_info().rss - before
    del dataset
    return Measurement(
        payload_bytes=(path / INDEX_NAME).stat().st_size,
        frames=frames,
        seconds=seconds,
        latency=latency_of([int(seconds * 1e9)]),
        processes={ROLE: meter.cost()},
        note=f"{grown / frames:.0f} bytes per frame",
    )


def measure_limit(path: Path) -> Measurement:
    """Direct reads of the stack files."""
    return measure_direct_reads(sorted(path.glob("*.tif")))


def measure_frames(path: Path) -> Measurement:
    """All frames in order, nothing of them in the page cache."""
    for stack in path.glob("*.tif"):
        drop_from_cache(stack)
    total, durations_ns = 0, array("q")
    meter, started_ns = UsageMeter(os.getpid()), time.perf_counter_ns()
    before_ns = started_ns
    with open_dataset(path) as dataset:
        for _, frame in dataset.frames():
            total += frame.nbytes
            now_ns = time.perf_counter_ns()
            durations_ns.append(now_ns - before_ns)
            before_ns = now_ns
    seconds = (time.perf_counter_ns() - started_ns) / 1e9
    return _measurement(total, durations_ns, seconds, meter)


def measure_read_frame(path: Path) -> Measurement:
    """Frames in random order from the page cache, by their axes."""
    with open_dataset(path) as dataset:
        keys = list(dataset.keys())
        return _at_random(
            len(keys), dataset.dtype.itemsize * _pixels(dataset.shape), lambda n: dataset.read_frame(keys[n])
        )


def measure_pread(path: Path) -> Measurement:
    """The same bytes with bare reads at known places."""
    reader, *_ = open_readers(path)
    places = [reader.stored_frame(row) for row in range(len(reader))]
    descriptors = {name: os.open(path / name, os.O_RDONLY) for name in {name for name, _ in places}}
    plain = [(descriptors[name], frame.payload_bytes, frame.pixels) for name, frame in places]
    try:
        return _at_random(len(plain), plain[0][1], lambda n: os.pread(*plain[n]))
    finally:
        for descriptor in descriptors.values():
            os.close(descriptor)


def _pixels(shape: tuple[int, ...]) -> int:
    return shape[-1] * shape[-2]


def _at_random(count: int, frame_bytes: int, read: Callable[[int], object]) -> Measurement:
    chosen = list(range(min(count, max(1, _WARM_BYTES // frame_bytes))))
    for number in chosen:
        read(number)
    random.Random(0).shuffle(chosen)
    durations_ns = array("q")
    meter, started = UsageMeter(os.getpid()), time.perf_counter()
    for _ in range(_ROUNDS):
        for number in chosen:
            before_ns = time.perf_counter_ns()
            read(number)
            durations_ns.append(time.perf_counter_ns() - before_ns)
    seconds = time.perf_counter() - started
    return _measurement(frame_bytes * len(durations_ns), durations_ns, seconds, meter)


def _measurement(payload_bytes: int, durations_ns: array[int], seconds: float, meter: UsageMeter) -> Measurement:
    return Measurement(
        payload_bytes=payload_bytes,
        frames=len(durations_ns),
        seconds=seconds,
        latency=latency_of(durations_ns),
        processes={ROLE: meter.cost()},
    )


_MEASURES: dict[str, Callable[[Path], Measurement]] = {
    "open": measure_opening,
    "open-ndstorage": measure_opening_ndstorage,
    "limit": measure_limit,
    "frames": measure_frames,
    "read_frame": measure_read_frame,
    "pread": measure_pread,
}


_TIMEOUT_S = 30.0


def measure(what: str, dataset: Path) -> Measurement:
    """One of the measurements of a finished dataset, by its name."""
    return _MEASURES[what](dataset)


def follow(dataset: Path, frames: int) -> list[int]:
    """Read every frame as soon as it is published; the moments, by the frame's place on the time axis."""
    read_ns = [0] * frames
    count = 0
    with open_dataset(dataset) as growing:
        hold()
        for key in growing.follow(timeout_s=_TIMEOUT_S):
            growing.read_frame(key)
            read_ns[int(key["time"])] = time.monotonic_ns()
            count += 1
    if count != frames:
        raise AcquisitionFailed(f"the follower saw {count} of {frames} frames")
    return read_ns
