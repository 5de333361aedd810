"""The shown array, against numpy's own transposition and indexing."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.arrays.array_spec import ArraySpec
from acqstream.arrays.reader_axes import copy_part, in_stored_order, parts_along, shown_axes

STORED = ("time", "z", "y", "x")
SHAPE = (2, 3, 4, 5)


@pytest.mark.parametrize("shown", [*itertools.permutations(STORED), ("z", "time", "y", "x"), ("x", "time"), ("z",)])
def test_the_shown_array_is_filled_in_the_order_of_the_stored_one(shown: tuple[str, ...]) -> None:
    spec = ArraySpec(axes=STORED, shape=SHAPE, dtype=np.dtype("u2"), shown_axes=shown)
    stored = np.arange(np.prod(SHAPE), dtype="u2").reshape(SHAPE)
    hidden = tuple(0 if name not in shown else slice(None) for name in STORED)
    visible = [name for name in STORED if name in shown]
    expected = stored[hidden].transpose([visible.index(name) for name in shown])

    array = np.zeros_like(expected)
    target = in_stored_order(array, shown_axes(spec), len(STORED))
    target[...] = stored[tuple(slice(0, 1) if name not in shown else slice(None) for name in STORED)]
    assert np.array_equal(array, expected)


@given(st.lists(st.integers(-2, 14), max_size=12), st.integers(1, 5))
def test_parts_copy_every_stored_place_to_its_position(places: list[int], step: int) -> None:
    size, found = 11, np.full(len(places), 99)
    for chunk, at, taken in parts_along(places, size, step):
        copy_part(found, [at], np.arange(chunk * step, (chunk + 1) * step), [taken])
    assert found.tolist() == [place if 0 <= place < size else 99 for place in places]


@given(st.slices(11), st.integers(1, 5))
def test_ranges_of_places_are_copied_as_lists_are(selector: slice, step: int) -> None:
    places = range(11)[selector]
    found = np.full(len(places), 99)
    for chunk, at, taken in parts_along(places, 11, step):
        copy_part(found, [at], np.arange(chunk * step, (chunk + 1) * step), [taken])
    assert found.tolist() == [*places]
