"""The distance of items from noisy places."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.description.spacing import even_distance


def tolerance(distance: float) -> float:
    return distance / 4


@given(
    st.floats(0.01, 100),
    st.sampled_from((1, -1)),
    st.floats(-1e4, 1e4),
    st.lists(st.floats(-0.1, 0.1), min_size=4, max_size=60),
)
def test_noise_costs_less_than_a_tenth_of_a_step(step: float, sign: int, start: float, noise: list[float]) -> None:
    places = [(index, start + sign * step * (index + shift)) for index, shift in enumerate(noise)]
    found = even_distance([places], tolerance)
    assert found is not None
    assert found == pytest.approx(sign * step, rel=0.11)


@given(st.permutations(range(8)), st.sets(st.integers(0, 7), min_size=2))
def test_order_of_arrival_and_gaps_do_not_matter(order: list[int], there: set[int]) -> None:
    assert even_distance([[(index, 5 + 0.3 * index) for index in order if index in there]], tolerance) == 0.3


def test_stacks_may_begin_anywhere() -> None:
    stacks = [[(index, start + 0.3 * index) for index in range(5)] for start in (0.0, 1.7, -20.0, 0.05)]
    assert even_distance(stacks, tolerance) == 0.3


@pytest.mark.parametrize(
    "series",
    [
        [],
        [[]],
        [[(0, 5.0)]],
        [[(0, 5.0)], [(1, 6.0)]],  # of different stacks
        [[(0, 5.0), (1, 5.0), (2, 5.0)]],
        [[(0, 0.0), (1, 1.0), (2, 3.0), (3, 7.0)]],
        [[(0, 0.0), (1, 1.0), (2, 3.0)]],
        [[(0, 0.0), (1, 1.0), (2, 0.0), (3, 1.0)]],
        [[(0, 0.0), (1, 1.0), (2, 2.0)], [(0, 0.0), (1, 2.0), (2, 4.0)]],
        [[(0, 0.0), (1, 1.0)], [(0, 0.0), (1, -1.0)]],
    ],
)
def test_places_that_tell_no_distance(series: list[list[tuple[int, float]]]) -> None:
    assert even_distance(series, tolerance) is None
