"""Limits of this disk: programs that do nothing but write, read or copy.

Aligned direct calls of 8 MiB with prefaulted memory, one or two in flight, whichever is faster; writes and copies go to
a reserved fresh file and end with one fdatasync.
"""

from __future__ import annotations

import itertools
import os
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from acqstream.bench.measurement import Measurement, ProcessCost
from acqstream.storage.files.disk import LocalDisk, write_all
from acqstream.storage.files.read_file import BlockFile, ReadFile
from acqstream.storage.page_memory import PageMemory
from acqstream.storage.platform.capabilities import drop_from_cache

WRITE_BYTES = READ_BYTES = 8 * 2**20
BLOCK_BYTES = 4096  # direct calls need offset, length and memory in multiples of the device's block
_POOL_WRITES = 8  # as many frames as the writers' own pools hold

Piece = TypeVar("Piece")


def measure_limit(directory: Path, payload_bytes: int) -> Measurement:
    """Writes; the latency is that of single writes. Files are deleted again."""
    memory = prefaulted_memory()

    def run(depth: int) -> Measurement:
        with fresh_file(directory / f"limit-{depth}", payload_bytes, memory) as (target, how):
            offsets = range(0, target.length, WRITE_BYTES)
            moved = _moved(offsets, depth, lambda offset, _: target.write(offset), target.force)
            return moved.measurement(payload_bytes, "producer", f"{how}, {depth} in flight")

    return _faster(run)


def measure_direct_reads(paths: Sequence[Path]) -> Measurement:
    """Reads of all bytes of these files, in order; the latency is that of single reads."""

    def run(depth: int) -> Measurement:
        memory = [PageMemory(READ_BYTES).view for _ in range(depth)]
        files = _uncached(paths)
        pieces = [(file, offset) for file in files for offset in range(0, file.size(), READ_BYTES)]

        def read(piece: tuple[BlockFile, int], worker: int) -> None:
            file, offset = piece
            file.read_blocks(offset, memory[worker])

        size = sum(file.size() for file in files)
        return _moved(pieces, depth, read).measurement(size, "reader", f"{depth} in flight")

    return _faster(run)


def measure_copy(sources: Sequence[Path], directory: Path) -> Measurement:
    """Reads of these files, and writes of what was read; the latency is that of both. The copy is deleted again."""

    def run(depth: int) -> Measurement:
        memory = [PageMemory(READ_BYTES).view for _ in range(depth)]
        files = _uncached(sources)
        # Only complete blocks: a direct write of the remainder would be refused.
        sizes = [file.size() // BLOCK_BYTES * BLOCK_BYTES for file in files]
        starts = itertools.accumulate(sizes[:-1], initial=0)
        pieces = [
            (file, offset, start + offset, min(READ_BYTES, size - offset))
            for file, size, start in zip(files, sizes, starts, strict=True)
            for offset in range(0, size, READ_BYTES)
        ]
        with fresh_file(directory / f"copy-{depth}", sum(sizes), memory) as (target, how):

            def copy(piece: tuple[BlockFile, int, int, int], worker: int) -> None:
                file, source, offset, length = piece
                part = memory[worker][:length]
                file.read_blocks(source, part)
                write_all(target.disk, target.fd, [part], offset, step=BLOCK_BYTES)

            moved = _moved(pieces, depth, copy, target.force)
            return moved.measurement(sum(sizes), "peer", f"{how}, {depth} in flight")

    return _faster(run)


def _faster(run: Callable[[int], Measurement]) -> Measurement:
    return max(map(run, (1, 2)), key=lambda measured: measured.bytes_per_s)


@dataclass(frozen=True, slots=True)
class Transfer:
    """The durations of single calls, and how long all of them took, in time and in time of the processor."""

    durations_ns: array[int]
    seconds: float
    cpu_s: float

    def measurement(self, payload_bytes: int, role: str, note: str) -> Measurement:
        cost = {role: ProcessCost(self.cpu_s, None)}
        return Measurement.of(payload_bytes, self.durations_ns, self.seconds, cost, note=note)


def _moved(
    pieces: Sequence[Piece], depth: int, move: Callable[[Piece, int], None], force: Callable[[], None] = lambda: None
) -> Transfer:
    """Call `move` with each piece and the number of the worker, from `depth` threads, and then `force`."""
    following = itertools.count().__next__  # one call in C: each number goes to one thread

    def work(worker: int) -> array[int]:
        durations_ns = array("q")
        while (number := following()) < len(pieces):
            before_ns = time.perf_counter_ns()
            move(pieces[number], worker)
            durations_ns.append(time.perf_counter_ns() - before_ns)
        return durations_ns

    cpu_started_s, started = time.process_time(), time.perf_counter()
    if depth == 1:
        durations_ns = work(0)
    else:
        with ThreadPoolExecutor(depth, thread_name_prefix="limit") as pool:
            durations_ns = array("q", itertools.chain.from_iterable(pool.map(work, range(depth))))
    force()
    return Transfer(durations_ns, time.perf_counter() - started, time.process_time() - cpu_started_s)


def _uncached(paths: Sequence[Path]) -> list[BlockFile]:
    """These files, nothing of them in the page cache: they were just written, and would be read from there."""
    for path in paths:
        drop_from_cache(path)
    return [BlockFile(ReadFile(path)) for path in paths]


def prefaulted_memory() -> Sequence[memoryview]:
    """Parts of WRITE_BYTES to write in turn."""
    view = PageMemory(WRITE_BYTES * _POOL_WRITES).view
    noise = os.urandom(WRITE_BYTES)  # some disks compress, and would take zeros faster than frames
    parts = [view[start : start + WRITE_BYTES] for start in range(0, len(view), WRITE_BYTES)]
    for part in parts:
        part[:] = noise
    return parts


@dataclass(slots=True)
class Target:
    """A file of `length` bytes that is written from parts of memory."""

    disk: LocalDisk
    fd: int
    length: int
    memory: Sequence[memoryview]

    def write(self, offset: int) -> None:
        """Write the next WRITE_BYTES, less at the end."""
        # The parts of the memory in turn, as a writer's pool: one part alone could stay in the processor's cache.
        part = self.memory[offset // WRITE_BYTES % len(self.memory)][: self.length - offset]
        write_all(self.disk, self.fd, [part], offset, step=BLOCK_BYTES)

    def force(self) -> None:
        self.disk.fdatasync(self.fd)  # direct writes may still be in the disk's own cache


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


def _create(disk: LocalDisk, path: str) -> tuple[int, str]:
    try:
        return disk.open(path, create=True, direct=True), "direct"
    except OSError:
        with suppress(FileNotFoundError):  # some file systems create the file before they refuse
            disk.unlink(path)
        return disk.open(path, create=True), "buffered"
