"""The slabs of all levels that are in memory: filled, stored, rebuilt; and their state in a checkpoint.

A slab is filled by frames, or by the slabs of the level above. Once it is complete it leaves: the workers store its
chunks and reduce it into the next level; then its memory is free. When memory is short the slab that was not used for
longest leaves incomplete. A slab that comes back is rebuilt from the frames: it is a function of the log alone.

A slab counts as full while it leaves, and while it is complete and waits for the next level. While more slabs of a
level are full than may be (`SlabBuffers.max_full`), no new memory is taken for another one: it gets that of one which
has left. Frames that wait for it may have to be read from the disk later, which costs less than new memory does.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from acqstream.arrays.array_spec import Position
from acqstream.errors import CannotResume
from acqstream.mirrors.level_extents import Growth, LevelExtents
from acqstream.mirrors.mirror_plan import ChunkPlan
from acqstream.mirrors.slab import Slab, SlabBuffers, SlabKey
from acqstream.mirrors.slab_grid import Piece, SlabGrid, frame_bytes
from acqstream.mirrors.slab_tasks import ChunkSink, LevelReduction, SlabTasks, Workers
from acqstream.views.checkpoint import field, integers, items, of_kind
from acqstream.views.frame_feed import Waiting


class ProvisionalSlabs:
    """Remembers the depths at which slabs ended within an item of the next level: if the end of the array moves they
    are reduced again. Used by one thread."""

    def __init__(self, extents: LevelExtents) -> None:
        self._extents = extents
        self._depths: dict[SlabKey, tuple[int, ...]] = {}

    def note(self, slab: SlabKey) -> None:
        """Note that a slab was reduced."""
        depths = self._extents.inside(*slab)
        if self._extents.is_provisional(slab[0], depths):
            self._depths[slab] = depths
        else:
            self._depths.pop(slab, None)  # an earlier end of this slab may be noted

    def moved(self) -> Iterator[SlabKey]:
        """Yield the slabs that now end elsewhere."""
        for slab, depths in list(self._depths.items()):
            if self._extents.inside(*slab) != depths:
                yield slab

    def forget(self, slab: SlabKey) -> None:
        """Note that a slab will be reduced again."""
        del self._depths[slab]

    def to_json(self) -> list[list[Any]]:
        return [[level, list(key), list(depths)] for (level, key), depths in self._depths.items()]

    def restore(self, saved: Sequence[Sequence[Any]]) -> None:
        """Continue with the slabs of another process: level, key and depths of each."""
        self._depths = {(level, tuple(key)): tuple(depths) for level, key, depths in saved}


MAX_LAYERS = 16
_POLL_S = 0.002


@dataclass(frozen=True, slots=True)
class SavedTasks:
    """Tasks of a mirror made by several processes, of a dataset with `rows` frames. done: half-open runs of units."""

    rows: int
    done: tuple[tuple[int, int], ...]
    cut: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class SavedMirror:
    """unstored: level and position of slabs that are not complete in the files; cut: level, position and sizes of
    slabs that were reduced at a provisional end. tasks: None where one process makes the mirror."""

    unstored: tuple[tuple[int, Position], ...] = ()
    cut: tuple[tuple[int, Position, tuple[int, ...]], ...] = ()
    tasks: SavedTasks | None = None

    @staticmethod
    def parse(state: Mapping[str, Any], levels: int) -> SavedMirror:
        """Read the state of a mirror of `levels` levels. Raises CannotResume for values that no mirror writes."""
        unstored: object = ()
        cut: object = ()
        if items(state.get("open"), "state field 'open'"):
            unstored, cut = items(state["open"], "state field 'open'", 2)
        return SavedMirror(
            tuple(_slab(slab, levels) for slab in items(unstored, "the unstored slabs")),
            _cut_slabs(cut, levels),
            None if state.get("parts") is None else _tasks(field(state, "parts", dict), levels),
        )


def layers_of_slabs(state: Mapping[str, Any]) -> int:
    """The layers of the slabs that the state names, see `ChunkPlan`. Raises CannotResume for other values."""
    if "layers" not in state:
        return 1  # before slabs joined layers
    layers: int = field(state, "layers", int)
    if not 1 <= layers <= MAX_LAYERS:
        raise CannotResume(f"the state names slabs of {layers} layers, expected 1 to {MAX_LAYERS}")
    return layers


def _tasks(values: Mapping[str, Any], levels: int) -> SavedTasks:
    done = []
    for run in items(values.get("done"), "the finished tasks"):
        first, stop = integers(items(run, "a finished task", 2), "a finished task")
        done.append((first, stop))
    return SavedTasks(field(values, "rows", int), tuple(done), _cut_slabs(values.get("cut"), levels))


def _cut_slabs(value: object, levels: int) -> tuple[tuple[int, Position, tuple[int, ...]], ...]:
    found = []
    for slab in items(value, "the provisional slabs"):
        level, key, sizes = items(slab, "a provisional slab", 3)
        found.append((*_slab((level, key), levels), integers(sizes, "sizes of a slab")))
    return tuple(found)


def _slab(value: object, levels: int) -> tuple[int, Position]:
    level, key = items(value, "a slab", 2)
    if not 0 <= of_kind(level, int, "the level of a slab") < levels:
        raise CannotResume(f"the state names level {level!r:.60}, the mirror has {levels}")
    return level, integers(key, "the position of a slab")


class PlaneSource(Protocol):
    """Reads the planes of level 0."""

    def read(self, place: Sequence[int]) -> NDArray[Any] | None:
        """Return the latest frame taken so far at this place, axes in the level's order. None if it has none.

        In a mosaic the place ends with row and column, and the frame is the shown part of a tile.
        """


class Assembly:
    """Fills, stores and rebuilds slabs. Used by one thread; only the workers' tasks run in others.

    slabs: the number of slabs of each level that may be in memory. What a method waits for is done by the workers: call
    it again. `close` ends them. `prepare`, `advance`, `settle` and `build` raise the first error of the workers.
    """

    def __init__(
        self,
        grids: Sequence[SlabGrid],
        writer: ChunkSink,
        frames: PlaneSource,
        workers: Workers,
        buffers: SlabBuffers,
        *,
        slabs: int,
        growth: Growth | None = None,
    ) -> None:
        self.grids = grids
        self.extents = LevelExtents(grids, growth)
        self.seen: list[set[Position]] = [set() for _ in grids]  # slabs that were started, by level
        self.pending: set[SlabKey] = set()  # slabs to rebuild: they were in the memory of an earlier process
        self.peak_slabs = 0
        self._provisional = ProvisionalSlabs(self.extents)
        self._frames, self._workers = frames, workers
        self._reduction = LevelReduction(self.extents)
        self._tasks = SlabTasks(writer, workers, self._reduction)
        self._slabs: list[dict[Position, Slab]] = [{} for _ in grids]
        self._touched: set[SlabKey] = set()  # may have become complete
        self._buffers, self._max_slabs = buffers, slabs
        self._uses = itertools.count(1)

    @property
    def stored_chunks(self) -> int:
        """Chunks stored by this process and its tasks."""
        return self._tasks.stored_chunks

    @property
    def bytes_per_frame(self) -> float:
        """Bytes that a frame, or a tile, takes of the files of all levels, by what was stored so far."""
        return self._tasks.packed_share * frame_bytes(self.grids)

    @property
    def count(self) -> int:
        """Slabs in memory or pending."""
        return sum(map(len, self._slabs)) + len(self.pending)

    def add_earlier(self, place: Sequence[int]) -> None:
        """Note a frame that an earlier process has taken to this place."""
        self.extents.add_frame(place)
        for piece in self.grids[0].pieces_of(place):
            self._note_seen(piece.key)

    def find(self, place: Sequence[int]) -> list[tuple[Slab, Piece]] | None:
        """Return the slabs that a frame goes to, and its pieces; None while one is not in memory, or is leaving."""
        found = []
        for piece in self.grids[0].pieces_of(place):
            slab = self._slabs[0].get(piece.key)
            if slab is None or slab.is_leaving or not slab.buffer.has(piece.plane):
                return None
            found.append((slab, piece))
        return found

    def prepare(self, place: Sequence[int]) -> Waiting | None:
        """Have the slabs in memory that a frame goes to."""
        self._workers.check()
        pieces = self.grids[0].pieces_of(place)
        for piece in pieces:
            if piece.key in self._slabs[0]:
                self._slabs[0][piece.key].last_use = next(self._uses)  # none leaves to make room for another one
        # each is begun, also behind one that must wait
        ready = [self._prepare(0, piece.key, piece.plane) for piece in pieces]
        return None if all(ready) else Waiting.SLABS

    def mark(self, slab: Slab, piece: Piece, *, is_filled: bool) -> None:
        """Note whether a plane of level 0, or a piece of it, has its pixels."""
        slab.last_use = next(self._uses)
        self._touched.add((slab.level, slab.key))
        # one bit per piece; only the workers' tasks change `filled` of lower levels, so no lock is needed here
        slab.filled = slab.filled | 1 << piece.bit if is_filled else slab.filled & ~(1 << piece.bit)
        self.extents.add_unstored(slab.level, slab.key)

    def advance(self) -> None:
        """Free stored slabs, store complete ones, and rebuild one pending slab."""
        self._workers.check()
        self._collect()
        if self.pending:
            self._prepare(*min(self.pending))
        if self.extents.picture.take_change():
            self._touched.update((level, key) for level, slabs in enumerate(self._slabs) for key in slabs)
        for level, key in sorted(self._touched):
            slab = self._slabs[level].get(key)
            if slab is None or not self._is_complete(slab) or self._leave(slab):
                self._touched.discard((level, key))

    def settle(self) -> Waiting | None:
        """Have everything stored as it is."""
        self.advance()
        if self.pending:
            return Waiting.SLABS
        for level, key in self._provisional.moved():
            if key not in self._slabs[level]:
                self._provisional.forget((level, key))
                self.pending.add((level, key))
        for level in range(len(self.grids)):
            slabs = list(self._slabs[level].values())
            for slab in slabs:
                if not slab.is_leaving and not slab.arriving:
                    self._leave(slab)
            if slabs:
                return Waiting.SLABS  # lower levels wait for the means of these
        return Waiting.SLABS if self.pending else None

    def end(self, sizes: Sequence[int]) -> None:
        """End level 0 at these sizes along the outer axes, maybe before its planned end. See LevelExtents.end."""
        for level, axes in enumerate(self.extents.end(sizes)):
            self.pending |= {(level, key) for key in self.seen[level] if any(not key[axis] for axis in axes)}
        # Fewer items may be all that a slab gets: it is complete now, and others wait for its memory.
        self._touched.update((level, key) for level, slabs in enumerate(self._slabs) for key in slabs)

    def unstored(self) -> list[list[Any]]:
        """Return slabs in memory that are not all in the files, and the provisional ones, as JSON: for `restore`."""
        self._collect()
        keys = {*self.pending, *((level, key) for level, slabs in enumerate(self._slabs) for key in slabs)}
        return [[[level, list(key)] for level, key in sorted(keys)], self._provisional.to_json()]

    def restore(self, saved: SavedMirror) -> None:
        """Continue with slabs that an earlier process left incomplete. Call it after `add_earlier` of all frames."""
        for level, key in saved.unstored:
            self.seen[level].add(key)
            self.pending.add((level, key))
            self.extents.add_unstored(level, key)
        self._provisional.restore(saved.cut)

    def build(self, keys: Iterable[Position], sizes: Sequence[int], on_turn: Callable[[int], None]) -> None:
        """Build slabs of level 0, which has these sizes along the outer axes, and have them stored in all levels.

        on_turn gets the number of slabs that are left, again and again. Raises its errors, too.
        """
        self.extents.frame_extent = list(sizes)
        # As if an earlier process had had them in memory: so they are built from the frames.
        self.restore(SavedMirror(unstored=tuple((0, key) for key in keys)))
        left = -1
        while self.settle() is not None:
            on_turn(len(self.pending))
            if not self.pending or len(self.pending) == left:  # it waits for memory that the workers have
                time.sleep(_POLL_S)
            left = len(self.pending)

    def mark_stored(self, chunks: int, provisional: Sequence[Sequence[Any]]) -> None:
        """Note that other assemblies have stored everything. provisional: the second part of their `unstored`."""
        self.pending.clear()
        self._tasks.stored_chunks += chunks
        self.extents.mark_all_stored()
        self._provisional.restore(provisional)

    def close(self) -> None:
        """End the workers, drop what is not stored, and return the memory of all slabs."""
        self._workers.close()
        self._slabs.clear()
        self._buffers.close()

    def _note_seen(self, key: Position) -> None:
        for level, one in enumerate(self._reduction.chain(key)):
            if one in self.seen[level]:
                return  # so are the slabs that it is reduced into
            self.seen[level].add(one)

    def _is_complete(self, slab: Slab) -> bool:
        return not slab.is_leaving and not slab.arriving and self.extents.is_complete(slab)

    def _prepare(self, level: int, key: Position, plane: int | None = None) -> bool:
        """Have a slab in memory, with memory for this plane, or for all planes."""
        slabs = self._slabs[level]
        slab = slabs.get(key)
        if slab is not None:
            slab.last_use = next(self._uses)
            self.pending.discard((level, key))
            if slab.is_leaving or not slab.buffer.missing(plane):
                return not slab.is_leaving
        self._collect()
        if slab is None and len(slabs) >= self._max_slabs:
            self._free_memory(slabs.values())
            return False
        if not self._buffers.has_free(level) and self._n_full(level) > self._buffers.max_full(level):
            return False  # memory that the system has to clear first costs more than the wait for that of a full slab
        if slab is not None:
            self._buffers.complete(level, slab.buffer, plane)
            return True
        slab = Slab(level, key, self._buffers.take(level, plane), last_use=next(self._uses))
        if key in self.seen[level]:
            self._buffers.complete(level, slab.buffer)
            self._rebuild(slab)
        self.seen[level].add(key)
        self.pending.discard((level, key))
        slabs[key] = slab
        self._touched.add((level, key))
        # Level 0 and those below count together: memory_need allows slabs of every level at once.
        self.peak_slabs = max(self.peak_slabs, sum(map(len, self._slabs)))
        return True

    def _n_full(self, level: int) -> int:
        """Slabs that are being stored, or will be as soon as the next level has memory for their means."""
        return sum(slab.is_leaving or self._is_complete(slab) for slab in self._slabs[level].values())

    def _free_memory(self, slabs: Iterable[Slab]) -> None:
        """Have the slab of a level stored that was not used for longest, unless another one is leaving already."""
        if any(slab.is_leaving for slab in slabs):
            return
        candidates = [slab for slab in slabs if not slab.arriving]
        if candidates:
            self._leave(min(candidates, key=lambda slab: slab.last_use))

    def _leave(self, slab: Slab) -> bool:
        """Give a slab to the workers."""
        target, parts = None, self._reduction.parts(slab.level, slab.key)
        first = next(parts, None)  # the others once the target is there: this is called until it is
        if first is not None:
            if not self._prepare(slab.level + 1, first.piece.key):
                return False
            target = self._slabs[slab.level + 1][first.piece.key]
        slab.is_leaving = True
        self._buffers.complete(slab.level, slab.buffer)  # a run that has ended may fill no plane of a layer
        slab.clear_unfilled()
        found = [] if first is None else [first, *parts]
        self._tasks.submit(slab, found, target, self.extents.picture.ends(slab.level))
        if target is not None:
            self.extents.add_unstored(target.level, target.key)
            self._provisional.note((slab.level, slab.key))
        return True

    def _collect(self) -> None:
        """Free the slabs whose tasks are done."""
        idle, fed = self._tasks.collect()
        self._touched |= fed
        for slab in idle:
            del self._slabs[slab.level][slab.key]
            self._buffers.give_back(slab.level, slab.buffer)
            self.extents.add_stored(slab)

    def _rebuild(self, slab: Slab) -> None:
        """Fill a slab from the frames taken so far, whatever the files hold."""
        grid = self.grids[slab.level]
        if not slab.level:
            for piece in grid.pieces_in(slab.key):
                pixels = self._frames.read(piece.place)
                if pixels is not None:
                    slab.put(piece, pixels)
                    slab.filled |= 1 << piece.bit
            return
        above = slab.level - 1
        spare = Slab(above, (), self._buffers.take(above))  # one for all sources that are not in memory
        for key in self._reduction.sources(slab.level, slab.key):
            if key not in self.seen[above]:
                continue
            source = self._slabs[above].get(key)
            if source is not None and not source.is_leaving:
                continue  # it is reduced when it leaves
            if source is None:
                source, spare.key, spare.filled = spare, key, 0  # its old pixels are cleared or overwritten
                self._rebuild(spare)
                spare.clear_unfilled()
            for part in self._reduction.parts(above, key):
                self._reduction.reduce(source.buffer, slab.buffer, part)
                slab.filled |= 1 << part.piece.bit
        self._buffers.give_back(above, spare.buffer)


def open_assembly(
    chunk_plan: ChunkPlan,
    writer: ChunkSink,
    frames: PlaneSource,
    workers: Workers,
    *,
    growth: Growth | None = None,
) -> Assembly:
    """Return an assembly with the memory of this plan. It closes the workers, also if there is no memory."""
    grids, layout, full = chunk_plan.grids, chunk_plan.layout, chunk_plan.full_slabs(workers.thread_count)
    try:
        buffers = SlabBuffers(grids, layout.byte_order, head_bytes=layout.head_bytes, full=full)
        return Assembly(grids, writer, frames, workers, buffers, slabs=chunk_plan.need.slabs, growth=growth)
    except BaseException:
        workers.close()
        raise
