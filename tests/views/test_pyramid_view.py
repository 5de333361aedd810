"""Pyramids against a reference computed independently, each arriving tile through all levels at once."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acqstream.errors import DatasetError
from acqstream.formats.check_report import CheckReport
from acqstream.formats.ndtiff.check import check_dataset
from acqstream.formats.ndtiff.reader import open_readers
from acqstream.model.acquisition_spec import AxisSpec, TileSpec
from acqstream.views import view_run as views
from acqstream.views.frame_feed import DiskAllowance
from acqstream.views.view_run import ViewState
from tests.log.make_frames import LEAST_LIMIT_BYTES, Axes, Frame, frame_of, spec_of, write_log
from tests.storage.scripted_disk import ScriptedDisk
from tests.views.pyramid_cases import (
    Place,
    check_levels,
    finish,
    grid,
    level_names,
    pyramid_of,
    shuffled,
    snake,
    start_tiled,
    tiles_of,
    write_tiled,
)
from tests.views.shared_log import source_of
from tests.waiting import until

GOLDEN = Path(__file__).parents[1] / "golden" / "ndtiff"
CHANNELS: list[Axes] = [{"channel": name, "time": time} for time in range(2) for name in ("DAPI", "GFP", "Cy5")]


def levels_of(rows: int, columns: int) -> int:
    return next(level for level in range(9) if 2**level >= max(rows, columns))


@pytest.mark.promise("pyramids")
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 2), (2, 1), (2, 2), (3, 2), (4, 4), (5, 3), (7, 5)])
@pytest.mark.parametrize(("shape", "overlap"), [((16, 24), (0, 0)), ((20, 18), (4, 6)), ((15, 13), (0, 0))])
@pytest.mark.parametrize("order", ["rows", "snake", "random"])
def test_levels_are_those_of_the_reference(
    tmp_path: Path, rows: int, columns: int, shape: Place, overlap: Place, order: str
) -> None:
    places = snake(rows, columns) if order == "snake" else grid(rows, columns)
    frames = tiles_of(shuffled(places, 3) if order == "random" else places, shape)
    write_tiled(tmp_path / "cells", frames, overlap)
    assert finish(pyramid_of(tmp_path / "cells")).progress().state is ViewState.COMPLETE
    check_levels(tmp_path / "cells", frames, levels_of(rows, columns), overlap)
    report = CheckReport()
    list(check_dataset(tmp_path / "cells", report, False))
    assert not report.problems


@pytest.mark.parametrize(
    ("shape", "dtype"), [((16, 24), "|u1"), ((9, 8, 3), "|u1"), ((21, 19, 3), "|u1"), ((5, 7), "<u2")]
)
@pytest.mark.parametrize("overlap", [(0, 0), (1, 3), (2, 4)])
def test_pixel_types_and_odd_sizes(tmp_path: Path, shape: Sequence[int], dtype: str, overlap: Place) -> None:
    frames = tiles_of(shuffled(grid(4, 5, top=-2, left=-3), 8), shape, dtype)
    write_tiled(tmp_path / "cells", frames, overlap)
    finish(pyramid_of(tmp_path / "cells"))
    check_levels(tmp_path / "cells", frames, 3, overlap)


def awkward(shape: Place = (15, 13)) -> list[Frame]:
    """Channels and times, negative places, random order, holes, tiles that come again."""
    places = shuffled(grid(5, 4, top=-2, left=-1), 5)
    frames = tiles_of([*places[:-3], places[2], places[2], places[9]], shape, others=CHANNELS)
    return [frame for frame in frames if frame.header.number % 7]


def renumbered(frames: Sequence[Frame]) -> list[Frame]:
    return [replace(frame, header=frame.header._replace(number=number)) for number, frame in enumerate(frames)]


@pytest.mark.parametrize("memory_bytes", [0, 2**26])
@pytest.mark.parametrize("shape", [(15, 13), (16, 12)])
def test_channels_times_holes_and_tiles_that_come_again(tmp_path: Path, shape: Place, memory_bytes: int) -> None:
    frames = renumbered(awkward(shape))
    write_tiled(tmp_path / "cells", frames, (2, 3))
    run = finish(pyramid_of(tmp_path / "cells", memory_bytes=memory_bytes))
    check_levels(tmp_path / "cells", frames, 3, (2, 3))
    if not memory_bytes:
        assert run.view.summary()["peak_tiles"] == 24


@pytest.mark.promise("pyramids")
@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("memory_bytes", [0, 2**26])
def test_killed_after_every_few_steps_it_ends_the_same(tmp_path: Path, memory_bytes: int) -> None:
    frames = renumbered(awkward())
    write_tiled(tmp_path / "cells", frames, (2, 3))
    steps = 0
    for kill in range(200):
        run = pyramid_of(tmp_path / "cells", memory_bytes=memory_bytes)
        done = any(run.step() is None for _ in range(1 + kill % 9))
        run.close()  # as after SIGKILL: nothing is saved
        steps += 1
        if done:
            break
    assert done
    assert steps > 10
    check_levels(tmp_path / "cells", frames, 3, (2, 3))


def test_of_shared_pixels_those_that_came_last_stay_though_an_incomplete_tile_is_sent_on_later(tmp_path: Path) -> None:
    frames = tiles_of([(0, 0), (2, 0), (2, 1), (3, 0), (3, 1)], (5, 7))
    write_tiled(tmp_path / "cells", frames)
    finish(pyramid_of(tmp_path / "cells"))
    check_levels(tmp_path / "cells", frames, 2)


def test_a_scan_that_grows_while_it_is_written(tmp_path: Path) -> None:
    places = [(0, 0), (0, 0), (0, 1), (1, 1), (3, 0), (-1, 2), (5, 5), (2, 2)]
    frames = tiles_of(places, (15, 13))
    with start_tiled(tmp_path / "cells") as log:
        log.wait_until_open()
        run = pyramid_of(tmp_path / "cells")
        for frame in frames:
            log.append(frame.header, frame.image)
            assert log.wait_for_published(frame.header.number + 1)
            while run.progress().cursor <= frame.header.number:
                assert run.step() is not None
    finish(run)
    check_levels(tmp_path / "cells", frames, 3)


@pytest.mark.parametrize("levels", [0, 1, 5])
def test_as_many_levels_as_asked_for(tmp_path: Path, levels: int) -> None:
    frames = tiles_of(grid(3, 3))
    write_tiled(tmp_path / "cells", frames, levels=levels)
    finish(pyramid_of(tmp_path / "cells"))
    check_levels(tmp_path / "cells", frames, levels)


def test_level_files_roll_over(tmp_path: Path) -> None:
    frames = tiles_of([*grid(4, 4), *grid(4, 4)], (600, 500))
    write_tiled(tmp_path / "cells", frames)
    finish(pyramid_of(tmp_path / "cells", stack_limit_bytes=LEAST_LIMIT_BYTES))
    assert len(list((tmp_path / "cells" / "Downsampled_x2").glob("*.tif"))) > 1
    readers = open_readers(tmp_path / "cells")
    for lower, upper in zip(readers[1:], readers, strict=False):
        for key in lower.keys():  # noqa: SIM118 - no mapping
            image = lower.read_pixels(lower.row(key))
            part = upper.read_pixels(upper.row({"row": 2 * int(key["row"]), "column": 2 * int(key["column"])}))
            sums = part.reshape(300, 2, 250, 2).sum(axis=(1, 3), dtype=np.uint32)
            assert np.array_equal(image[:300, :250], sums // 4)
    report = CheckReport()
    list(check_dataset(tmp_path / "cells", report, False))
    assert not report.problems


def test_metadata_of_a_level_is_that_of_the_first_tile_below(tmp_path: Path) -> None:
    frames = tiles_of(shuffled(grid(2, 2), 1))
    write_tiled(tmp_path / "cells", frames)
    finish(pyramid_of(tmp_path / "cells"))
    full, level = open_readers(tmp_path / "cells")
    assert level.metadata_bytes(0) == full.metadata_bytes(0)
    assert level.summary_metadata == full.summary_metadata
    assert level.key(0) == {"row": 0, "column": 0}


def test_tiles_are_published_when_they_are_complete_and_levels_appear_then(tmp_path: Path) -> None:
    log = start_tiled(tmp_path / "cells")
    log.wait_until_open()
    run = pyramid_of(tmp_path / "cells")
    seen = []
    for frame in tiles_of([(0, 0), (0, 1), (1, 0), (3, 3), (1, 1)]):
        log.append(frame.header, frame.image)
        assert log.wait_for_published(frame.header.number + 1)
        while run.progress().cursor <= frame.header.number or run.step() == 0.0:
            run.step()
        seen.append(level_names(tmp_path / "cells"))
    assert seen == [[], [], [], [], ["Downsampled_x2"]]
    log.close()
    finish(run)
    assert level_names(tmp_path / "cells") == ["Downsampled_x2", "Downsampled_x4"]


def test_after_a_wait_a_tile_is_published_as_it_is_and_again_when_it_is_complete(tmp_path: Path) -> None:
    frames = tiles_of(grid(2, 2))
    log = start_tiled(tmp_path / "cells", wait_s=0.0)
    log.wait_until_open()
    run = pyramid_of(tmp_path / "cells")
    for frame in frames:
        log.append(frame.header, frame.image)
        assert log.wait_for_published(frame.header.number + 1)
        while run.progress().cursor <= frame.header.number or run.step() == 0.0:
            run.step()
        if frame.header.number:
            assert level_names(tmp_path / "cells") == ["Downsampled_x2"]
            check_levels(tmp_path / "cells", frames[: frame.header.number + 1], 1)
    log.close()
    finish(run)
    check_levels(tmp_path / "cells", frames, 1)


def test_where_the_grid_is_known_tiles_at_its_edge_do_not_wait(tmp_path: Path) -> None:
    frames = tiles_of(grid(3, 3))
    log = start_tiled(tmp_path / "cells", axes=(AxisSpec("row", 3), AxisSpec("column", 3)))
    for frame in frames:
        log.append(frame.header, frame.image)
    run = pyramid_of(tmp_path / "cells")
    while run.progress().cursor < 9 or run.step() == 0.0:
        run.step()
    check_levels(tmp_path / "cells", frames, 2)
    log.close()
    finish(run)


@pytest.mark.parametrize(
    ("last", "text"),
    [
        (frame_of(4, (16, 22), axes={"row": 1, "column": 2}), r"frame 4 is 16 x 22 <u2 .*, those before are 16 x 24"),
        (frame_of(4, (16, 24), "|u1", axes={"row": 1, "column": 2}), r"frame 4 is 16 x 24 \|u1"),
    ],
)
def test_a_frame_that_is_unlike_the_others_ends_the_pyramid(tmp_path: Path, last: Frame, text: str) -> None:
    write_tiled(tmp_path / "cells", [*tiles_of(grid(2, 2)), last])
    run = pyramid_of(tmp_path / "cells")
    with pytest.raises(DatasetError, match=text):
        finish(run)
    assert run.progress().cursor == 4


def test_flat_datasets_are_refused(tmp_path: Path) -> None:
    write_log(tmp_path / "cells", tiles_of(grid(2, 2)))
    with pytest.raises(DatasetError, match="cells is flat: resolution levels are made of tiles"):
        finish(pyramid_of(tmp_path / "cells"))


@pytest.mark.parametrize("name", ["java_pyramid_u16", "java_pyramid_rgb_odd"])
def test_levels_of_another_program_are_replaced_only_when_asked_for(tmp_path: Path, name: str) -> None:
    folder = Path(shutil.copytree(GOLDEN / name / "data", tmp_path / "cells"))
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(DatasetError, match="--rebuild"):
        finish(pyramid_of(folder))
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    right = [dict(_contents(reader)) for reader in open_readers(folder)]
    for _ in range(2):
        finish(pyramid_of(folder, is_remade=True))
        readers = open_readers(folder)
        for reader, tiles in zip(readers, right, strict=False):
            assert dict(_contents(reader)) == tiles
        for reader in readers:
            reader.close()
    assert finish(pyramid_of(folder)).progress().from_stack == 0
    full = folder / "Full resolution"
    assert all(path.read_bytes() == content for path, content in before.items() if full in path.parents)


def _contents(reader: Any) -> Any:
    for key in reader.keys():  # noqa: SIM118 - no mapping
        yield tuple(sorted(key.items())), reader.read_pixels(reader.row(key)).tobytes()


def test_levels_are_added_to_a_dataset_of_another_program(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(GOLDEN / "java_pyramid_u16" / "data", tmp_path / "cells"))
    right = [dict(_contents(reader)) for reader in open_readers(folder)]
    for level in folder.glob("Downsampled_x*"):
        shutil.rmtree(level)
    finish(pyramid_of(folder))
    for reader, tiles in zip(open_readers(folder), right, strict=False):
        assert dict(_contents(reader)) == tiles


def test_a_full_disk_only_delays_it(tmp_path: Path) -> None:
    frames = tiles_of(grid(4, 4))
    write_tiled(tmp_path / "cells", frames)
    disk = ScriptedDisk()
    run = pyramid_of(tmp_path / "cells", disk=disk)
    kinds = ("pwritev", "create", "reserve", "mkdir", "replace")
    held = 0
    for nth in range(1, 12):
        for kind in kinds:
            disk.fail(kind, nth, errno.ENOSPC)
        if run.step() is None:
            break
        held += run.progress().state is ViewState.HELD
        disk.mend()
    finish(run)
    assert held > 3
    check_levels(tmp_path / "cells", frames, 2)


def test_nothing_is_written_while_the_log_has_a_backlog(tmp_path: Path) -> None:
    write_tiled(tmp_path / "cells", tiles_of(grid(4, 4)))
    disk = ScriptedDisk()
    is_free = True
    run = pyramid_of(tmp_path / "cells", disk=disk, may_read=lambda: is_free)
    views_step, views.STEP_BYTES = views.STEP_BYTES, 1
    try:
        run.step()
    finally:
        views.STEP_BYTES = views_step
    calls, is_free = len(disk.calls), False
    for _ in range(20):
        assert run.step() is not None
    assert len(disk.calls) == calls
    is_free = True
    finish(run)


def test_levels_are_made_in_memory_while_the_log_has_a_backlog(tmp_path: Path) -> None:
    """From the second tile on nothing but memory of the producer's is used, which it then uses for other things."""
    frames = tiles_of(grid(4, 4), (512, 300))
    log_disk, disk = ScriptedDisk(), ScriptedDisk()
    is_free = False
    spec = spec_of(tiles=TileSpec((0, 0)), replace_duplicates=True)
    with source_of(tmp_path / "cells", spec=spec, disk=log_disk) as source:
        run = pyramid_of(
            tmp_path / "cells",
            disk=disk,
            recent=source.recent,
            may_read=lambda: is_free,
            allowance=DiskAllowance(lambda: not is_free, burst_s=60.0),
        )
        source.adopt(frames[:2])
        assert source.log.wait_for_published(2)
        until(lambda: run.step() is not None and run.progress().cursor == 2, "two tiles are taken")
        stall = log_disk.stall("fdatasync", part="Stack")
        places = source.adopt(frames[2:])
        while run.step() == 0.0:
            pass
        stall.go.set()
        assert source.log.wait_for_published(16)
        for place in places:
            place[:] = b"x" * len(place)
        until(lambda: run.step() is not None and run.progress().cursor == 16, "all tiles are taken")
        assert (run.progress().from_memory, run.progress().from_stack) == (14, 2)
        assert run.progress().waiting == 5
        assert not disk.of("pwritev", part="Stack")
        is_free = True
        source.log.close()
    finish(run)
    check_levels(tmp_path / "cells", frames, 2)


def test_frames_that_a_power_cut_took_are_taken_out_of_the_levels(tmp_path: Path) -> None:
    folder, frames = tmp_path / "cells", tiles_of(grid(4, 4))
    write_tiled(folder, frames)
    finish(pyramid_of(folder))
    levels = [Path(shutil.move(folder / name, tmp_path / name)) for name in level_names(folder)]
    shutil.rmtree(folder)
    write_tiled(folder, frames[:6])
    for level in levels:
        shutil.move(level, folder / level.name)
    assert finish(pyramid_of(folder)).reason.startswith("restarted")
    check_levels(folder, frames[:6], 2)
