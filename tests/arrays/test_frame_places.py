"""Places of many frames at once are those of the same frames one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.arrays.array_plan import ArrayPlan
from acqstream.arrays.axis_index import KeyColumn, plan_places
from acqstream.errors import DatasetError
from acqstream.frames.frame_indices import FramePlaces

AXES = ("time", "channel", "z")
VALUES = {
    "time": st.sampled_from([None, 0, 1, 2, 5, 7, 40, -1]),
    "channel": st.sampled_from([None, "DAPI", "GFP", "Cy5"]),
    "z": st.sampled_from([None, 3, 1, 0, 900, -4]),
}


def plan_of(labels: Sequence[str] = ()) -> ArrayPlan:
    axes = tuple(plan_places(name, 0, labels if name == "channel" else (), (), is_final=False) for name in AXES)
    return ArrayPlan(axes, (4, 5), "<u2", order=AXES)


def column_of(values: Sequence[Any]) -> KeyColumn:
    distinct = list(dict.fromkeys(values))
    return KeyColumn(distinct, np.array([distinct.index(value) for value in values], np.int32))


def take_together(places: FramePlaces, keys: Sequence[dict[str, Any]]) -> list[tuple[int, ...]]:
    columns = {name: column_of([key.get(name) for key in keys]) for name in AXES}
    return [tuple(place) for place in places.take_columns(columns, len(keys)).tolist()]


@given(
    st.lists(st.fixed_dictionaries(VALUES), min_size=1, max_size=40),
    st.sampled_from([(), ("GFP", "DAPI"), ("Cy3",)]),
    st.integers(0, 40),
)
def test_many_frames_have_the_places_of_single_ones(
    rows: list[dict[str, Any]], labels: tuple[str, ...], cut: int
) -> None:
    keys = [{name: value for name, value in row.items() if value is not None} for row in rows]
    single, together = FramePlaces(plan_of(labels)), FramePlaces(plan_of(labels))
    expected = [single.take(key) for key in keys]
    assert take_together(together, keys[:cut]) + take_together(together, keys[cut:]) == expected
    assert together.axis_values() == single.axis_values()
    assert together.shown_axes() == single.shown_axes()
    assert together.known() == single.known()


def test_an_axis_that_the_plan_lacks_is_refused() -> None:
    places = FramePlaces(plan_of())
    columns = {"time": column_of([0, 1]), "angle": column_of([None, 30])}
    with pytest.raises(DatasetError, match="has the axis 'angle', others have time, channel, z"):
        places.take_columns(columns, 2)
    assert places.shown_axes() == ("y", "x")  # no frame has its place


def test_frames_without_axes_have_one_place() -> None:
    places = FramePlaces(ArrayPlan((), (4, 5), "<u2", order=()))
    assert places.take_columns({}, 3).shape == (3, 0)
    assert list(places.keys_at(())) == [{}]
