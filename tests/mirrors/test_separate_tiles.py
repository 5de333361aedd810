"""Mirrors that keep each tile as an image with its place on the stage."""

from __future__ import annotations

import pickle
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import acqstream
from acqstream.errors import ConfigError, DatasetError
from acqstream.mirrors.comparison import compare
from acqstream.mirrors.mirror_container import read_note
from acqstream.mirrors.mirror_plan import has_separate_tiles
from acqstream.model.acquisition_spec import AxisSpec, TileSpec
from acqstream.views.view_run import ViewState
from tests.log.make_frames import Axes, Frame, frame_of, start_log, write_log
from tests.mirrors.mirror_cases import finish, run_of
from tests.waiting import until

TILE, OVERLAP, ROWS, COLUMNS = (21, 26), (4, 7), 2, 3
STEP = (TILE[0] - OVERLAP[0], TILE[1] - OVERLAP[1])
TILES = TileSpec(OVERLAP, 0, None)
AXES = (AxisSpec("time", 2), AxisSpec("row", ROWS), AxisSpec("column", COLUMNS), AxisSpec("z", 2))
PIXEL_UM = 0.5
SUMMARY = {"PixelSizeUm": PIXEL_UM, "z-step_um": 2.0}
SUFFIXES = {"n5": ".n5", "wkw": ".wkw", "ome-zarr": ".ome.zarr", "precomputed": ".precomputed", "hsds": ".hsds"}
FORMATS: dict[str, dict[str, Any]] = {
    "n5": {"format": "n5", "blocks": [2, 8, 8], "levels": 2},
    "n5 array": {"format": "n5", "blocks": [2, 8, 8], "levels": 2, "layout": "array"},
    "wkw": {"format": "wkw", "cube": 32, "levels": 2},
    "ome-zarr": {"format": "ome-zarr", "chunks": [1, 16, 16], "levels": 2},
    "ome-zarr raw": {"format": "ome-zarr", "chunks": [1, 16, 16], "levels": 2, "compression": "none"},
    "precomputed": {"format": "precomputed", "chunks": [1, 16, 16], "levels": 2},
    "precomputed shards": {"format": "precomputed", "chunks": [1, 16, 16], "levels": 2, "shards": {}},
    "hsds": {"format": "hsds", "pixels": "copy", "levels": 2},
}


def stage_place(row: int, column: int) -> tuple[float, float]:
    """(y, x) of the first pixel of a tile in um, with an error of the stage."""
    return 100 + row * STEP[0] * PIXEL_UM + 0.25 * column, -40 + column * STEP[1] * PIXEL_UM - 0.125 * row


def tiles(
    times: Sequence[int] = (0, 1),
    rows: Sequence[int] = range(ROWS),
    *,
    unplaced: Sequence[tuple[int, int]] = (),
    slices: Sequence[int] = (0, 1),
) -> list[Frame]:
    """Stacks tile by tile. unplaced: tiles whose metadata lack the stage's place."""
    frames: list[Frame] = []
    for at, row, column, z in ((t, r, c, z) for t in times for r in rows for c in range(COLUMNS) for z in slices):
        y, x = stage_place(row, column)
        y, x = y + (TILE[0] - 1) / 2 * PIXEL_UM, x + (TILE[1] - 1) / 2 * PIXEL_UM  # the stage is at the middle
        metadata = {} if (row, column) in unplaced else {"XPositionUm": x, "YPositionUm": y, "ZPositionUm": 7.0 + 2 * z}
        axes: Axes = {"time": at, "row": row, "column": column, "z": z}
        frames.append(frame_of(len(frames), TILE, axes=axes, metadata=metadata))
    return frames


def separate(name: str) -> dict[str, Any]:
    return {**FORMATS[name], "tiles": "separate"}


def container_of(folder: Path, name: str) -> Path:
    return folder.with_name(folder.name + SUFFIXES[FORMATS[name]["format"]])


def mirror(folder: Path, name: str) -> Path:
    run = finish(run_of(folder, separate(name), FORMATS[name]["format"]))
    assert (run.reason, run.progress().state) == ("", ViewState.COMPLETE)
    assert compare(folder, run.folder, run.progress().count).text == "all equal"
    return container_of(folder, name)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("is_declared", [True, False])
