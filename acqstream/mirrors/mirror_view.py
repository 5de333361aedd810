"""A mirror: the view that keeps a copy of the frames in a chunk format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from acqstream.arrays.array_plan import ArrayPlan, plan_array
from acqstream.arrays.array_spec import ArraySpec
from acqstream.errors import CannotResume, CorruptDataset, DatasetError
from acqstream.formats.chunk_format import ChunkFormat, ChunkWriter
from acqstream.mirrors.assembly import Assembly
from acqstream.mirrors.chunk_plan import Budget, Cut, cut_array, options_of
from acqstream.mirrors.container import (
    MirrorNote,
    existing_shapes,
    is_nonempty,
    read_own_note,
    remove_container,
    write_note,
)
from acqstream.mirrors.local_container import open_publisher
from acqstream.mirrors.log_frames import LogFrames
from acqstream.mirrors.memory_need import MemoryNeed
from acqstream.mirrors.mirror_space import MirrorSpace
from acqstream.mirrors.mirror_task import PartJob
from acqstream.mirrors.mirror_tasks import NewFrames, Parts
from acqstream.mirrors.saved_mirror import SavedMirror, SavedTasks
from acqstream.mirrors.slab import Slab
from acqstream.mirrors.slab_grid import final_sizes, level_shapes
from acqstream.mirrors.task_runner import PartRunner
from acqstream.mirrors.workers import Workers
from acqstream.storage.own_names_disk import remove_temporaries
from acqstream.views.base import RangeView, ViewSource
from acqstream.views.feed import Lease

MEMORY_MB = 1024
GROW_INTERVAL_S = 0.25
SHOW_INTERVAL_S = 1.0
IDLE_S = 2.0  # without a frame: chunks are stored as they are
KEPT_BYTES = 256 * 2**20  # of freed memory: blocks of the size of chunks and frames are taken again at once


class _Placed(NamedTuple):
    """A frame that is in its slab already."""

    slab: Slab
    plane: int
    place: tuple[int, ...]


class MirrorView(RangeView):
    """settings: what the user asked for: "format", and the options of the format. container: the folder of the mirror,
    None: beside the dataset. is_remade: one that is there is removed first. runner: of processes that make it, of a
    dataset that does not grow; memory_mb and threads are those of each.
    """

    marks_first = True

    def __init__(
        self,
        found: ChunkFormat[Any],
        settings: Mapping[str, Any],
        *,
        container: Path | None = None,
        memory_mb: float = MEMORY_MB,
        threads: int | None = None,
        is_remade: bool = False,
        runner: PartRunner | None = None,
    ) -> None:
        self._format = found
        self._settings: dict[str, Any] = json.loads(json.dumps(dict(settings)))
        self._options = options_of(found, settings)
        self.container = None if container is None else container.absolute()
        self._budget = Budget.of(memory_mb, threads)
        self._is_remade = is_remade
        self._runner = runner
        self._processes = 1
        self._parts: Parts | None = None
        self._saved_tasks: SavedTasks | None = None
        self._note: MirrorNote | None = None
        self._plan: ArrayPlan | None = None
        self._levels: tuple[ArraySpec, ...] = ()
        self._space: MirrorSpace | None = None
        self._grown: list[tuple[int, ...]] = []
        self._grown_s = self._shown_s = self._idle_since_s = 0.0
        self._shown_chunks = 0
        self._writer: ChunkWriter | None = None
        self._assembly: Assembly | None = None
        self._frames: LogFrames | None = None
        self._workers: Workers | None = None
        self._summary: dict[str, Any] = {}
        self.need: MemoryNeed | None = None

    def open(self, source: ViewSource) -> None:
        self._source, self._reader = source, source.reader
        if self.container is None:
            # named by the folder of the checkpoint: a second mirror in the same format has a name of its own
            self.container = source.folder.with_suffix("").absolute()
        is_ours = source.is_ours
        self._note = note = read_own_note(source.folder, source.dataset_id, self.container, is_ours=is_ours)
        if note is not None and note.dataset_id != source.dataset_id and not self._is_remade:
            raise DatasetError(f"{self.container} is a mirror of another dataset; --rebuild replaces it")
        if note is None and is_nonempty(self.container):
            raise DatasetError(f"{self.container} already exists and is not a mirror of {source.dataset.name}")

    def restore(self, state: Mapping[str, Any], cursor: int) -> None:
        if self._is_remade:
            raise CannotResume("the mirror is being rebuilt")
        note = self._note
        if note is None:
            if cursor:
                raise CannotResume("mirror.json is missing")
            return
        if note.plan is None:
            raise CannotResume("its mirror.json is damaged, or its removal was interrupted")
        if note.settings != self._settings or not note.is_of(self._container):
            raise CannotResume("it was made with other settings or in another folder")
        if cursor and not is_nonempty(self._container):
            raise CannotResume("its files are missing")
        try:
            assembly, frames = self._begin(note.plan, cursor)
        except CorruptDataset as error:
            raise CannotResume(f"its files were changed: {error}") from error
        saved = SavedMirror.parse(state, len(self._levels))
        for row in range(cursor):
            assembly.note_earlier(frames.place(row))
        frames.taken = cursor
        assembly.restore(saved)
        self._saved_tasks = saved.tasks

    def clear(self) -> None:
        remove_container(self._source.disk, self._source.folder, self._note, self._container)
        self._note = None

    def take_range(self, cursor: int, count: int) -> int | None:
        if self._runner is None:
            return None
        if cursor == count:
            return count
        if self._parts is None:
            if self._plan is None:
                self._make_plan(cursor)
            self._parts = self._begin_parts(self._runner, cursor, count)
        if not self._parts.advance():
            return cursor
        assert self._assembly is not None
        assert self._frames is not None
        self._assembly.note_made(self._parts.chunks, self._parts.cut)
        self._assembly.peak_slabs = self._parts.peak_slabs
        self._frames.taken = count
        self._parts = self._saved_tasks = None
        remove_temporaries(self._source.disk, str(self.container))
        return count

    @property
    def frames_ahead(self) -> int:
        return self._parts.frames_done if self._parts is not None else 0

    def is_ready(self, row: int) -> bool:
        if self._assembly is None or self._frames is None:
            return False
        try:
            self._frames.check(row)
            return self._assembly.find(self._frames.place(row)) is not None
        except DatasetError:
            return False  # make_ready says so

    def make_ready(self, row: int) -> bool:
        if self._plan is None:
            self._make_plan(row)
        assembly, frames, workers = self._assembly, self._frames, self._workers
        assert assembly is not None
        assert frames is not None
        assert workers is not None
        workers.check()
        frames.check(row)
        return assembly.prepare(frames.place(row))

    def take(self, lease: Lease) -> _Placed:
        """Straight into the chunks: a frame that proves overwritten is taken again before anything else is done."""
        assert self._assembly is not None
        assert self._frames is not None
        place = self._frames.place(lease.row)
        found = self._assembly.find(place)
        assert found is not None
        slab, plane = found
        self._assembly.mark(slab, plane, is_filled=False)
        slab.buffer.put(plane, self._frames.plane(lease.pixels))
        self._frames.taken = lease.row
        return _Placed(slab, plane, place)

    def keep(self, taken: _Placed) -> None:
        assert self._assembly is not None
        assert self._frames is not None
        self._assembly.note(taken.place)
        self._assembly.mark(taken.slab, taken.plane, is_filled=True)
        self._frames.taken += 1

    def work(self, now_s: float, *, is_idle: bool) -> None:
        if self._assembly is None or self._workers is None or self._parts is not None:
            return
        self._workers.check()
        self._assembly.advance()
        self._idle_since_s = (self._idle_since_s or now_s) if is_idle else 0.0
        if is_idle and now_s - self._idle_since_s >= IDLE_S:
            self._assembly.settle()  # whoever looks on sees what there is
        if now_s - self._shown_s >= SHOW_INTERVAL_S and self._source.may_use_disk():
            self._shown_s = now_s
            self._renew_space()
            self._show()
        if now_s - self._grown_s >= GROW_INTERVAL_S:
            self._grown_s = now_s
            self._grow()

    def _show(self) -> None:
        """What was stored after the last checkpoint: there is none while no frame comes."""
        if self._assembly and self._writer and self._shown_chunks != self._assembly.stored_chunks:
            self._shown_chunks = self._assembly.stored_chunks
            self._writer.sync()

    def _renew_space(self, *, is_final: bool = False) -> None:
        """Distances and places are in the metadata of frames: those that came meanwhile may show more of them."""
        if self._space is not None and self._writer is not None:
            self._levels = self._space.renew(self._levels, self._writer, is_final=is_final)

    def settle(self) -> bool:
        if self._assembly is None or self._workers is None or self._writer is None:
            return True
        self._workers.check()
        if not self._assembly.settle():
            return False
        self._workers.check()
        self._renew_space(is_final=True)
        self._grow()
        self._writer.sync()
        return True

    def finish(self) -> bool:
        assembly = self._assembly
        if assembly is None or self._writer is None or not self._reader.complete:
            return self.settle()
        assert self._frames is not None
        sizes = final_sizes(assembly.grids[0], assembly.shape(0), assembly.extents[0])
        shapes = level_shapes(assembly.grids, sizes)
        if shapes != self._grown:  # else it was finished before
            assembly.end(sizes)
        if not self.settle():
            return False
        labels = {**self._levels[0].labels, **self._frames.places.labels()}
        self._writer.finish(
            [replace(level, shape=shape, labels=labels) for level, shape in zip(self._levels, shapes, strict=True)]
        )
        return True

    def save(self) -> dict[str, Any]:
        state: dict[str, Any] = {"open": []}
        if self._assembly is not None and self._writer is not None:
            state["open"] = self._assembly.unstored()
            if self._parts is not None:
                state["parts"] = self._parts.state()
            self._shown_chunks = self._assembly.stored_chunks
            self._writer.sync()
        return {**state, "summary": self.summary()}

    def summary(self) -> dict[str, Any]:
        """container, levels and their shapes, chunks stored by this process, and memory: the most that was computed."""
        if self._assembly is not None and self.need is not None:
            shapes = level_shapes(self._assembly.grids, self._assembly.shape(0))
            self._summary = {
                "container": str(self.container),
                "axes": list(self._levels[0].axes),
                "levels": [list(shape) for shape in shapes],
                "chunk": list(self._levels[0].chunk_shape),
                "stored_chunks": self._assembly.stored_chunks,
                "memory_bytes": self.need.most_bytes * self._processes,
                "peak_slabs": self._assembly.peak_slabs,
            }
        return self._summary

    def close(self) -> None:
        if self._workers is not None:
            self._workers.close()
        self.summary()
        self._workers = self._writer = self._assembly = None

    @property
    def warning(self) -> str:
        return self._space.warning if self._space is not None else ""

    @property
    def waiting(self) -> int:
        """Slabs that are not all in the files."""
        return self._assembly.count if self._assembly is not None else 0

    @property
    def _container(self) -> Path:
        assert self.container is not None
        return self.container

    def _make_plan(self, row: int) -> None:
        """From the request, this frame and whatever is published. Nothing is created if it cannot be mirrored."""
        source, request = self._source, self._source.request
        declared, expect = request.get("axes"), request.get("expect")
        plan = plan_array(
            self._reader.key(row),
            self._reader.frame_shape(row),
            self._reader.frame_dtype(row).str,
            declared=declared if isinstance(declared, list) else (),
            seen=self._reader.axis_values(),
            kinds=self._reader.key_kinds(),
            order=self._reader.declared_order,
            is_final=not self._reader.writing,
            expect=expect if isinstance(expect, int) else None,
            summary=self._reader.summary_metadata,
        )
        self._cut(plan)
        note = MirrorNote(source.dataset_id, str(self.container), self._settings, plan)
        write_note(source.disk, source.folder, note)
        self._note = note
        self._begin(plan, row + 1)

    def _cut(self, plan: ArrayPlan) -> Cut:
        """Its levels, and the memory they take. Raises ConfigError, DatasetError."""
        cut = cut_array(self._format, self._options, plan, self._reader.summary_metadata, self._budget)
        self.need = cut.need
        return cut

    def _begin(self, plan: ArrayPlan, count: int) -> tuple[Assembly, LogFrames]:
        """Make or continue the container. Its first note already knows the values of the first `count` frames."""
        cut = self._cut(plan)
        warned_name = self._container.name if self._format.needs_distances(self._options) else ""
        self._frames = LogFrames(self._reader, plan, cut.plan.full)
        self._frames.place_first(count)
        self._space = MirrorSpace(self._reader, self._frames.places, warned_name)
        self._levels = levels = self._space.look(cut.plan.levels)
        spaced = cut.plan.with_levels(levels)
        self._writer = open_publisher(self._format, self._container, spaced, self._options, self._source.disk)
        self._workers = Workers(self._budget.threads, f"mirror-{self._format.name}", self._source.may_use_disk)
        order, slabs = self._format.byte_order, cut.need.slabs
        self._assembly = Assembly(cut.grids, self._writer, self._frames, self._workers, slabs=slabs, byte_order=order)
        self._plan = plan
        self._grown = existing_shapes(self._format.open, self._container, levels)
        return self._assembly, self._frames

    def _begin_parts(self, runner: PartRunner, cursor: int, count: int) -> Parts:
        """All that the frames from `cursor` on, and what an earlier process has left, belong to."""
        assembly, frames = self._assembly, self._frames
        assert assembly is not None
        assert frames is not None
        pending, cut = assembly.unstored()
        new = NewFrames(assembly, [(level, tuple(key)) for level, key, *_ in (*pending, *cut)])
        for row in range(cursor, count):
            frames.check(row)
            new.add(frames.place(row))
        assert self._plan is not None
        known, kinds = frames.places.known()
        job = PartJob(
            dataset=str(self._source.dataset.absolute()),
            container=str(self._container),
            settings=self._settings,
            plan=self._plan,
            known=known,
            kinds=kinds,
            shown_axes=frames.places.shown_axes(),
            axis_values=frames.places.axis_values(),
            extents=tuple(assembly.extents[0]),
            rows=count,
            budget=self._budget,
        )
        self._processes = runner.width
        slab_bytes = assembly.grids[0].slab_bytes
        return Parts(runner, job, new.units(), new.frames, slab_bytes=slab_bytes, saved=self._saved_tasks)

    def _grow(self) -> None:
        """Announce what has been stored along axes that grow."""
        assert self._assembly is not None and self._writer is not None and self._space is not None  # noqa: PT018
        for level, (known, extent) in enumerate(zip(self._grown, self._assembly.stored_extents, strict=True)):
            shape = list(known)
            for axis, size in zip(self._assembly.grids[level].outer, extent, strict=True):
                shape[axis] = max(shape[axis], size)
            if tuple(shape) != known:
                self._levels = self._space.note_values(self._levels, self._writer)
                self._writer.grow(level, tuple(shape))
                self._grown[level] = tuple(shape)
