"""Mirrors of tiled runs without declared rows and columns: the picture grows while tiles come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import acqstream
from acqstream.errors import DatasetError
from acqstream.formats.hsds.layout import NOTE_NAME, parse_note
from acqstream.formats.hsds.metadata import BUCKET, level_id
from acqstream.log.log import Log
from acqstream.mirrors.comparison import compare
from acqstream.mirrors.mirror_container import read_note
from acqstream.mirrors.run_end import mirror_results
from acqstream.model.acquisition_spec import AxisSpec, TileSpec
from acqstream.views.checkpoint import read_checkpoint
from acqstream.views.view_run import ViewRun, ViewState
from tests.log.make_frames import Frame, start_log
from tests.mirrors.mirror_cases import finish, frames_at, halved, run_of, shuffled
from tests.mirrors.test_mosaic_mirror import container_of, take_little_memory, take_small_shards
from tests.waiting import until

TILE, OVERLAP = (21, 26), (4, 7)
SHOWN = (TILE[0] - OVERLAP[0], TILE[1] - OVERLAP[1])
TILES = TileSpec(OVERLAP, 0, None)
FORMATS: dict[str, dict[str, Any]] = {
    "n5": {"format": "n5", "blocks": [2, 8, 8], "levels": 3},
    "n5 in large blocks": {"format": "n5", "blocks": [1, 64, 64], "levels": 2},
    "n5 in odd blocks": {"format": "n5", "blocks": [1, 5, 7], "levels": 2, "layout": "array"},
    "wkw": {"format": "wkw", "cube": 64, "levels": 2},
    "wkw lz4": {"format": "wkw", "cube": 32, "levels": 3, "compression": "lz4"},
    "hsds": {"format": "hsds", "pixels": "copy", "chunks": [1, 16, 16], "levels": 2},
    "ome-zarr": {"format": "ome-zarr", "chunks": [1, 16, 16], "levels": 3},
    "ome-zarr raw": {"format": "ome-zarr", "chunks": [2, 16, 16], "levels": 2, "compression": "none"},
    "ome-zarr in files": {"format": "ome-zarr", "chunks": [1, 10, 16], "levels": 3, "shards": False},
}
Cells = Sequence[tuple[int, int]]


def serpentine(rows: int, columns: int, first: tuple[int, int] = (0, 0)) -> Cells:
    return [
        (first[0] + row, first[1] + (column if row % 2 == 0 else columns - 1 - column))
        for row in range(rows)
        for column in range(columns)
    ]


def spiral(count: int) -> Cells:
    """From the middle outwards: right, down, left, left, up, up, ..."""
    at, step, found = (0, 0), 0, [(0, 0)]
    while len(found) < count:
        for _ in range(step // 2 + 1):
            dy, dx = ((0, 1), (1, 0), (0, -1), (-1, 0))[step % 4]
            at = at[0] + dy, at[1] + dx
            found.append(at)
        step += 1
    return found[:count]


SCANS: dict[str, Cells] = {
    "serpentine": serpentine(3, 4),
    "by columns": [(row, column) for column in range(4) for row in range(3)],
    "from 5, 7": serpentine(3, 4, (5, 7)),
    "ragged": [(0, 0), (0, 1), (0, 2), (1, 1), (1, 0), (2, 0), (0, 3), (3, 1)],
    "one tile": [(2, 3)],
    "far": [(0, 0), (0, 9), (4, 2)],
}


def in_memory(scans: Iterable[str]) -> list[Any]:
    """Each scan with much or with little memory, in turn; with the other one in the deep tier."""
    found = []
    for number, scan in enumerate(scans):
        for memory in ("much", "little"):
            is_usual = (number % 2 == 0) == (memory == "little")
            found.append(pytest.param(scan, memory, marks=[] if is_usual else pytest.mark.deep))
    return found


def frames_of(cells: Cells, outer: Sequence[Any] = ({},)) -> list[Frame]:
    return frames_at([{**place, "row": row, "column": column} for place in outer for row, column in cells], TILE)


def stitched(frames: Sequence[Frame], outer: Sequence[Any] = ({},)) -> NDArray[Any]:
    """The pictures of the places, (place, y, x), from the first tile on, by numpy alone: the latest tile counts."""
    cells = [(int(frame.axes["row"]), int(frame.axes["column"])) for frame in frames]
    first = [min(cell[side] for cell in cells) for side in (0, 1)]
    count = [max(cell[side] for cell in cells) - first[side] + 1 for side in (0, 1)]
    found = np.zeros((len(outer), count[0] * SHOWN[0], count[1] * SHOWN[1]), frames[0].image.dtype)
    top, left = OVERLAP[0] // 2, OVERLAP[1] // 2
    for frame, cell in zip(frames, cells, strict=True):
        at = [*outer].index({name: value for name, value in frame.axes.items() if name not in ("row", "column")})
        y, x = (cell[0] - first[0]) * SHOWN[0], (cell[1] - first[1]) * SHOWN[1]
        found[at, y : y + SHOWN[0], x : x + SHOWN[1]] = frame.image[top : top + SHOWN[0], left : left + SHOWN[1]]
    return found


def follow(run: ViewRun, log: Log, frames: Sequence[Frame], earlier: int = 0) -> Iterator[int]:
    """Append the frames one by one, have each taken, and yield their number. earlier: frames that the log has."""
    for number, frame in enumerate(frames, earlier + 1):
        log.append(frame.header, frame.image)
        assert log.wait_for_published(number)
        until(lambda n=number: run.step() is not None and run.progress().cursor >= n, "it is taken")  # type: ignore[misc]
        yield number


def check(folder: Path, settings: dict[str, Any], frames: Sequence[Frame], outer: Sequence[Any] = ({},)) -> None:
    """The shape and the pixels of every level, and those of our reader of the dataset."""
    right = stitched(frames, outer)
    with acqstream.open(folder) as log, acqstream.open(container_of(folder, settings)) as mirror:
        own = log.levels[0].read()
        found = mirror.levels[0].read()
        assert found.squeeze().shape == own.squeeze().shape
        assert np.array_equal(found.squeeze(), own.squeeze())
        for level in mirror.levels:
            found = level.read()
            factors = level.factors[-2:]
            assert np.array_equal(found.reshape(right.shape), right), factors
            if level is not mirror.levels[-1]:
                right = halved(right, (1, 2, 2))


@pytest.mark.thinned(4)
@pytest.mark.parametrize(("scan", "memory"), in_memory(SCANS))
@pytest.mark.parametrize("name", FORMATS)
def test_the_picture_grows_with_the_tiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, scan: str, memory: str
) -> None:
    take_small_shards(monkeypatch)
    if memory == "little":
        take_little_memory(monkeypatch)
    frames, settings = frames_of(SCANS[scan]), FORMATS[name]
    with start_log(tmp_path / "cells", tiles=TILES) as log:
        run = run_of(tmp_path / "cells", settings, settings["format"])
        for number in follow(run, log, frames):
            assert run.view.frames_ahead == 0  # type: ignore[attr-defined]
            if number % 5 == 3:
                until(lambda: run.view.settle() is None, "all is stored")
    finish(run)
    assert (run.reason, run.progress().state) == ("", ViewState.COMPLETE)
    assert run.progress().from_stack == len(frames), "it took each tile once"
    note = read_note(run.folder)
    assert note is not None
    assert note.plan is not None
    assert note.plan.mosaic is not None
    assert note.plan.mosaic.is_open
    assert compare(tmp_path / "cells", run.folder, len(frames)).text == "all equal"
    check(tmp_path / "cells", settings, frames)


def array_of(container: Path, level: int = 0) -> NDArray[Any]:
    """A level as other software reads it, (..., y, x); empty before it exists."""
    if container.suffix == ".hsds":
        return array_for_server(container, level)
    tensorstore = pytest.importorskip("tensorstore")
    if not (container / str(level) / "zarr.json").exists():
        return np.zeros((0, 0))
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(container / str(level))}}
    found: NDArray[Any] = tensorstore.open(spec, read=True).result().read().result()
    return found


def array_for_server(container: Path, level: int) -> NDArray[Any]:
    """A level of an HSDS container, whose documents state less than our note does."""
    if not (container / NOTE_NAME).exists():
        return np.zeros((0, 0))
    layout, _ = parse_note((container / NOTE_NAME).read_bytes(), NOTE_NAME)
    with acqstream.open(container / BUCKET / level_id(layout.seed, level).key) as array:
        return array.levels[0].read()


TIMES = tuple({"time": time} for time in range(3))
VARIANTS = ["hsds", "ome-zarr", "ome-zarr raw", "ome-zarr in files"]


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("scan", "memory"), in_memory(name for name in SCANS if name not in ("ragged", "far")))
@pytest.mark.parametrize("outer", [({},), TIMES], ids=["one picture", "times"])
@pytest.mark.parametrize("name", VARIANTS)
def test_what_is_announced_has_all_its_tiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, outer: Sequence[Any], scan: str, memory: str
) -> None:
    """A reader beside the growing mirror sees pictures as they are in the end, in every level; a single one then."""
    take_small_shards(monkeypatch)
    if memory == "little":
        take_little_memory(monkeypatch)
    settings, frames = FORMATS[name], frames_of(SCANS[scan], outer)
    container = container_of(tmp_path / "cells", settings)
    levels = [stitched(frames, outer)]
    while len(levels) < settings["levels"]:
        levels.append(halved(levels[-1], (1, 2, 2)))
    seen: set[tuple[int, ...]] = set()
    with start_log(tmp_path / "cells", tiles=TILES) as log:
        run = run_of(tmp_path / "cells", settings, settings["format"])
        for number in follow(run, log, frames):
            if number % 3 != 1:
                until(lambda: run.view.settle() is None, "all is stored")
            for level, right in enumerate(levels):
                found = array_of(container, level)
                if found.size:
                    found = found.reshape((-1, *found.shape[-2:]))
                    assert np.array_equal(found, right[tuple(map(slice, found.shape))]), (number, level)
                    seen.add((level, *found.shape))
    finish(run)
    check(tmp_path / "cells", settings, frames, outer)
    steps = [shape for shape in seen if shape[0] == 0]
    assert len(steps) >= 2 if len(outer) > 1 else not steps, "it grew by pictures"


def test_a_picture_with_gaps_is_announced_when_the_next_one_comes(tmp_path: Path) -> None:
    settings = FORMATS["ome-zarr"]
    frames = frames_of(SCANS["ragged"], TIMES)
    height, width = stitched(frames, TIMES).shape[1:]
    with start_log(tmp_path / "cells", tiles=TILES) as log:
        run = run_of(tmp_path / "cells", settings, "ome-zarr")
        for number in follow(run, log, frames):
            until(lambda: run.view.settle() is None, "all is stored")
            complete = (number - 1) // len(SCANS["ragged"])
            found = array_of(container_of(tmp_path / "cells", settings))
            if complete:
                assert found.squeeze().shape == ((complete, height, width) if complete > 1 else (height, width))
                assert np.array_equal(found.squeeze(), stitched(frames, TIMES)[:complete].squeeze())
            else:
                assert not found.size
    finish(run)
    check(tmp_path / "cells", settings, frames, TIMES)


def test_it_grows_while_tiles_keep_coming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slabs beyond the last column get no more tiles, which a later row shows; nothing waits for a pause."""
    take_small_shards(monkeypatch)
    monkeypatch.setattr("acqstream.mirrors.mirror_view.IDLE_S", 1e9)
    settings = FORMATS["ome-zarr"]
    with start_log(tmp_path / "cells", tiles=TILES) as log:
        run = run_of(tmp_path / "cells", settings, "ome-zarr")
        for _ in follow(run, log, frames_of(SCANS["serpentine"], TIMES)):
            pass
        container = container_of(tmp_path / "cells", settings)
        until(
            lambda: run.step() is not None and array_of(container).shape == (2, 3 * SHOWN[0], 4 * SHOWN[1]),
            "the pictures before the last one are announced",
        )
    finish(run)


