"""The one rule: which array frames make up."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.arrays.frame_array import AxisPlan, FrameArray, axis_plans, frame_array
from acqstream.model.axes import AxisValue, axis_order, stored_axis_order

NAMES = ("time", "position", "channel", "z", "angle", "round")
VALUES = st.one_of(st.integers(-5, 40), st.sampled_from(["DAPI", "GFP", "Cy5"]))
KEYS = st.lists(st.dictionaries(st.sampled_from(NAMES), VALUES), min_size=1, max_size=20)
FULL_KEYS = st.sets(st.sampled_from(NAMES), max_size=4).flatmap(
    lambda names: st.lists(st.fixed_dictionaries(dict.fromkeys(sorted(names), VALUES)), min_size=1, max_size=20)
)


def seen_in(keys: list[dict[str, AxisValue]]) -> dict[str, list[AxisValue]]:
    seen: dict[str, dict[AxisValue, None]] = {}
    for key in keys:
        for name, value in key.items():
            seen.setdefault(name, {})[value] = None
    return {name: list(values) for name, values in seen.items()}


def array_of(keys: list[dict[str, AxisValue]], **more: Any) -> FrameArray:
    kinds = dict.fromkeys(tuple(key) for key in keys)
    return frame_array(seen_in(keys), (4, 5), kinds=kinds, **more)


@given(KEYS)
def test_every_frame_has_a_place_where_it_is_found(keys: list[dict[str, AxisValue]]) -> None:
    array = array_of(keys)
    for key in keys:
        place = array.place(key)
        assert place is not None
        assert all(0 <= at < size for at, size in zip(place, array.shape, strict=False))
        assert key in list(array.keys_at(place))


@given(FULL_KEYS)
def test_frames_with_all_axes_have_places_of_their_own(keys: list[dict[str, AxisValue]]) -> None:
    array = array_of(keys)
    distinct = {tuple(sorted(key.items())): key for key in keys}.values()
    assert len({array.place(key) for key in distinct}) == len(distinct)
    assert not array.homes
    assert array.shape == (*map(len, array.values.values()), 4, 5)
    for key in distinct:
        place = array.place(key)
        assert place is not None
        assert list(array.keys_at(place)) == [key]


@given(FULL_KEYS)
def test_places_do_not_depend_on_the_order_of_arrival_but_for_names(keys: list[dict[str, AxisValue]]) -> None:
    one, other = array_of(keys), array_of(keys[::-1])
    for name, values in one.values.items():
        integers = [value for value in values if isinstance(value, int)]
        assert integers == sorted(set(integers)) == [v for v in other.values[name] if isinstance(v, int)]
        assert list(values[: len(integers)]) == integers, "integers come before names"
        names = [value for value in seen_in(keys)[name] if isinstance(value, str)]
        assert list(values[len(integers) :]) == names, "names come in order of first appearance"


def test_axes_are_in_the_order_of_the_rule() -> None:
    names = ("z", "angle", "channel", "time", "round", "position")
    assert axis_order(names) == ("angle", "round", "position", "time", "channel", "z")
    assert axis_order(names, ("z", "unused", "time")) == ("z", "time", "angle", "round", "position", "channel")
    assert stored_axis_order(names) == ("time", "position", "channel", "angle", "round", "z")
    array = frame_array({"z": [0], "angle": [0], "time": [0]}, (4, 5, 3))
    assert (array.axes, array.shape) == (("angle", "time", "z", "y", "x", "c"), (1, 1, 1, 4, 5, 3))
    assert frame_array({}, (4, 5)).axes == ("y", "x")


def test_names_have_the_order_in_which_they_were_declared() -> None:
    plans = axis_plans([{"name": "channel", "labels": ["a", "b", "c"]}, {"name": "time", "size": 3}])
    array = frame_array({"channel": ["x", "c", "a"], "time": [5, 1]}, (4, 5), plans=plans)
    assert array.values == {"time": [1, 5], "channel": ["a", "c", "x"]}
    planned = array.with_plan()
    assert planned.values == {"time": [0, 1, 2, 5], "channel": ["a", "b", "c", "x"]}
    assert (array.place_count, planned.place_count) == (6, 16)


@pytest.mark.parametrize(
    ("plan", "values", "expected"),
    [
        (AxisPlan(size=3), [0, 1, 2], None),
        (AxisPlan(size=3), [0, 2], range(3)),
        (AxisPlan(size=3), [-2, 1, 7], [-2, 0, 1, 2, 7]),
        (AxisPlan(size=3), [0, "a"], None),
        (AxisPlan(labels=("a",), size=3), [0, 1], range(3)),
        (AxisPlan(labels=("a", "b")), ["a", "b"], None),
        (AxisPlan(labels=("a", "b")), [], ["a", "b"]),
        (AxisPlan(), [4], None),
    ],
)
def test_planned_values(plan: AxisPlan, values: list[AxisValue], expected: object) -> None:
    assert plan.with_planned(values) == expected


def test_a_frame_without_an_axis_counts_as_the_first_of_it() -> None:
    keys: list[dict[str, AxisValue]] = [{"channel": "BF"}, {"channel": "DAPI", "z": 3}, {"channel": "DAPI", "z": -1}]
    array = array_of(keys)
    assert array.values == {"channel": ["BF", "DAPI"], "z": [-1, 0, 3]}
    assert array.place({"channel": "BF"}) == (0, 1)
    assert list(array.keys_at((0, 1))) == [{"channel": "BF"}, {"channel": "BF", "z": 0}]
    assert list(array.keys_at((0, 2))) == [{"channel": "BF", "z": 3}]
    late = array_of([{"time": 0}, {"time": 1, "channel": "b"}], plans={"channel": AxisPlan(("a", "b"))})
    assert late.values == {"time": [0, 1], "channel": ["a", "b"]}


def test_frames_that_no_place_exists_for() -> None:
    array = array_of([{"time": 0}, {"time": 4}])
    assert array.place({"time": 2}) is None
    assert array.place({}) is None


def test_tiles_are_one_picture() -> None:
    seen: dict[str, list[AxisValue]] = {"row": [2, 0], "column": [-1], "time": [0]}
    array = frame_array(seen, (40, 50), overlap=(4, 10), kinds=[("row", "column", "time")])
    assert array.is_stitched
    assert (array.axes, array.shape) == (("time", "y", "x"), (1, 3 * 36, 40))
    assert (array.canvas.y.origin, array.canvas.x.origin, array.place_count) == (0, -40, 3)
    assert list(array.keys_at((0,), (2, -1))) == [{"time": 0, "row": 2, "column": -1}]


@pytest.mark.parametrize(
    ("rows", "overlap"), [(["a"], (4, 10)), ([0, "a"], (4, 10)), ([2**40], (4, 10)), ([0], (40, 10)), ([0], None)]
)
def test_tiles_that_make_no_picture_are_frames(rows: list[AxisValue], overlap: tuple[int, int] | None) -> None:
    array = frame_array({"row": rows, "column": [0]}, (40, 50), overlap=overlap)
    assert (array.is_stitched, array.axes) == (False, ("row", "column", "y", "x"))
