"""A mirror's container while it is open for writing, with the slabs, threads and frames that fill it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from acqstream.arrays.array_plan import ArrayPlan
from acqstream.arrays.array_spec import ArraySpec
from acqstream.errors import CannotResume, ConfigError, DatasetError
from acqstream.formats.chunk_format import ChunkFormat
from acqstream.formats.chunk_layout import ChunkLayout
from acqstream.frames.frame_indices import LogFrames
from acqstream.mirrors.assembly import open_assembly
from acqstream.mirrors.level_extents import Growth
from acqstream.mirrors.mirror_container import existing_shapes, open_publisher
from acqstream.mirrors.mirror_plan import Budget, ChunkPlan, MirrorSpace
from acqstream.mirrors.slab_grid import empty_levels, final_sizes, growing_axis, level_shapes
from acqstream.mirrors.slab_tasks import Workers
from acqstream.storage.files.free_space import SpaceBound
from acqstream.views.base import ViewSource
from acqstream.views.frame_feed import Waiting


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
        self.workers = Workers(
            budget.threads, f"mirror-{chunk_format.name}", source.may_use_disk, self.space_bound.require
        )
        self.assembly = open_assembly(chunk_plan, self._writer, self.frames, self.workers, growth=growth)

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
        self.workers.check()
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
        self.workers.check()
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
        self.workers.check()
        if (waiting := self.assembly.settle()) is not None:
            return waiting
        self.workers.check()
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
        """End the threads, drop what is not stored, and return the memory of slabs."""
        self.workers.close()
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
