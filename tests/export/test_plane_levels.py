"""Levels of planes: by the rule of mirrors, the same in any number of bands and any memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import acqstream
from acqstream.dataset.level_array import LevelArray
from acqstream.export.plane_levels import PlaneLevels, level_count
from tests.formats.ndtiff.ndtiff_bytes import Folder, image


def rounded_mean(plane: np.ndarray) -> np.ndarray:
    """Means of 2 x 2 pixels, halves up; rows and columns without a neighbour are left out, but for a single one."""
    height, width = (max(1, side // 2) for side in plane.shape[:2])
    result = np.zeros((height, width, *plane.shape[2:]), plane.dtype)
    for y in range(height):
        for x in range(width):
            block = plane[2 * y : 2 * y + 2, 2 * x : 2 * x + 2].astype(int)
            count = block.shape[0] * block.shape[1]
            result[y, x] = (block.sum(axis=(0, 1)) + count // 2) // count
    return result


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    for name, shape, dtype in (("grey", (45, 70), "<u2"), ("rgb", (33, 20, 3), "u1"), ("line", (1, 40), "<u2")):
        made = Folder(folder / name)
        for time in range(2):
            made.add({"time": time}, image(time, shape, dtype))
    return folder


@given(
    name=st.sampled_from(["grey", "rgb", "line"]), rows=st.integers(1, 50), max_bytes=st.sampled_from([1, 700, 2**20])
)
@settings(max_examples=40, deadline=None)
def test_bands_make_up_the_level(pictures: Path, name: str, rows: int, max_bytes: int) -> None:
    with acqstream.open(pictures / name) as ds:
        levels = PlaneLevels(LevelArray(ds.levels[0].source), 4, max_bytes=max_bytes)
        for time in range(2):
            expected = ds.read_frame(time=time)
            for level in range(4):
                bands = list(levels.bands((time,), level, rows))
                assert all(len(band) == rows for band in bands[:-1])
                np.testing.assert_array_equal(np.concatenate(bands), expected)
                assert levels.shapes[level] == expected.shape
                expected = rounded_mean(expected)


def test_a_level_of_the_dataset_is_taken(pictures: Path) -> None:
    with acqstream.open(pictures / "grey") as ds:
        full = LevelArray(ds.levels[0].source)
        stored = {1: full}  # any array: it need not be a half
        for max_bytes in (1, 2**20):
            levels = PlaneLevels(full, 3, stored, max_bytes=max_bytes)
            assert levels.shapes == [(45, 70), (45, 70), (22, 35)]
            np.testing.assert_array_equal(np.concatenate(list(levels.bands((1,), 1, 7))), full[1])
            np.testing.assert_array_equal(np.concatenate(list(levels.bands((1,), 2, 7))), rounded_mean(full[1]))


def test_levels_end_at_512_pixels() -> None:
    assert [level_count(shape) for shape in ((512, 512), (513, 10), (2048, 2048, 3), (1, 4097))] == [1, 2, 3, 4]


class CountedArray(LevelArray):
    """Counts what is read."""

    reads = 0

    def __getitem__(self, selection: Any) -> Any:
        self.reads += 1
        return super().__getitem__(selection)


def test_a_layer_of_chunks_is_read_once(pictures: Path) -> None:
    with acqstream.open(pictures / "grey") as ds:
        layout = replace(ds.levels[0].source.layout(), chunk_shape=(2, 45, 70))
        array = CountedArray(ds.levels[0].source, layout)
        levels = PlaneLevels(array, 1)
        for time in range(2):
            np.testing.assert_array_equal(np.concatenate(list(levels.bands((time,), 0, 9))), ds.read_frame(time=time))
        assert array.reads == 1
