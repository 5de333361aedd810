"""The rule by which arrays announce what came, as values."""

from __future__ import annotations

import pytest

from acqstream.arrays.array_plan import announced_size, growing_axis


@pytest.mark.parametrize(
    ("sizes", "axis"),
    [
        ({"time": 0, "channel": 2, "z": 4}, "time"),
        ({"time": 1, "channel": 2, "z": 0}, "z"),
        ({"position": 0, "channel": 2}, "position"),
        ({"time": 1, "channel": 1}, None),
        ({}, None),
    ],
)
def test_time_grows_else_z_else_the_first_longer_axis(sizes, axis):
    assert growing_axis(sizes) == axis


@pytest.mark.parametrize(("seen", "came", "needed", "size"), [(3, 4, 8, 2), (3, 8, 8, 3), (1, 0, 1, 0), (1, 1, 1, 1)])
def test_the_last_index_needs_all_its_frames(seen, came, needed, size):
    assert announced_size(seen, came, needed) == size
