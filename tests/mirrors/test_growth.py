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


def grids_of(axes: tuple[str, ...], shape: tuple[int, ...], levels: int = 2, factor: int = 1) -> tuple[SlabGrid, ...]:
    """Each level has 1/2 of y and x, and 1/factor of the outer axes."""
    chunk = (*(1 for _ in axes), 8, 8)
    full = ArraySpec(axes=(*axes, "y", "x"), shape=(*shape, 16, 16), dtype=np.dtype("uint8"), chunk_shape=chunk)
    lower = [full.reduced((*(factor**n for _ in axes), 2**n, 2**n)) for n in range(1, levels)]
    return slab_grids((full, *lower))


class Watched(Growth):
    """Growth of slabs of one plane each: a frame has a slab to be stored in every level."""

    def take(self, *place: int) -> None:
        self.add_frame(place)
        for level in range(len(self._grids)):
            self.add_unstored(level, self._key(level, place))

    def store(self, level: int, *place: int) -> None:
        """The slab of a level in which this frame is."""
        self.add_stored_slab(level, self._key(level, place))

    def size(self, level: int) -> int:
        return self.sizes(level)[self._axis]

    def _key(self, level: int, place: Place) -> Place:
        factors = (self._grids[level].spec.factors[axis] for axis in self._grids[level].outer)
        return self._grids[level].locate([at // factor for at, factor in zip(place, factors, strict=True)])[0]


def growth_of(axes: tuple[str, ...], shape: tuple[int, ...], levels: int = 2, *, factor: int = 1) -> Watched:
    grids = grids_of(axes, shape, levels, factor)
    axis = growing_axis(grids[0])
    assert axis is not None
    return Watched(grids, axis, [level.shape for level in empty_levels([grid.spec for grid in grids], axis)])


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
    growth.take(0, 0)
    growth.store(0, 0, 0)
    assert growth.size(0) == 0
    growth.take(0, 1)
    assert growth.size(0) == 0
    growth.store(0, 0, 1)
    assert [growth.size(level) for level in (0, 1)] == [1, 0]
    growth.store(1, 0, 0)
    growth.store(1, 0, 1)
    assert growth.size(1) == 1


def test_a_frame_of_a_later_index_overtakes_those_that_lack() -> None:
    growth = growth_of(("time", "z"), (0, 0), levels=1)
    growth.take(0, 0)
    growth.store(0, 0, 0)
    assert growth.size(0) == 0  # how many z come is not known
    growth.take(1, 0)
    assert growth.size(0) == 1


def test_an_index_without_frames_is_overtaken_too() -> None:
    growth = growth_of(("time",), (0,), levels=1)
    growth.take(0)
    growth.store(0, 0)
    growth.take(3)
    assert growth.size(0) == 3
    growth.store(0, 3)
    assert growth.size(0) == 4


def test_a_later_frame_does_not_announce_an_index_whose_frames_are_not_stored_yet() -> None:
    growth = growth_of(("time", "z"), (0, 2), levels=1)
    for place in itertools.product(range(3), range(2)):
        growth.take(*place)
    growth.store(0, 0, 0)
    growth.store(0, 1, 0)
    growth.store(0, 1, 1)
    assert growth.size(0) == 0
    growth.store(0, 0, 1)
    assert growth.size(0) == 2


def test_what_an_earlier_process_announced_stays() -> None:
    growth = Growth(grids_of(("time",), (0,), levels=1), 0, [(5, 16, 16)])
    growth.add_frame((2,))  # late: it is written into an announced index
    assert not growth._came, "memory is taken for frames that are not announced"
    assert growth.sizes(0) == {0: 5}
    growth.mark_all_stored()
    assert growth.sizes(0) == {0: 5}


@pytest.mark.parametrize("planned", [0, 5])
def test_an_item_of_a_reduced_level_is_announced_with_the_last_of_its_planes(planned: int) -> None:
    """Five planes make up two items of two; the last plane is in none."""
    growth = growth_of(("z",), (planned,), factor=2)
    for z in range(5):
        growth.take(z)
        growth.store(0, z)
        if z % 2:
            growth.store(1, z)
        assert [growth.size(0), growth.size(1)] == [z + 1, (z + 1) // 2]
    growth.mark_all_stored()
    assert [growth.size(0), growth.size(1)] == [5, 2]


def test_memory_of_a_reduced_level_begins_after_what_was_announced() -> None:
    growth = Watched(grids_of(("z",), (8,), factor=2), 0, [(4, 16, 16), (2, 8, 8)])
    for z in range(4):
        growth.take(z)
    assert not growth._came


def test_fewer_planned_planes_than_make_an_item_are_one() -> None:
    growth = growth_of(("z",), (3,), factor=4)
    for z in range(3):
        assert growth.size(1) == 0
        growth.take(z)
        growth.store(0, z)
    growth.store(1, 0)
    assert [growth.size(0), growth.size(1)] == [3, 1]


def test_each_item_of_a_reduced_level_waits_for_its_own_slab() -> None:
    growth = growth_of(("z",), (8,), factor=2)
    for z in range(5):
        growth.take(z)
        growth.store(0, z)
    growth.store(1, 0)
    assert growth.size(1) == 1
    growth.store(1, 2)
    assert growth.size(1) == 2


def test_a_lower_level_waits_for_the_slabs_above_that_it_is_made_of() -> None:
    growth = growth_of(("time",), (2,))
    growth.add_frame((0,))
    growth.add_unstored(0, growth._key(0, (0,)))  # it has not been reduced yet
    assert [growth.size(0), growth.size(1)] == [0, 0]
    growth.store(0, 0)
    assert [growth.size(0), growth.size(1)] == [1, 1]


def test_times_of_stacks_that_are_reduced_along_z_too() -> None:
    """Of five planes the lower level has two: a time point does not wait for a third."""
    grids = grids_of(("time", "z"), (3, 5), 2, 1)
    lower = grids[0].spec.reduced((1, 2, 2, 2))
    growth = Watched(slab_grids((grids[0].spec, lower)), 0, [(0, 5, 16, 16), (0, 2, 8, 8)])
    for z in range(5):
        growth.take(0, z)
    for z in range(5):
        assert growth.size(0) == 0
        growth.store(0, 0, z)
    assert [growth.size(0), growth.size(1)] == [1, 0]
    for z in range(5):
        growth.store(1, 0, z)
    assert [growth.size(0), growth.size(1)] == [1, 1]


def test_a_slab_that_gets_more_is_not_there_until_it_is_stored_again() -> None:
    """A pause stores the lower level from some of its planes."""
    growth = growth_of(("time", "z"), (2, 4))
    for z in range(2):
        growth.take(0, z)
        growth.store(0, 0, z)
        growth.store(1, 0, z)
    for z in range(2, 4):
        growth.take(0, z)
        growth.store(0, 0, z)
    growth.add_unstored(1, growth._key(1, (0, 0)))
    for z in range(2, 4):
        growth.store(1, 0, z)
    assert [growth.size(0), growth.size(1)] == [1, 0]
    growth.store(1, 0, 0)
    assert growth.size(1) == 1


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
        growth.take(*place)
        waiting.append(place)
        while len(waiting) > lag:
            one = waiting.pop(rng.randrange(len(waiting)))
            growth.store(0, *one)
            stored.add(one)
        sizes.append(growth.size(0))
        assert all(one in stored for one in places if one[0] < sizes[-1])
    assert sizes == sorted(sizes)
