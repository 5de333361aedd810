"""Slabs of two layers of blocks, which raw WKW cubes get where memory allows: longer runs, past the page cache."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acqstream.arrays.array_spec import ArraySpec
from acqstream.errors import ConfigError
from acqstream.formats.registry import chunk_format
from acqstream.mirrors import mirror_tasks
from acqstream.mirrors.comparison import compare
from acqstream.mirrors.mirror_plan import Budget, ChunkPlan, plan_spec_chunks
from acqstream.mirrors.slab import SlabBuffers
from acqstream.mirrors.task_runner import TaskRunner
from acqstream.storage.files.read_file import BLOCK_BYTES
from acqstream.storage.page_memory import PageMemory
from acqstream.storage.platform.capabilities import gathers_writes
from acqstream.views.checkpoint import CHECKPOINT_NAME
from tests.log.make_frames import Frame, write_log
from tests.mirrors.mirror_cases import array_of, declared, finish, frames_at, places_of, run_of, shuffled
from tests.mirrors.test_both_mirrors import files_of, take_steps
from tests.mirrors.test_mirror_tasks import Threads, contents
from tests.mirrors.wkw_cases import check_announced
from tests.storage.unforced_disk import UnforcedDisk

WKW: dict[str, Any] = {"format": "wkw", "cube": 128, "levels": 2, "compression": "raw"}
SHAPE = (150, 130)  # two cubes along y, one block of another one along x
STEP = (1, 2, 2)
JOINED_MB, ALONE_MB = 64, 10  # room for slabs of two layers, or for those of one


def plan_of(
    shape: Mapping[str, int], memory_mb: float = 2048, options: Mapping[str, Any] = WKW, **more: Any
) -> ChunkPlan:
    wkw = chunk_format("wkw")
    own = {name: value for name, value in options.items() if name != "format"}
    spec = ArraySpec(axes=tuple(shape), shape=tuple(shape.values()), dtype=np.dtype("uint16"), chunk_shape=())
    return plan_spec_chunks(wkw, wkw.parse_options(own), spec, Budget.of(memory_mb, threads=3), **more)


@pytest.mark.parametrize(
    ("shape", "layers"),
    [
        ({"z": 128, "y": 2048, "x": 2048}, 2),
        ({"z": 32, "y": 2048, "x": 2048}, 1),  # one layer
        ({"z": 70, "y": 2048, "x": 2048}, 1),  # three: a quarter of the memory would be of no use
        ({"z": 270, "y": 2048, "x": 2048}, 2),  # nine
        ({"z": 0, "y": 2048, "x": 2048}, 2),
        ({"time": 0, "z": 0, "y": 2048, "x": 2048}, 1),  # stacks may be short
        ({"time": 0, "z": 64, "y": 2048, "x": 2048}, 2),
        ({"time": 9, "channel": 2, "z": 64, "y": 2048, "x": 2048}, 1),  # four slabs at a time do not fit
        ({"time": 90, "channel": 2, "z": 64, "y": 1024, "x": 1024}, 2),
        ({"time": 9, "channel": 0, "z": 64, "y": 512, "x": 512}, 1),  # any number of slabs at a time
        ({"z": 64, "y": 3000, "x": 3000}, 1),  # a slab of two layers does not fit
        ({"z": 64, "y": 2048, "x": 90}, 1),  # three blocks side by side make no long run
    ],
    ids=str,
)
def test_layers_are_joined_where_that_is_worth_its_memory(shape: dict[str, int], layers: int) -> None:
    plan = plan_of(shape)
    assert plan.layers == layers
    assert plan.grids[0].layers == layers
    assert plan.grids[0].planes == 32 * layers
    assert plan.need.max_bytes <= 2048 * 2**20


def test_fewer_slabs_than_frames_come_to_in_turn_are_refused() -> None:
    """They would leave incomplete, and be rebuilt for each frame."""
    shape = {"channel": 2, "z": 128, "y": 1024, "x": 1024}
    assert plan_of(shape, 1000, layers=2).need.slabs >= 4
    with pytest.raises(ConfigError, match="fewer than frames come to in turn"):
        plan_of(shape, 600, layers=2)
    assert plan_of(shape, 600).layers == 1


@pytest.mark.parametrize(("times", "layers"), [(2, 2), (4, 1), (100, 2)])
def test_a_short_series_stays_in_memory_if_time_may_be_faster_than_z(times: int, layers: int) -> None:
    """Slabs of one layer are enough for 4 times, those of two for 2; of a long series neither are."""
    plan = plan_of({"time": times, "z": 64, "y": 2048, "x": 2048})
    assert plan.layers == layers


def test_tiles_come_in_any_order() -> None:
    assert plan_of({"z": 128, "y": 1024, "x": 1024}, tile=(256, 256)).layers == 1


@pytest.mark.parametrize("options", [{**WKW, "compression": "lz4"}, {**WKW, "cube": 64}], ids=["lz4", "small cubes"])
def test_other_cubes_have_no_runs_to_join(options: dict[str, Any]) -> None:
    assert plan_of({"z": 256, "y": 512, "x": 512}, options=options).layers == 1


def test_memory_comes_layer_by_layer() -> None:
    """Half of a slab takes half of its memory, and leaves it to any other layer."""
    plan = plan_of({"z": 128, "y": 256, "x": 256})
    grid, buffers = plan.grids[0], SlabBuffers(plan.grids, "<", head_bytes=16)
    slab = buffers.take(0, 5)
    assert (slab.has(5), slab.has(31), slab.has(32)) == (True, True, False)
    assert slab.missing() == [1]
    assert len(slab.memory) == 1
    buffers.complete(0, slab, 40)
    assert slab.missing() == []
    for plane in range(64):
        slab.put(plane, np.full(grid.plane_shape, plane, np.uint16))
    assert [int(slab.get(plane).max()) for plane in range(64)] == list(range(64))
    assert np.array_equal(slab.chunk((1, 0, 0)).reshape(-1)[:: 32 * 32][:32], range(32, 64))
    buffers.give_back(0, slab)
    again = [buffers.take(0, 0), buffers.take(0, 63)]
    assert {id(one.memory[0]) for one in again} == {id(memory) for memory in slab.memory}
    assert [one.missing() for one in again] == [[1], [0]]


class WritingDisk(UnforcedDisk):
    """Notes the lengths of writes past the page cache and through it."""

    def __init__(self) -> None:
        super().__init__()
        self.lengths: dict[bool, list[int]] = {True: [], False: []}
        self._direct: set[int] = set()

    def open(self, path: str, *, create: bool, direct: bool = False) -> int:
        fd = super().open(path, create=create, direct=direct)
        (self._direct.add if direct else self._direct.discard)(fd)
        return fd

    def pwritev(self, fd: int, buffers: Sequence[memoryview | bytes], offset: int) -> int:
        self.lengths[fd in self._direct].append(sum(map(len, buffers)))
        return super().pwritev(fd, buffers, offset)


def write_stack(folder: Path, sizes: Mapping[str, int], seed: int | None = None, *, dtype: str = "<u2") -> list[Frame]:
    places = places_of(tuple(sizes), sizes)
    frames = frames_at(shuffled(places, seed) if seed is not None else places, SHAPE, dtype)
    folder.parent.mkdir(exist_ok=True)
    write_log(folder, frames, axes=declared(tuple(sizes), sizes))
    return frames


def need_direct_writes(folder: Path) -> None:
    """Skip where the disk of a folder has none."""
    (folder / "tried").write_bytes(bytes(BLOCK_BYTES))
    disk = UnforcedDisk()
    try:
        fd = disk.open(str(folder / "tried"), create=False, direct=True)
        disk.pwritev(fd, [PageMemory(BLOCK_BYTES).view], 0)
        disk.close(fd)
    except OSError as error:
        pytest.skip(f"no direct I/O here: {error}")
    if not gathers_writes():
        pytest.skip("this system writes piece by piece")


def check(cells: Path, frames: Sequence[Frame], axes: Sequence[str]) -> None:
    right = array_of(frames, axes)
    right = right.reshape((-1, 1, *right.shape[-3:]))
    check_announced(cells.with_name("cells.wkw"), right, ("C0",), (STEP,))
    found = compare(cells, cells.with_name("cells.wkw.view"), len(frames), lambda *_: None)
    assert (found.frames, found.different) == (len(frames), 0)


@pytest.mark.parametrize("dtype", ["<u2", "|u1"])
def test_runs_of_two_layers_go_past_the_page_cache(tmp_path: Path, dtype: str) -> None:
    need_direct_writes(tmp_path)
    frames = write_stack(tmp_path / "cells", {"z": 128}, dtype=dtype)
    disk = WritingDisk()
    run = finish(run_of(tmp_path / "cells", WKW, name="wkw", memory_mb=JOINED_MB, disk=disk))
    assert run.reason == ""
    check(tmp_path / "cells", frames, ("z",))
    # of the one cube that has 4 x 4 blocks, in each of two slabs: 32 blocks without the two ends
    assert disk.lengths[True] == [32 * 32**3 * np.dtype(dtype).itemsize - BLOCK_BYTES] * 2


@pytest.mark.parametrize("end", [5, 32, 40, 64, 70])
def test_a_run_that_ends_early_leaves_layers_without_planes(tmp_path: Path, end: int) -> None:
    frames = frames_at(places_of(("z",), {"z": end}), SHAPE)
    write_log(tmp_path / "cells", frames, axes=declared(("z",), {"z": 128}))
    run = finish(run_of(tmp_path / "cells", WKW, name="wkw", memory_mb=JOINED_MB))
    assert run.reason == ""
    check(tmp_path / "cells", frames, ("z",))


@pytest.mark.parametrize("late", [3, 60])
def test_a_late_frame_rebuilds_both_layers(tmp_path: Path, late: int) -> None:
    """Its slab has left to make room for others."""
    depth, memory_mb = 256, 30
    plan = plan_of({"z": depth, "y": SHAPE[0], "x": SHAPE[1]}, memory_mb)
    assert (plan.layers, plan.need.slabs) == (2, 2)
    frames = frames_at(sorted(places_of(("z",), {"z": depth}), key=lambda place: place == {"z": late}), SHAPE)
    write_log(tmp_path / "cells", frames, axes=declared(("z",), {"z": depth}))
    finish(run_of(tmp_path / "cells", WKW, name="wkw", memory_mb=memory_mb))
    check(tmp_path / "cells", frames, ("z",))


def test_made_in_parts_it_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part has slabs of both layers."""
    monkeypatch.setattr(mirror_tasks, "MIN_TASK_BYTES", 1)
    frames = write_stack(tmp_path / "cells", {"z": 192})
    with TaskRunner(Threads, 1) as runner:
        run = finish(run_of(tmp_path / "cells", WKW, name="wkw", memory_mb=JOINED_MB, runner=runner))
    assert run.progress().from_stack == len(frames)
    check(tmp_path / "cells", frames, ("z",))
    finish(run_of(tmp_path / "cells", WKW, name="wkw", memory_mb=JOINED_MB, container=tmp_path / "once"))
    assert contents(tmp_path / "cells.wkw") == contents(tmp_path / "once")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [None, 5], ids=["in order", "shuffled"])
