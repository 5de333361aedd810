"""The limit of reading: what this disk gives to a program that does nothing but read.

Aligned direct reads of 8 MiB into prefaulted memory, one or two in flight.
"""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from acqstream.bench.measurement import Measurement, ProcessCost, latency_of
from acqstream.storage.block_file import BlockFile
from acqstream.storage.memory import PageMemory

READ_BYTES = 8 * 2**20


def measure_direct_reads(paths: Sequence[Path]) -> Measurement:
    """All bytes of these files, in order: the better of one and two reads in flight."""
    runs = [_measure(paths, depth) for depth in (1, 2)]
    return max(runs, key=lambda run: run.bytes_per_s)


def _measure(paths: Sequence[Path], depth: int) -> Measurement:
    memory = [PageMemory(READ_BYTES).view for _ in range(depth)]
    for path in paths:
        forget(path)
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


def forget(path: Path) -> None:
    """Take a file out of the page cache, where the system can; what is not yet on the disk stays."""
    if hasattr(os, "posix_fadvise"):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
