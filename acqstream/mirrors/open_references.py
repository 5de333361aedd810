"""A mirror by reference while it is open for writing: frames get their places, chunks of the table are published.

A chunk of the table is published when it is complete; if none is for PARTIAL_S, the incomplete one is published, and
rewritten later. A server may keep an old chunk for a second, so the shape that covers the new part of a rewritten chunk
is announced SETTLE_S later: other software sees no zeros where frames are.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from acqstream.arrays.array_plan import ArrayPlan, planned_spec
from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.errors import CorruptDataset
from acqstream.mirrors.mirror_space import MirrorSpace
from acqstream.mirrors.place_table import IndexCount, PlaceTable
from acqstream.mirrors.reference_writer import ReferenceWriter
from acqstream.mirrors.row_places import RowPlaces
from acqstream.mirrors.slab_grid import final_sizes, slab_grids
from acqstream.mirrors.table_grid import table_grid
from acqstream.storage.files.free_space import SpaceBound
from acqstream.views.base import ViewSource

PARTIAL_S = 8.0  # with SETTLE_S, and a second of a server's cache, clients see frames within 12 s
SETTLE_S = 2.0
ANNOUNCE_S = 0.5  # between two announcements, with all documents
MAX_ROWS = 65_536  # taken at once
WRITE_S = 0.25  # of one step


class OpenReferences:
    """Creates or resumes the container. Used by one thread.

    Raises DatasetError for frames that have no place or cannot be referred to, CorruptDataset, StorageError.
    """

    def __init__(self, source: ViewSource, container: Path, plan: ArrayPlan, *, keep_free_bytes: int) -> None:
        reader = source.reader
        spec = planned_spec(plan, reader.summary_metadata)
        spec = replace(spec, chunk_shape=(*(1 for _ in plan.axes), *spec.shape[len(plan.axes) :]))
        (self._slabs,) = slab_grids([spec])
        self.rows = RowPlaces(reader, plan, spec)
        self.space = MirrorSpace(reader, self.rows.axes)
        self.space_bound = SpaceBound(source.disk, str(container.parent), f"mirror {container.name}", keep_free_bytes)
        self._planned = spec
        (self._spec,) = self.space.look([spec])
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
            self._table.add_earlier(self.rows.places(rows), start, frozenset(unstored))
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
    def advice(self) -> str:
        """How to serve the container, where that is unusual."""
        return self._writer.advice

    def take(self, cursor: int, count: int) -> int:
        """Give frames from `cursor` up to `count` their places, at least one; the new cursor."""
        rows = range(cursor, min(count, cursor + MAX_ROWS))
        rows = range(cursor, cursor + self.rows.count_alike(rows))
        places = self.rows.places(rows)
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

    def settle(self) -> bool:
        """Write all chunks and announce the complete indices; False: call it again."""
        if not self._write_everything():
            return False
        if self._ready() > self._announced:
            self._pending = self._ready()
            return False
        self.renew_space(is_final=True)
        if self._is_unannounced and self._announced:
            self._announce(self._announced)
        self._writer.sync()
        return True

    def finish(self) -> bool:
        """Write everything and announce the final shape: no frame will come. False: call it again."""
        if self._is_complete:
            return True
        if not self._write_everything() or time.monotonic() < self._settled_s:
            return False
        self.renew_space(is_final=True)
        self._writer.sync()
        self._announce(self._final_shape(), complete=True)
        self._writer.sync()
        self._is_complete = True
        return True

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
        """Have everything that was stored survive a power cut."""
        self._writer.sync()

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
        labels = {**self._spec.labels, **self.rows.axes.labels()} if complete else self._spec.labels
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