def test_killed_and_given_more_or_less_memory_it_ends_as_if_nothing_had_been(
    tmp_path: Path, small_steps: None, seed: int | None
) -> None:
    """A restarted mirror goes on with slabs as before, or anew if these do not fit any more."""
    sizes, chance, layers = {"time": 2, "z": 64}, random.Random(3), set()
    frames = write_stack(tmp_path / "alone" / "cells", sizes, seed)
    write_stack(tmp_path / "killed" / "cells", sizes, seed)
    finish(run_of(tmp_path / "alone" / "cells", WKW, name="wkw", memory_mb=JOINED_MB))
    cells = tmp_path / "killed" / "cells"
    checkpoint = cells.with_name("cells.wkw.view") / CHECKPOINT_NAME
    for kill in itertools.count():
        run = run_of(cells, WKW, name="wkw", memory_mb=chance.choice([JOINED_MB, JOINED_MB, ALONE_MB]))
        is_done = take_steps([run], chance.randrange(1, 12) if kill < 40 else 10_000)
        run.close()
        if checkpoint.exists():
            layers.add(json.loads(checkpoint.read_bytes())["state"].get("layers"))
        if is_done:
            break
    assert layers >= {1, 2}
    check(cells, frames, tuple(sizes))
    assert files_of(cells.with_name("cells.wkw")) == files_of(tmp_path / "alone" / "cells.wkw")


