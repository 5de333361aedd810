"""OME-Zarr mirrors: killed again and again, opened by tensorstore at every step, resumed, made in parts."""

from __future__ import annotations

import itertools
import json
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore
from numpy.typing import NDArray

import acqstream
from acqstream.errors import CorruptDataset
from acqstream.mirrors.comparison import compare
from acqstream.mirrors.mirror_view import MirrorView
from acqstream.mirrors.task_runner import ProcessPool, TaskRunner
from acqstream.views.view_run import ViewRun, ViewState
from tests.checksum_files import other_files
from tests.host_system import allocated_bytes
from tests.log.make_frames import Frame, start_log, write_log
from tests.mirrors.mirror_cases import array_of, declared, finish, frames_at, halved, places_of, run_of, shuffled

SIZES = {"time": 6, "position": 2, "channel": 2, "z": 3}
AXES = tuple(SIZES)
SHAPE = (40, 70)
VARIANTS: dict[str, dict[str, Any]] = {
    "raw": {"compression": "none"},
    "blosc": {},
    "unsharded": {"shards": False, "compression": "zstd"},
}
KILLS = 30


def settings_of(variant: str) -> dict[str, Any]:
    return {"format": "ome-zarr", "chunks": [1, 32, 32], "levels": 2, **VARIANTS[variant]}


def start(folder: Path, variant: str, **more: Any) -> ViewRun:
    return run_of(folder, settings_of(variant), name="ome-zarr", **more)


def open_level(container: Path, position: int, level: int = 0) -> NDArray[Any] | None:
    """An image as tensorstore finds it now, (t, c, z, y, x); None before it appears."""
    if not (container / str(position) / str(level) / "zarr.json").exists():
        return None
    kvstore = {"driver": "file", "path": str(container / str(position) / str(level))}
    found: NDArray[Any] = tensorstore.open({"driver": "zarr3", "kvstore": kvstore}).result().read().result()
    return found


def check_announced(container: Path, frames: list[Frame], *, has_holes: bool = False) -> int:
    """Every announced index equals its frames, but for zeros where it may have holes; the largest number of indices."""
    right = array_of(frames, AXES)  # (time, position, channel, z, y, x)
    announced = 0
    for position, level in itertools.product(range(SIZES["position"]), (0, 1)):
        found = open_level(container, position, level)
        if found is None or not len(found):
            continue
        expected = right[:, position][tuple(slice(0, size) for size in found.shape[:3])]
        expected = expected if not level else halved(expected, (1, 1, 1, 2, 2))
        planes = zip(found.reshape(-1, *found.shape[-2:]), expected.reshape(-1, *expected.shape[-2:]), strict=True)
        for number, (plane, image) in enumerate(planes):
            is_right = plane == image
            assert (is_right | (plane == 0) if has_holes else is_right).all(), (position, level, number)
        announced = max(announced, len(found))
    return announced


def files_of(container: Path) -> dict[str, bytes]:
    paths = (path for path in container.rglob("*") if path.is_file())
    return other_files({path.relative_to(container).as_posix(): path.read_bytes() for path in paths})


def test_raw_shards_take_the_space_of_their_frames(tmp_path: Path) -> None:
    """A shard for 64 planes, whose index is complete, has one of them so far."""
    folder = tmp_path / "cells"
    write_log(folder, frames_at([{"z": 0}, {"z": 63}], (256, 256)), axes=declared(["z"], {"z": 64}))
    settings = {"format": "ome-zarr", "chunks": [1, 256, 256], "levels": 1, "compression": "none"}
    finish(run_of(folder, settings, name="ome-zarr"))
    (shard,) = (path for path in (tmp_path / "cells.ome.zarr" / "0" / "c").rglob("*") if path.is_file())
    assert shard.stat().st_size > 64 * 256 * 256 * 2
    assert allocated_bytes(shard) < 8 * 256 * 256 * 2


