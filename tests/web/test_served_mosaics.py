"""Tiled runs as one picture."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore
from numpy.typing import NDArray

import acqstream
from acqstream.integrity.recover import recover
from acqstream.model.acquisition_spec import AxisSpec, TileSpec
from tests.log.make_frames import Axes, Frame, append, frame_of, write_log
from tests.mirrors.mirror_cases import halved
from tests.views.pyramid_cases import finish, pyramid_of, start_tiled, write_tiled
from tests.web.web_process import Site, web_thread

TILE = (40, 48)


def tiles_of(rows: range, columns: range, times: int = 1, shape: tuple[int, int] = TILE) -> list[Frame]:
    keys: list[Axes] = [
        {"time": time, "row": row, "column": column} for time in range(times) for row in rows for column in columns
    ]
    return [frame_of(number, shape, axes=key) for number, key in enumerate(keys)]


def mosaic_of(frames: list[Frame], overlap: tuple[int, int], time: int = 0) -> NDArray[Any]:
    """The middle of each tile beside those of its neighbours, from the first row and column that there are."""
    (oy, ox), (height, width) = overlap, frames[0].image.shape
    rows = [int(frame.axes["row"]) for frame in frames]
    columns = [int(frame.axes["column"]) for frame in frames]
    step = height - oy, width - ox
    found = np.zeros(((max(rows) - min(rows) + 1) * step[0], (max(columns) - min(columns) + 1) * step[1]), "<u2")
    for frame in frames:
        if frame.axes["time"] == time:
            y = (int(frame.axes["row"]) - min(rows)) * step[0]
            x = (int(frame.axes["column"]) - min(columns)) * step[1]
            middle = frame.image[oy // 2 : oy // 2 + step[0], ox // 2 : ox // 2 + step[1]]
            found[y : y + step[0], x : x + step[1]] = middle
    return found


def read(site: Site, path: str, driver: str = "zarr3") -> NDArray[Any]:
    spec = {"driver": driver, "kvstore": {"driver": "http", "base_url": f"{site.url}/data/{path}/"}}
    found: NDArray[Any] = tensorstore.open(spec, open=True).result().read().result()
    return found


@pytest.mark.parametrize("overlap", [(0, 0), (8, 12), (7, 5)])
@pytest.mark.parametrize("chunk", ["", "@chunk=64"])
def test_a_mosaic_is_one_picture(tmp_path: Path, overlap: tuple[int, int], chunk: str) -> None:
    frames = tiles_of(range(3), range(4), 2)
    write_log(tmp_path / "slide", frames, tiles=TileSpec(overlap, levels=0))
    with web_thread(tmp_path) as site:
        found = read(site, f"slide{chunk}/ome.zarr/0")
        assert np.array_equal(found, np.stack([mosaic_of(frames, overlap, time) for time in range(2)]))
        assert np.array_equal(np.squeeze(read(site, f"slide{chunk}/n5/s0", "n5").T), found)
        with acqstream.open(tmp_path / "slide") as own, acqstream.open(f"{site.url}/data/slide/ome.zarr") as served:
            assert served.levels[0].axes == own.levels[0].axes
            assert np.array_equal(served.levels[0].read(), own.levels[0].read())


def test_an_absent_tile_is_a_hole(tmp_path: Path) -> None:
    keys: list[Axes] = [{"time": 0, "row": 0, "column": 0}, {"time": 0, "row": 1, "column": 1}]
    frames = [frame_of(number, TILE, axes=key) for number, key in enumerate(keys)]
    write_log(tmp_path / "slide", frames, tiles=TileSpec((0, 0), levels=0))
    with web_thread(tmp_path) as site:
        assert site.ask("/data/slide/ome.zarr/0/c/0/0/0").body == frames[0].image.tobytes()
        assert site.ask("/data/slide/ome.zarr/0/c/0/0/1").status == 404


@pytest.mark.parametrize(("rows", "columns"), [(range(2, 4), range(1, 3)), (range(-1, 1), range(-3, 0))])
def test_the_origin_is_that_of_the_tiles(tmp_path: Path, rows: range, columns: range) -> None:
    """Rows that do not begin at 0."""
    frames = tiles_of(rows, columns)
    write_log(tmp_path / "slide", frames, tiles=TileSpec((0, 0), levels=0), summary={"PixelSize_um": 0.5})
    with web_thread(tmp_path) as site:
        found = read(site, "slide/ome.zarr/0")[0]
        attributes = json.loads(site.ask("/data/slide/ome.zarr/zarr.json").body)["attributes"]["ome"]
        transformations = attributes["multiscales"][0]["datasets"][0]["coordinateTransformations"]
        top, left = (round(place / 0.5) for place in transformations[1]["translation"][-2:])
        first = rows.start * TILE[0] - top, columns.start * TILE[1] - left
        expected = mosaic_of(frames, (0, 0))
        part = found[first[0] : first[0] + expected.shape[0], first[1] : first[1] + expected.shape[1]]
        assert np.array_equal(part, expected)
        assert found.sum() == expected.sum()


def test_levels_are_made_from_tiles_without_a_pyramid(tmp_path: Path) -> None:
    frames = tiles_of(range(3), range(4), shape=(320, 256))
    write_log(tmp_path / "slide", frames, tiles=TileSpec((0, 0), levels=0), memory_bytes=2**24)
    expected = mosaic_of(frames, (0, 0))
    with web_thread(tmp_path) as site:
        for level in range(2):
            assert np.array_equal(read(site, f"slide/ome.zarr/{level}")[0], expected), level
            expected = halved(expected, (2, 2))


def test_levels_are_those_of_the_pyramid(tmp_path: Path) -> None:
    """The tiles of NDTiff's own levels: their means are truncated."""
    frames = tiles_of(range(4), range(4), shape=(320, 256))
    write_tiled(tmp_path / "slide", frames)
    finish(pyramid_of(tmp_path / "slide"))
    full = mosaic_of(frames, (0, 0)).astype(np.uint32)
    blocks = full.reshape(full.shape[0] // 2, 2, full.shape[1] // 2, 2)
    with web_thread(tmp_path) as site:
        assert np.array_equal(read(site, "slide/ome.zarr/1")[0], blocks.sum((1, 3)) // 4)
        own = acqstream.open(tmp_path / "slide")
        with own:
            assert np.array_equal(read(site, "slide/ome.zarr/2")[0], own.levels[2].read()[0])


def test_a_growing_mosaic_with_declared_tiles_does_not_move(tmp_path: Path) -> None:
    frames = tiles_of(range(1, 3), range(1, 3))
    axes = (AxisSpec("row", 3), AxisSpec("column", 3))
    write_log(tmp_path / "slide", frames[:1], tiles=TileSpec((0, 0), levels=0), axes=axes)
    with web_thread(tmp_path) as site:
        found = read(site, "slide/ome.zarr/0")[0]
        assert found.shape == (2 * TILE[0], 2 * TILE[1])  # from row and column 0, which have not come
        assert np.array_equal(found[TILE[0] :, TILE[1] :], frames[0].image)


IDENTITY = "00000000000000000000000000000007"
SIDE = (320, 256)


def look_again(site: Site) -> None:
    """The next request looks at the index."""
    assert site.context is not None
    with site.context.shelf.borrow(site.context.settings.data / "slide") as dataset:
        dataset._refreshed_s = float("-inf")


def make_levels(folder: Path, count: int) -> None:
    """Make the levels of the first frames of a growing run, with the tiles that are complete."""
    run = pyramid_of(folder)
    while run.progress().cursor < count or run.step() == 0.0:
        run.step()
    run.close()


def lower_of(frames: list[Frame], level: int) -> NDArray[Any]:
    """A level that is made of these tiles: means are rounded half up."""
    found = mosaic_of(frames, (0, 0))
    for _ in range(level):
        found = halved(found, (2, 2))
    return found


@pytest.mark.parametrize("is_made_meanwhile", [True, False])
def test_levels_of_a_generation_show_its_tiles_alone(tmp_path: Path, is_made_meanwhile: bool) -> None:
    """The dataset's own levels have later tiles, and another frame in place of an earlier one."""
    tiles = tiles_of(range(2), range(4), shape=SIDE)
    again = frame_of(len(tiles), SIDE, axes=tiles[1].axes)
    first = tiles[:4]
    pinned = f"slide@g={len(first)},id={IDENTITY}/ome.zarr"
    with start_tiled(tmp_path / "slide", levels=1) as log, web_thread(tmp_path) as site:
        append(log, first)
        assert np.array_equal(read(site, f"{pinned}/1")[0], lower_of(first, 1))
        append(log, [*tiles[4:], again])
        if is_made_meanwhile:
            make_levels(tmp_path / "slide", len(tiles) + 1)
        look_again(site)
        assert np.array_equal(read(site, f"{pinned}/1")[0], lower_of(first, 1))
        log.close()
        finish(pyramid_of(tmp_path / "slide"))
        look_again(site)
        assert np.array_equal(read(site, f"{pinned}/1")[0], lower_of(first, 1))
        assert site.ask(f"/data/{pinned}/1/c/0/0/0").headers["cache-control"].endswith("immutable")


def test_the_levels_of_a_run_are_its_own_when_it_has_ended(tmp_path: Path) -> None:
    """Until then they are made of its tiles; a cache asks again for those of the newest generation."""
    tiles = tiles_of(range(2), range(4), shape=SIDE)
    chunk = f"/data/slide@g={len(tiles)},id={IDENTITY}/ome.zarr/1/c/0/0/0"
    with start_tiled(tmp_path / "slide", levels=1) as log, web_thread(tmp_path) as site:
        append(log, tiles[:4])
        make_levels(tmp_path / "slide", 4)
        append(log, tiles[4:])
        look_again(site)
        assert np.array_equal(read(site, "slide/ome.zarr/1")[0], lower_of(tiles, 1))
        made = site.ask(chunk)
        assert made.headers["cache-control"] == "no-cache"
        log.close()
        finish(pyramid_of(tmp_path / "slide"))
        look_again(site)
        with acqstream.open(tmp_path / "slide") as own:
            expected = own.levels[1].read()[0]
        for options in ("", f"@g={len(tiles)}"):
            assert np.array_equal(read(site, f"slide{options}/ome.zarr/1")[0], expected)
        after = site.ask(chunk, headers={"If-None-Match": made.headers["etag"]})
        assert (after.status, after.headers["cache-control"]) == (200, "no-cache")


def test_a_mosaic_that_moved_has_other_tags(tmp_path: Path) -> None:
    """The same tile lies elsewhere in the same chunk, which has no other tile."""
    keys: list[Axes] = [{"row": 0, "column": 0}, {"row": 1, "column": 3}, {"row": -1, "column": 3}]
    frames = [frame_of(number, TILE, axes=key) for number, key in enumerate(keys)]
    chunk = "/data/slide@chunk=64/ome.zarr/0/c/0/0"
    with start_tiled(tmp_path / "slide", levels=0) as log, web_thread(tmp_path) as site:
        append(log, frames[:2])
        before = site.ask(chunk)
        append(log, frames[2:])
        look_again(site)
        after = site.ask(chunk, headers={"If-None-Match": before.headers["etag"]})
        assert (after.status, after.body != before.body) == (200, True)


def test_levels_that_lag_behind_an_interrupted_run_are_not_shown(tmp_path: Path) -> None:
    """The daemon was killed, so its levels stay incomplete."""
    tiles = sorted(tiles_of(range(2), range(4), shape=SIDE), key=lambda one: one.axes["column"])
    tiles = [frame_of(number, SIDE, axes=one.axes) for number, one in enumerate(tiles)]
    (tmp_path / "writing").mkdir()
    with start_tiled(tmp_path / "writing" / "slide", levels=1) as log:
        append(log, tiles[:4])
        make_levels(tmp_path / "writing" / "slide", 4)
        append(log, tiles[4:])
        shutil.copytree(tmp_path / "writing", tmp_path / "data")
    recover(tmp_path / "data" / "slide")
    with web_thread(tmp_path / "data") as site:
        assert np.array_equal(read(site, "slide/ome.zarr/1")[0], lower_of(tiles, 1))


@pytest.mark.parametrize("name", ["slide/acqstream.json", "slide.pyramid/view.json"])
def test_frames_of_a_dataset_with_a_damaged_state_are_shown(tmp_path: Path, name: str) -> None:
    tiles = tiles_of(range(2), range(4), shape=SIDE)
    write_tiled(tmp_path / "slide", tiles, levels=1)
    finish(pyramid_of(tmp_path / "slide"))
    (tmp_path / name).write_text("{")
    with web_thread(tmp_path) as site:
        for options in ("", f"@g={len(tiles)}"):
            assert np.array_equal(read(site, f"slide{options}/ome.zarr/0")[0], mosaic_of(tiles, (0, 0)))
            assert np.array_equal(read(site, f"slide{options}/ome.zarr/1")[0], lower_of(tiles, 1))
        for path in ("/slide", "/slide/preview.jpg"):
            assert site.ask(f"/api/datasets{path}").status == 200, path
        listed = {one["name"]: one["state"] for one in json.loads(site.ask("/api/datasets").body)["datasets"]}
        assert listed["slide"] == ("complete" if "view" in name else "state unknown: acqstream.json is damaged")
