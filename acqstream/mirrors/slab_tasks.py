"""Tasks of the workers for slabs that leave memory: store their chunks and reduce them into the next level."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import Position
from acqstream.errors import DiskFull
from acqstream.formats.chunk_layout import Encoded
from acqstream.mirrors.level_reduction import LevelReduction, ReducedPart
from acqstream.mirrors.slab import Slab, SlabKey
from acqstream.mirrors.workers import Workers

MAX_RUN_BYTES = 8 * 2**20  # a busy disk takes requests of 8 MiB a third faster than those of 2 MiB


class ChunkSink(Protocol):
    """Takes the chunks of all levels; from any thread. `store_together` gets what `encode` returned."""

    @property
    def joins_chunks(self) -> bool:
        """True if `store_together` costs less than storing each."""

    def stored_with(self, level: int, position: Position) -> Hashable:
        """Equal for chunks of a slab that one call should store: their bytes alternate in a file."""

    def encode(self, level: int, position: Position, chunk: NDArray[Any], present: NDArray[np.bool_]) -> Encoded: ...
    def store_together(self, level: int, chunks: Sequence[tuple[Position, Encoded]]) -> None: ...


class _Chunk(NamedTuple):
    """A chunk of a slab, by its position in the grid and in the slab. bits: its planes, or pieces of them."""

    slab: Slab
    position: Position
    local: Position
    bits: int

    @property
    def present(self) -> NDArray[np.bool_]:
        """The planes with all their pixels: an item for each, and one along y, x and c."""
        slab, grid = self.slab, self.slab.buffer.grid
        found = np.zeros(
            [size if axis in grid.outer else 1 for axis, size in enumerate(grid.spec.chunk_shape)], np.bool_
        )
        for plane in range(grid.planes):
            bits = self.bits & ((1 << grid.pieces) - 1) << plane * grid.pieces
            if bits and not bits & ~slab.filled:
                inside = dict(zip(grid.outer, grid.local(plane), strict=True))
                found[tuple(inside.get(axis, 0) % size for axis, size in enumerate(found.shape))] = True
        return found


class SlabTasks:
    """`submit` and `collect` are called by one thread; the tasks run in the workers' threads."""

    def __init__(self, writer: ChunkSink, workers: Workers, reduction: LevelReduction) -> None:
        self.stored_chunks = 0
        self._pixel_bytes = self._stored_bytes = 0  # of these chunks: in memory, and encoded
        self._writer = writer
        self._workers = workers
        self._reduction = reduction
        # For the counts of chunks, the two collections below, and `waiting`, `arriving` and `filled` of slabs in tasks.
        self._lock = threading.Lock()
        self._idle: list[Slab] = []  # slabs whose tasks are all done
        self._fed: set[SlabKey] = set()  # slabs that tasks have written planes into
        self._runs: deque[list[_Chunk]] = deque()  # to be stored by one call each, and by a task each
        self._open: dict[int, list[_Chunk]] = {}  # of these the last one by level, which may get more chunks

    @property
    def packed_share(self) -> float:
        """Encoded bytes for each byte of a chunk, so far; 1 before the first one."""
        with self._lock:
            return self._stored_bytes / self._pixel_bytes if self._pixel_bytes else 1.0

    def submit(self, slab: Slab, parts: Sequence[ReducedPart], target: Slab | None, ends: Sequence[int] = ()) -> None:
        """Have the chunks of a slab stored, and its parts reduced into the target (`LevelReduction.parts`).

        ends: those of a mosaic's picture in this level. The slab must not change from here on.
        """
        due = [
            _Chunk(slab, position, local, bits)
            for position, local, bits in slab.buffer.grid.chunks(slab.key, ends)
            if bits & slab.filled  # a chunk without any plane is not stored
        ]
        tasks: list[Callable[[], None]] = []
        if target is not None:
            with self._lock:  # tasks of other slabs may be decreasing it
                target.arriving += len(parts)
            tasks += [self._reducing(slab, target, part) for part in parts]
        together: dict[Hashable, list[_Chunk]] = {}
        for chunk in due:
            together.setdefault(self._writer.stored_with(slab.level, chunk.position), []).append(chunk)
        slab.waiting = len(due) + len(tasks)  # before the first task can end
        with self._lock:
            if not slab.waiting:
                self._idle.append(slab)
            count = sum(self._begins_run(chunks) for chunks in together.values())
        # The first stores keep the disk busy; what is reduced comes next. So the next level is complete, and its memory
        # free, sooner than behind all that waits for the disk.
        first = min(count, max(1, self._workers.thread_count - 1))
        stores = [self._store_next] * count
        for task in [*stores[:first], *tasks, *stores[first:]]:
            self._workers.submit(task)

    def collect(self) -> tuple[list[Slab], set[SlabKey]]:
        """Return slabs whose tasks are all done, and the keys of slabs that got planes, since the last call."""
        with self._lock:
            idle, self._idle = self._idle, []
            fed, self._fed = self._fed, set()
        return idle, fed

    def _begins_run(self, chunks: list[_Chunk]) -> bool:
        """Add chunks to the run that waits last in its level; True if they need a run, and a task, of their own."""
        slab = chunks[0].slab
        level, run = slab.level, self._open.get(slab.level)
        if run is not None and (len(run) + len(chunks)) * slab.buffer.grid.spec.chunk_bytes <= MAX_RUN_BYTES:
            run += chunks
            return False
        self._runs.append(chunks)
        if self._writer.joins_chunks:
            self._open[level] = self._runs[-1]
        return True

    def _store_next(self) -> None:
        with self._lock:
            run = self._runs.popleft()
            level = run[0].slab.level
            if self._open.get(level) is run:
                del self._open[level]
        encoded = [
            (one.position, self._writer.encode(level, one.position, one.slab.buffer.chunk(one.local), one.present))
            for one in run
        ]
        try:
            if not self._workers.wait_for_disk():
                return
            self._writer.store_together(level, encoded)
        except DiskFull:  # the task is tried again
            with self._lock:
                self._runs.appendleft(run)
            raise
        with self._lock:
            self.stored_chunks += len(run)
            self._pixel_bytes += sum(chunk.slab.buffer.grid.spec.chunk_bytes for chunk in run)
            self._stored_bytes += sum(len(part) for _, parts in encoded for part in parts)
        for chunk in run:
            self._end_task(chunk.slab)

    def _reducing(self, slab: Slab, target: Slab, part: ReducedPart) -> Callable[[], None]:
        def reduce() -> None:
            self._reduction.reduce(slab.buffer, target.buffer, part)
            with self._lock:  # several slabs are reduced into one target
                target.filled |= 1 << part.piece.bit
                target.arriving -= 1
                self._fed.add((target.level, target.key))
            self._end_task(slab)

        return reduce

    def _end_task(self, slab: Slab) -> None:
        with self._lock:
            slab.waiting -= 1
            if not slab.waiting:
                self._idle.append(slab)