def test_each_tile_is_an_image_in_every_format(tmp_path: Path, name: str, is_declared: bool) -> None:
    """Axes, shape, pixels, values and places are those that our reader of the frames gives without stitching."""
    frames = tiles(rows=(0, 1) if is_declared else (0, -1, 3))
    write_log(tmp_path / "cells", frames, tiles=TILES, axes=AXES if is_declared else (), summary=SUMMARY)
    container = mirror(tmp_path / "cells", name)
    with acqstream.open(tmp_path / "cells", stitched=False) as log, acqstream.open(container) as found:
        own, theirs = log.levels[0], found.levels[0]
        assert len(log.levels) == 1
        assert (own.axes, own.shape) == (theirs.axes, theirs.shape)
        assert own.shape[-2:] == TILE
        assert log.axes == found.axes
        assert np.array_equal(own.read(), theirs.read())
        for frame in frames:
            index = tuple(own.axis_values()[axis].index(frame.axes[axis]) for axis in own.axes[:-2])
            assert np.array_equal(own.read(index), frame.image)
        for row in own.axis_values()["row"]:
            for column in range(COLUMNS):
                y, x = stage_place(int(row), column)
                assert own.place_of(row=row, column=column) == (7.0, y, x)
                assert theirs.place_of(row=row, column=column) == (7.0, y, x)
        assert theirs.place_of(row=99, column=0) is None
        assert own.place_of(row=0) is theirs.place_of(row=0) is None
        assert own.places == theirs.places == ()
        assert [own.scale[-2:], own.units[-2:]] == [theirs.scale[-2:], theirs.units[-2:]]


