"""Copies an array of a chunk format into another chunk format, plane by plane, for example N5 to WKW.

Level 0 is copied; lower levels are recomputed by the rule of mirrors. Space, names and values of the axes, and
attributes stay. A copy that was interrupted restarts; its note has no plan until it is complete.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec
from acqstream.errors import DatasetError
from acqstream.formats.chunk_format import ChunkFormat
from acqstream.formats.chunk_reader import ChunkReader
from acqstream.mirrors.assembly import open_assembly
from acqstream.mirrors.mirror_container import (
    MirrorNote,
    is_nonempty,
    open_publisher,
    opened,
    read_note,
    remove_container,
    write_note,
)
from acqstream.mirrors.mirror_plan import Budget, ChunkPlan, options_of, plan_spec_chunks
from acqstream.mirrors.publisher import Publisher
from acqstream.mirrors.slab_comparison import ChunkBoxes
from acqstream.mirrors.slab_grid import empty_levels
from acqstream.mirrors.slab_tasks import Workers
from acqstream.model.axes import PICTURE_AXES, stored_axis_order
from acqstream.storage.files.directory_lock import DirectoryLock
from acqstream.storage.files.disk import LocalDisk
from acqstream.views.checkpoint import view_folder
from acqstream.views.view_folder import id_of_summary


class ArrayPlanes:
    """Reads level 0 of a stored array plane by plane, as level 0 of another array has its axes (`spec`).

    Axes that only one of the two has are of extent 1. Chunks stay in memory, up to `max_bytes`: the neighbours of a
    plane lie in them. Used by one thread.
    """

    def __init__(self, reader: ChunkReader, spec: ArraySpec, max_bytes: int) -> None:
        stored = reader.spec
        self._stored = stored
        self._boxes = ChunkBoxes(reader, max_bytes)
        self._outer = [at for at, name in enumerate(stored.axes) if name not in PICTURE_AXES]
        places = [name for name in spec.axes if name not in PICTURE_AXES]
        self._places = [places.index(stored.axes[at]) if stored.axes[at] in places else None for at in self._outer]
        picture = [name for name in stored.axes if name in PICTURE_AXES]
        names = [name for name in spec.axes if name in picture]
        self._order = [picture.index(name) for name in names]
        self._shape = [stored.shape[stored.axes.index(name)] for name in picture]
        self._added = [at for at, name in enumerate(n for n in spec.axes if n in PICTURE_AXES) if name not in picture]

    def read(self, place: Sequence[int]) -> NDArray[Any] | None:
        """The plane at a place along the outer axes of `spec`, its axes in that order.

        None if no chunk of it is stored, and outside the array: slabs may be deeper.
        """
        box = [range(size) for size in self._stored.shape]
        for axis, number in zip(self._outer, self._places, strict=True):
            at = 0 if number is None else place[number]
            if at >= self._stored.shape[axis]:
                return None
            box[axis] = range(at, at + 1)
        found = self._boxes.read(box)
        if found is None:
            return None
        return np.expand_dims(found.reshape(self._shape).transpose(self._order), self._added)


_SOURCE_SHARE = 0.25  # of the memory: for chunks of the source

Progress = Callable[[int, int], None]
"""Gets the number of finished pieces and their total."""


@dataclass(frozen=True, slots=True)
class CopiedArray:
    """A complete copy. stored_chunks is 0 where it was complete before; warning: distances that the source lacks."""

    container: Path
    levels: tuple[ArraySpec, ...]
    stored_chunks: int
    warning: str


def copy_array(
    source: Path,
    found: ChunkFormat[Any],
    target: ChunkFormat[Any],
    container: Path,
    settings: Mapping[str, Any],
    *,
    budget: Budget,
    is_remade: bool = False,
    on_progress: Progress = lambda _done, _total: None,
) -> CopiedArray:
    """Copy the array at `source`, in the format `found`, into a new container in the format `target`.

    settings are "format" and the options of the target. A complete copy of this source with these settings stays as it
    is. Raises DatasetError for a source that is still growing, or a container that holds something else; ConfigError
    for an array that the target cannot hold; StorageError.
    """
    folder = view_folder(container, "view")
    with opened(found, source) as readers:
        reader = readers[0]
        if not reader.complete:
            raise DatasetError(f"{source}: is still being written; copy it once it is complete")
        note = MirrorNote(_id_of(source), str(container.absolute()), dict(settings), None)
        os.makedirs(folder, exist_ok=True)
        with closing(DirectoryLock(os.fspath(folder))):
            if is_nonempty(container) and _is_current(target, container, folder, note, is_remade=is_remade):
                with opened(target, container) as levels:
                    return CopiedArray(container, tuple(level.spec for level in levels), 0, "")
            if is_nonempty(container):
                remove_container(LocalDisk(), folder, read_note(folder), container)
            options = options_of(target, settings)
            own = Budget(int(budget.memory_bytes * (1 - _SOURCE_SHARE)), budget.threads)
            chunk_plan = plan_spec_chunks(target, options, array_of_copy(reader.spec), own)
            write_note(LocalDisk(), folder, note)
            planes = ArrayPlanes(reader, chunk_plan.plan.full, int(budget.memory_bytes * _SOURCE_SHARE))
            announced = _announced(chunk_plan)
            writer = open_publisher(target, container, chunk_plan.plan, options, LocalDisk(), announced=announced)
            stored = _store(writer, target, chunk_plan, planes, n_threads=own.threads, on_progress=on_progress)
            unknown = chunk_plan.plan.full.unknown_distances if chunk_plan.layout.needs_distances else ()
            return CopiedArray(container, chunk_plan.plan.levels, stored, _warning(container, unknown))


def compare_copy(
    source: Path, found: ChunkFormat[Any], target: ChunkFormat[Any], container: Path, on_progress: Progress
) -> tuple[int, int]:
    """Read every plane of both. Return the numbers of planes and of different ones; missing chunks are zeros."""
    with opened(found, source) as sources, opened(target, container) as copies:
        spec = copies[0].spec
        planes = [ArrayPlanes(level, spec, 2**28) for level in (sources[0], copies[0])]
        outer = [size for name, size in zip(spec.axes, spec.shape, strict=True) if name not in PICTURE_AXES]
        total, different = int(np.prod(outer, dtype=np.int64)), 0
        for number, place in enumerate(np.ndindex(*outer)):
            first, second = (some.read(place) for some in planes)
            if first is None or second is None:
                remaining = first if second is None else second
                different += remaining is not None and bool(remaining.any())
            else:
                different += not np.array_equal(first, second, equal_nan=first.dtype.kind in "fc")
            on_progress(number + 1, total)
        return total, different


def array_of_copy(stored: ArraySpec) -> ArraySpec:
    """The array, not cut yet, with its axes in the order of mirrors. Raises DatasetError without y and x, or items."""
    if not {"y", "x"} <= set(stored.axes):
        raise DatasetError(f"an array with the axes {', '.join(stored.axes)} has no planes: it needs y and x")
    if 0 in stored.shape:
        raise DatasetError(f"an array of shape {stored.shape} ({', '.join(stored.axes)}) has no items to copy")
    outer = [name for name in stored.axes if name not in PICTURE_AXES]
    return stored.ordered([*stored_axis_order(outer), *(name for name in PICTURE_AXES if name in stored.axes)])


def _announced(chunk_plan: ChunkPlan) -> Sequence[ArraySpec]:
    """What readers see of the copy before it is complete: nothing, where a shape may name stored chunks only."""
    layout, plan = chunk_plan.layout, chunk_plan.plan
    hidden = 0 if layout.names_picture else plan.full.axes.index("y")
    return empty_levels(plan.levels, hidden) if layout.announces_indices else plan.levels


def _store(
    writer: Publisher,
    target: ChunkFormat[Any],
    chunk_plan: ChunkPlan,
    planes: ArrayPlanes,
    *,
    n_threads: int,
    on_progress: Progress,
) -> int:
    """Store all chunks of all levels. Return their number."""
    grid = chunk_plan.grids[0]
    workers = Workers(n_threads, f"copy-{target.name}", lambda: True)
    with closing(open_assembly(chunk_plan, writer, planes, workers)) as assembly:
        sizes = [grid.spec.shape[axis] for axis in grid.outer]
        keys = list(np.ndindex(*(-(-size // step) for size, step in zip(sizes, grid.step, strict=True))))
        assembly.build(keys, sizes, lambda left: on_progress(len(keys) - left, len(keys)))
        writer.sync()
        writer.finish(chunk_plan.plan.levels)
        return assembly.stored_chunks


def _is_current(target: ChunkFormat[Any], container: Path, folder: Path, own: MirrorNote, *, is_remade: bool) -> bool:
    """Return whether the container is a complete copy; False if it may be removed. Raises DatasetError for others."""
    note = read_note(folder)
    if note is None or not note.is_of(container):
        raise DatasetError(f"{container} already exists and is not a mirror made by acqstream")
    if is_remade:
        return False
    if note.dataset_id != own.dataset_id:
        raise DatasetError(f"{container} is a mirror of another dataset; --rebuild replaces it")
    try:
        with opened(target, container) as readers:
            is_complete = readers[0].complete
    except DatasetError:
        return False  # it was interrupted before its documents were stored
    if is_complete and note.settings != own.settings:
        raise DatasetError(f"{container} was made with {dict(note.settings)}; --rebuild replaces it")
    return is_complete


def _id_of(source: Path) -> str:
    return id_of_summary({"array": str(source.resolve())})


def _warning(container: Path, unknown: Sequence[str]) -> str:
    if not unknown:
        return ""
    return (
        f"{container.name}: the source has no distance along {' and '.join(unknown)}; the files state 1 of their unit"
    )
