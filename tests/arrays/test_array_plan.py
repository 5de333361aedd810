"""Which array the frames make up, and where each lies in it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.arrays.array_plan import ArrayPlan, check_no_tiles, plan_array
from acqstream.arrays.frame_array import axis_plans, frame_array
from acqstream.arrays.reader_axes import shown_axes
from acqstream.errors import DatasetError, FieldError
from acqstream.frames.frame_indices import FramePlaces
from acqstream.model.axes import AxisValue
from tests.arrays.test_frame_array import seen_in


def plan(first: dict[str, Any], **more: Any) -> ArrayPlan:
    return plan_array(first, (4, 5), "<u2", **more)


def sizes(found: ArrayPlan) -> dict[str, int]:
    return {axis.name: axis.size for axis in found.axes}


def test_axes_are_stored_in_one_order_and_shown_in_another() -> None:
    found = plan({"z": 0, "angle": 0, "channel": "a", "time": 0, "position": 0})
    assert list(sizes(found)) == ["time", "position", "channel", "angle", "z"]
    assert found.spec({}, {}).axes == ("time", "position", "channel", "angle", "z", "y", "x")
    assert found.order == ("angle", "position", "time", "channel", "z")
    assert plan({"z": 0, "time": 0}, order=["z"]).order == ("z", "time")
    assert plan_array({}, (4, 5, 3), "|u1").spec({}, {}).axes == ("y", "x", "c")


def test_sizes_are_declared_seen_or_open() -> None:
    assert sizes(plan({"time": 0, "z": 0})) == {"time": 0, "z": 0}
    assert sizes(plan({"time": 0, "z": 0}, declared=[{"name": "z", "size": 3}], expect=7)) == {"time": 3, "z": 3}
    assert sizes(plan({"time": 0}, seen={"time": [0, 1, 8]}, is_final=True)) == {"time": 9}
    assert sizes(plan({"z": 0}, declared=[{"name": "z", "size": 3}], seen={"z": [0, 5]})) == {"z": 6}
    assert sizes(plan({"c1": "b"}, declared=[{"name": "c1", "labels": ["a", "b"]}])) == {"c1": 2}


def test_places_of_names_and_negative_values() -> None:
    found = plan({"channel": "b", "z": -2}, declared=[{"name": "channel", "labels": ["a", "b"]}])
    places = FramePlaces(found)
    assert places.take({"channel": "b", "z": -2}) == (1, 0)
    assert places.take({"channel": "c", "z": -1}) == (2, 1)
    assert places.take({"channel": "a"}) == (0, 2), "it counts as z 0"
    assert places.labels() == {"channel": ["a", "b", "c"], "z": ["-2", "-1", "0"]}
    assert list(places.keys_at((2, 1))) == [{"channel": "c", "z": -1}]
    assert {"channel": "a"} in list(places.keys_at((0, 2)))
    assert places.axis_values() == {"channel": ["a", "b", "c"], "z": [-2, -1, 0]}


def test_axes_that_come_later_are_refused() -> None:
    with pytest.raises(DatasetError, match="has the axis 'z', others have time"):
        FramePlaces(plan({"time": 0})).take({"time": 0, "z": 1})


VALUES = st.one_of(st.integers(-4, 60), st.sampled_from(["a", "b", 2**31 - 1, 40_000]))
KEYS = st.lists(st.dictionaries(st.sampled_from(["time", "z", "channel"]), VALUES), min_size=1, max_size=30)


@given(KEYS, st.integers(0, 30), st.integers(0, 6))
def test_stored_places_are_kept_and_read_in_the_order_of_the_rule(
    keys: list[dict[str, AxisValue]], known: int, size: int
) -> None:
    """Whatever is known when the mirror is planned, it reads as the frames do."""
    declared: list[dict[str, Any]] = [
        {"name": "time", "size": size},
        {"name": "channel", "labels": ["b", "c"]},
        {"name": "z"},
    ]
    seen = seen_in(keys[: max(known, 1)])
    found = plan(keys[0], declared=declared, seen=seen, kinds=[tuple(key) for key in keys[: max(known, 1)]])
    places, again = FramePlaces(found), FramePlaces(ArrayPlan.from_json(json.loads(json.dumps(found.to_json()))))
    taken = [places.take(key) for key in keys]
    assert [again.take(key) for key in keys] == taken == [places.take(key) for key in keys]
    for key, place in zip(keys, taken, strict=True):
        assert key in list(places.keys_at(place))
    other = FramePlaces(*places.known())
    assert [other.take(key) for key in keys] == taken, "another process has the same places"
    has_two_kinds = any({type(value) for value in values} == {int, str} for values in seen_in(keys).values())
    if has_two_kinds:
        return  # and frames without that axis: what they count as depends on the first value
    array = frame_array(
        seen_in(keys), (4, 5), plans=axis_plans(declared), kinds=[tuple(key) for key in keys], order=places.shown_axes()
    )
    spec = places.with_values([found.spec({}, {})])[0]
    ends = [max(place[at] for place in taken) + 1 for at in range(len(found.axes))]
    axes = shown_axes(replace(spec, shape=(*ends, 4, 5)))
    shown = {axis.name: axis for axis in axes}
    assert {name: list(shown[name].values) for name in array.values} == array.values
    for key, place in zip(keys, taken, strict=True):
        at = array.place(key)
        assert at is not None
        for name, position in zip(array.values, at, strict=True):
            assert shown[name].places[position] == place[shown[name].stored]


@pytest.mark.parametrize("names", [[None, "b"], ["b", None]])
def test_an_integer_never_takes_the_place_of_a_declared_name(names: list[AxisValue | None]) -> None:
    declared = [{"name": "channel", "labels": ["b", "c"]}]
    places = FramePlaces(plan({"time": 0}, declared=declared))
    keys: list[dict[str, AxisValue]] = [{"time": 0} if name is None else {"channel": name, "time": 0} for name in names]
    keys += [{"channel": 0, "time": 0}, {"channel": "c", "time": 0}]
    taken = [places.take(key)[1] for key in keys]
    assert taken == [0, 0, 2, 1]
    assert [places.take(key)[1] for key in keys] == taken
    assert places.axis_values()["channel"] == ["b", "c", 0]


def test_dense_integers_are_their_own_places() -> None:
    places = FramePlaces(plan({"time": 0}))
    assert [places.take({"time": value})[0] for value in (0, 17, 2, 23, 24, 5_000_000, 25)] == [
        0,
        17,
        2,
        23,
        24,
        25,
        26,
    ]
    assert places.axis_values()["time"] == [
        *(value if value in (0, 2, 17, 23, 24) else None for value in range(25)),
        5_000_000,
        25,
    ]
    dense = FramePlaces(plan({"time": 0}))
    for value in range(50):
        dense.take({"time": value})
    assert dense.axis_values() == {"time": range(50)}
    assert dense.labels() == {}


def test_planned_places_are_kept_for_their_values() -> None:
    places = FramePlaces(plan({"z": 3}, declared=[{"name": "z", "size": 1000}]))
    assert [places.take({"z": value}) for value in (900, -1, 3)] == [(900,), (901,), (3,)]


@pytest.mark.parametrize("change", [{"rule": "arrival"}, {"rule": "value"}, {"is_named": True}])
def test_plans_of_another_rule_are_refused(change: dict[str, Any]) -> None:
    values = json.loads(json.dumps(plan({"z": 0}).to_json()))
    assert ArrayPlan.from_json(values) == plan({"z": 0})
    values["axes"][0] |= change
    with pytest.raises((TypeError, FieldError)):
        ArrayPlan.from_json(values)


def test_axes_that_no_mirror_has() -> None:
    with pytest.raises(DatasetError, match="those of the pixels"):
        plan({"y": 0})


def test_tiles_are_no_picture_without_an_overlap_but_may_be_images() -> None:
    with pytest.raises(DatasetError, match=r'no overlap.*"separate"'):
        check_no_tiles(("time", "row"))
    check_no_tiles(("time", "position"))
    assert [axis.name for axis in plan({"row": -1, "column": 0}).axes] == ["row", "column"]


def test_space_is_that_of_the_acquisition_and_plans_are_kept_as_json() -> None:
    summary = {"PixelSizeUm": 0.25, "z-step_um": 1.5, "Interval_ms": 2000}
    found = plan({"time": 0, "channel": "a", "z": 0}, summary=summary)
    spec = found.spec({"a": 1}, {"channel": ["a"]})
    assert spec.scale == (2.0, 1.0, 1.5, 0.25, 0.25)
    assert spec.units == ("s", "", "um", "um", "um")
    assert spec.dtype == np.uint16
    assert ArrayPlan.from_json(found.to_json()) == found
