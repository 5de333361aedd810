"""The limit of copying: what this disk allows for reading so many bytes and writing as many.

Aligned direct reads of 8 MiB, each written to a reserved fresh file, in turn, or by two threads; one fdatasync.
"""

from __future__ import annotations

import itertools
import time
from array import array
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from acqstream.bench.direct_reads import READ_BYTES, forget
from acqstream.bench.limit import BLOCK_BYTES, fresh_file
from acqstream.bench.measurement import Measurement, ProcessCost, latency_of
from acqstream.storage.block_file import BlockFile
from acqstream.storage.disk import write_all
from acqstream.storage.memory import PageMemory


def measure_copy(sources: Sequence[Path], directory: Path) -> Measurement:
    """The better of one thread and two; its latency is that of a piece. The copy is deleted again."""
    runs = [_measure(sources, directory / f"copy-{depth}", depth) for depth in (1, 2)]
    return max(runs, key=lambda run: run.bytes_per_s)


def _measure(sources: Sequence[Path], path: Path, depth: int) -> Measurement:
    memory = [PageMemory(READ_BYTES).view for _ in range(depth)]
    for source in sources:
        forget(source)
    files = [BlockFile(source) for source in sources]
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
