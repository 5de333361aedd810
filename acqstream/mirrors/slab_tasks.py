"""Threads and tasks for slabs that leave memory: store their chunks and reduce them into the next level."""

from __future__ import annotations

import itertools
import math
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import Position
from acqstream.errors import DiskFull, DiskFullAtSync
from acqstream.formats.chunk_layout import Encoded
from acqstream.grid import kernels
from acqstream.grid.block_mean import BlockMean
from acqstream.grid.block_sizes import BAND_BYTES
from acqstream.mirrors.level_extents import LevelExtents
from acqstream.mirrors.slab import Slab, SlabBuffer, SlabKey
from acqstream.mirrors.slab_grid import Piece

HELD_POLL_S = 0.01


class Workers:
    """Runs tasks, the oldest first, in named threads. The caller bounds their number.

    They pause when the disk is full: `check` raises DiskFull once, then the task is tried again. The first other error
    ends them, and `check` raises it from then on. may_use_disk returns whether the disk may be used now; require_space
    raises DiskFull while nothing may be stored.
    """

    def __init__(
        self,
        count: int,
        name: str,
        may_use_disk: Callable[[], bool],
        require_space: Callable[[], None] = lambda: None,
    ) -> None:
        self._require_space = require_space
        self._may_use_disk = may_use_disk
        self._changed = threading.Condition()
        self._tasks: deque[Callable[[], None]] = deque()
        self._full: DiskFull | None = None
        self._error: Exception | None = None
        self._is_closed = False
        self._threads = [threading.Thread(target=self._work, name=f"{name}-{n}", daemon=True) for n in range(count)]
        for thread in self._threads:
            thread.start()

    def submit(self, task: Callable[[], None]) -> None:
        with self._changed:
            self._tasks.append(task)
            self._changed.notify()

    @property
    def thread_count(self) -> int:
        return len(self._threads)

    def check(self) -> None:
        """Raise the error of a task."""
        with self._changed:
            if self._error is not None:
                raise self._error
            if self._full is not None:
                error, self._full = self._full, None
                self._changed.notify_all()
                raise error

    def wait_for_disk(self) -> bool:
        """Wait, in a task, until the disk may be used. False if the mirror was closed meanwhile. Raises DiskFull."""
        while not self._may_use_disk():
            with self._changed:
                if self._changed.wait_for(lambda: self._is_closed, HELD_POLL_S):
                    return False
        self._require_space()
        return not self._is_closed

    def close(self) -> None:
        """End all threads after their current tasks; drop the other tasks."""
        with self._changed:
            self._is_closed = True
            self._tasks.clear()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (task := self._next()) is not None:
            try:
                task()
            except DiskFull as error:
                with self._changed:
                    if not isinstance(self._full, DiskFullAtSync):  # which asks for more than to wait
                        self._full = error
                    if not self._is_closed:
                        self._tasks.appendleft(task)
            except Exception as error:  # noqa: BLE001 - the thread's edge: its owner raises it
                with self._changed:
                    self._error = self._error or error

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_closed or (self._tasks and self._full is None and self._error is None)
            )
            return None if self._is_closed else self._tasks.popleft()


class ReducedPart(NamedTuple):
    """planes of a slab are averaged into this piece of the next level."""

    piece: Piece
    planes: Sequence[int]