def test_a_checkpoint_of_before_layers_were_joined_goes_on(tmp_path: Path, small_steps: None) -> None:
    frames = write_stack(tmp_path / "cells", {"z": 128})
    run = run_of(tmp_path / "cells", WKW, name="wkw", memory_mb=ALONE_MB)
    while run.progress().cursor < 50:
        run.step()
    run.close()
    checkpoint = tmp_path / "cells.wkw.view" / CHECKPOINT_NAME
    content = json.loads(checkpoint.read_bytes())
    assert content["state"].pop("layers") == 1
    checkpoint.write_text(json.dumps(content))
    again = finish(run_of(tmp_path / "cells", WKW, name="wkw", memory_mb=JOINED_MB))
    assert again.reason == ""
    assert again.progress().from_stack < len(frames) + 33  # it did not begin anew
    assert json.loads(checkpoint.read_bytes())["state"]["layers"] == 1
    check(tmp_path / "cells", frames, ("z",))


@pytest.mark.parametrize(("memory_mb", "begins_anew"), [(JOINED_MB, False), (30, False), (16, True)])
def test_channels_in_turn_with_less_memory_than_before(tmp_path: Path, memory_mb: int, begins_anew: bool) -> None:
    """With 16 MiB a slab of two layers fits, but not those of both channels: it begins anew with slabs of one."""
    sizes = {"z": 64, "channel": 2}
    frames = frames_at(places_of(tuple(sizes), sizes), SHAPE)
    write_log(tmp_path / "cells", frames, axes=declared(("channel", "z"), sizes))
    run = run_of(tmp_path / "cells", WKW, name="wkw", memory_mb=JOINED_MB)
    while run.progress().cursor < 20:
        run.step()
    run.save()
    run.close()
    again = finish(run_of(tmp_path / "cells", WKW, name="wkw", memory_mb=memory_mb))
    assert again.reason.startswith("restarted: it has less memory than before") == begins_anew
    found = compare(tmp_path / "cells", tmp_path / "cells.wkw.view", len(frames), lambda *_: None)
    assert (found.frames, found.different) == (len(frames), 0)


@pytest.mark.parametrize("layers", [0, 17, "2", True, None])
def test_other_layers_in_a_checkpoint_restart_the_mirror(tmp_path: Path, layers: object) -> None:
    frames = write_stack(tmp_path / "cells", {"z": 64})
    finish(run_of(tmp_path / "cells", WKW, name="wkw", memory_mb=JOINED_MB))
    checkpoint = tmp_path / "cells.wkw.view" / CHECKPOINT_NAME
    content = json.loads(checkpoint.read_bytes())
    content["state"]["layers"] = layers
    checkpoint.write_text(json.dumps(content))
    again = finish(run_of(tmp_path / "cells", WKW, name="wkw", memory_mb=JOINED_MB))
    assert again.reason.startswith("restarted: ")
    check(tmp_path / "cells", frames, ("z",))