@pytest.mark.parametrize("memory", ["much", "little"])
@pytest.mark.parametrize("scan", ["serpentine", "ragged", "far"])
def test_no_chunk_lies_beyond_the_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scan: str, memory: str
) -> None:
    """Names of files end with the position of the block along x, y and z."""
    if memory == "little":
        take_little_memory(monkeypatch)
    settings, frames = FORMATS["n5 in odd blocks"], frames_of(SCANS[scan])
    with start_log(tmp_path / "cells", tiles=TILES) as log:
        run = run_of(tmp_path / "cells", settings)
        for _ in follow(run, log, frames):
            pass
    finish(run)
    sizes = stitched(frames).shape[1:]
    for level in range(settings["levels"]):
        folder = tmp_path / "cells.n5" / f"s{level}"
        stored = {path.relative_to(folder).parts for path in folder.rglob("*") if path.name.isdecimal()}
        at = {(int(y), int(x)) for x, y, *_ in (parts for parts in stored if len(parts) > 2)}
        # an incomplete block of pixels at the edge has its item: tiles that come later may complete it
        ends = [-(-size // 2**level) for size in sizes]
        grid = [-(-end // block) for end, block in zip(ends, (5, 7), strict=True)]
        assert at
        assert all(y < grid[0] and x < grid[1] for y, x in at), level
        if scan == "far":
            assert len(at) < grid[0] * grid[1] // 2, "places without tiles have no chunks"


@pytest.mark.parametrize("name", ["n5", "ome-zarr", "ome-zarr raw"])
@pytest.mark.parametrize("side", ["row", "column"])
def test_a_declared_side_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, side: str) -> None:
    take_small_shards(monkeypatch)
    settings, frames = FORMATS[name], frames_of(SCANS["serpentine"])
    sizes = {"row": 3, "column": 4}
    planned = (AxisSpec(side, sizes[side]),)
    full = stitched(frames).shape[1:]
    with start_log(tmp_path / "cells", tiles=TILES, axes=planned) as log:
        run = run_of(tmp_path / "cells", settings, settings["format"])
        for _ in follow(run, log, frames):
            until(lambda: run.view.settle() is None, "all is stored")
            if name != "n5":
                found = array_of(container_of(tmp_path / "cells", settings))
                if found.size:
                    axis = 0 if side == "row" else 1
                    assert found.shape[axis - 2] == full[axis]
                    found = found.reshape(found.shape[-2:])
                    assert np.array_equal(found, stitched(frames)[0][tuple(map(slice, found.shape))])
    finish(run)
    check(tmp_path / "cells", settings, frames)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("taken", [1, 5, 13, 30])
def test_it_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, taken: int) -> None:
    take_small_shards(monkeypatch)
    outer = TIMES if "in" not in name else ({},)
    settings, frames = FORMATS[name], frames_of(SCANS["from 5, 7"], outer)
    taken = min(taken, len(frames) - 2)
    with start_log(tmp_path / "cells", tiles=TILES) as log:
        run = run_of(tmp_path / "cells", settings, settings["format"])
        for _ in follow(run, log, frames[:taken]):
            pass
        if taken % 2:
            until(lambda: run.view.settle() is None, "all is stored")
        run.save()
        run.close()
        for frame in frames[taken:]:
            log.append(frame.header, frame.image)
    run = finish(run_of(tmp_path / "cells", settings, settings["format"]))
    assert (run.reason, run.progress().from_stack) == ("", len(frames) - taken)
    check(tmp_path / "cells", settings, frames, outer)
    again = finish(run_of(tmp_path / "cells", settings, settings["format"]))
    assert (again.reason, again.progress().from_stack) == ("", 0)
    check(tmp_path / "cells", settings, frames, outer)


def halt(run: ViewRun, log: Log, frames: Sequence[Frame]) -> None:
    """Have the frames taken up to the one before the picture."""
    for frame in frames:
        log.append(frame.header, frame.image)
    assert log.wait_for_published(len(frames))
    until(lambda: run.step() is not None and run.progress().state is ViewState.HELD, "it takes no more")


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", FORMATS)
def test_a_tile_before_the_first_one_has_the_mirror_made_again(tmp_path: Path, name: str) -> None:
    settings, frames = FORMATS[name], frames_of(spiral(16))
    with start_log(tmp_path / "cells", tiles=TILES) as log:
        run = run_of(tmp_path / "cells", settings, settings["format"])
        assert [*follow(run, log, frames[:1])] == [1]
        for frame in frames[1:]:
            log.append(frame.header, frame.image)
        assert log.wait_for_published(len(frames))
        until(lambda: run.step() is not None and run.progress().state is ViewState.HELD, "it takes no more")
        first = next(n for n, cell in enumerate(spiral(16)) if min(cell) < 0)
        assert run.progress().cursor == first
        why = f"frame {first} is a tile of column -1, and the picture begins at column 0"
        assert (run.reason, run.progress().restart_warning) == (why, why)
        (result,) = mirror_results(tmp_path / "cells")
        assert result.reason == why
        until(lambda: run.step() is not None and not run.view.waiting, "all that was taken is stored")
        with acqstream.open(container_of(tmp_path / "cells", settings)) as mirror:
            found = mirror.levels[0].read().squeeze()
            own = stitched(frames[:first])[0]
            assert bool(found.size) == (settings["format"] == "n5"), "a single picture is shown when it is complete"
            assert np.array_equal(found, own[tuple(map(slice, found.shape))])
    finish(run)
    assert run.progress().state is ViewState.COMPLETE
    assert run.reason == f"restarted: {why}"
    (result,) = mirror_results(tmp_path / "cells")
    assert (result.state, result.frames, result.reason) == ("complete", 16, f"restarted: {why}")
    assert compare(tmp_path / "cells", run.folder, len(frames)).text == "all equal"
    check(tmp_path / "cells", settings, frames)


@pytest.mark.parametrize("killed", ["while it waits", "before it is removed", "while it is made again"])
def test_a_killed_process_comes_to_the_same_end(tmp_path: Path, killed: str) -> None:
    settings, frames = FORMATS["ome-zarr"], frames_of(spiral(16))
    with start_log(tmp_path / "cells", tiles=TILES) as log:
        run = run_of(tmp_path / "cells", settings, "ome-zarr")
        assert [*follow(run, log, frames[:1])] == [1]
        for frame in frames[1:]:
            log.append(frame.header, frame.image)
        assert log.wait_for_published(len(frames))
        until(lambda: run.step() is not None and run.progress().state is ViewState.HELD, "it takes no more")
        if killed == "while it waits":
            run.close()  # as a kill does, without a checkpoint
            run = run_of(tmp_path / "cells", settings, "ome-zarr")
            until(lambda: run.step() is not None and run.progress().state is ViewState.HELD, "it waits again")
    if killed != "while it waits":
        until(lambda: "restarted" in _state_of(run) or run.step() is None, "the restart is noted")
        if killed == "while it is made again":
            until(lambda: run.step() is None or 0 < run.progress().cursor < 16, "it has begun")
            run.save()
        run.close()
        run = run_of(tmp_path / "cells", settings, "ome-zarr")
    finish(run)
    assert run.progress().state is ViewState.COMPLETE
    (result,) = mirror_results(tmp_path / "cells")
    assert (result.state, result.frames) == ("complete", 16)
    assert "restarted: frame 4 is a tile of column -1" in result.reason
    check(tmp_path / "cells", settings, frames)


def _state_of(run: ViewRun) -> dict[str, Any]:
    saved = read_checkpoint(run.folder)
    assert saved is not None
    return dict(saved.state)


def test_a_tile_beside_a_declared_side_fails_the_mirror(tmp_path: Path) -> None:
    frames = frames_of([(0, 0), (0, 1), (3, 0)])
    with start_log(tmp_path / "cells", tiles=TILES, axes=(AxisSpec("row", 2),)) as log:
        run = run_of(tmp_path / "cells", FORMATS["n5"])
        assert [*follow(run, log, frames[:2])] == [1, 2]
        log.append(frames[2].header, frames[2].image)
    with pytest.raises(DatasetError, match=r"row is 3, planned were 0 to 1"):
        finish(run)


def test_a_run_that_is_interrupted_and_goes_on_keeps_its_mirror(tmp_path: Path) -> None:
    """The first process finds a closed log, and makes no picture that later tiles would not fit into."""
    settings, frames = FORMATS["ome-zarr"], frames_of(shuffled_from_origin(serpentine(3, 4)))
    with start_log(tmp_path / "cells", tiles=TILES) as log:
        for frame in frames[:7]:
            log.append(frame.header, frame.image)
        assert log.wait_for_published(7)
        run = run_of(tmp_path / "cells", settings, "ome-zarr")
        until(lambda: run.step() is not None and run.progress().cursor == 7, "it has them")
        run.save()
        run.close()
        for frame in frames[7:]:
            log.append(frame.header, frame.image)
    finish(run_of(tmp_path / "cells", settings, "ome-zarr"))
    check(tmp_path / "cells", settings, frames)


def shuffled_from_origin(cells: Cells) -> Cells:
    first, *others = cells
    places = shuffled([{"row": row, "column": column} for row, column in others], 7)
    return [first, *((int(place["row"]), int(place["column"])) for place in places)]
