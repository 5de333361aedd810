"""Makes a mirror in tasks, run by several processes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from acqstream.arrays.array_spec import Position
from acqstream.mirrors.chunk_plan import Budget
from acqstream.mirrors.mirror_task import MirrorJob, MirrorTask, run_task
from acqstream.mirrors.open_mirror import OpenMirror
from acqstream.mirrors.saved_mirror import SavedTasks
from acqstream.mirrors.task_runner import TaskRunner
from acqstream.mirrors.task_unit import UnitRun, joined_runs, runs_of, subtract_runs, unit_depth, unit_of

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
    mirror: OpenMirror,
    rows: range,
    *,
    dataset: str,
    container: str,
    settings: Mapping[str, Any],
    budget: Budget,
    saved: SavedTasks | None,
) -> MirrorTasks:
    """Begin tasks for these new rows, and for slabs that an earlier process left incomplete.

    The mirror is that of this process: it stores no chunk itself. Raises DatasetError for frames that differ from the
    first one or have no place.
    """
    assembly, frames = mirror.assembly, mirror.frames
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
        container=container,
        settings=settings,
        plan=mirror.plan,
        known=known,
        kinds=kinds,
        shown_axes=frames.places.shown_axes(),
        axis_values=frames.places.axis_values(),
        extents=tuple(assembly.extents.frame_extent),
        rows=rows.stop,
        budget=budget,
        layers=mirror.layers,
    )
    return MirrorTasks(runner, job, units, new_frames, slab_bytes=grids[0].slab_bytes, saved=saved)
