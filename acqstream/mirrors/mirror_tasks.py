"""Makes a mirror in tasks, run by several processes: a task is a run of complete chunks that share no file."""

from __future__ import annotations

import math
import platform
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from acqstream.arrays.array_plan import ArrayPlan
from acqstream.arrays.array_spec import Position
from acqstream.errors import DatasetError
from acqstream.formats.chunk_format import ChunkFormat
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.formats.registry import chunk_format
from acqstream.frames.frame_indices import LogFrames
from acqstream.mirrors.assembly import Assembly, SavedTasks, open_assembly
from acqstream.mirrors.mirror_container import MirrorNote, open_publisher
from acqstream.mirrors.mirror_plan import Budget, MirrorSpace, options_of, plan_chunks
from acqstream.mirrors.slab_grid import SlabGrid, empty_levels, growing_axis
from acqstream.mirrors.slab_tasks import Workers
from acqstream.mirrors.task_runner import TaskRunner, is_stopped
from acqstream.model.axes import AxisValue
from acqstream.storage.files.folder_tree import OwnNamesDisk
from acqstream.views.view_folder import open_full


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorJob:
    """Facts shared by all tasks of a mirror. All processes see both folders by these paths.

    note is mirror.json; known is its plan with all values so far. kinds are the sets of axes that frames
    have. shown_axes and axis_values are as in ArraySpec. extents are those of level 0 along its outer axes. Rows before
    `rows` count. layers is that of the ChunkPlan.
    """

    dataset: str
    note: MirrorNote
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
    found = find_format(job.note.settings)
    with closing(open_dataset(job.dataset)) as reader:
        return _make(part, found, reader)


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
    return open_full(Path(path))


def _make(part: MirrorTask, found: ChunkFormat[Any], reader: NDTiffReader) -> TaskResult:
    job, options = part.job, options_of(found, part.job.note.settings)
    assert job.note.plan is not None
    chunk_plan = plan_chunks(found, options, job.note.plan, reader.summary_metadata, job.budget, layers=job.layers)
    frames = LogFrames(reader, job.known, chunk_plan.plan.full, job.kinds)
    frames.taken = job.rows
    spaced = MirrorSpace(reader, frames.places).spaced(chunk_plan.plan.levels)
    levels = tuple(replace(level, shown_axes=job.shown_axes, axis_values=job.axis_values) for level in spaced)
    axis = growing_axis(chunk_plan.grids[0]) if chunk_plan.layout.announces_indices else None
    announced = levels if axis is None else empty_levels(levels, axis)
    writer = open_publisher(
        found,
        Path(job.note.container),
        chunk_plan.plan.with_levels(levels),
        options,
        OwnNamesDisk(),
        announced=announced,
        name=Path(job.dataset).name,
    )
    workers = Workers(job.budget.threads, f"mirror-{found.name}", lambda: True)
    with closing(open_assembly(chunk_plan, writer, frames, workers)) as assembly:
        assembly.build(part.keys, job.extents, _check_stop)
        writer.sync()
        return TaskResult(assembly.stored_chunks, assembly.unstored()[1], assembly.peak_slabs)


def _check_stop(_left: int) -> None:
    if is_stopped():
        raise DatasetError("stopped")


UnitRun = tuple[int, int]
"""The first number of a run, and one after its last."""


def unit_depth(grids: Sequence[SlabGrid]) -> tuple[int, ...]:
    """Return the depth of a unit along the outer axes, in items of level 0."""
    full = grids[0]
    depths = []
    for outer, axis in enumerate(full.outer):
        steps = [math.lcm(grid.step[outer], grid.spec.object_shape[axis]) * grid.spec.factors[axis] for grid in grids]
        depths.append(math.lcm(*steps))
    return tuple(depths)


def unit_of(grids: Sequence[SlabGrid], depth: Sequence[int], level: int, key: Position) -> Position:
    """Return the unit of a slab."""
    grid = grids[level]
    factors = (grid.spec.factors[axis] for axis in grid.outer)
    starts = (at * step * factor for at, step, factor in zip(key, grid.step, factors, strict=True))
    return tuple(start // size for start, size in zip(starts, depth, strict=True))


def runs_of(weights: Sequence[int], least: int) -> list[UnitRun]:
    """Cut a sequence into runs whose weights add up to `least` or more, but for the last one."""
    runs: list[UnitRun] = []
    first = total = 0
    for number, weight in enumerate(weights):
        total += weight
        if total >= least:
            runs.append((first, number + 1))
            first, total = number + 1, 0
    return runs if first == len(weights) else [*runs, (first, len(weights))]


def subtract_runs(runs: Sequence[UnitRun], done: Sequence[UnitRun]) -> list[UnitRun]:
    """Return the parts of the runs that are outside of `done`."""
    left = list(runs)
    for begin, end in done:
        kept: list[UnitRun] = []
        for first, stop in left:
            kept += [(first, min(stop, begin)), (max(first, end), stop)]
        left = [(first, stop) for first, stop in kept if first < stop]
    return left


def joined_runs(runs: Sequence[UnitRun]) -> list[UnitRun]:
    """Return the same numbers in as few runs as possible, in order."""
    found: list[UnitRun] = []
    for first, stop in sorted(runs):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], stop))
        else:
            found.append((first, stop))
    return found


