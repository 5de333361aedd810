"""A mirror: the view that keeps a copy of the frames in a chunk format."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from acqstream.arrays.array_plan import ArrayPlan
from acqstream.errors import CannotResume, ConfigError, CorruptDataset, DatasetExists
from acqstream.formats.chunk_format import ChunkFormat
from acqstream.mirrors.assembly import SavedMirror, SavedTasks, layers_of_slabs
from acqstream.mirrors.mirror_container import ContainerView
from acqstream.mirrors.mirror_plan import (
    Budget,
    ChunkPlan,
    MemoryNeed,
    has_separate_tiles,
    options_of,
    plan_chunks,
    plan_run,
)
from acqstream.mirrors.mirror_tasks import MirrorTasks, begin_tasks
from acqstream.mirrors.mirror_writer import MirrorWriter
from acqstream.mirrors.slab import Slab
from acqstream.mirrors.slab_grid import Piece
from acqstream.mirrors.task_runner import TaskRunner
from acqstream.storage.files.folder_tree import remove_temporaries
from acqstream.views.frame_feed import Lease, Waiting

MEMORY_MB = 1024
GROW_INTERVAL_S = 0.25
SHOW_INTERVAL_S = 1.0
UNSAVED_S = 1.5  # since a checkpoint: no frame comes, and stored chunks are forced and shown without one
IDLE_S = 2.0  # without a frame: incomplete chunks are stored
KEPT_BYTES = 256 * 2**20  # of freed memory: blocks of the size of chunks and frames are taken again at once


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
            self._tasks = begin_tasks(
                self._runner,
                mirror,
                range(cursor, count),
                dataset=str(self._source.dataset.absolute()),
                container=str(self._container),
                settings=self._settings,
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