@pytest.mark.thinned(3)
@pytest.mark.slow
@pytest.mark.parametrize("order", ["in order", "shuffled"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_killed_thirty_times_it_ends_as_if_nothing_had_been(
    tmp_path: Path, small_steps: None, variant: str, order: str
) -> None:
    chance = random.Random(f"{variant} {order}")
    places = places_of(AXES, SIZES)
    frames = frames_at(shuffled(places, 3) if order == "shuffled" else places, SHAPE)
    for name in ("alone", "killed"):
        (tmp_path / name).mkdir()
        write_log(tmp_path / name / "cells", frames)
    finish(start(tmp_path / "alone" / "cells", variant))
    container = tmp_path / "killed" / "cells.ome.zarr"
    for kill in itertools.count():
        run = start(
            tmp_path / "killed" / "cells", variant, memory_mb=chance.choice([2, 64] if variant == "raw" else [50, 64])
        )
        is_done = False
        for _ in range(chance.randrange(1, 4) if kill < KILLS else 10_000):
            wait_s = run.step()
            if wait_s is None:
                is_done = True
                break
            time.sleep(min(wait_s, 0.002))
        run.close()  # as after SIGKILL: nothing is saved
        check_announced(container, frames, has_holes=order == "shuffled")
        if is_done:
            break
    assert kill >= KILLS
    assert check_announced(container, frames) == SIZES["time"]
    once, again = (files_of(tmp_path / name / "cells.ome.zarr") for name in ("alone", "killed"))
    assert once.keys() == again.keys()
    assert [name for name in once if once[name] != again[name] and not name.endswith("zarr.json")] == []
    notes = [json.loads(files["zarr.json"])["attributes"]["acqstream"] for files in (once, again)]
    assert notes[0] == notes[1]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("order", [AXES, ("position", "time", "channel", "z"), ("z", "channel", "position", "time")])
@pytest.mark.parametrize("is_declared", [True, False], ids=["declared", "growing"])
@pytest.mark.parametrize("variant", ["raw", "unsharded"])
def test_other_software_sees_no_zeros_where_data_will_come(
    tmp_path: Path, variant: str, is_declared: bool, order: tuple[str, ...]
) -> None:
    """After every frame each announced plane has the pixels of its frame; frames that come late excepted."""
    frames = frames_at(places_of(order, SIZES), SHAPE)
    seen = []
    with start_log(tmp_path / "cells", axes=declared(AXES, SIZES) if is_declared else ()) as log:
        log.wait_until_open()
        run = start(tmp_path / "cells", variant)
        for frame in frames:
            log.append(frame.header, frame.image)
            assert log.wait_for_published(frame.header.number + 1)
            while run.progress().cursor <= frame.header.number or run.progress().state is not ViewState.WAITING:
                assert run.step() is not None
            # Time outermost: complete or overtaken only by a later time. Else earlier times get their frames late.
            has_holes = order[0] != "time"
            seen.append(check_announced(tmp_path / "cells.ome.zarr", frames, has_holes=has_holes))
    finish(run)
    assert check_announced(tmp_path / "cells.ome.zarr", frames) == SIZES["time"]
    if order == AXES:
        assert 0 < max(seen[: len(frames) // 2]) < SIZES["time"]  # it grew while frames came


@pytest.mark.parametrize("variant", VARIANTS)
def test_it_equals_the_dataset_and_one_made_in_parts(tmp_path: Path, variant: str) -> None:
    frames = frames_at(shuffled(places_of(AXES, SIZES), 5), SHAPE)
    write_log(tmp_path / "cells", frames)
    run = finish(start(tmp_path / "cells", variant))
    assert compare(run.path, run.folder, len(frames)).text == "all equal"
    with TaskRunner(lambda: ProcessPool(2), 1) as runner:
        parts = finish(start(tmp_path / "cells", variant, container=tmp_path / "parts.ome.zarr", runner=runner))
    assert compare(parts.path, parts.folder, len(frames)).text == "all equal"
    with acqstream.open(tmp_path / "cells.ome.zarr") as one, acqstream.open(tmp_path / "parts.ome.zarr") as other:
        for mine, theirs in zip(one.levels, other.levels, strict=True):
            assert np.array_equal(mine.read(), theirs.read())


def test_memory_stays_below_what_was_computed(tmp_path: Path) -> None:
    frames = frames_at(places_of(("time",), {"time": 40}), (512, 512))
    write_log(tmp_path / "cells", frames)
    settings = {"format": "ome-zarr", "chunks": [1, 128, 128], "compression": "zstd"}
    run = finish(run_of(tmp_path / "cells", settings, name="ome-zarr", memory_mb=300))
    assert isinstance(run.view, MirrorView)
    need = run.view.need
    assert need is not None
    assert need.max_bytes <= 300 * 2**20
    assert run.view.summary()["peak_slabs"] <= need.slabs * 3


@pytest.mark.parametrize(("axis", "size"), [(-2, 57), (-1, 7), (-1, 2**62), (0, 2**31)])
def test_a_note_that_states_other_sizes_than_its_arrays_is_damage(tmp_path: Path, axis: int, size: int) -> None:
    """Else what the note alone has would be zeros, without an error."""
    write_log(tmp_path / "cells", frames_at(places_of(("time", "z"), {"time": 3, "z": 2}), SHAPE))
    run = finish(start(tmp_path / "cells", "blosc"))
    assert run.progress().state is ViewState.COMPLETE
    path = tmp_path / "cells.ome.zarr" / "zarr.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    document["attributes"]["acqstream"]["levels"][1]["shape"][axis] = size
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(CorruptDataset, match=f"of the container states {size}"):
        acqstream.open(path.parent)