TASKS_PER_PROCESS = 8
MIN_TASK_BYTES, MAX_TASK_BYTES = 64 * 2**20, 2 * 2**30  # of slabs
POLL_S = 0.1


class MirrorTasks:
    """All units that have new frames, in order, made in runs of units.

    units has the slabs of level 0 with frames, by unit; frames the number of new frames in each. saved is the `state`
    of an earlier process with the same frames: its finished runs are not repeated.
    """

    def __init__(
        self,
        runner: TaskRunner,
        job: MirrorJob,
        units: Mapping[Position, Sequence[Position]],
        frames: Mapping[Position, int],
        *,
        slab_bytes: int,
        saved: SavedTasks | None = None,
    ) -> None:
        self._runner = runner
        names = sorted(units)
        self._frames = [frames.get(name, 0) for name in names]
        if saved is None or saved.rows != job.rows:
            saved = SavedTasks(job.rows, (), ())
        self._rows = job.rows
        self._done: list[UnitRun] = list(saved.done)
        self.provisional: list[Any] = list(saved.cut)
        self.chunks = 0
        self.peak_slabs = 0
        weights = [len(units[name]) * slab_bytes for name in names]
        share = sum(weights) // (TASKS_PER_PROCESS * runner.width)
        runs = runs_of(weights, max(MIN_TASK_BYTES, min(share, MAX_TASK_BYTES)))
        self._runs = subtract_runs(runs, self._done)
        self.count = len(self._runs)
        tasks = [
            MirrorTask(job, tuple(key for name in names[first:stop] for key in sorted(units[name])))
            for first, stop in self._runs
        ]
        runner.begin(run_task, tasks)

    @property
    def frames_done(self) -> int:
        return sum(sum(self._frames[first:stop]) for first, stop in self._done)

    def advance(self) -> bool:
        """Wait POLL_S at most. Return whether all tasks are done. Raises as TaskRunner.poll."""
        for number, result in self._runner.poll(POLL_S):
            self._done = joined_runs([*self._done, self._runs[number]])
            self.provisional += result.provisional
            self.chunks += result.chunks
            self.peak_slabs = max(self.peak_slabs, result.peak_slabs)
        return self._runner.is_done()

    def state(self) -> dict[str, Any]:
        """Return the finished runs as JSON values: see SavedTasks."""
        return {"rows": self._rows, "done": [list(run) for run in self._done], "cut": self.provisional}


def begin_tasks(
    runner: TaskRunner,
    assembly: Assembly,
    frames: LogFrames,
    rows: range,
    *,
    dataset: str,
    note: MirrorNote,
    layers: int,
    budget: Budget,
    saved: SavedTasks | None,
) -> MirrorTasks:
    """Begin tasks for these new rows, and for slabs that an earlier process left incomplete.

    The assembly is that of this process: it stores no chunk itself. Raises DatasetError for frames that differ from
    the first one or have no place.
    """
    grids = assembly.grids
    depth = unit_depth(grids)
    new_frames: dict[Position, int] = defaultdict(int)
    pending, provisional = assembly.unstored()
    for level, key, *_ in (*pending, *provisional):
        new_frames[unit_of(grids, depth, level, tuple(key))] += 0  # rebuilt, without new frames
    for row in rows:
        frames.check(row)
        place = frames.place(row)
        assembly.add_earlier(place)
        new_frames[tuple(at // size for at, size in zip(place, depth, strict=True))] += 1
    units: dict[Position, list[Position]] = {unit: [] for unit in new_frames}
    for key in assembly.seen[0]:
        unit = unit_of(grids, depth, 0, key)
        if unit in units:
            units[unit].append(key)
    known, kinds = frames.places.known()
    job = MirrorJob(
        dataset=dataset,
        note=note,
        known=known,
        kinds=kinds,
        shown_axes=frames.places.shown_axes(),
        axis_values=frames.places.axis_values(),
        extents=tuple(assembly.extents.frame_extent),
        rows=rows.stop,
        budget=budget,
        layers=layers,
    )
    return MirrorTasks(runner, job, units, new_frames, slab_bytes=grids[0].slab_bytes, saved=saved)
