"""A task of a mirror that several processes make: a run of complete chunks, with everything they add to lower levels.

Tasks share no chunk and no file of chunks. A task that was interrupted is repeated, with the same result.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from acqstream.arrays.array_plan import ArrayPlan
from acqstream.arrays.array_spec import Position
from acqstream.errors import DatasetError
from acqstream.formats.chunk_format import ChunkFormat
from acqstream.formats.ndtiff.reader import NDTiffReader, open_readers
from acqstream.formats.registry import chunk_format
from acqstream.mirrors.assembly import Assembly
from acqstream.mirrors.chunk_plan import Budget, options_of, plan_chunks
from acqstream.mirrors.growth import empty_levels, growing_axis
from acqstream.mirrors.local_container import open_publisher
from acqstream.mirrors.log_frames import LogFrames
from acqstream.mirrors.mirror_space import MirrorSpace
from acqstream.mirrors.process_pool import is_stopped
from acqstream.mirrors.saved_mirror import SavedMirror
from acqstream.mirrors.slab_buffers import SlabBuffers
from acqstream.mirrors.workers import Workers
from acqstream.model.axes import AxisValue
from acqstream.storage.files.folder_tree import OwnNamesDisk

_POLL_S = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorJob:
    """Facts shared by all tasks of a mirror. All processes see both folders by these paths.

    plan is the one in mirror.json; known is the same with all values so far. kinds are the sets of axes that frames
    have. shown_axes and axis_values are as in ArraySpec. extents are those of level 0 along its outer axes. Rows before
    `rows` count. layers is that of the ChunkPlan.
    """

    dataset: str
    container: str
    settings: Mapping[str, Any]
    plan: ArrayPlan
    known: ArrayPlan
    kinds: tuple[tuple[str, ...], ...]
    shown_axes: tuple[str, ...]
    axis_values: Mapping[str, Sequence[AxisValue | None]]
    extents: tuple[int, ...]
    rows: int
    budget: Budget
    layers: int


@dataclass(frozen=True, slots=True)
class MirrorTask:
    """keys are the slabs of level 0 that have frames, of complete units."""

    job: MirrorJob
    keys: tuple[Position, ...]


@dataclass(frozen=True, slots=True)
class TaskResult:
    """chunks were stored; provisional is for Assembly.mark_stored; peak_slabs were in memory at once."""

    chunks: int
    provisional: Sequence[Any]
    peak_slabs: int


def run_task(part: MirrorTask) -> TaskResult:
    """Run a task of a mirror whose container exists. Its chunks survive a power cut when this returns.

    Raises DatasetError, StorageError.
    """
    job = part.job
    found = find_format(job.settings)
    reader = open_dataset(job.dataset)
    try:
        return _make(part, found, reader)
    finally:
        reader.close()


def find_format(settings: Mapping[str, Any]) -> ChunkFormat[Any]:
    """Return the format of a mirror. Raises DatasetError if this process does not know it."""
    try:
        return chunk_format(str(settings["format"]))
    except KeyError as error:
        text = f"format {settings['format']!r} is not known on {platform.node()}"
        raise DatasetError(f"{text}: install its package there") from error


def open_dataset(path: str) -> NDTiffReader:
    """Open the full resolution of a dataset. Raises DatasetError."""
    if not Path(path).exists():
        raise DatasetError(f"{path} does not exist on {platform.node()}: all processes need the data by the same path")
    readers = open_readers(Path(path))
    for lower in readers[1:]:
        lower.close()
    return readers[0]


def _make(part: MirrorTask, found: ChunkFormat[Any], reader: NDTiffReader) -> TaskResult:
    job, options = part.job, options_of(found, part.job.settings, Path(part.job.container))
    chunk_plan = plan_chunks(found, options, job.plan, reader.summary_metadata, job.budget, layers=job.layers)
    frames = LogFrames(reader, job.known, chunk_plan.plan.full, job.kinds)
    frames.taken = job.rows
    spaced = MirrorSpace(reader, frames.places).look(chunk_plan.plan.levels)
    levels = tuple(replace(level, shown_axes=job.shown_axes, axis_values=job.axis_values) for level in spaced)
    axis = growing_axis(chunk_plan.grids[0]) if found.announces_indices else None
    announced = levels if axis is None else empty_levels(levels, axis)
    writer = open_publisher(
        found,
        Path(job.container),
        chunk_plan.plan.with_levels(levels),
        options,
        OwnNamesDisk(),
        announced=announced,
        announces=False,
        name=Path(job.dataset).name,
    )
    workers = Workers(job.budget.threads, f"mirror-{found.name}", lambda: True)
    try:
        buffers = SlabBuffers(chunk_plan.grids, found.byte_order, head_bytes=found.head_bytes)
        assembly = Assembly(chunk_plan.grids, writer, frames, workers, buffers, slabs=chunk_plan.need.slabs)
        assembly.extents.frame_extent = list(job.extents)
        assembly.restore(SavedMirror(unstored=tuple((0, key) for key in part.keys)))
        while not assembly.settle():
            workers.check()
            if is_stopped():
                raise DatasetError("stopped")
            if not assembly.pending:
                time.sleep(_POLL_S)
        workers.check()
        writer.sync()
        result = TaskResult(assembly.stored_chunks, assembly.unstored()[1], assembly.peak_slabs)
        assembly.close()  # all is stored: the next part uses this memory again
        return result
    finally:
        workers.close()
