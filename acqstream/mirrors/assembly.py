"""The slabs of all levels that are in memory: filled, sent off, made again.

A slab is filled by frames, or by the slabs of the level above. When it is whole it leaves: its chunks are stored and it
is reduced into the next level, both by the workers; then its memory is free. When memory is short the one that was not
used for longest leaves as it is. A slab that comes back is made again from the frames: it is a function of the
log, and of nothing else.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from acqstream.arrays.array_spec import Position
from acqstream.formats.chunk_layout import Encoded
from acqstream.grid.block_mean import BAND_BYTES, BlockMean
from acqstream.mirrors.saved_mirror import SavedMirror
from acqstream.mirrors.slab import ByteOrder, Slab, SlabBuffer
from acqstream.mirrors.slab_grid import SlabGrid, level_sizes
from acqstream.mirrors.workers import Workers

SlabKey = tuple[int, Position]
"""Level, and position in the grid of its slabs."""


class Frames(Protocol):
    """Where the planes of level 0 come from."""

    def read(self, place: Sequence[int]) -> NDArray[Any] | None:
        """The latest frame taken so far that goes to this place, its axes in the order of the level's."""


class ChunkSink(Protocol):
    """Takes the chunks of all levels; from any thread. `store` gets what `encode` returned."""

    def encode(self, level: int, position: Position, chunk: NDArray[Any]) -> Encoded: ...
    def store(self, level: int, position: Position, encoded: Encoded) -> None: ...


