"""Mirrors equal what numpy makes of the frames, read by tensorstore: orders, edges, holes, levels, kills."""

from __future__ import annotations

import itertools
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from acqstream.errors import ConfigError, DatasetError
from acqstream.views.view_run import ViewRun, ViewState
from tests import windows_like
from tests.host_system import make_link
from tests.log.make_frames import Axes, Frame, frame_of, start_log, write_log
from tests.mirrors.mirror_cases import (
    PLAIN,
    check_plain,
    declared,
    finish,
    frames_at,
    places_of,
    read_plain,
    run_of,
    shuffled,
)

SIZES = {"time": 2, "position": 2, "channel": 2, "z": 7}
NAMES = {"channel": ("DAPI", "GFP")}
BLOCKS = {**PLAIN, "blocks": [3, 8, 10], "levels": 3}
HALVED_ALL = ((2, 2, 2), (2, 2, 2))
SMALL_MB = 0.05  # room for one slab or two of each level


@pytest.mark.thinned(2)
@pytest.mark.parametrize("memory_mb", [1024, SMALL_MB])
@pytest.mark.parametrize("order", ["tpcz", "tpzc", "zctp", "ctzp"])
def test_orders_of_the_axes(tmp_path: Path, order: str, memory_mb: float) -> None:
    axes = [{"t": "time", "p": "position", "c": "channel", "z": "z"}[letter] for letter in order]
    frames = frames_at(places_of(axes, SIZES, NAMES))
    write_log(tmp_path / "cells", frames)
    run = finish(run_of(tmp_path / "cells", BLOCKS, memory_mb=memory_mb))
    assert run.progress().state is ViewState.COMPLETE
    check_plain(tmp_path / "cells", frames, HALVED_ALL)


@pytest.mark.parametrize("depth", [1, 3])
def test_levels_of_a_run_with_less_than_one_block_of_what_was_declared(tmp_path: Path, depth: int) -> None:
    frames = frames_at(places_of(("time", "z"), {"time": 2, "z": depth}))
    write_log(tmp_path / "cells", frames, axes=declared(("time", "z"), {"time": 2, "z": 10}))
    finish(run_of(tmp_path / "cells", BLOCKS))
    check_plain(tmp_path / "cells", frames, HALVED_ALL)
    finish(run_of(tmp_path / "cells", BLOCKS))
    check_plain(tmp_path / "cells", frames, HALVED_ALL)


@pytest.mark.parametrize("seed", range(4))
def test_random_order_holes_and_frames_that_come_again(tmp_path: Path, seed: int) -> None:
    places = shuffled(places_of(("time", "channel", "z"), SIZES, NAMES), seed)
    places = [place for number, place in enumerate(places) if number % 5 != 1] + places[2:9] + places[:1] * 2
    frames = frames_at(places)
    write_log(tmp_path / "cells", frames, replace_duplicates=True)
    finish(run_of(tmp_path / "cells", BLOCKS, memory_mb=SMALL_MB if seed % 2 else 64))
    check_plain(tmp_path / "cells", frames, HALVED_ALL)


@pytest.mark.parametrize(
    ("shape", "dtype"), [((19, 23), "|u1"), ((16, 20), "<u2"), ((9, 8, 3), "|u1"), ((1, 1), "<u2")]
)
@pytest.mark.parametrize("blocks", [(1, 8, 8), (2, 16, 5), (5, 64, 64)])
def test_pixel_types_and_edges(tmp_path: Path, shape: tuple[int, ...], dtype: str, blocks: tuple[int, ...]) -> None:
    frames = frames_at(places_of(("time", "z"), {"time": 2, "z": 5}), shape, dtype)
    write_log(tmp_path / "cells", frames)
    finish(run_of(tmp_path / "cells", {**PLAIN, "blocks": list(blocks), "levels": 1}))
    check_plain(tmp_path / "cells", frames)


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_levels_of_any_depth_of_the_blocks(tmp_path: Path, depth: int) -> None:
    frames = frames_at(places_of(("z",), {"z": 13}), (33, 18))
    write_log(tmp_path / "cells", frames)
    finish(run_of(tmp_path / "cells", {**PLAIN, "blocks": [depth, 8, 7], "levels": 4}))
    check_plain(tmp_path / "cells", frames, ((2, 2, 2),) * 3)


