"""The view that keeps a mirror by reference: the pixels stay in the stacks, the chunk table points to them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from acqstream.arrays.array_plan import ArrayPlan, planned_spec
from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.errors import CannotResume, ConfigError, CorruptDataset
from acqstream.formats.chunk_format import ChunkFormat
from acqstream.frames.frame_indices import LogFrames
from acqstream.mirrors.mirror_container import ContainerView
from acqstream.mirrors.mirror_plan import MIB, MirrorSpace, options_of, plan_references
from acqstream.mirrors.reference_writer import ReferenceWriter
from acqstream.mirrors.row_table import IndexCount, PlaceTable, table_grid
from acqstream.mirrors.slab_grid import final_sizes, slab_grids
from acqstream.storage.files.free_space import SpaceBound
from acqstream.views.base import ViewSource
from acqstream.views.checkpoint import integers, items
from acqstream.views.frame_feed import Waiting

PARTIAL_S = 8.0  # with SETTLE_S, and a second of a server's cache, clients see frames within 12 s
SETTLE_S = 2.0
ANNOUNCE_S = 0.5  # between two announcements, with all documents
MAX_ROWS = 65_536  # taken at once
WRITE_S = 0.25  # of one step


class ReferenceMirror:
    """Creates or resumes the container. Used by one thread.

    Raises DatasetError for frames that have no place or cannot be referred to, CorruptDataset, StorageError.
    """

    def __init__(self, source: ViewSource, container: Path, plan: ArrayPlan, *, keep_free_bytes: int) -> None:
        reader = source.reader
        spec = planned_spec(plan, reader.summary_metadata)
        spec = replace(spec, chunk_shape=(*(1 for _ in plan.axes), *spec.shape[len(plan.axes) :]))
        (self._slabs,) = slab_grids([spec])
        self.rows = LogFrames(reader, plan, spec)
        self.rows.place_first(1)
        self.space = MirrorSpace(reader, self.rows.places)
        self.space_bound = SpaceBound(source.disk, str(container.parent), f"mirror {container.name}", keep_free_bytes)
        self._planned = spec
        (self._spec,) = self.space.spaced([spec])
        seen = {name: len(values) for name, values in reader.axis_values().items()}
        self._writer = ReferenceWriter(container, source, self._spec, partial(table_grid, spec, seen))
        self.grid = self._writer.grid
        self._count = IndexCount(self.grid.planned)
        self._table = PlaceTable(self.grid, self.rows.row)
        self._announced = 0
        self._caught_up_at = 0  # rows; before these are taken, announced chunks may lack frames that they had
        self._pending: int | None = None  # a size along the growing axis whose chunks are stored
        self._settled_s = 0.0  # no server has an old chunk any longer, and the next announcement may come
        self._late_s = self._grown_s = time.monotonic()
        self._is_unannounced = True  # space or values have changed
        self._is_complete = False

    def begin(self, cursor: int, unstored: Sequence[Position] = ()) -> None:
        """Create the container, or resume it after `cursor` frames. unstored: chunks that were not stored then."""
        found = self._writer.found
        if found is not None:
            shape, self._is_complete = found
            self._announced = shape[self.grid.growing] if self.grid.growing is not None else 1
            self._caught_up_at = self.rows.published
        elif cursor and self.grid.growing is not None:
            raise CorruptDataset("its documents are missing", path=self._writer.where)
        for start in range(0, cursor, MAX_ROWS):
            rows = range(start, min(start + MAX_ROWS, cursor))
            self._table.add_earlier(self.rows.places_of(rows), start, frozenset(unstored))
        self.rows.taken = cursor
        if self.grid.growing is not None and cursor:
            last = self._table.sizes[self.grid.growing] - 1
            self._count.resume(last, self._table.count_at(self.grid.growing, last))
        if found is None and self.grid.growing is not None:
            self._announce(0)

    @property
    def is_full(self) -> bool:
        """True if chunks must be written before frames are taken."""
        return self._table.is_full

    @property
    def unstored(self) -> list[Position]:
        """Chunks that changed since they were stored."""
        return list(self._table.changed)

    @property
    def bytes_per_frame(self) -> float:
        """Bytes of disk for each frame, as blocks of this process's files."""
        entries = self._writer.stored_chunks * self.grid.entries
        return self._writer.stored_bytes / max(1, min(entries, self.rows.taken))

    @property
    def waiting(self) -> int:
        """Number of these chunks."""
        return len(self.unstored)

    @property
    def warning(self) -> str:
        """How to serve the container, where that is unusual."""
        return self._writer.advice

    def take(self, cursor: int, count: int) -> int:
        """Give frames from `cursor` up to `count` their places, at least one; the new cursor."""
        rows = range(cursor, min(count, cursor + MAX_ROWS))
        rows = range(cursor, cursor + self.rows.count_alike(rows))
        places = self.rows.places_of(rows)
        is_first = self._table.add(places, cursor)
        if self.grid.growing is not None:
            self._count.add(places[:, self.grid.growing], is_first)
        self.rows.taken = rows.stop
        self._is_complete = False
        return rows.stop

    def relieve(self) -> None:
        """Write the chunks that changed first, whatever was announced, until frames can be taken again."""
        for chunk in self.unstored[: len(self.unstored) // 2]:
            self._write(chunk)

    def advance(self, now_s: float) -> None:
        """Write and announce what is due, for WRITE_S at most."""
        if self._pending is not None:
            self._announce_when_due(now_s)
            return
        ready = self._ready()
        if not self._is_caught_up or ready < self._announced:
            return  # an earlier process had stored more: it would be lost until its frames have come again
        size = self.grid.complete_size(ready)
        if size <= self._announced and now_s - self._grown_s >= PARTIAL_S:  # a changed space alone shows no frame
            size = ready
        is_larger = size > self._announced
        if not is_larger and now_s - self._late_s < PARTIAL_S:
            return
        # Of the last announced chunk other software sees a part: it is written with those that are new.
        due = [chunk for chunk in self._table.changed if self.grid.first_index(chunk) < max(size, self._announced)]
        if self._write_all(due, time.monotonic() + WRITE_S):
            self._late_s = now_s
            self._pending = size if is_larger else None

    def settle(self) -> Waiting | None:
        """Write all chunks and announce the complete indices. If it has to wait, call it again."""
        if not self._write_everything():
            return Waiting.READERS
        if self._ready() > self._announced:
            self._pending = self._ready()
            return Waiting.READERS
        self.renew_space(is_final=True)
        if self._is_unannounced and self._announced:
            self._announce(self._announced)
        self._writer.sync()
        return None

    def finish(self) -> Waiting | None:
        """Write everything and announce the final shape: no frame will come. If it has to wait, call it again."""
        if self._is_complete:
            return None
        if not self._write_everything() or time.monotonic() < self._settled_s:
            return Waiting.READERS
        self.renew_space(is_final=True)
        self._writer.sync()
        self._announce(self._final_shape(), complete=True)
        self._writer.sync()
        self._is_complete = True
        return None

    def _write_everything(self) -> bool:
        if self._pending is not None:
            self._announce_when_due(time.monotonic())
            return False
        return self._write_all(self.unstored, time.monotonic() + WRITE_S)

    def _announce_when_due(self, now_s: float) -> None:
        if self._pending is not None and now_s >= self._settled_s:
            self._announce(self._pending)

    def renew_space(self, *, is_final: bool = False) -> None:
        """Take over distances and places that the metadata of later frames show."""
        (self._spec,) = self.space.renew((self._spec,), self, is_final=is_final)

    def set_space(self, levels: Sequence[ArraySpec]) -> None:
        """See SpaceWriter: the next announcement has it."""
        del levels
        self._is_unannounced = True

    def show_space(self) -> None:
        """Announce a changed space, unless a shape is about to be announced."""
        if self._is_complete:
            return
        self.renew_space()
        if self._is_unannounced and self._announced and self._pending is None:
            self._announce(self._announced)

    def sync(self) -> None:
        """Have everything that was stored survive a power cut; from any thread."""
        self._writer.sync()

    def close(self) -> None:
        """Do nothing: no file is open."""

    def summary(self) -> dict[str, Any]:
        """Return the array, the chunks of the table and the columns."""
        return {
            "axes": list(self._spec.axes),
            "levels": [list(self._spec.shape)],
            "table_chunk": list(self.grid.steps),
            "columns": list(self._writer.columns),
            "stored_chunks": self._writer.stored_chunks,
        }

    @property
    def _is_caught_up(self) -> bool:
        return self.rows.taken >= self._caught_up_at

    def _ready(self) -> int:
        if self.grid.growing is None:
            return min(self.rows.taken, 1)
        return self._count.ready

    def _write_all(self, chunks: Sequence[Position], until_s: float) -> bool:
        """Write these chunks; False when the time is over before the last one."""
        for chunk in chunks:
            self._write(chunk)
            if time.monotonic() >= until_s and chunk != chunks[-1]:
                return False
        return True

    def _write(self, chunk: Position) -> None:
        self.space_bound.require()
        if self.grid.first_index(chunk) < self._announced:
            self._settled_s = time.monotonic() + SETTLE_S
        self._writer.put_chunk(chunk, self._table.chunk(chunk))
        self._table.mark_stored(chunk)

    def _announce(self, size: int | tuple[int, ...], *, complete: bool = False) -> None:
        shape = self._shape(self._planned, size) if isinstance(size, int) else size
        labels = {**self._spec.labels, **self.rows.places.labels()} if complete else self._spec.labels
        (spec,) = self.space.note_values((self._spec,), self)
        self._spec = replace(spec, shape=shape, labels=labels)
        self._writer.announce(self._spec, self._announced, complete=complete)
        growing = self.grid.growing
        self._announced = 1 if growing is None else shape[growing]
        now_s = time.monotonic()
        self._settled_s = max(self._settled_s, now_s + ANNOUNCE_S)
        if self._pending is not None:
            self._grown_s = now_s
        self._pending, self._is_unannounced = None, False

    def _shape(self, planned: ArraySpec, size: int) -> tuple[int, ...]:
        """The shape with `size` indices of the growing axis."""
        reached = self._table.sizes
        outer = [max(known, end) for known, end in zip(planned.shape, reached, strict=False)]
        if self.grid.growing is not None:
            outer[self.grid.growing] = size
        return (*outer, *planned.shape[len(outer) :])

    def _final_shape(self) -> tuple[int, ...]:
        reached = self._table.sizes
        planned = [max(known, end) for known, end in zip(self._planned.shape, reached, strict=False)]
        outer = final_sizes(self._slabs, planned, reached)
        return (*outer, *self._planned.shape[len(outer) :])


SHOW_INTERVAL_S = 1.0


class ReferenceView(ContainerView[ReferenceMirror]):
    """As MirrorView; memory_mb and threads are not used, as no chunk is encoded. runner must be None."""

    def __init__(
        self,
        chunk_format: ChunkFormat[Any],
        settings: Mapping[str, Any],
        *,
        container: Path | None = None,
        memory_mb: float = 0,
        threads: int | None = None,
        is_remade: bool = False,
        runner: object = None,
        keep_free_mb: float = 0,
    ) -> None:
        super().__init__(settings, container, is_remade=is_remade)
        del memory_mb, threads
        options_of(chunk_format, settings)
        if runner is not None:
            raise ConfigError("a mirror by reference is made by one process: it copies no pixels")
        self._keep_free_bytes = int(keep_free_mb * MIB)
        self._shown_s = 0.0

    def restore(self, state: Mapping[str, Any], cursor: int) -> None:
        plan = self._planned(cursor)
        if plan is None:
            return
        chunks = [
            integers(chunk, "the position of a chunk") for chunk in items(state.get("open"), "the unstored chunks")
        ]
        if any(len(chunk) != len(plan.axes) for chunk in chunks):
            raise CannotResume("the state names chunks of another table")
        try:
            self._begin(plan, cursor, chunks)
        except CorruptDataset as error:
            raise CannotResume(f"its files were changed: {error}") from error

    def is_ready(self, row: int) -> bool:
        del row
        return self._mirror is not None and not self._mirror.is_full

    def make_ready(self, row: int) -> None:
        """Raises ConfigError, DatasetError, StorageError."""
        if self._mirror is None:
            plan = plan_references(self._source, row)
            self._write_note(plan)
            self._begin(plan, 0, [])
        elif self._mirror.is_full:
            self._mirror.relieve()

    def take_rows(self, cursor: int, count: int) -> int:
        assert self._mirror is not None
        return self._mirror.take(cursor, count)

    def work(self, now_s: float, *, is_idle: bool) -> None:
        del is_idle
        if self._mirror is None:
            return
        self._mirror.advance(now_s)
        if now_s - self._shown_s >= SHOW_INTERVAL_S and self._source.may_use_disk():
            self._shown_s = now_s
            self._mirror.show_space()

    def save(self) -> tuple[dict[str, Any], Callable[[], None]]:
        mirror = self._mirror
        unstored = [] if mirror is None else [list(chunk) for chunk in mirror.unstored]
        return {"open": unstored, "summary": self.summary()}, lambda: None if mirror is None else mirror.sync()

    def _begin(self, plan: ArrayPlan, cursor: int, unstored: list[tuple[int, ...]]) -> None:
        mirror = ReferenceMirror(self._source, self._container, plan, keep_free_bytes=self._keep_free_bytes)
        mirror.begin(cursor, unstored)
        self._mirror = mirror
