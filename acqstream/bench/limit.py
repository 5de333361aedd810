"""The limit: what this disk takes from a program that does nothing but write.

Aligned direct writes of 8 MiB from prefaulted memory into a reserved fresh file, one or two in flight, one fdatasync.
"""

from __future__ import annotations

import os
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from acqstream.bench.measurement import Measurement, ProcessCost, latency_of
from acqstream.storage.disk import LocalDisk, write_all
from acqstream.storage.memory import PageMemory

WRITE_BYTES = 8 * 2**20
BLOCK_BYTES = 4096
_POOL_WRITES = 8  # as many frames as the writers' own pools hold


def measure_limit(directory: Path, payload_bytes: int) -> Measurement:
    """The better of one and two writes in flight; its latency is that of single writes. Files are deleted again."""
    memory = _prefaulted_memory()
    runs = [_measure(directory / f"limit-{depth}", payload_bytes, depth, memory) for depth in (1, 2)]
    return max(runs, key=lambda run: run.bytes_per_s)


def _prefaulted_memory() -> Sequence[memoryview]:
    memory = PageMemory(WRITE_BYTES * _POOL_WRITES)
    view = memory.view
    noise = os.urandom(WRITE_BYTES)
    parts = [view[start : start + WRITE_BYTES] for start in range(0, len(view), WRITE_BYTES)]
    for part in parts:
        part[:] = noise
    return parts


@dataclass(slots=True)
class _Target:
    disk: LocalDisk
    fd: int
    length: int
    memory: Sequence[memoryview]


def _measure(path: Path, payload_bytes: int, depth: int, memory: Sequence[memoryview]) -> Measurement:
    disk = LocalDisk()
    length = -(-payload_bytes // BLOCK_BYTES) * BLOCK_BYTES
    fd, io = _create(disk, str(path))
    try:
        reserved = disk.reserve(fd, 0, length)
        cpu_started_s, started = time.process_time(), time.perf_counter()
        durations_ns = _write(_Target(disk, fd, length, memory), depth)
        disk.fdatasync(fd)
        seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu_started_s
    finally:
        disk.close(fd)
        disk.unlink(str(path))
    return Measurement(
        payload_bytes=payload_bytes,
        frames=len(durations_ns),
        seconds=seconds,
        latency=latency_of(durations_ns),
        processes={"producer": ProcessCost(cpu_s, None)},
        note=f"{io}, {depth} in flight" + ("" if reserved else ", not reserved"),
    )


def _create(disk: LocalDisk, path: str) -> tuple[int, str]:
    try:
        return disk.open(path, create=True, direct=True), "direct"
    except OSError:
        with suppress(FileNotFoundError):  # some file systems create the file before they refuse
            disk.unlink(path)
        return disk.open(path, create=True), "buffered"


def _write(target: _Target, depth: int) -> array[int]:
    """Write all of the target from `depth` threads; durations of the single writes in nanoseconds."""
    next_offset = _counter(WRITE_BYTES)

    def writer() -> array[int]:
        durations_ns = array("q")
        while (offset := next_offset()) < target.length:
            part = target.memory[offset // WRITE_BYTES % len(target.memory)][: target.length - offset]
            before_ns = time.perf_counter_ns()
            write_all(target.disk, target.fd, [part], offset, step=BLOCK_BYTES)
            durations_ns.append(time.perf_counter_ns() - before_ns)
        return durations_ns

    if depth == 1:
        return writer()
    with ThreadPoolExecutor(depth, thread_name_prefix="limit") as pool:
        futures = [pool.submit(writer) for _ in range(depth)]
    total = array("q")
    for future in futures:
        total.extend(future.result())
    return total


def _counter(step: int) -> Callable[[], int]:
    """0, step, 2 * step ..., each to one caller only."""
    lock = threading.Lock()
    following = 0

    def take() -> int:
        nonlocal following
        with lock:
            value = following
            following += step
        return value

    return take