class Assembly:
    """Used by one thread; only the workers' tasks run in others. slabs: how many of each level may be in memory.

    Methods that return a bool return False where something has to be waited for: they are to be called again.
    """

    def __init__(
        self,
        grids: Sequence[SlabGrid],
        writer: ChunkSink,
        frames: Frames,
        workers: Workers,
        *,
        slabs: int,
        byte_order: ByteOrder,
    ) -> None:
        self.grids = grids
        self.extents = [[0] * len(grid.outer) for grid in grids]  # of what has come, along the outer axes
        self.stored_extents = [[0] * len(grid.outer) for grid in grids]
        self.seen: list[set[Position]] = [set() for _ in grids]
        self.pending: set[SlabKey] = set()  # they were in the memory of an earlier process
        self.peak_slabs = 0
        self.stored_chunks = 0
        self._end: tuple[int, ...] | None = None  # of level 0 along the outer axes, once it is known
        self._cut: dict[SlabKey, tuple[int, ...]] = {}  # sizes that were taken for the array's when these were reduced
        self._writer = writer
        self._frames = frames
        self._workers = workers
        self._most = slabs
        self._byte_order: ByteOrder = byte_order
        self._slabs: list[dict[Position, Slab]] = [{} for _ in grids]
        self._touched: set[SlabKey] = set()  # may have become whole
        self._free: list[list[SlabBuffer]] = [[] for _ in grids]
        self._lock = threading.Lock()  # for `waiting`, `arriving`, `filled`, `_left`, `_fed` and `stored_chunks`
        self._left: list[Slab] = []
        self._fed: set[SlabKey] = set()  # by the workers
        self._uses = itertools.count(1)
        self._means = BlockMean()

    @property
    def count(self) -> int:
        """Slabs in memory, and those that an earlier process had there."""
        return sum(map(len, self._slabs)) + len(self.pending)

    def shape(self, level: int) -> tuple[int, ...]:
        """Of a level, along the outer axes: what was planned, or has come if that is more; in the end what is given."""
        full = self.grids[0]
        sizes = self._end or [
            max(full.spec.shape[axis], extent) for axis, extent in zip(full.outer, self.extents[0], strict=True)
        ]
        return level_sizes(self.grids, level, sizes)

    def note(self, place: Sequence[int]) -> None:
        """A frame has come to this place: now, or to an earlier process."""
        extent = self.extents[0]
        for axis, at in enumerate(place):
            if at >= extent[axis]:
                extent[axis] = at + 1

    def note_earlier(self, place: Sequence[int]) -> None:
        """An earlier process has taken a frame to this place."""
        self.note(place)
        key, _ = self.grids[0].locate(place)
        for level in range(len(self.grids)):
            if key in self.seen[level]:
                return
            self.seen[level].add(key)
            if level + 1 < len(self.grids):
                key = self._target(level, key)

    def find(self, place: Sequence[int]) -> tuple[Slab, int] | None:
        """The slab that a frame goes to, and its plane; None if it is not in memory, or is leaving."""
        key, plane = self.grids[0].locate(place)
        slab = self._slabs[0].get(key)
        return None if slab is None or slab.is_leaving else (slab, plane)

    def prepare(self, place: Sequence[int]) -> bool:
        """Have the slab in memory that a frame goes to."""
        return self._prepare(0, self.grids[0].locate(place)[0])

    def mark(self, slab: Slab, plane: int, *, is_filled: bool) -> None:
        """Whether a plane of an open slab is whole."""
        slab.used = next(self._uses)
        self._touched.add((slab.level, slab.key))
        slab.filled = slab.filled | 1 << plane if is_filled else slab.filled & ~(1 << plane)

    def advance(self) -> None:
        """Free what was stored, send off what is whole, and make again what an earlier process had in memory."""
        self._collect()
        if self.pending:
            self._prepare(*min(self.pending))
        for level, key in sorted(self._touched):
            slab = self._slabs[level].get(key)
            if slab is None or not self._is_whole(slab) or self._leave(slab):
                self._touched.discard((level, key))

    def settle(self) -> bool:
        """Have everything stored as it is."""
        self.advance()
        if self.pending:
            return False
        self._redo_cut()
        for level in range(len(self.grids)):
            here = list(self._slabs[level].values())
            for slab in here:
                if not slab.is_leaving and not slab.arriving:
                    self._leave(slab)
            if here:
                return False
        return not self.pending

    def end(self, sizes: Sequence[int]) -> None:
        """Level 0 ends here, along the outer axes, maybe before what was planned.

        What is left of the only block of a lower level makes up one (`reduced_size`): it was taken for a whole one.
        """
        if self._end is not None:
            return
        before = [self.shape(level) for level in range(len(self.grids))]
        self._end = tuple(sizes)
        for level, grid in enumerate(self.grids):
            sides = zip(before[level], self.shape(level), grid.outer_ratios, strict=True)
            short = [axis for axis, (planned, size, ratio) in enumerate(sides) if size < min(planned, ratio)]
            self.pending |= {(level, key) for key in self.seen[level] if any(not key[axis] for axis in short)}

    def unstored(self) -> list[list[Any]]:
        """What is in memory and not all in the files: for `restore`."""
        self._collect()
        keys = {*self.pending, *((level, key) for level, slabs in enumerate(self._slabs) for key in slabs)}
        cut = [[level, list(key), list(sizes)] for (level, key), sizes in self._cut.items()]
        return [[[level, list(key)] for level, key in sorted(keys)], cut]

    def restore(self, saved: SavedMirror) -> None:
        """Continue with slabs that an earlier process left incomplete. After `note_earlier` of all earlier frames."""
        for level, key in saved.unstored:
            self.seen[level].add(key)
            self.pending.add((level, key))
        self._cut = {(level, key): sizes for level, key, sizes in saved.cut}

    def note_made(self, chunks: int, cut: Sequence[Sequence[Any]]) -> None:
        """Everything that was noted has been stored, by other assemblies; cut is what they say of it (`unstored`)."""
        self.pending.clear()
        self.stored_chunks += chunks
        self.stored_extents = [list(self.shape(level)) for level in range(len(self.grids))]
        self._cut = {(level, tuple(key)): tuple(sizes) for level, key, sizes in cut}

    def _is_whole(self, slab: Slab) -> bool:
        if slab.is_leaving or slab.arriving:
            return False
        return slab.filled == self.grids[slab.level].expected(slab.key, self._sizes(slab.level))

    def _sizes(self, level: int) -> tuple[int, ...]:
        """Of a level along the outer axes as far as they were planned; 0 for those that grow."""
        grid = self.grids[level]
        shape = self.shape(level)
        return tuple(size if grid.spec.shape[axis] else 0 for axis, size in zip(grid.outer, shape, strict=True))

    def _prepare(self, level: int, key: Position) -> bool:
        slab = self._slabs[level].get(key)
        if slab is not None:
            slab.used = next(self._uses)
            self.pending.discard((level, key))
            return not slab.is_leaving
        self._collect()
        if len(self._slabs[level]) >= self._most:
            self._make_room(self._slabs[level].values())
            return False
        if not self._free[level] and self._workers.is_behind:
            return False  # one will be free soon: new memory costs as much as a copy of it
        slab = Slab(level, key, self._take_buffer(level), used=next(self._uses))
        if key in self.seen[level]:
            self._remake(slab)
        self.seen[level].add(key)
        self.pending.discard((level, key))
        self._slabs[level][key] = slab
        self._touched.add((level, key))
        self.peak_slabs = max(self.peak_slabs, sum(map(len, self._slabs)))
        return True

    def _make_room(self, here: Iterable[Slab]) -> None:
        """If nothing of that level is leaving yet, the one that was not used for longest is sent off."""
        if any(slab.is_leaving for slab in here):
            return
        waiting = [slab for slab in here if not slab.arriving]
        if waiting:
            self._leave(min(waiting, key=lambda slab: slab.used))

    def _take_buffer(self, level: int) -> SlabBuffer:
        free = self._free[level]
        return free.pop() if free else SlabBuffer(self.grids[level], self._byte_order)

    def _leave(self, slab: Slab) -> bool:
        """Give a slab to the workers."""
        grid, target = self.grids[slab.level], None
        reduction = list(self._reduction(slab.level, slab.key))
        if reduction:
            key = self._target(slab.level, slab.key)
            if not self._prepare(slab.level + 1, key):
                return False
            target = self._slabs[slab.level + 1][key]
        slab.is_leaving = True
        slab.buffer.clear((1 << grid.planes) - 1 & ~slab.filled)
        tasks: list[Callable[[], None]] = [
            self._storing(slab, position, local)
            for position, local, planes in grid.chunks(slab.key)
            if planes & slab.filled
        ]
        if target is not None:
            target.arriving += len(reduction)
            tasks += [self._reducing(slab, target, plane, sources) for plane, sources in reduction]
            self._note_cut(slab)
        slab.waiting = len(tasks)
        if not tasks:
            self._left.append(slab)
        for task in tasks:
            self._workers.submit(task)
        return True

    def _storing(self, slab: Slab, position: Position, local: Position) -> Callable[[], None]:
        def store() -> None:
            encoded = self._writer.encode(slab.level, position, slab.buffer.chunk(local))
            if self._workers.wait_for_disk():
                self._writer.store(slab.level, position, encoded)
                with self._lock:
                    self.stored_chunks += 1
                self._done(slab)

        return store

    def _reducing(self, slab: Slab, target: Slab, plane: int, sources: Sequence[int]) -> Callable[[], None]:
        def reduce() -> None:
            self._reduce(slab.buffer, target.buffer, plane, sources)
            with self._lock:
                target.filled |= 1 << plane
                target.arriving -= 1
                self._fed.add((target.level, target.key))
            self._done(slab)

        return reduce

    def _done(self, slab: Slab) -> None:
        with self._lock:
            slab.waiting -= 1
            if not slab.waiting:
                self._left.append(slab)

    def _collect(self) -> None:
        """Free the slabs that have left."""
        with self._lock:
            left, self._left = self._left, []
            fed, self._fed = self._fed, set()
        self._touched |= fed
        for slab in left:
            del self._slabs[slab.level][slab.key]
            self._free[slab.level].append(slab.buffer)
            self._note_stored(slab)

    def _note_stored(self, slab: Slab) -> None:
        grid, extent = self.grids[slab.level], self.stored_extents[slab.level]
        for plane in range(grid.planes):
            if slab.filled >> plane & 1:
                for axis, at in enumerate(grid.place(slab.key, plane)):
                    extent[axis] = max(extent[axis], at + 1)

    def _target(self, level: int, key: Position) -> Position:
        """The slab of the next level that a slab is reduced into."""
        grid = self.grids[level]
        first = [at * step // ratio for at, step, ratio in zip(key, grid.step, grid.outer_ratios, strict=True)]
        return self.grids[level + 1].locate(first)[0]

    def _reduction(self, level: int, key: Position) -> Iterator[tuple[int, list[int]]]:
        """The planes of the next level's slab that come of a slab, each with the planes here that it is the mean of."""
        if level + 1 == len(self.grids):
            return
        grid, below = self.grids[level], self.grids[level + 1]
        sizes, limits = self.shape(level), self.shape(level + 1)
        starts = [at * step for at, step in zip(key, grid.step, strict=True)]
        sides = [
            range(start // ratio, min((start + step) // ratio, limit))
            for start, step, ratio, limit in zip(starts, grid.step, grid.outer_ratios, limits, strict=True)
        ]
        for place in itertools.product(*sides):
            above = [
                range(at * ratio, min((at + 1) * ratio, size))
                for at, ratio, size in zip(place, grid.outer_ratios, sizes, strict=True)
            ]
            yield below.locate(place)[1], [grid.locate(source)[1] for source in itertools.product(*above)]

    def _reduce(self, source: SlabBuffer, target: SlabBuffer, plane: int, sources: Sequence[int]) -> None:
        """A plane of the next level, in bands: from block to block it is in the processor's cache."""
        ratios, (height, *others) = source.grid.picture_ratios, target.grid.plane_shape
        row_bytes = math.prod(source.grid.plane_shape[1:]) * source.grid.spec.dtype.itemsize
        step = max(1, BAND_BYTES // max(1, row_bytes * ratios[0]))
        for first in range(0, height, step):
            count = min(step, height - first)
            rows = slice(first * ratios[0], (first + count) * ratios[0])
            band = self._means.mean([source.get(number, rows) for number in sources], ratios, (count, *others))
            target.put(plane, band, first)

    def _note_cut(self, slab: Slab) -> None:
        """Where an axis grows, its end was taken for the array's: it is reduced again if it turns out to be another."""
        grid, seen = self.grids[slab.level], self._sides(slab.level, slab.key)
        ends = zip(grid.outer, seen, grid.outer_ratios, strict=True)
        if any(not grid.spec.shape[axis] and size % ratio for axis, size, ratio in ends):
            self._cut[slab.level, slab.key] = seen
        else:
            self._cut.pop((slab.level, slab.key), None)

    def _sides(self, level: int, key: Position) -> tuple[int, ...]:
        """How much of a slab lies inside the array as it is now."""
        sizes = zip(key, self.grids[level].step, self.shape(level), strict=True)
        return tuple(max(0, min(step, size - at * step)) for at, step, size in sizes)

    def _redo_cut(self) -> None:
        for (level, key), seen in list(self._cut.items()):
            if self._sides(level, key) != seen and key not in self._slabs[level]:
                del self._cut[level, key]
                self.pending.add((level, key))

    def _remake(self, slab: Slab) -> None:
        """Fill a slab from the frames that were taken, whatever of it is in the files."""
        grid = self.grids[slab.level]
        if not slab.level:
            for plane in range(grid.planes):
                pixels = self._frames.read(grid.place(slab.key, plane))
                if pixels is not None:
                    slab.buffer.put(plane, pixels)
                    slab.filled |= 1 << plane
            return
        above = slab.level - 1
        spare = Slab(above, (), self._take_buffer(above))
        for key in sorted(self._sources(slab)):
            source = self._slabs[above].get(key)
            if source is not None and not source.is_leaving:
                continue  # it is reduced when it leaves
            if source is None:
                source, spare.key, spare.filled = spare, key, 0
                self._remake(spare)
                spare.buffer.clear((1 << self.grids[above].planes) - 1 & ~spare.filled)
            for plane, sources in self._reduction(above, key):
                self._reduce(source.buffer, slab.buffer, plane, sources)
                slab.filled |= 1 << plane
        self._free[above].append(spare.buffer)

    def _sources(self, slab: Slab) -> Iterator[Position]:
        """The slabs of the level above that were begun and are reduced into this one."""
        above = self.grids[slab.level - 1]
        step = self.grids[slab.level].step
        sides = [
            range(at * size * ratio // depth, -(-(at + 1) * size * ratio // depth))
            for at, size, ratio, depth in zip(slab.key, step, above.outer_ratios, above.step, strict=True)
        ]
        return (key for key in itertools.product(*sides) if key in self.seen[slab.level - 1])