@pytest.mark.parametrize("name", ["n5", "ome-zarr"])
@pytest.mark.parametrize("rows", [(0, 1), (1, 0), (3, 2, 4), (0, -1, -2)])
def test_a_stitched_picture_lies_where_its_own_first_pixel_is(tmp_path: Path, name: str, rows: Sequence[int]) -> None:
    """Whichever tile came first; the outer half of the overlap is not shown."""
    frames: list[Frame] = []
    for position, row, column in ((p, r, c) for p in (0, 1) for r in rows for c in (1, 0)):
        stage = {"XPositionUm": column * STEP[1] * PIXEL_UM, "YPositionUm": 50 * position + row * STEP[0] * PIXEL_UM}
        axes: Axes = {"position": position, "row": row, "column": column}
        frames.append(frame_of(len(frames), TILE, axes=axes, metadata=stage))
    write_log(tmp_path / "cells", frames, tiles=TILES, summary=SUMMARY)
    run = finish(run_of(tmp_path / "cells", FORMATS[name], FORMATS[name]["format"]))
    assert run.progress().state == ViewState.COMPLETE, run.reason
    with acqstream.open(tmp_path / "cells") as log, acqstream.open(container_of(tmp_path / "cells", name)) as found:
        for position in (0, 1):
            y = 50 * position + (min(rows) * STEP[0] - (TILE[0] - 1) / 2 + OVERLAP[0] // 2) * PIXEL_UM
            place = (0.0, y, (OVERLAP[1] // 2 - (TILE[1] - 1) / 2) * PIXEL_UM)
            assert log.levels[0].place_of(position=position) == log.levels[0].places[position] == place
            assert found.levels[0].place_of(position=position) == place


def test_arrays_of_separate_tiles_are_opened_as_such_in_other_processes(tmp_path: Path) -> None:
    write_log(tmp_path / "cells", tiles(), tiles=TILES, axes=AXES)
    with acqstream.open(tmp_path / "cells", stitched=False) as log, acqstream.open(tmp_path / "cells") as stitched:
        again = pickle.loads(pickle.dumps(log.levels[0].as_array()))  # noqa: S301 - our own
        assert np.array_equal(np.asarray(again), log.levels[0].read())
        other = pickle.loads(pickle.dumps(stitched.levels[0].as_array()))  # noqa: S301 - our own
        assert np.asarray(other).shape == stitched.levels[0].shape


@pytest.mark.parametrize("summary", [SUMMARY, {}], ids=["with a pixel size", "without"])
def test_tiles_without_a_stage_lie_in_their_grid(tmp_path: Path, summary: dict[str, Any]) -> None:
    every = [(row, column) for row in range(ROWS) for column in range(COLUMNS)]
    write_log(tmp_path / "cells", tiles(unplaced=every), tiles=TILES, axes=AXES, summary=summary)
    pixel = PIXEL_UM if summary else 1.0
    with acqstream.open(mirror(tmp_path / "cells", "n5")) as found:
        for row, column in every:
            place = found.levels[0].place_of(row=row, column=column)
            assert place == (0.0, row * STEP[0] * pixel, column * STEP[1] * pixel)


def test_a_tile_whose_place_is_unknown_lies_beside_the_known_ones(tmp_path: Path) -> None:
    write_log(tmp_path / "cells", tiles(unplaced=[(0, 0), (1, 2)]), tiles=TILES, axes=AXES, summary=SUMMARY)
    with acqstream.open(mirror(tmp_path / "cells", "ome-zarr")) as found:
        top, left = stage_place(0, 1)  # the first tile with a place
        assert found.levels[0].place_of(row=0, column=0) == (0.0, top, left - STEP[1] * PIXEL_UM)
        expected = (0.0, top + STEP[0] * PIXEL_UM, left + STEP[1] * PIXEL_UM)
        assert found.levels[0].place_of(row=1, column=2) == expected


def views_of(path: Path) -> dict[tuple[int, int], np.ndarray[Any, Any]]:
    """By time point and setup, from voxels (x, y, z, 1) to the space that BigDataViewer shows: the product of all
    transforms, the last one applied first."""
    found = {}
    for view in ElementTree.parse(path).getroot().iter("ViewRegistration"):
        model = np.eye(4)
        for affine in view.iter("affine"):
            rows = np.array([float(number) for number in (affine.text or "").split()]).reshape(3, 4)
            model = model @ np.vstack([rows, [0, 0, 0, 1]])
        found[int(view.attrib["timepoint"]), int(view.attrib["setup"])] = model
    return found


def test_the_file_of_bigdataviewer_has_all_that_bigstitcher_asks_for(tmp_path: Path) -> None:
    channels = [
        frame_of(2 * n + c, TILE, axes={**frame.axes, "channel": name}, metadata=frame.metadata)
        for n, frame in enumerate(tiles())
        for c, name in enumerate(("DAPI", "FITC"))
    ]
    write_log(tmp_path / "cells", channels, tiles=TILES, summary=SUMMARY)
    mirror(tmp_path / "cells", "n5")
    root = ElementTree.parse(tmp_path / "cells.xml").getroot()
    setups = {int(setup.findtext("id") or -1): setup for setup in root.iter("ViewSetup")}
    entries = {
        str(kind.attrib["name"]): {int(one.findtext("id") or -1): one for one in kind}
        for kind in root.iter("Attributes")
    }
    assert {kind: len(ids) for kind, ids in entries.items()} == {
        "illumination": 1,
        "channel": 2,
        "tile": ROWS * COLUMNS,
        "angle": 1,
    }
    views = views_of(tmp_path / "cells.xml")
    assert len(views) == 2 * len(setups) == 2 * 2 * ROWS * COLUMNS
    seen = set()
    for number, setup in setups.items():
        own = {kind: int(setup.findtext(f"attributes/{kind}") or -1) for kind in entries}
        assert all(own[kind] in ids for kind, ids in entries.items())
        seen.add((own["tile"], own["channel"]))
        name = entries["tile"][own["tile"]].findtext("name")
        row, column = [int(part.split()[1]) for part in str(name).split(", ")]
        y, x = stage_place(row, column)
        assert entries["tile"][own["tile"]].findtext("location") == f"{x} {y} 7.0"
        for at in range(2):
            # in pixels: BigStitcher takes voxels of the finest side for 1
            assert views[at, number] @ (3, 4, 1, 1) == pytest.approx(
                [x / PIXEL_UM + 3, y / PIXEL_UM + 4, (7.0 + 2.0) / PIXEL_UM, 1]
            )
    assert len(seen) == len(setups)
    names = [[one.text for one in view.iter("Name")] for view in root.iter("ViewRegistration")]
    assert names == [["Translation to Regular Grid", "calibration"]] * len(views)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", ["ome-zarr", "ome-zarr raw", "n5", "precomputed"])
@pytest.mark.parametrize("is_declared", [True, False])
def test_images_appear_row_by_row_while_the_run_goes_on(tmp_path: Path, name: str, is_declared: bool) -> None:
    """Each announced one is complete. Stacks of tiles grow by rows, not by planes of all tiles."""
    frames = [
        frame_of(number, TILE, axes={name: value for name, value in frame.axes.items() if name != "time"})
        for number, frame in enumerate(tiles(times=(0,), rows=range(4)))
    ]
    declared = (AxisSpec("row", 4), AxisSpec("column", COLUMNS), AxisSpec("z", 2)) if is_declared else ()
    sizes: list[int] = []
    with start_log(tmp_path / "cells", tiles=TILES, axes=declared, summary=SUMMARY) as log:
        run = run_of(tmp_path / "cells", separate(name), FORMATS[name]["format"])
        for number, frame in enumerate(frames, 1):
            log.append(frame.header, frame.image)
            if number % (2 * COLUMNS):
                continue
            assert log.wait_for_published(number)
            while run.progress().cursor < number:
                time.sleep(run.step() or 0)
            until(lambda: run.view.settle() is None, "all is stored")
            sizes.append(_check_announced(container_of(tmp_path / "cells", name), frames, is_checked=name != "n5"))
    finish(run)
    assert sizes == sorted(sizes)
    assert sizes[-1] >= 3
    assert 1 in sizes or 2 in sizes


def _check_announced(container: Path, frames: Sequence[Frame], *, is_checked: bool) -> int:
    """Return the number of rows that are announced. is_checked: all of their images are complete.

    The shape of an N5 mirror is the planned one: chunks that will come are missing.
    """
    try:
        found = acqstream.open(container)
    except DatasetError:
        return 0
    with found:
        level = found.levels[0]
        rows = level.shape[level.axes.index("row")]
        for frame in frames:
            if is_checked and int(frame.axes["row"]) < rows:
                index = tuple(int(frame.axes[axis]) for axis in level.axes[:-2])
                assert np.array_equal(level.read(index), frame.image)
        return rows


def test_separate_tiles_resume_with_their_plan(tmp_path: Path) -> None:
    frames = tiles()
    with start_log(tmp_path / "cells", tiles=TILES, axes=AXES) as log:
        for frame in frames[:9]:
            log.append(frame.header, frame.image)
        assert log.wait_for_published(9)
        run = run_of(tmp_path / "cells", separate("ome-zarr"), "ome-zarr")
        while run.progress().cursor < 9:
            run.step()
        run.save()
        run.close()
        for frame in frames[9:]:
            log.append(frame.header, frame.image)
    run = finish(run_of(tmp_path / "cells", separate("ome-zarr"), "ome-zarr"))
    assert run.progress().from_stack == len(frames) - 9
    assert compare(tmp_path / "cells", run.folder, len(frames)).text == "all equal"
    note = read_note(run.folder)
    assert note is not None
    assert note.settings["tiles"] == "separate"


def test_frames_with_row_and_column_but_no_overlap(tmp_path: Path) -> None:
    """They make up no picture, and each is an image at its grid place."""
    frames = [frame_of(n, TILE, axes={"row": n // 2, "column": n % 2}) for n in range(4)]
    write_log(tmp_path / "cells", frames)
    with pytest.raises(DatasetError, match='"tiles": "separate"'):
        finish(run_of(tmp_path / "cells", FORMATS["n5"]))
    run = finish(run_of(tmp_path / "cells", separate("n5"), is_remade=True))
    assert run.progress().state is ViewState.COMPLETE
    with acqstream.open(tmp_path / "cells.n5") as found, acqstream.open(tmp_path / "cells") as log:
        assert np.array_equal(found.levels[0].read(), log.levels[0].read())
        assert found.levels[0].place_of(row=1, column=1) == (0.0, TILE[0], TILE[1])


def test_an_unknown_mode_is_refused() -> None:
    assert not has_separate_tiles({})
    assert not has_separate_tiles({"tiles": "stitched"})
    with pytest.raises(ConfigError, match='"stitched" or "separate"'):
        has_separate_tiles({"tiles": "both"})
