"""Tiles as one picture, against a picture that numpy puts together from all tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import acqstream
from acqstream.arrays.mosaic import Side
from acqstream.dataset.dataset import Dataset
from acqstream.dataset.level import Level
from acqstream.errors import DatasetError
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.frames.frame_region import FrameLevel
from tests.formats.ndtiff.ndtiff_bytes import GOLDEN, Folder, image

TILES = [(-2, 0), (-1, 0), (-1, 1), (0, 3), (1, -1)]  # (row, column): an arbitrary part of 4 x 5
CHANNELS = ["b", "a"]


def reader_of(level: Level) -> NDTiffReader:
    assert isinstance(level.source, FrameLevel)
    return level.source.reader


def tiled_folder(container: Path, overlap: tuple[int, int], level: int = 0, **summary: Any) -> Folder:
    name = f"Downsampled_x{2**level}" if level else "Full resolution"
    tiled = {"TiledImageStorage": True, "GridPixelOverlapY": overlap[0], "GridPixelOverlapX": overlap[1]}
    return Folder(container / name, {**tiled, **summary})


@dataclass
class Picture:
    """A level and what its whole array must be."""

    level: Level
    whole: NDArray[Any]


def picture_of(
    tiles: dict[tuple[Any, ...], NDArray[Any]], crop: tuple[int, int], step: tuple[int, int]
) -> NDArray[Any]:
    """tiles by (channel position, row, column); the shown part of each begins at `crop` and has the size `step`."""
    keys = np.array(list(tiles))
    low, high = keys.min(axis=0), keys.max(axis=0)
    sides = (high - low + 1) * (1, *step)
    whole = np.zeros((*sides, *next(iter(tiles.values())).shape[2:]), next(iter(tiles.values())).dtype)
    for (channel, row, column), tile in tiles.items():
        y, x = (row - low[1]) * step[0], (column - low[2]) * step[1]
        shown = tile[crop[0] : crop[0] + step[0], crop[1] : crop[1] + step[1]]
        whole[channel, y : y + step[0], x : x + step[1]] = shown
    return whole


@pytest.fixture(
    scope="module", params=[((7, 8), (2, 4)), ((5, 6), (3, 1)), ((4, 5, 3), (0, 0)), ((6, 5), (0, 3))], ids=str
)
def picture(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Picture]:
    shape, overlap = request.param
    container = tmp_path_factory.mktemp("tiled")
    folder = tiled_folder(container, overlap, AxisOrder=["channel", "row", "column"])
    tiles: dict[tuple[Any, ...], NDArray[Any]] = {}
    for channel, name in enumerate(CHANNELS):
        for row, column in TILES:
            if (channel, row) != (1, -2):  # the second channel lacks a tile
                tile = image(hash((channel, row, column)) % 1000, shape, "|u1" if len(shape) == 3 else "<u2")
                folder.add({"row": row, "column": column, "channel": name}, tile)
                tiles[channel, row, column] = tile
    with acqstream.open(container) as ds:
        step = (shape[0] - overlap[0], shape[1] - overlap[1])
        yield Picture(ds.levels[0], picture_of(tiles, (overlap[0] // 2, overlap[1] // 2), step))


@given(st.data())
def test_every_selection_is_that_of_the_whole_picture(picture: Picture, data: st.DataObject) -> None:
    whole = picture.whole
    selection = tuple(
        data.draw(st.one_of(st.slices(size), st.integers(-size, size - 1)), label=f"axis {axis}")
        for axis, size in enumerate(whole.shape)
    )
    found = picture.level.read(selection)
    assert (found.shape, found.dtype) == (whole[selection].shape, whole.dtype)
    assert np.array_equal(found, whole[selection])


def test_the_whole_picture(picture: Picture) -> None:
    level, whole = picture.level, picture.whole
    assert level.is_stitched
    assert level.axes == ("channel", "y", "x", "c")[: whole.ndim]
    assert level.shape == whole.shape
    assert level.axis_values() == {"channel": CHANNELS}
    assert level.chunk_shape == (1, whole.shape[1] // 4, whole.shape[2] // 5, *whole.shape[3:])
    assert level.origin == (-2 * whole.shape[1] // 4, -whole.shape[2] // 5)
    assert np.array_equal(level.read(), whole)


def test_missing_tiles_are_told(picture: Picture) -> None:
    level, whole = picture.level, picture.whole
    missing = level.missing()
    assert len(missing) == level.missing_count == 2 * 20 - 9
    assert {"channel": "a", "row": -2, "column": 0} in missing
    assert level.missing((0, 0, whole.shape[2] // 5)) == []
    assert level.missing((0, 0, 0)) == [{"channel": "b", "row": -2, "column": -1}]
    assert level.missing(limit=3) == missing[:3]


def test_a_region_reads_its_tiles_and_no_others(picture: Picture, monkeypatch: pytest.MonkeyPatch) -> None:
    level = picture.level
    height, width = level.chunk_shape[1:3]
    asked: list[tuple[dict[str, Any], int]] = []
    read = reader_of(level).read_rows

    def note_and_read(row: int, first: int, stop: int) -> NDArray[Any]:
        asked.append((reader_of(level).key(row), stop - first))
        return read(row, first, stop)

    monkeypatch.setattr(reader_of(level), "read_rows", note_and_read)
    monkeypatch.setattr(reader_of(level), "read_pixels", None)
    level.read((0, slice(2 * height - 1, 2 * height + 2), slice(width, 2 * width + 1)))
    keys = [{"row": -1, "column": 0}, {"row": -1, "column": 1}]
    assert asked == [({**key, "channel": "b"}, 1) for key in keys]  # tiles below are not there


@given(
    st.integers(1, 9),
    st.integers(0, 5),
    st.integers(-5, 5),
    st.integers(1, 6),
    st.slices(40),
)
def test_runs_put_every_position_into_its_tile(step: int, crop: int, first: int, count: int, selector: slice) -> None:
    side = Side(step, crop, first, count)
    selected = range(*selector.indices(side.size))
    found = [
        (run.tile, source, inside + run.first, target)
        for run in side.runs(selected)
        for source, inside, target in zip(
            range(100)[run.source],
            range(run.stop - run.first)[run.inside],
            range(run.target.start, run.target.stop),
            strict=True,
        )
    ]
    places = [(first + p // step, crop + p % step) for p in selected]
    assert found == [(tile, source, source, i) for i, (tile, source) in enumerate(places)]


def open_levels(path: Path) -> Dataset:
    tiled_folder(path, (2, 2), PixelSizeUm=0.5).add({"row": 3, "column": -3}, image(0, (6, 8)))
    tiled_folder(path, (2, 2), 1, PixelSizeUm=0.5).add({"row": 1, "column": -2}, image(1, (4, 6)))
    return acqstream.open(path)


def test_lower_levels_are_not_cropped(tmp_path: Path) -> None:
    with open_levels(tmp_path) as ds:
        full, half = ds.levels
        assert np.array_equal(full.read(), image(0, (6, 8))[1:5, 1:7])
        assert np.array_equal(half.read(), image(1, (4, 6)))
        assert (full.origin, half.origin) == ((12, -18), (4, -12))
        assert (full.pixel_size_um, half.pixel_size_um) == (0.5, 1.0)
        assert (full.translation, half.translation) == ((6, -9), (4.25, -11.75)), "a pixel's centre is that of 2 x 2"


def test_single_tiles_stay_reachable(tmp_path: Path) -> None:
    with open_levels(tmp_path) as ds:
        assert list(ds.keys()) == [{"row": 3, "column": -3}]
        assert np.array_equal(ds.read_frame(row=3, column=-3), image(0, (6, 8)))
        assert ds.axes == {"row": [3], "column": [-3]}


def test_a_tile_of_another_size_is_named(tmp_path: Path) -> None:
    folder = tiled_folder(tmp_path, (2, 2))
    folder.add({"row": 0, "column": 0}, image(0, (6, 8)))
    folder.add({"row": 0, "column": 1}, image(0, (6, 7)))
    with acqstream.open(tmp_path) as ds:
        assert ds.levels[0].read((0, slice(0, 6))).shape == (6,)
        with pytest.raises(DatasetError, match=r"'column': 1} has shape \(6, 7\).*read_frame"):
            ds.levels[0].read()


@pytest.mark.parametrize(
    "summary",
    [{"TiledImageStorage": False, "GridPixelOverlapX": 2}, {}, {"TiledImageStorage": True, "GridPixelOverlapX": 99}],
    ids=str,
)
def test_frames_that_are_no_tiles_keep_row_and_column(tmp_path: Path, summary: dict[str, Any]) -> None:
    folder = Folder(tmp_path, summary)
    folder.add({"row": 0, "column": 1}, image(0))
    with acqstream.open(tmp_path) as ds:
        assert not ds.levels[0].is_stitched
        assert ds.levels[0].axes == ("row", "column", "y", "x")


def test_tiles_named_by_strings_are_not_put_together(tmp_path: Path) -> None:
    folder = tiled_folder(tmp_path, (0, 0))
    folder.add({"row": "A", "column": 1}, image(0))
    with acqstream.open(tmp_path) as ds:
        assert ds.levels[0].axes == ("row", "column", "y", "x")


def test_far_tiles_cost_nothing_until_they_are_asked_for(tmp_path: Path) -> None:
    folder = tiled_folder(tmp_path, (0, 0))
    for place in (-(2**31) + 1, 2**31 - 1):
        folder.add({"row": place, "column": place}, image(1))
    with acqstream.open(tmp_path) as ds:
        level = ds.levels[0]
        assert level.shape == (3 * (2**32 - 1), 4 * (2**32 - 1))
        assert np.array_equal(level.read((slice(-3, None), slice(-4, None))), image(1))
        assert not level.read((slice(0, 3), slice(-4, None))).any()
        assert level.missing_count == (2**32 - 1) ** 2 - 2
        assert len(level.missing(limit=5)) == 5


@pytest.mark.parametrize("name", ["java_pyramid_u16", "java_pyramid_rgb_odd", "real_v3_0_stitched", "real_v2_stitched"])
def test_golden_pyramids(name: str) -> None:
    with acqstream.open(GOLDEN / name / "data") as ds:
        summary = ds.summary_metadata
        for number, level in enumerate(ds.levels):
            overlap = (0, 0) if number else (summary["GridPixelOverlapY"], summary["GridPixelOverlapX"])
            reader = reader_of(level)
            channels = ds.axes.get("channel", [None])
            tiles = {}
            for key in list(reader.keys()):
                channel = channels.index(key.get("channel"))  # type: ignore[arg-type]
                tiles[channel, key["row"], key["column"]] = reader.read_pixels(reader.row(key))
            height, width = next(iter(tiles.values())).shape[:2]
            step = (height - overlap[0], width - overlap[1])
            whole = picture_of(tiles, (overlap[0] // 2, overlap[1] // 2), step)
            assert np.array_equal(level.read(), whole if "channel" in ds.axes else whole[0])


@pytest.mark.parametrize("row", [2**31, -(10**20), 1e300])
def test_a_row_that_no_picture_can_have(tmp_path: Path, row: float) -> None:
    folder = tiled_folder(tmp_path, (0, 0))
    folder.add({"row": 0, "column": 0}, image(0))
    folder.add({"row": row, "column": 0}, image(1))
    with acqstream.open(tmp_path) as ds:
        level = ds.levels[0]
        assert (level.is_stitched, level.missing(), level.missing_count) == (False, [], 0)
        assert np.array_equal(level.read()[1 if row > 0 else 0], [image(1)])
        pytest.importorskip("xarray")
        assert ds.to_xarray().shape == (2, 1, 3, 4)
