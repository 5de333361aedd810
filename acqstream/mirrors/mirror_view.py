"""A mirror: the view that keeps a copy of the frames in a chunk format, and its container while that is open."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from acqstream.arrays.array_plan import ArrayPlan
from acqstream.arrays.array_spec import ArraySpec
from acqstream.errors import CannotResume, ConfigError, CorruptDataset, DatasetError, DatasetExists
from acqstream.formats.chunk_format import ChunkFormat
from acqstream.formats.chunk_layout import ChunkLayout
from acqstream.frames.frame_indices import LogFrames
from acqstream.mirrors.assembly import SavedMirror, SavedTasks, layers_of_slabs, open_assembly
from acqstream.mirrors.level_extents import Growth
from acqstream.mirrors.mirror_container import ContainerView, existing_shapes, open_publisher
from acqstream.mirrors.mirror_plan import (
    Budget,
    ChunkPlan,
    MemoryNeed,
    MirrorSpace,
    has_separate_tiles,
    options_of,
    plan_chunks,
    plan_run,
)
from acqstream.mirrors.mirror_tasks import MirrorTasks, begin_tasks
from acqstream.mirrors.slab import Slab
from acqstream.mirrors.slab_grid import Piece, empty_levels, final_sizes, growing_axis, level_shapes
from acqstream.mirrors.slab_tasks import Workers
from acqstream.mirrors.task_runner import TaskRunner
from acqstream.storage.files.folder_tree import remove_temporaries
from acqstream.storage.files.free_space import SpaceBound
from acqstream.views.base import ViewSource
from acqstream.views.frame_feed import Lease, Waiting

MEMORY_MB = 1024
GROW_INTERVAL_S = 0.25
SHOW_INTERVAL_S = 1.0
UNSAVED_S = 1.5  # since a checkpoint: no frame comes, and stored chunks are forced and shown without one
IDLE_S = 2.0  # without a frame: incomplete chunks are stored
KEPT_BYTES = 256 * 2**20  # of freed memory: blocks of the size of chunks and frames are taken again at once


class MirrorWriter:
    """Creates or resumes the container. Its first note already knows the values of the first `count` frames.


    Raises DatasetError for frames that have no place, DatasetExists, CorruptDataset, StorageError. Methods raise the
    first error of the workers; a method that returns False is called again.
    """

    def __init__(
        self,
        chunk_format: ChunkFormat[Any],
        options: Any,
        container: Path,
        source: ViewSource,
        *,
        plan: ArrayPlan,
        chunk_plan: ChunkPlan,
        budget: Budget,
        count: int,
    ) -> None:
        self.plan = plan
        self.n_processes = 1
        self.restart_reason = ""  # a tile lies before the picture: no frame is taken any more
        self._is_at_rest = False  # all that was taken before it is stored
        self._reader = source.reader
        self.fills_shards, self.layers = chunk_plan.fills_shards, chunk_plan.layers
        self._max_bytes = chunk_plan.need.max_bytes
        layout = chunk_plan.layout
        warned_name = container.name if layout.needs_distances else ""
        self.frames = LogFrames(source.reader, plan, chunk_plan.plan.full)
        self.frames.place_first(count)
        self.space = MirrorSpace(source.reader, self.frames.places, warned_name, plan.mosaic)
        self.levels = self.space.spaced(chunk_plan.plan.levels)
        full, mosaic = chunk_plan.grids[0], plan.mosaic
        grown = axis = growing_axis(full) if layout.announces_indices else None
        # An array of one picture is announced when it is finished.
        self._hides_picture = axis is None and mosaic is not None and layout.announces_indices
        if self._hides_picture:
            axis = full.outer[0] if layout.names_picture else full.cut_axes[0]
        spaced = chunk_plan.plan.with_levels(self.levels)
        announced = empty_levels(self.levels, axis) if axis is not None else self.levels
        if not layout.announces_indices:
            announced = _unannounced(chunk_format.layout(spaced, options), full.outer)
        disk, name = source.disk, source.dataset.name
        self.space_bound = SpaceBound(disk, str(container.parent), f"mirror {container.name}", budget.keep_free_bytes)
        self._writer = open_publisher(
            chunk_format, container, spaced, options, disk, announced=announced, name=name, bound=self.space_bound
        )
        self._announced = existing_shapes(chunk_format, container, announced)  # of all levels
        n_tiles = () if mosaic is None else (mosaic.y.count, mosaic.x.count)
        growth = None if grown is None else Growth(chunk_plan.grids, grown, self._announced, n_tiles)
        self._synced_chunks = 0
        # Last, so that an error above leaves no threads.
        workers = Workers(budget.threads, f"mirror-{chunk_format.name}", source.may_use_disk, self.space_bound.require)
        self.assembly = open_assembly(chunk_plan, self._writer, self.frames, workers, growth=growth)

    @property
    def warning(self) -> str:
        """See MirrorSpace."""
        return self.space.warning

    @property
    def bytes_per_frame(self) -> float:
        """Bytes of the disk for each further frame."""
        return self.assembly.bytes_per_frame * self.space_bound.file_share

    @property
    def waiting(self) -> int:
        """Slabs that are not in the files."""
        return self.assembly.count

    def is_ready(self, row: int) -> bool:
        """Return whether the slabs of a frame are in memory; False for one that `make_ready` refuses."""
        try:
            self.frames.check(row)
            return self.assembly.find(self.frames.place(row)) is not None
        except DatasetError:
            return False

    def make_ready(self, row: int) -> Waiting | None:
        """Have the slabs of a frame in memory.

        A tile before the picture ends the growing array where it is. Raises CannotResume when the run has ended too,
        so that the mirror is rebuilt from all tiles; DatasetError for a frame that has no place.
        """
        self.frames.check(row)
        self.restart_reason = self.restart_reason or self.frames.why_before_origin(row)
        if not self.restart_reason:
            return self.assembly.prepare(self.frames.place(row))
        self._reader.refresh()  # no other call does while no frame is taken
        if not self._reader.writing:
            raise CannotResume(self.restart_reason)
        return Waiting.END

    def advance(self) -> None:
        """Store slabs that are complete; all of them once no frame is taken any more."""
        if not self.restart_reason:
            self.assembly.advance()
        elif not self._is_at_rest:
            self._is_at_rest = self.settle() is None

    def renew_space(self, *, is_final: bool = False) -> None:
        """Announce distances and places that the metadata of later frames show."""
        self.levels = self.space.renew(self.levels, self._writer, is_final=is_final)

    def grow(self) -> None:
        """Announce chunks that were stored along axes that grow."""
        for level, announced in enumerate([] if self._hides_picture else self._announced):
            shape = list(announced)
            for axis, size in self.assembly.extents.announceable(level).items():
                shape[axis] = max(shape[axis], size)
            if tuple(shape) != announced:
                self.levels = self.space.note_values(self.levels, self._writer)
                self._writer.grow(level, tuple(shape))
                self._announced[level] = tuple(shape)

    def begin_sync(self) -> Callable[[], None]:
        """Return a function, for any thread, which has all that was stored survive a power cut: StorageError if not."""
        self._synced_chunks = self.assembly.stored_chunks
        return self._writer.sync

    def sync_new_chunks(self) -> None:
        """Sync, if chunks were stored since the last time: while no frame comes no checkpoint does it."""
        if self._synced_chunks != self.assembly.stored_chunks:
            self.begin_sync()()

    def settle(self) -> Waiting | None:
        """Store and announce everything that was taken, as it is."""
        if (waiting := self.assembly.settle()) is not None:
            return waiting
        self.renew_space(is_final=True)
        self.grow()
        self._writer.sync()
        return None

    def finish(self) -> Waiting | None:
        """Store everything and announce the final shapes: no frame will come.

        Raises CannotResume for frames that do not lie in the order of their values: made again, the mirror has them so.
        """
        if why := self.frames.places.out_of_order():
            raise CannotResume(why)
        assembly = self.assembly
        extents = assembly.extents
        sizes = final_sizes(assembly.grids[0], extents.shape(0), extents.frame_extent)
        shapes = level_shapes(assembly.grids, sizes, extents.picture.sizes())
        if shapes != self._announced or assembly.stored_chunks or assembly.count:  # else it was finished before
            assembly.end(sizes)
        if (waiting := self.settle()) is not None:
            return waiting
        labels = {**self.levels[0].labels, **self.frames.places.labels()}
        ends = zip(self.levels, shapes, strict=True)
        final = [replace(level, shape=shape, labels=labels) for level, shape in ends]
        self._writer.finish([replace(final[0], absent=self.frames.absent(final[0].shape)), *final[1:]])
        return None

    def close(self) -> None:
        """See Assembly."""
        self.assembly.close()

    def summary(self) -> dict[str, Any]:
        """Return the levels and their shapes, chunks stored by this process, and the memory computed."""
        assembly, extents = self.assembly, self.assembly.extents
        shapes = level_shapes(assembly.grids, extents.shape(0), extents.picture.sizes())
        return {
            "axes": list(self.levels[0].axes),
            "levels": [list(shape) for shape in shapes],
            "chunk": list(self.levels[0].chunk_shape),
            "stored_chunks": assembly.stored_chunks,
            "memory_bytes": self._max_bytes * self.n_processes,
            "peak_slabs": assembly.peak_slabs,
        }


def _unannounced(layout: ChunkLayout, axes: Sequence[int]) -> tuple[ArraySpec, ...]:
    """The levels before anything is announced. An axis that the container cannot grow along stays as planned."""
    planned = layout.plan.full.shape
    for axis in axes:
        shorter = layout.with_levels(empty_levels(layout.plan.levels, axis))
        with suppress(ConfigError):
            shorter.check_growth(planned)
            layout = shorter
    return layout.plan.levels


class _PlacedFrame(NamedTuple):
    """A frame that is in its slabs already."""

    targets: list[tuple[Slab, Piece]]
    place: tuple[int, ...]


class MirrorView(ContainerView[MirrorWriter]):
    """runner: of processes that make the mirror of a dataset that does not grow; memory_mb and threads are those of
    each. keep_free_mb: of the disk, left to the log."""

    def __init__(
        self,
        chunk_format: ChunkFormat[Any],
        settings: Mapping[str, Any],
        *,
        container: Path | None = None,
        memory_mb: float = MEMORY_MB,
        threads: int | None = None,
        is_remade: bool = False,
        runner: TaskRunner | None = None,
        keep_free_mb: float = 0,
    ) -> None:
        super().__init__(settings, container, is_remade=is_remade)
        self._format = chunk_format
        self._options = options_of(chunk_format, settings)
        self._budget = Budget.of(memory_mb, threads, keep_free_mb)
        self._runner = runner
        self._tasks: MirrorTasks | None = None
        self._saved_tasks: SavedTasks | None = None
        self._grown_s = self._growth_took_s = self._shown_s = self._synced_s = self._idle_since_s = 0.0
        self.need: MemoryNeed | None = None

    def restore(self, state: Mapping[str, Any], cursor: int) -> None:
        plan = self._planned(cursor)
        if plan is None:
            return
        self._options = options_of(self._format, self._settings)
        try:
            mirror = self._begin(plan, self._plan_again(plan, layers_of_slabs(state)), cursor)
        except (CorruptDataset, DatasetExists) as error:  # changed, or cut otherwise by an earlier version
            raise CannotResume(f"its files were changed: {error}") from error
        saved = SavedMirror.parse(state, len(mirror.levels))
        for row in range(cursor):
            mirror.assembly.add_earlier(mirror.frames.place(row))
        mirror.frames.taken = cursor
        mirror.assembly.restore(saved)
        self._saved_tasks = saved.tasks

    def clear(self) -> None:
        super().clear()
        self._options = options_of(self._format, self._settings)

    def take_range(self, cursor: int, count: int) -> int | Waiting | None:
        if self._runner is None or cursor == count:
            return None if self._runner is None else count
        mirror = self._mirror or self._create(cursor)
        if mirror is None or mirror.fills_shards or mirror.plan.mosaic is not None:
            return None  # in this process
        if self._tasks is None:
            assert self._note is not None
            self._tasks = begin_tasks(
                self._runner,
                mirror.assembly,
                mirror.frames,
                range(cursor, count),
                dataset=str(self._source.dataset.absolute()),
                note=replace(self._note, container=str(self._container)),
                layers=mirror.layers,
                budget=self._budget,
                saved=self._saved_tasks,
            )
            mirror.n_processes = self._runner.width
        if not self._tasks.advance():
            return Waiting.PROCESSES
        mirror.assembly.mark_stored(self._tasks.chunks, self._tasks.provisional)
        mirror.assembly.peak_slabs = self._tasks.peak_slabs
        mirror.frames.taken = count
        self._tasks = self._saved_tasks = None
        remove_temporaries(self._source.disk, str(self._container))
        return count

    @property
    def frames_ahead(self) -> int:
        return self._tasks.frames_done if self._tasks is not None else 0

    def is_ready(self, row: int) -> bool:
        return self._mirror is not None and self._mirror.is_ready(row)

    def make_ready(self, row: int) -> Waiting | None:
        mirror = self._mirror or self._create(row)
        return Waiting.PICTURE if mirror is None else mirror.make_ready(row)

    def take(self, lease: Lease) -> _PlacedFrame:
        """Copy a frame straight into its slab: a frame that proves overwritten is taken again before anything else."""
        mirror = self._mirror
        assert mirror is not None
        place = mirror.frames.place(lease.row)
        targets = mirror.assembly.find(place)
        assert targets is not None
        pixels = mirror.frames.plane(lease.pixels)
        for slab, piece in targets:
            mirror.assembly.mark(slab, piece, is_filled=False)
            slab.put(piece, pixels)
        mirror.frames.taken = lease.row
        return _PlacedFrame(targets, place)

    def keep(self, taken: _PlacedFrame) -> None:
        mirror = self._mirror
        assert mirror is not None
        mirror.assembly.extents.add_frame(taken.place)
        for slab, piece in taken.targets:
            mirror.assembly.mark(slab, piece, is_filled=True)
        mirror.frames.taken += 1

    def work(self, now_s: float, *, is_idle: bool) -> None:
        mirror = self._mirror
        if mirror is None or self._tasks is not None:
            return
        mirror.advance()
        self._idle_since_s = (self._idle_since_s or now_s) if is_idle else 0.0
        if is_idle and now_s - self._idle_since_s >= IDLE_S:
            mirror.assembly.settle()  # readers that follow see every frame
        if now_s - self._shown_s >= SHOW_INTERVAL_S and self._source.may_use_disk():
            self._shown_s = now_s
            mirror.renew_space()
            if now_s - self._synced_s >= UNSAVED_S:
                self._synced_s = now_s
                mirror.sync_new_chunks()
        if now_s - self._grown_s >= GROW_INTERVAL_S * max(1.0, 16 * self._growth_took_s):
            self._grown_s = now_s  # on a slow disk, shapes are announced for a quarter of the time at most
            began_s = time.monotonic()
            mirror.grow()
            self._growth_took_s = time.monotonic() - began_s

    def save(self) -> tuple[dict[str, Any], Callable[[], None]]:
        state: dict[str, Any] = {"open": []}
        mirror = self._mirror
        if mirror is None:
            return {**state, "summary": self.summary()}, lambda: None
        state["open"], state["layers"] = mirror.assembly.unstored(), mirror.layers
        if self._tasks is not None:
            state["parts"] = self._tasks.state()
        self._synced_s = time.monotonic()
        return {**state, "summary": self.summary()}, mirror.begin_sync()

    @property
    def restart_reason(self) -> str:
        return self._mirror.restart_reason if self._mirror is not None else ""

    @property
    def restart_warning(self) -> str:
        return self.restart_reason or (self._mirror.frames.places.out_of_order() if self._mirror is not None else "")

    def _create(self, row: int) -> MirrorWriter | None:
        """Plan the array, then create the container.

        Nothing is created if the frames cannot be mirrored, or before the size of their picture is known: then None.
        Raises ConfigError, DatasetError, StorageError.
        """
        source = self._source
        is_separate = has_separate_tiles(self._settings)
        plan = plan_run(source, row, is_separate=is_separate, grows_picture=self._format.grows_picture)
        if plan is None:
            source.reader.refresh()  # nobody else does while no frame is taken
            return None
        chunk_plan = self._plan_chunks(plan)
        self._write_note(plan)
        return self._begin(plan, chunk_plan, row + 1)

    def _plan_chunks(self, plan: ArrayPlan, layers: int | None = None) -> ChunkPlan:
        """Raises ConfigError if the memory is too small, DatasetError. layers: see `plan_chunks`."""
        summary = self._source.reader.summary_metadata
        return plan_chunks(self._format, self._options, plan, summary, self._budget, layers=layers)

    def _plan_again(self, plan: ArrayPlan, layers: int) -> ChunkPlan:
        """As `_plan_chunks`. Raises CannotResume if only the slabs of before need too much memory."""
        try:
            return self._plan_chunks(plan, layers)
        except ConfigError as error:
            self._plan_chunks(plan)
            raise CannotResume(f"it has less memory than before: {error}") from error

    def _begin(self, plan: ArrayPlan, chunk_plan: ChunkPlan, count: int) -> MirrorWriter:
        """Create or resume the container, with the places of the first `count` frames."""
        self.need = chunk_plan.need
        self._mirror = mirror = MirrorWriter(
            self._format,
            self._options,
            self._container,
            self._source,
            plan=plan,
            chunk_plan=chunk_plan,
            budget=self._budget,
            count=count,
        )
        return mirror
