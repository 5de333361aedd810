"""Mirrors of tiled datasets: one picture, equal to that of the log, whatever the sizes of tiles and chunks."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import acqstream
from acqstream.errors import DatasetError
from acqstream.mirrors import mirror_plan
from acqstream.mirrors.comparison import compare
from acqstream.mirrors.mirror_plan import MemoryNeed, memory_need
from acqstream.mirrors.slab_grid import SlabGrid
from acqstream.model.acquisition_spec import AxisSpec, TileSpec
from acqstream.views.view_run import ViewState
from tests.log.make_frames import Frame, frame_of, start_log, write_log
from tests.mirrors.mirror_cases import finish, frames_at, halved, places_of, run_of, shuffled
from tests.waiting import until

TILE, OVERLAP, ROWS, COLUMNS = (21, 26), (4, 7), 3, 4
TILES = TileSpec(OVERLAP, 0, None)
AXES = (AxisSpec("row", ROWS), AxisSpec("column", COLUMNS))
FORMATS: dict[str, dict[str, Any]] = {
    "n5": {"format": "n5", "blocks": [2, 8, 8], "levels": 3},
    "n5 in large blocks": {"format": "n5", "blocks": [1, 64, 64], "levels": 2},
    "n5 in odd blocks": {"format": "n5", "blocks": [1, 5, 7], "levels": 2, "layout": "array"},
    "wkw": {"format": "wkw", "cube": 32, "levels": 2},
    "ome-zarr": {"format": "ome-zarr", "chunks": [1, 16, 16], "levels": 3},
    "ome-zarr raw": {"format": "ome-zarr", "chunks": [2, 16, 16], "levels": 2, "compression": "none"},
    "hsds": {"format": "hsds", "pixels": "copy", "chunks": [1, 16, 16], "levels": 2},
    "precomputed": {"format": "precomputed", "chunks": [1, 16, 16], "levels": 2},
    "precomputed shards": {"format": "precomputed", "chunks": [2, 16, 16], "levels": 2, "shards": {}},
}
SUFFIXES = {"n5": ".n5", "wkw": ".wkw", "ome-zarr": ".ome.zarr", "precomputed": ".precomputed", "hsds": ".hsds"}
OUTER = places_of(("time", "z"), {"time": 2, "z": 3})
OUTER_AXES = (AxisSpec("time", 2), AxisSpec("z", 3))


def tiles(outer: Sequence[Any] = ({},), rows: Sequence[int] = range(ROWS)) -> list[Frame]:
    """All tiles of each place, row by row."""
    places = [{**place, "row": row, "column": column} for place in outer for row in rows for column in range(COLUMNS)]
    return frames_at(places, TILE)


def stitched(frames: Sequence[Frame], outer: Sequence[Any]) -> NDArray[Any]:
    """The pictures of the places, (place, y, x), by numpy alone: the latest tile counts."""
    height, width = TILE[0] - OVERLAP[0], TILE[1] - OVERLAP[1]
    top, left = OVERLAP[0] // 2, OVERLAP[1] // 2
    found = np.zeros((len(outer), ROWS * height, COLUMNS * width), frames[0].image.dtype)
    for frame in frames:
        at = [*outer].index({name: value for name, value in frame.axes.items() if name not in ("row", "column")})
        y, x = int(frame.axes["row"]) * height, int(frame.axes["column"]) * width
        found[at, y : y + height, x : x + width] = frame.image[top : top + height, left : left + width]
    return found


def container_of(folder: Path, settings: dict[str, Any]) -> Path:
    return folder.with_name(folder.name + SUFFIXES[settings["format"]])


def check(folder: Path, settings: dict[str, Any], frames: Sequence[Frame], outer: Sequence[Any] = OUTER) -> None:
    """Every level of the mirror, and what our reader of the log says."""
    right = stitched(frames, outer)
    shape = (
        [*dict.fromkeys(place.get("time", 0) for place in outer)],
        [*dict.fromkeys(place.get("z", 0) for place in outer)],
    )
    right = right.reshape(len(shape[0]), len(shape[1]), *right.shape[1:])
    with acqstream.open(folder) as log, acqstream.open(container_of(folder, settings)) as mirror:
        assert mirror.levels[0].axes == log.levels[0].axes
        assert mirror.levels[0].read().shape == log.levels[0].shape
        assert np.array_equal(mirror.levels[0].read(), log.levels[0].read())
        assert len(mirror.levels) == settings["levels"]
        for level, below in itertools.zip_longest(mirror.levels, mirror.levels[1:]):
            found = level.read()
            assert found.size == right.size
            assert np.array_equal(found.reshape(right.shape), right)
            if below is not None:
                right = halved(right, (1, 2 if below.shape[1] < right.shape[1] else 1, 2, 2))


def take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many slabs as one tile needs, so that incomplete ones are stored and come back."""

    def least(grids: Sequence[SlabGrid], *given: Any, **more: Any) -> MemoryNeed:
        return dataclasses.replace(memory_need(grids, *given, **more), slabs=grids[0].slabs_of_frame)

    monkeypatch.setattr(mirror_plan, "memory_need", least)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("memory", ["much", "little"])