def test_anisotropic_voxels_are_halved_in_the_plane_first(tmp_path: Path) -> None:
    frames = frames_at(places_of(("z",), {"z": 9}), (32, 32))
    write_log(tmp_path / "cells", frames, summary={"PixelSizeUm": 0.1, "z-step_um": 0.3})
    finish(run_of(tmp_path / "cells", {**PLAIN, "blocks": [4, 8, 8], "levels": 3}))
    check_plain(tmp_path / "cells", frames, ((1, 2, 2), (2, 2, 2)))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("is_declared", [True, False])
@pytest.mark.parametrize("count", [1, 2, 5, 13])
def test_a_run_that_grows_while_it_is_mirrored(tmp_path: Path, count: int, is_declared: bool) -> None:
    sizes = {"time": 2, "channel": 2, "z": count}
    frames = frames_at(places_of(("time", "channel", "z"), sizes, NAMES))
    axes = declared(("time", "channel", "z"), sizes) if is_declared else ()
    with start_log(tmp_path / "cells", axes=axes) as log:
        log.wait_until_open()
        run = run_of(tmp_path / "cells", BLOCKS, memory_mb=SMALL_MB)
        for frame in frames:
            log.append(frame.header, frame.image)
            assert log.wait_for_published(frame.header.number + 1)
            while run.progress().cursor <= frame.header.number:
                assert run.step() is not None
    finish(run)
    check_plain(tmp_path / "cells", frames, HALVED_ALL)


def test_a_plane_missing_at_an_end_that_moved_on_is_zeros_in_the_levels(tmp_path: Path) -> None:
    places: list[Axes] = [{"time": 0, "z": z} for z in (0, 1, 2)]
    places += [{"time": 1, "z": z} for z in (0, 1, 2, 3)]
    frames = frames_at(places)
    with start_log(tmp_path / "cells") as log:
        log.wait_until_open()
        run = run_of(tmp_path / "cells", {**BLOCKS, "blocks": [4, 8, 10]}, memory_mb=SMALL_MB)
        for frame in frames:
            log.append(frame.header, frame.image)
            assert log.wait_for_published(frame.header.number + 1)
            while run.progress().cursor <= frame.header.number:
                assert run.step() is not None
            run.settle()
    finish(run)
    check_plain(tmp_path / "cells", frames, HALVED_ALL)


def stepped(run: ViewRun) -> bool:
    """One step, and the time that it asks for; True after the last one."""
    wait_s = run.step()
    time.sleep(min(wait_s or 0.0, 0.005))
    return wait_s is None