class LevelReduction:
    """Geometry of slabs across levels, and the means themselves. `reduce` may be called from any thread."""

    def __init__(self, extents: LevelExtents) -> None:
        self._extents = extents
        self._grids = extents.grids
        self._means = BlockMean()

    def target(self, level: int, key: Position) -> Position | None:
        """Return the slab of the next level that a slab is reduced into; None for a last strip of less than a block."""
        grid = self._grids[level]
        first = [at * step // ratio for at, step, ratio in zip(key, grid.step, grid.outer_ratios, strict=False)]
        pieces = self._grids[level + 1].pieces_of((*first, *key[len(grid.outer) :]))
        return pieces[0].key if pieces else None

    def chain(self, key: Position) -> Iterator[Position]:
        """Yield a slab of level 0, and level by level the one that it is reduced into."""
        below: Position | None = key
        for level in range(len(self._grids)):
            if below is None:
                return
            yield below
            below = self.target(level, below) if level + 1 < len(self._grids) else None

    def sources(self, level: int, key: Position) -> Iterator[Position]:
        """Yield the slabs of the level above that are reduced into this slab, in order."""
        above, grid = self._grids[level - 1], self._grids[level]
        sides = [
            range(at * size * ratio // depth, -(-(at + 1) * size * ratio // depth))
            for at, size, ratio, depth in zip(
                grid.outer_key(key), grid.step, above.outer_ratios, above.step, strict=True
            )
        ]
        places = key[len(grid.outer) :]
        pieces = [[span.tile for span in cut.in_slab(at)] for cut, at in zip(grid.cuts, places, strict=True)]
        return itertools.product(*sides, *pieces)

    def parts(self, level: int, key: Position) -> Iterator[ReducedPart]:
        """Yield what this slab contributes to the next level, plane by plane of the target slab."""
        if level + 1 == len(self._grids):
            return
        grid, below = self._grids[level], self._grids[level + 1]
        sizes, limits = self._extents.shape(level), self._extents.shape(level + 1)
        starts = [at * step for at, step in zip(grid.outer_key(key), grid.step, strict=True)]
        sides = [
            range(start // ratio, min((start + step) // ratio, limit))
            for start, step, ratio, limit in zip(starts, grid.step, grid.outer_ratios, limits, strict=True)
        ]
        for place in itertools.product(*sides):
            above = [
                range(at * ratio, min((at + 1) * ratio, size))
                for at, ratio, size in zip(place, grid.outer_ratios, sizes, strict=True)
            ]
            for piece in below.pieces_of((*place, *key[len(grid.outer) :])):  # one; none beyond the picture
                yield ReducedPart(piece, [grid.locate(source)[1] for source in itertools.product(*above)])

    def reduce(self, source: SlabBuffer, target: SlabBuffer, part: ReducedPart) -> None:
        """Write the mean of source planes into a plane of the target, or into a piece of it.

        numpy does it in bands, so that each band stays in the processor's cache from block to block.
        """
        grid, (_, _, plane, place, spans) = source.grid, part.piece
        ratios, limits, target_box = grid.picture_ratios, list(grid.plane_shape), [*map(slice, target.grid.plane_shape)]
        if spans:
            y, x = (slice(span.first, span.stop) for span in spans)
            target_box = list(target.grid.box(y, x))
            inside = [slice(cut.inside(at)) for cut, at in zip(grid.cuts, place[-2:], strict=True)]
            limits = [part.stop for part in grid.box(*inside)]
        begins = begin, *others = [part.start or 0 for part in target_box]
        shape = height, *sizes = [part.stop - (part.start or 0) for part in target_box]
        places = [source.plane(number) for number in part.planes]
        if kernels.reduce(
            places, limits, target.plane(plane), begins, shape, ratios=ratios, is_past_cache=target.is_past_cache
        ):
            return
        wholes = [
            slice(0, min(size * ratio, end)) for size, ratio, end in zip(sizes, ratios[1:], limits[1:], strict=True)
        ]
        row_bytes = math.prod(grid.plane_shape[1:]) * grid.spec.dtype.itemsize
        step = max(1, BAND_BYTES // max(1, row_bytes * ratios[0]))
        for first in range(0, height, step):
            count = min(step, height - first)
            rows = slice(first * ratios[0], min((first + count) * ratios[0], limits[0]))
            means = [source.get(number, (rows, *wholes)) for number in part.planes]
            target.put(plane, self._means.mean(means, ratios, (count, *sizes)), (begin + first, *others))


MAX_RUN_BYTES = 8 * 2**20  # a busy disk takes requests of 8 MiB a third faster than those of 2 MiB


class ChunkSink(Protocol):
    """Takes the chunks of all levels; from any thread. `store` gets what `encode` returned."""

    @property
    def joins_chunks(self) -> bool:
        """True if `store` of several costs less than of each."""

    def stored_with(self, level: int, position: Position) -> Hashable:
        """Equal for chunks of a slab that one call should store: their bytes alternate in a file."""

    def encode(self, level: int, position: Position, chunk: NDArray[Any], present: NDArray[np.bool_]) -> Encoded: ...
    def store(self, level: int, chunks: Sequence[tuple[Position, Encoded]]) -> None: ...


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
            self._writer.store(level, encoded)
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
