"""A level at one moment, while the dataset grows."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import acqstream
from acqstream.arrays.level_layout import LevelAxis, LevelLayout, Spacing, pixel_axis
from acqstream.dataset import sources as reopened_module
from acqstream.dataset.level_array import LevelArray
from acqstream.errors import DatasetError
from acqstream.frames.frame_region import FrameLevel
from tests.formats.ndtiff.ndtiff_bytes import GOLDEN, Folder, image

PYRAMID = GOLDEN / "java_pyramid_u16" / "data"


@pytest.fixture(autouse=True)
def _forgets_what_it_reopened() -> Iterator[None]:
    yield
    for dataset in reopened_module._reopened.values():
        dataset.close()
    reopened_module._reopened.clear()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path / "grows")
    for time, channel in [(0, "B"), (2, "B"), (0, "D")]:
        folder.add({"time": time, "channel": channel}, image(time))
    return folder


@pytest.mark.parametrize(
    "name", ["py_uint16", "py_string_axes", "java_rgb", "java_pyramid_u16", "java_pyramid_rgb_odd"]
)
def test_it_is_the_level(name: str) -> None:
    with acqstream.open(GOLDEN / name / "data") as ds:
        for level in ds.levels:
            array, whole = level.as_array(), level.read()
            assert (array.shape, array.dtype, array.ndim) == (whole.shape, whole.dtype, whole.ndim)
            assert np.array_equal(np.asarray(array), whole)
            assert np.array_equal(array[..., -1], whole[..., -1])
            assert np.array_equal(array[0, ..., ::-2], whole[0, ..., ::-2])
            with pytest.raises(IndexError):
                array[len(whole)]


def test_values_that_come_in_between_move_nothing(folder: Folder) -> None:
    with acqstream.open(folder.path) as ds:
        array = ds.levels[0].as_array()
        before = array[...]
        folder.add({"time": 1, "channel": "A"}, image(7))
        folder.add({"time": -1, "channel": "D"}, image(8))
        folder.add({"time": 2, "channel": "D"}, image(9))  # was missing
        ds.refresh()
        assert ds.levels[0].shape != array.shape
        before[1, 1] = image(9)
        assert np.array_equal(array[...], before)
        assert np.array_equal(array[::-1, 1], before[::-1, 1])


def test_tiles_left_of_the_first_one_move_nothing(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "tiles", {"TiledImageStorage": True, "GridPixelOverlapX": 0, "GridPixelOverlapY": 0})
    folder.add({"row": 0, "column": 0}, image(1))
    folder.add({"row": 0, "column": 1}, image(2))
    with acqstream.open(folder.path) as ds:
        array = ds.levels[0].as_array()
        before = array[...]
        folder.add({"row": -1, "column": -2}, image(3))
        ds.refresh()
        assert ds.levels[0].origin == (-3, -8)
        assert np.array_equal(array[...], before)
        assert np.array_equal(array[-1:, 3:6], before[-1:, 3:6])


def test_a_view_beyond_what_is_there_is_zeros(folder: Folder) -> None:
    with acqstream.open(folder.path) as ds:
        level = ds.levels[0]
        layout = level.source.layout()
        times = LevelAxis("time", [5, 2], [5, 2])
        pixels = (pixel_axis("y", -1, 5), pixel_axis("x", 1, 2))
        wide = LevelArray(level.source, replace(layout, outer=(times, layout.outer[1]), pixels=pixels))
        assert wide.shape == (2, 2, 5, 2)
        expected = np.zeros(wide.shape, "<u2")
        expected[1, 0, 1:4] = image(2)[:, 1:3]
        assert np.array_equal(wide[...], expected)


def test_pickled_it_opens_the_dataset_again_with_all_frames(folder: Folder) -> None:
    with acqstream.open(folder.path) as ds:
        first = pickle.dumps(ds.levels[0].as_array())
        assert len(pickle.loads(first)[...]) == 2  # noqa: S301 - opened once, then refreshed below
        folder.add({"time": 2, "channel": "D"}, image(5))
        ds.refresh()
        array = ds.levels[0].as_array()
        copy = pickle.loads(pickle.dumps(array))  # noqa: S301
    assert np.array_equal(copy[1, 1], image(5))
    assert len(reopened_module._reopened) == 1
    with pytest.raises(DatasetError, match="closed"):
        array[...]


def test_a_lower_level_is_opened_again_as_that_level() -> None:
    with acqstream.open(PYRAMID) as ds:
        for level in ds.levels:
            copy = pickle.loads(pickle.dumps(level.as_array()))  # noqa: S301
            assert np.array_equal(copy[...], level.read())


def test_another_dataset_at_the_same_place_is_not_taken_for_the_old_one(folder: Folder, tmp_path: Path) -> None:
    def copy_of_it() -> LevelArray:
        with acqstream.open(folder.path) as ds:
            copy: LevelArray = pickle.loads(pickle.dumps(ds.levels[0].as_array()))  # noqa: S301
            return copy

    assert np.array_equal(copy_of_it()[0, 0], image(0))
    folder.path.rename(tmp_path / "away")
    Folder(folder.path).add({"time": 0, "channel": "B"}, image(6))
    assert np.array_equal(copy_of_it()[0, 0], image(6))


def test_no_more_than_a_few_stay_open(tmp_path: Path) -> None:
    for number in range(reopened_module.MAX_OPEN + 3):
        folder = Folder(tmp_path / str(number))
        folder.add({"time": 0}, image(number))
        with acqstream.open(folder.path) as ds:
            copy = pickle.loads(pickle.dumps(ds.levels[0].as_array()))  # noqa: S301
        assert np.array_equal(copy[0], image(number))
    assert len(reopened_module._reopened) == reopened_module.MAX_OPEN


def test_a_refresh_amid_reading_moves_nothing(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    read = FrameLevel.read
    news = [{"time": -5, "channel": "B"}, {"time": -6, "channel": "B"}]

    def refresh_and_read(level: FrameLevel, layout: LevelLayout, taken: Any) -> Any:
        if news:
            folder.add(news.pop(), image(9))
            ds.refresh()  # as another thread does, behind the one that has looked up the positions
        return read(level, layout, taken)

    with acqstream.open(folder.path) as ds:
        array = ds.levels[0].as_array()
        before = array[...]
        monkeypatch.setattr(FrameLevel, "read", refresh_and_read)
        for _ in range(2):
            assert np.array_equal(array[...], before)
        assert not news


def test_threads_read_what_they_asked_for_while_it_grows(tmp_path: Path) -> None:
    """Channels appear in front of the ones that are read: integers sort."""
    folder = Folder(tmp_path / "grows")
    for channel in range(100, 104):
        folder.add({"channel": channel}, image(channel))
    wrong: list[int] = []
    with acqstream.open(folder.path) as ds:
        array = ds.levels[0].as_array()
        done = threading.Event()

        def read() -> None:
            while not done.is_set():
                wrong.extend(i for i in range(4) if not np.array_equal(array[i], image(100 + i)))

        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        for channel in reversed(range(60)):
            folder.add({"channel": channel}, image(1))
            ds.refresh()
        done.set()
        for thread in threads:
            thread.join()
    assert not wrong


def test_new_axes_are_told(folder: Folder) -> None:
    with acqstream.open(folder.path) as ds:
        array = ds.levels[0].as_array()
        folder.add({"time": 0, "channel": "B", "z": 1}, image(1))
        ds.refresh()
        with pytest.raises(DatasetError, match=r"axes changed from .* to \['time', 'channel', 'z'\]"):
            array[...]


@pytest.mark.parametrize(
    ("start", "size", "expected"),
    [((0, 0), (8, 6), ((0, 0), (2, 2))), ((-4, 4), (5, 9), ((-1, 1), (2, 3))), ((-1, 3), (1, 1), ((-1, 0), (1, 1)))],
)
def test_a_window_in_a_lower_level_covers_all_of_it(
    start: tuple[int, int], size: tuple[int, int], expected: tuple[tuple[int, int], tuple[int, int]]
) -> None:
    def layout(start: tuple[int, int], size: tuple[int, int]) -> LevelLayout:
        pixels = tuple(pixel_axis(*side) for side in zip("yx", start, size, strict=True))
        return LevelLayout((), pixels, np.dtype("u2"), (1, 1), is_stitched=True)

    lower = layout(start, size).in_level(layout((0, 0), (1, 1)), {"y": 4, "x": 4})
    assert (lower.origin, lower.shape) == expected


@pytest.mark.parametrize(("size", "expected"), [((21, 20), (5, 5)), ((3, 4), (1, 1)), ((16, 17), (4, 5))])
def test_a_window_ends_where_the_lower_level_of_an_array_does(size: tuple[int, int], expected: tuple[int, int]) -> None:
    """The last 1 to 3 rows of the full resolution fill no row of the level."""
    full = LevelLayout((), (pixel_axis("y", 0, size[0]), pixel_axis("x", 0, size[1])), np.dtype("u2"), (1, 1))
    lower = replace(full, pixels=(pixel_axis("y", 0, 5), pixel_axis("x", 0, 5)))
    assert full.in_level(lower, {"y": 4, "x": 4}).shape == expected


def test_the_distance_of_positions_is_that_of_all_neighbours() -> None:
    items = Spacing(0.5, 2.0, "um")
    assert LevelAxis("z", [1, 4, 7], [1, 4, 7]).spacing(items) == (2.5, 6.0, "um")
    assert LevelAxis("z", range(1, 3), range(1, 3)).spacing(items) == (2.5, 2.0, "um")
    assert LevelAxis("z", [1], [1]).spacing(items) == (2.5, 2.0, "um")
    for numbers in ([1, 4, 8], [4, 1], [1, 1], None, []):
        assert LevelAxis("z", [1, 2], numbers).spacing(items) == (0.0, 1.0, "")
