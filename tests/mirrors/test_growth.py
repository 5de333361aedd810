"""When an index of the growing axis may be announced."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.arrays.array_spec import ArraySpec
from acqstream.mirrors.level_extents import Growth
from acqstream.mirrors.slab_grid import SlabGrid, empty_levels, growing_axis, slab_grids

Place = tuple[int, ...]


def grids_of(axes: tuple[str, ...], shape: tuple[int, ...], levels: int = 2) -> tuple[SlabGrid, ...]:
    chunk = (*(1 for _ in axes), 8, 8)
    full = ArraySpec(axes=(*axes, "y", "x"), shape=(*shape, 16, 16), dtype=np.dtype("uint8"), chunk_shape=chunk)
    lower = [full.reduced((*(1 for _ in axes), 2**n, 2**n)) for n in range(1, levels)]
    return slab_grids((full, *lower))


def growth_of(axes: tuple[str, ...], shape: tuple[int, ...], levels: int = 2) -> Growth:
    grids = grids_of(axes, shape, levels)
    axis = growing_axis(grids[0])
    assert axis is not None
    return Growth(grids, axis, [0] * levels)


@pytest.mark.parametrize(
    ("axes", "shape", "axis"),
    [
        (("position", "time", "z"), (0, 0, 5), "time"),
        (("position", "time", "z"), (3, 1, 0), "z"),
        (("position", "angle"), (1, 4), "angle"),
        (("time",), (1,), None),
    ],
)
def test_time_is_the_growing_axis_else_z_else_another(axes: tuple[str, ...], shape: Place, axis: str | None) -> None:
    grid = grids_of(axes, shape)[0]
    found = growing_axis(grid)
    assert (None if found is None else grid.spec.axes[found]) == axis


def test_a_container_begins_without_an_index() -> None:
    grids = grids_of(("time", "z"), (7, 5))
    assert [level.shape for level in empty_levels([grid.spec for grid in grids], 0)] == [(0, 5, 16, 16), (0, 5, 8, 8)]


def test_an_index_is_announced_when_all_its_planned_frames_are_stored_in_this_level() -> None:
    growth = growth_of(("time", "z"), (0, 2))
    growth.add_frame((0, 0))
    growth.add_stored(0, (0, 0))
    assert growth.size(0) == 0
    growth.add_frame((0, 1))
    assert growth.size(0) == 0
    growth.add_stored(0, (0, 1))
    assert [growth.size(level) for level in (0, 1)] == [1, 0]
    growth.add_stored(1, (0, 0))
    growth.add_stored(1, (0, 1))
    assert growth.size(1) == 1


def test_a_frame_of_a_later_index_overtakes_those_that_lack() -> None:
    growth = growth_of(("time", "z"), (0, 0), levels=1)
    growth.add_frame((0, 0))
    growth.add_stored(0, (0, 0))
    assert growth.size(0) == 0  # how many z come is not known
    growth.add_frame((1, 0))
    assert growth.size(0) == 1


def test_an_index_without_frames_is_overtaken_too() -> None:
    growth = growth_of(("time",), (0,), levels=1)
    growth.add_frame((0,))
    growth.add_stored(0, (0,))
    growth.add_frame((3,))
    assert growth.size(0) == 3
    growth.add_stored(0, (3,))
    assert growth.size(0) == 4


def test_a_later_frame_does_not_announce_an_index_whose_frames_are_not_stored_yet() -> None:
    growth = growth_of(("time", "z"), (0, 2), levels=1)
    for place in itertools.product(range(3), range(2)):
        growth.add_frame(place)
    growth.add_stored(0, (0, 0))
    growth.add_stored(0, (1, 0))
    growth.add_stored(0, (1, 1))
    assert growth.size(0) == 0
    growth.add_stored(0, (0, 1))
    assert growth.size(0) == 2


def test_what_an_earlier_process_announced_stays() -> None:
    grids = grids_of(("time",), (0,), levels=1)
    growth = Growth(grids, 0, [5])
    growth.add_frame((2,))  # late: it is written into an announced index
    assert growth.size(0) == 5
    growth.mark_all_stored()
    assert growth.size(0) == 5


@given(seed=st.integers(0, 10_000), lag=st.integers(0, 6))
def test_no_index_is_announced_before_frames_of_it_that_come_before_a_later_one(seed: int, lag: int) -> None:
    """Frames in recording order, stored in any order some time after they came."""
    rng = random.Random(seed)
    places = [*itertools.product(range(5), range(3))]
    growth = growth_of(("time", "z"), (0, rng.choice([0, 3])), levels=1)
    waiting: list[Place] = []
    stored: set[Place] = set()
    sizes = [0]
    for place in places:
        growth.add_frame(place)
        waiting.append(place)
        while len(waiting) > lag:
            one = waiting.pop(rng.randrange(len(waiting)))
            growth.add_stored(0, one)
            stored.add(one)
        sizes.append(growth.size(0))
        assert all(one in stored for one in places if one[0] < sizes[-1])
    assert sizes == sorted(sizes)
