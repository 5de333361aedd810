"""Limits of this disk: programs that do nothing but write, read or copy.

Aligned direct calls of 8 MiB with prefaulted memory, one or two in flight; writes and copies go to a reserved fresh
file and end with one fdatasync.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from acqstream.bench.measurement import Measurement, ProcessCost, latency_of
from acqstream.storage.files.disk import LocalDisk, write_all
from acqstream.storage.files.read_file import BlockFile
from acqstream.storage.page_memory import PageMemory
from acqstream.storage.platform.capabilities import drop_from_cache

WRITE_BYTES = 8 * 2**20
BLOCK_BYTES = 4096  # direct calls need offset, length and memory in multiples of the device's block
_POOL_WRITES = 8  # as many frames as the writers' own pools hold


def measure_limit(directory: Path, payload_bytes: int) -> Measurement:
    """The better of one and two writes in flight; its latency is that of single writes. Files are deleted again."""
    memory = _prefaulted_memory()
    runs = [_measure_writes(directory / f"limit-{depth}", payload_bytes, depth, memory) for depth in (1, 2)]
    return max(runs, key=lambda run: run.bytes_per_s)


def measure_paced_limit(
    directory: Path, payload_bytes: int, bytes_per_s: float, file_bytes: int
) -> tuple[Measurement, float]:
    """The same writes, one in flight, each when it is due at this rate; a new file after `file_bytes`.

    Beside the measurement: by how many seconds a write began too late, at most. Files are created, reserved and forced
    between the writes, and deleted at the end.
    """
    memory = _prefaulted_memory()
    durations_ns = array("q")
    most_behind_s = 0.0
    cpu_started_s, started = time.process_time(), time.perf_counter()
    with ExitStack() as files:
        for first in range(0, payload_bytes, file_bytes):
            length = min(file_bytes, payload_bytes - first)
            target, how = files.enter_context(fresh_file(directory / f"limit-{first}", length, memory))
            for offset in range(0, target.length, WRITE_BYTES):
                # Due by the clock, not by the last write: a late write is caught up with, as a camera demands.
                early_s = started + (first + offset) / bytes_per_s - time.perf_counter()
                most_behind_s = max(most_behind_s, -early_s)
                if early_s > 0:
                    time.sleep(early_s)
                durations_ns.append(_write_part(target, offset))
            target.disk.fdatasync(target.fd)
        seconds = time.perf_counter() - started
    measurement = Measurement(
        payload_bytes=payload_bytes,
        frames=len(durations_ns),
        seconds=seconds,
        latency=latency_of(durations_ns),
        processes={"producer": ProcessCost(time.process_time() - cpu_started_s, None)},
        note=f"{how}, paced",
    )
    return measurement, most_behind_s


def _prefaulted_memory() -> Sequence[memoryview]:
    memory = PageMemory(WRITE_BYTES * _POOL_WRITES)
    view = memory.view
    noise = os.urandom(WRITE_BYTES)  # some disks compress, and would take zeros faster than frames
    parts = [view[start : start + WRITE_BYTES] for start in range(0, len(view), WRITE_BYTES)]
    for part in parts:
        part[:] = noise
    return parts


@dataclass(slots=True)
class Target:
    disk: LocalDisk
    fd: int
    length: int
    memory: Sequence[memoryview]


@contextmanager
def fresh_file(path: Path, payload_bytes: int, memory: Sequence[memoryview]) -> Iterator[tuple[Target, str]]:
    """A new file with its space reserved, and how it is written; deleted at the end."""
    disk = LocalDisk()
    length = -(-payload_bytes // BLOCK_BYTES) * BLOCK_BYTES
    fd, how = _create(disk, str(path))
    try:
        # Reserved as the daemon does, so that no write waits for the file system to find blocks.
        reserved = disk.reserve(fd, 0, length)
        yield Target(disk, fd, length, memory), how if reserved else f"{how}, not reserved"
    finally:
        disk.close(fd)
        disk.unlink(str(path))


def _measure_writes(path: Path, payload_bytes: int, depth: int, memory: Sequence[memoryview]) -> Measurement:
    with fresh_file(path, payload_bytes, memory) as (target, how):
        cpu_started_s, started = time.process_time(), time.perf_counter()
        durations_ns = _write(target, depth)
        target.disk.fdatasync(target.fd)  # direct writes may still be in the disk's own cache
        seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu_started_s
    return Measurement(
        payload_bytes=payload_bytes,
        frames=len(durations_ns),
        seconds=seconds,
        latency=latency_of(durations_ns),
        processes={"producer": ProcessCost(cpu_s, None)},
        note=f"{how}, {depth} in flight",
    )


def _write_part(target: Target, offset: int) -> int:
    """Write the next WRITE_BYTES, less at the end; how long that took, in nanoseconds."""
    # The parts of the memory in turn, as a writer's pool: one part alone could stay in the processor's cache.
    part = target.memory[offset // WRITE_BYTES % len(target.memory)][: target.length - offset]
    before_ns = time.perf_counter_ns()
    write_all(target.disk, target.fd, [part], offset, step=BLOCK_BYTES)
    return time.perf_counter_ns() - before_ns


def _create(disk: LocalDisk, path: str) -> tuple[int, str]:
    try:
        return disk.open(path, create=True, direct=True), "direct"
    except OSError:
        with suppress(FileNotFoundError):  # some file systems create the file before they refuse
            disk.unlink(path)
        return disk.open(path, create=True), "buffered"


def _write(target: Target, depth: int) -> array[int]:
    """Write all of the target from `depth` threads; durations of the single writes in nanoseconds."""
    next_offset = _counter(WRITE_BYTES)

    def writer() -> array[int]:
        durations_ns = array("q")
        while (offset := next_offset()) < target.length:
            durations_ns.append(_write_part(target, offset))
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


READ_BYTES = 8 * 2**20


def measure_direct_reads(paths: Sequence[Path]) -> Measurement:
    """All bytes of these files, in order: the better of one and two reads in flight."""
    runs = [_measure_reads(paths, depth) for depth in (1, 2)]
    return max(runs, key=lambda run: run.bytes_per_s)


def _measure_reads(paths: Sequence[Path], depth: int) -> Measurement:
    memory = [PageMemory(READ_BYTES).view for _ in range(depth)]
    # The dataset was just written: its pages are in the page cache, and would be read from there.
    for path in paths:
        drop_from_cache(path)
    files = [BlockFile(path) for path in paths]
    places = [(file, offset) for file in files for offset in range(0, file.size(), READ_BYTES)]

    def read(worker: int) -> tuple[int, array[int]]:
        total, durations_ns = 0, array("q")
        for file, offset in places[worker::depth]:
            before_ns = time.perf_counter_ns()
            total += file.read_blocks(offset, memory[worker])
            durations_ns.append(time.perf_counter_ns() - before_ns)
        return total, durations_ns

    cpu_started_s, started = time.process_time(), time.perf_counter()
    with ThreadPoolExecutor(depth, thread_name_prefix="direct-reads") as pool:
        results = list(pool.map(read, range(depth)))
    seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu_started_s
    durations = np.concatenate([np.frombuffer(durations_ns, np.int64) for _, durations_ns in results])
    return Measurement(
        payload_bytes=sum(total for total, _ in results),
        frames=len(places),
        seconds=seconds,
        latency=latency_of(durations.tolist()),
        processes={"reader": ProcessCost(cpu_s, None)},
        note=f"{depth} in flight",
    )


def measure_copy(sources: Sequence[Path], directory: Path) -> Measurement:
    """The better of one thread and two; its latency is that of a piece. The copy is deleted again."""
    runs = [_measure_copy(sources, directory / f"copy-{depth}", depth) for depth in (1, 2)]
    return max(runs, key=lambda run: run.bytes_per_s)


def _measure_copy(sources: Sequence[Path], path: Path, depth: int) -> Measurement:
    memory = [PageMemory(READ_BYTES).view for _ in range(depth)]
    for source in sources:
        drop_from_cache(source)
    files = [BlockFile(source) for source in sources]
    # Only complete blocks: a direct write of the remainder would be refused.
    sizes = [file.size() // BLOCK_BYTES * BLOCK_BYTES for file in files]
    starts = itertools.accumulate(sizes[:-1], initial=0)
    pieces = [
        (file, offset, start + offset, min(READ_BYTES, size - offset))
        for file, size, start in zip(files, sizes, starts, strict=True)
        for offset in range(0, size, READ_BYTES)
    ]
    with fresh_file(path, sum(sizes), memory) as (target, how):

        def copy(worker: int) -> list[int]:
            durations_ns = []
            for file, source, place, length in pieces[worker::depth]:
                before_ns = time.perf_counter_ns()
                part = memory[worker][:length]
                file.read_blocks(source, part)
                write_all(target.disk, target.fd, [part], place, step=BLOCK_BYTES)
                durations_ns.append(time.perf_counter_ns() - before_ns)
            return durations_ns

        cpu_started_s, started = time.process_time(), time.perf_counter()
        with ThreadPoolExecutor(depth, thread_name_prefix="copy") as pool:
            durations = array("q", itertools.chain.from_iterable(pool.map(copy, range(depth))))
        target.disk.fdatasync(target.fd)
        seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu_started_s
    return Measurement(
        payload_bytes=sum(sizes),
        frames=len(pieces),
        seconds=seconds,
        latency=latency_of(durations),
        processes={"peer": ProcessCost(cpu_s, None)},
        note=f"{how}, {depth} in flight",
    )
