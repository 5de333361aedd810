"""How the chunk table of an array is cut."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.arrays.array_spec import ArraySpec
from acqstream.mirrors.row_table import MAX_ENTRIES, table_grid


def spec_of(**sizes: int) -> ArraySpec:
    axes = (*sizes, "y", "x")
    return ArraySpec(
        axes=axes, shape=(*sizes.values(), 6, 8), dtype=np.dtype("u2"), chunk_shape=(*(1 for _ in sizes), 6, 8)
    )


@pytest.mark.parametrize(
    ("sizes", "steps", "growing"),
    [
        ({"time": 0}, (1024,), 0),
        ({"time": 10}, (10,), 0),
        ({"time": 0, "channel": 4, "z": 25}, (10, 4, 25), 0),
        ({"time": 0, "position": 3000}, (1, 1000), 0),  # three parts of the same length
        ({"time": 0, "channel": 0}, (64, 16), 0),
        ({"channel": 2, "z": 0}, (2, 512), 1),
        ({"time": 1, "channel": 1}, (1, 1), None),
        ({}, (), None),
    ],
)
def test_chunks_are_short_along_the_axis_that_grows(
    sizes: dict[str, int], steps: tuple[int, ...], growing: int | None
) -> None:
    grid = table_grid(spec_of(**sizes))
    assert (grid.axes, grid.steps, grid.growing) == (tuple(sizes), steps, growing)


@given(st.lists(st.integers(0, 2000), min_size=1, max_size=5))
def test_chunks_are_small_and_cover_what_is_planned(sizes: list[int]) -> None:
    grid = table_grid(spec_of(**{f"a{number}": size for number, size in enumerate(sizes)}))
    assert 0 < math.prod(grid.steps) <= MAX_ENTRIES
    assert all(step <= size for step, size in zip(grid.steps, sizes, strict=True) if size)
