"""A mirror on its way in parts, made by several processes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from acqstream.arrays.array_spec import Position
from acqstream.mirrors.assembly import Assembly, SlabKey
from acqstream.mirrors.mirror_task import Part, PartJob, PartResult, make_part
from acqstream.mirrors.saved_mirror import SavedTasks
from acqstream.mirrors.slab_grid import SlabGrid
from acqstream.mirrors.task_runner import PartRunner
from acqstream.mirrors.task_unit import Run, joined, runs_of, unit_depth, unit_of, without

PARTS_A_PROCESS = 8
LEAST_BYTES, MOST_BYTES = 64 * 2**20, 2 * 2**30  # of slabs, in a part
POLL_S = 0.1


class Parts:
    """All units that have something new, in order, made in runs of them.

    units has the slabs of level 0 with frames, by unit; frames how many new frames there are in each. saved is what
    `state` gave, of an earlier process that had the same to do: what was done then is not done again.
    """

    def __init__(
        self,
        runner: PartRunner,
        job: PartJob,
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
        self._done: list[Run] = list(saved.done)
        self.cut: list[Any] = list(saved.cut)
        self.chunks = 0
        self.peak_slabs = 0
        weights = [len(units[name]) * slab_bytes for name in names]
        share = sum(weights) // (PARTS_A_PROCESS * runner.width)
        runs = runs_of(weights, max(LEAST_BYTES, min(share, MOST_BYTES)))
        self._runs = without(runs, self._done)
        self.count = len(self._runs)
        orders = [
            Part(job, tuple(key for name in names[first:stop] for key in sorted(units[name])))
            for first, stop in self._runs
        ]
        runner.begin(make_part, orders)

    @property
    def frames_done(self) -> int:
        return sum(sum(self._frames[first:stop]) for first, stop in self._done)

    def advance(self) -> bool:
        """Wait a little; whether all is done. Raises as PartRunner.poll."""
        for number, result in self._runner.poll(POLL_S):
            self._note(self._runs[number], result)
        return self._runner.is_done()

    def state(self) -> dict[str, Any]:
        """What was done so far, as JSON values."""
        return {"rows": self._rows, "done": [list(run) for run in self._done], "cut": self.cut}

    def _note(self, run: Run, result: PartResult) -> None:
        self._done = joined([*self._done, run])
        self.cut += result.cut
        self.chunks += result.chunks
        self.peak_slabs = max(self.peak_slabs, result.peak_slabs)


class NewFrames:
    """Which units have something new. Filled with the places of all new frames, in any order."""

    def __init__(self, assembly: Assembly, unstored: Sequence[SlabKey]) -> None:
        self._assembly = assembly
        self._grids: Sequence[SlabGrid] = assembly.grids
        self._depth = unit_depth(self._grids)
        self.frames: dict[Position, int] = defaultdict(int)
        for level, key in unstored:
            self.frames[unit_of(self._grids, self._depth, level, key)] += 0

    def add(self, place: Sequence[int]) -> None:
        """A new frame has come to this place."""
        self._assembly.note_earlier(place)
        self.frames[tuple(at // size for at, size in zip(place, self._depth, strict=True))] += 1

    def units(self) -> dict[Position, list[Position]]:
        """The slabs of level 0 that have frames, new or earlier ones, of all these units."""
        found: dict[Position, list[Position]] = {unit: [] for unit in self.frames}
        for key in self._assembly.seen[0]:
            unit = unit_of(self._grids, self._depth, 0, key)
            if unit in found:
                found[unit].append(key)
        return found