@pytest.mark.parametrize("order", ["in order", "shuffled"])
@pytest.mark.parametrize("name", FORMATS)
def test_a_mosaic_is_one_picture_in_every_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, order: str, memory: str
) -> None:
    frames, settings = tiles(OUTER), FORMATS[name]
    if order == "shuffled":
        places = shuffled([frame.axes for frame in frames], 3)
        frames = frames_at([*places, *places[5:9]], TILE)  # some come again
    if memory == "little":
        take_little_memory(monkeypatch)
    declared = (*OUTER_AXES, *AXES)
    write_log(tmp_path / "cells", frames, tiles=TILES, axes=declared, replace_duplicates=True)
    run = finish(run_of(tmp_path / "cells", settings, settings["format"]))
    assert (run.reason, run.progress().state) == ("", ViewState.COMPLETE)
    compared = compare(tmp_path / "cells", run.folder, len(frames))
    assert (compared.frames, compared.text) == (len(OUTER) * ROWS * COLUMNS, "all equal")
    check(tmp_path / "cells", settings, frames)


def take_small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of 32 x 32 pixels: a tile meets four of them, and each has parts of nine tiles."""
    monkeypatch.setattr(importlib.import_module("acqstream.formats.ome_zarr.plan"), "MAX_SHARD_PLANE_BYTES", 3000)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("memory", ["much", "little"])
@pytest.mark.parametrize("order", ["in order", "shuffled"])
@pytest.mark.parametrize("name", ["ome-zarr", "ome-zarr raw"])
def test_tiles_lie_across_borders_of_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, order: str, memory: str
) -> None:
    take_small_shards(monkeypatch)
    test_a_mosaic_is_one_picture_in_every_format(tmp_path, monkeypatch, name, order, memory)
    shards = [path for path in (tmp_path / "cells.ome.zarr" / "0" / "c").rglob("*") if path.is_file()]
    assert len(shards) == 2 * 2 * 3, "for each time, along y and along x"


@pytest.mark.parametrize("name", ["ome-zarr", "ome-zarr raw"])
def test_a_mirror_with_shards_of_complete_planes_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """One that an earlier version began: shards of two kinds in one array would be lost pixels."""
    frames, settings = tiles(OUTER), FORMATS[name]
    with start_log(tmp_path / "cells", tiles=TILES, axes=(*OUTER_AXES, *AXES)) as log:
        for frame in frames[:40]:
            log.append(frame.header, frame.image)
        assert log.wait_for_published(40)
        run = run_of(tmp_path / "cells", settings, settings["format"])
        while run.progress().state is not ViewState.WAITING:
            run.step()
        run.save()
        run.close()
        for frame in frames[40:]:
            log.append(frame.header, frame.image)
    take_small_shards(monkeypatch)
    run = finish(run_of(tmp_path / "cells", settings, settings["format"]))
    assert "restarted: its files were changed" in run.reason
    assert "in shards of" in run.reason
    assert run.progress().from_stack == len(frames)
    check(tmp_path / "cells", settings, frames)


@pytest.mark.parametrize(("name", "grows"), [("wkw", True), ("precomputed", False), ("hsds", True)])
def test_without_planned_rows_the_picture_grows_or_is_made_when_the_run_ends(
    tmp_path: Path, name: str, grows: bool
) -> None:
    """Rows and columns may be negative: the first ones are at the origin of the canvas."""
    frames, settings = tiles(), FORMATS[name]
    moved = [
        frame_of(n, TILE, axes={"row": int(f.axes["row"]) - 2, "column": f.axes["column"]})
        for n, f in enumerate(frames)
    ]
    with start_log(tmp_path / "cells", tiles=TILES) as log:
        run = run_of(tmp_path / "cells", settings, settings["format"])
        for frame in moved:
            log.append(frame.header, frame.image)
            run.step()
        assert log.wait_for_published(len(moved))
        assert run.step() is not None
        assert container_of(tmp_path / "cells", settings).exists() == grows
    finish(run)
    assert run.progress().state is ViewState.COMPLETE
    with (
        acqstream.open(tmp_path / "cells") as log_ds,
        acqstream.open(container_of(tmp_path / "cells", settings)) as mirror,
    ):
        assert np.array_equal(np.squeeze(mirror.levels[0].read()), np.squeeze(log_ds.levels[0].read()))
        assert log_ds.levels[0].origin == (-2 * (TILE[0] - OVERLAP[0]), 0)


def test_a_tile_beside_the_planned_picture_is_told(tmp_path: Path) -> None:
    frames = [*tiles(), frame_of(ROWS * COLUMNS, TILE, axes={"row": ROWS, "column": 0})]
    with start_log(tmp_path / "cells", tiles=TILES, axes=AXES) as log:
        run = run_of(tmp_path / "cells", FORMATS["n5"])
        log.append(frames[0].header, frames[0].image)
        assert log.wait_for_published(1)
        while not run.progress().cursor:
            run.step()
        for frame in frames[1:]:
            log.append(frame.header, frame.image)
    with pytest.raises(DatasetError, match=r"row is 3, planned were 0 to 2.*after the run"):
        finish(run)
    run = finish(run_of(tmp_path / "cells", FORMATS["n5"], is_remade=True))
    assert run.progress().state is ViewState.COMPLETE
    assert compare(tmp_path / "cells", run.folder, len(frames)).text == "all equal"


@pytest.mark.parametrize("name", FORMATS)
def test_tiles_with_colours(tmp_path: Path, name: str) -> None:
    """Some formats have the samples of a pixel before y and x, others after them."""
    axes = (AxisSpec("z", 2), AxisSpec("row", 2), AxisSpec("column", 3))
    frames = frames_at(places_of(("z", "row", "column"), {"z": 2, "row": 2, "column": 3}), (*TILE, 3), "|u1")
    settings = FORMATS[name]
    write_log(tmp_path / "cells", frames, tiles=TILES, axes=axes)
    run = finish(run_of(tmp_path / "cells", settings, settings["format"]))
    assert compare(tmp_path / "cells", run.folder, len(frames)).text == "all equal"
    mirrored = container_of(tmp_path / "cells", settings)
    with acqstream.open(tmp_path / "cells") as log, acqstream.open(mirrored) as mirror:
        right = log.levels[0].read()
        assert np.array_equal(mirror.levels[0].read().reshape(right.shape), right)
        steps = mirror.levels[1].factors
        assert np.array_equal(mirror.levels[1].read().squeeze(), halved(mirror.levels[0].read(), steps).squeeze())


def test_a_changed_pixel_of_a_mosaic_is_found(tmp_path: Path) -> None:
    write_log(tmp_path / "cells", tiles(OUTER), tiles=TILES, axes=(*OUTER_AXES, *AXES))
    settings = {**FORMATS["n5"], "compression": "raw", "layout": "array"}
    run = finish(run_of(tmp_path / "cells", settings))
    chunk = _some_chunk(tmp_path / "cells.n5" / "s0")
    content = bytearray(chunk.read_bytes())
    content[-1] ^= 1
    chunk.write_bytes(content)
    compared = compare(tmp_path / "cells", run.folder, len(tiles(OUTER)))
    assert compared.frames == len(tiles(OUTER))
    assert compared.different >= 1
    assert "row" in compared.text


def _some_chunk(folder: Path) -> Path:
    """The file with the first chunk."""
    return min(path for path in folder.rglob("*") if path.is_file() and path.name.isdecimal())


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", ["n5", "ome-zarr", "ome-zarr raw", "precomputed", "hsds"])
@pytest.mark.parametrize("taken", [1, 14, 30, 71])
def test_an_interrupted_mosaic_goes_on(tmp_path: Path, name: str, taken: int) -> None:
    frames, settings = tiles(OUTER), FORMATS[name]
    with start_log(tmp_path / "cells", tiles=TILES, axes=(*OUTER_AXES, *AXES)) as log:
        for frame in frames[:taken]:
            log.append(frame.header, frame.image)
        assert log.wait_for_published(taken)
        run = run_of(tmp_path / "cells", settings, settings["format"])
        while run.progress().state is not ViewState.WAITING:
            run.step()
        run.save()
        run.close()
        for frame in frames[taken:]:
            log.append(frame.header, frame.image)
    run = finish(run_of(tmp_path / "cells", settings, settings["format"]))
    assert run.progress().from_stack == len(frames) - taken
    assert compare(tmp_path / "cells", run.folder, len(frames)).text == "all equal"
    check(tmp_path / "cells", settings, frames)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", ["ome-zarr", "ome-zarr raw", "precomputed", "hsds"])
@pytest.mark.parametrize("outer", [OUTER, [{}]], ids=["time and z", "one picture"])
def test_what_is_announced_has_all_its_tiles(tmp_path: Path, name: str, outer: list[Any]) -> None:
    """A reader beside the growing mirror sees complete pictures, and a single one when the run has ended."""
    settings = FORMATS[name]
    frames = tiles(outer)
    right = stitched(frames, outer)
    declared = (*OUTER_AXES, *AXES) if len(outer) > 1 else AXES
    seen: set[int] = set()
    with start_log(tmp_path / "cells", tiles=TILES, axes=declared) as log:
        run = run_of(tmp_path / "cells", settings, settings["format"])
        for number, frame in enumerate(frames, 1):
            log.append(frame.header, frame.image)
            assert log.wait_for_published(number)
            while run.progress().cursor < number:
                time.sleep(run.step() or 0)
            if number % 3 == 0 and number < len(frames):
                until(lambda: run.view.settle() is None, "all is stored")
                seen.add(_check_announced(container_of(tmp_path / "cells", settings), right))
    finish(run)
    assert len(seen) > 1 if len(outer) > 1 else seen == {0}, "it grew by pictures"
    with acqstream.open(container_of(tmp_path / "cells", settings)) as mirror:
        assert np.array_equal(mirror.levels[0].read().reshape(right.shape), right)


def _check_announced(container: Path, right: NDArray[Any]) -> int:
    """Return the number of items that are announced."""
    try:
        with acqstream.open(container) as mirror:
            found = mirror.levels[0].read()
    except DatasetError:
        return 0  # nothing is announced
    if len(right) == 1:
        return found.size
    whole = right.reshape(2, 3, *right.shape[1:])
    assert np.array_equal(found, whole[: found.shape[0], : found.shape[1]])
    return found.size