@pytest.mark.thinned(3)
@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("seed", range(2 if windows_like.is_chosen() else 6))  # calls are slow there
def test_killed_at_random_moments_it_ends_the_same(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    places = places_of(("time", "channel", "z"), SIZES, NAMES)
    places = shuffled(places, seed) + places[3:8] if seed % 2 else places
    frames = frames_at(places)
    write_log(tmp_path / "cells", frames, replace_duplicates=True)
    for kill in itertools.count():
        run = run_of(tmp_path / "cells", BLOCKS, memory_mb=chance.choice([SMALL_MB, 8]))
        done = any(stepped(run) for _ in range(chance.randrange(1, 12) + kill))
        run.close()  # as after SIGKILL: nothing is saved
        if done:
            break
    assert kill
    check_plain(tmp_path / "cells", frames, HALVED_ALL)


def test_it_goes_on_and_begins_anew_when_it_is_gone_or_asked_for(tmp_path: Path) -> None:
    frames = frames_at(places_of(("time", "z"), {"time": 2, "z": 4}))
    write_log(tmp_path / "cells", frames)
    finish(run_of(tmp_path / "cells"))
    block = next((tmp_path / "cells.n5" / "s0").rglob("0"))
    again = finish(run_of(tmp_path / "cells"))
    assert (again.reason, again.progress().from_stack) == ("", 0)
    assert block.is_file() or block.is_dir()
    (tmp_path / "cells.n5" / "attributes.json").rename(tmp_path / "attributes.json")
    shutil.rmtree(tmp_path / "cells.n5")
    gone = finish(run_of(tmp_path / "cells"))
    assert "its files are missing" in gone.reason
    check_plain(tmp_path / "cells", frames)
    remade = finish(run_of(tmp_path / "cells", is_remade=True))
    assert "being rebuilt" in remade.reason
    other = finish(run_of(tmp_path / "cells", {**PLAIN, "blocks": [2, 8, 8]}))
    assert "other settings" in other.reason
    check_plain(tmp_path / "cells", frames)


def refusal(folder: Path, **more: Any) -> str:
    with pytest.raises((DatasetError, ConfigError)) as caught:
        finish(run_of(folder, **more))
    assert not folder.with_name("cells.n5").exists() or more.get("may_exist")
    return str(caught.value)


def test_what_cannot_be_mirrored_is_refused_and_nothing_is_made(tmp_path: Path) -> None:
    write_log(tmp_path / "cells", [frame_of(0, axes={"row": 0, "column": 0})])
    assert "the summary has no overlap" in refusal(tmp_path / "cells")
    (tmp_path / "large").mkdir()
    write_log(tmp_path / "large" / "cells", frames_at(places_of(("z",), {"z": 4}), (300, 400)))
    text = refusal(tmp_path / "large" / "cells", memory_mb=1)
    assert "need at least" in text
    assert "mirror_memory_mb allows 1" in text
    assert run_is_refused(tmp_path / "named", [frame_of(0, axes={"x": 0})]).startswith("axes ['x']")


def run_is_refused(folder: Path, frames: list[Frame]) -> str:
    folder.mkdir()
    write_log(folder / "cells", frames)
    return refusal(folder / "cells")


@pytest.mark.parametrize(
    ("last", "text"),
    [
        (frame_of(2, (21, 27), axes={"time": 2}), "frame 2 has shape"),
        (frame_of(2, (21, 26), "|u1", axes={"time": 2}), "dtype"),
    ],
)
def test_frames_that_are_not_alike_end_the_mirror(tmp_path: Path, last: Frame, text: str) -> None:
    frames = frames_at([{"time": 0}, {"time": 1}])
    write_log(tmp_path / "cells", [*frames, last])
    run = run_of(tmp_path / "cells")
    with pytest.raises(DatasetError, match=text):
        finish(run)
    assert run.progress().cursor == 2


def test_what_another_program_has_put_there_is_left_alone(tmp_path: Path) -> None:
    write_log(tmp_path / "cells", frames_at([{"time": 0}]))
    (tmp_path / "cells.n5").mkdir()
    (tmp_path / "cells.n5" / "mine").write_text("mine")
    with pytest.raises(DatasetError, match="already exists"):
        finish(run_of(tmp_path / "cells", is_remade=True))
    assert (tmp_path / "cells.n5" / "mine").read_text() == "mine"


def test_axes_that_some_frames_lack_are_at_position_0(tmp_path: Path) -> None:
    places: list[Axes] = [{"channel": "BF"}, {"channel": "GFP", "z": 0}, {"channel": "GFP", "z": 1}]
    write_log(tmp_path / "cells", frames_at(places))
    finish(run_of(tmp_path / "cells"))
    found = read_plain(tmp_path / "cells.n5")
    images = [frame.image for frame in frames_at(places)]
    assert (found[0, 0] == images[0]).all()
    assert (found[1, 0] == images[1]).all()
    assert (found[1, 1] == images[2]).all()
    assert not found[0, 1].any()


def test_a_mirror_is_gone_on_with_by_whatever_path(tmp_path: Path) -> None:
    write_log(tmp_path / "cells", frames_at(places_of(("z",), {"z": 4})))
    first = finish(run_of(tmp_path / "cells", BLOCKS))
    make_link(tmp_path / "link", tmp_path)
    for again in (tmp_path / "cells" / ".." / "cells", tmp_path / "link" / "cells"):
        run = finish(run_of(again, BLOCKS))
        assert (run.reason, run.progress().cursor) == (first.reason, 4)
        assert run.view.summary()["stored_chunks"] == 0
