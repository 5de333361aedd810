"""Which array the frames make up, and where each lies in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from acqstream.errors import DatasetError
from acqstream.mirrors.array_plan import ArrayPlan, AxisPositions, plan_array


def plan(first: dict[str, Any], **more: Any) -> ArrayPlan:
    return plan_array(first, (4, 5), "<u2", **more)


def sizes(found: ArrayPlan) -> dict[str, int]:
    return {axis.name: axis.size for axis in found.axes}


def test_axes_are_in_the_order_of_the_field() -> None:
    found = plan({"z": 0, "angle": 0, "channel": "a", "time": 0, "position": 0})
    assert list(sizes(found)) == ["time", "position", "channel", "angle", "z"]
    assert found.spec({}, {}).axes == ("time", "position", "channel", "angle", "z", "y", "x")
    assert plan_array({}, (4, 5, 3), "|u1").spec({}, {}).axes == ("y", "x", "c")


def test_sizes_are_declared_seen_or_open() -> None:
    assert sizes(plan({"time": 0, "z": 0})) == {"time": 0, "z": 0}
    assert sizes(plan({"time": 0, "z": 0}, declared=[{"name": "z", "size": 3}], expect=7)) == {"time": 3, "z": 3}
    assert sizes(plan({"time": 0}, seen={"time": [0, 1, 8]}, is_final=True)) == {"time": 9}
    assert sizes(plan({"z": 0}, declared=[{"name": "z", "size": 3}], seen={"z": [0, 5]})) == {"z": 6}
    assert sizes(plan({"c1": "b"}, declared=[{"name": "c1", "labels": ["a", "b"]}])) == {"c1": 2}


def test_positions_of_names_and_negative_values() -> None:
    found = plan({"channel": "b", "z": -2}, declared=[{"name": "channel", "labels": ["a", "b"]}])
    positions = AxisPositions(found)
    assert positions.place({"channel": "b", "z": -2}) == (1, 0)
    assert positions.place({"channel": "c", "z": -1}) == (2, 1)
    assert positions.place({"channel": "a"}) == (0, 0)
    assert positions.labels() == {"channel": ["a", "b", "c"], "z": ["-2", "-1"]}
    assert list(positions.keys_at((2, 1))) == [{"channel": "c", "z": -1}]
    assert {"channel": "a"} in list(positions.keys_at((0, 0)))


@pytest.mark.parametrize("value", ["a", -1, 10_000_000])
def test_values_of_another_kind_are_refused(value: object) -> None:
    with pytest.raises(DatasetError, match="after integers from 0 on"):
        AxisPositions(plan({"z": 0})).place({"z": value})  # type: ignore[dict-item]


def test_axes_that_come_later_are_refused() -> None:
    with pytest.raises(DatasetError, match="has the axis 'z', others have time"):
        AxisPositions(plan({"time": 0})).place({"time": 0, "z": 1})


@pytest.mark.parametrize(("axis", "text"), [("row", "tiles"), ("y", "those of the pixels")])
def test_axes_that_no_mirror_has(axis: str, text: str) -> None:
    with pytest.raises(DatasetError, match=text):
        plan({axis: 0})


def test_space_is_that_of_the_acquisition_and_plans_are_kept_as_json() -> None:
    summary = {"PixelSizeUm": 0.25, "z-step_um": 1.5, "Interval_ms": 2000}
    found = plan({"time": 0, "channel": "a", "z": 0}, summary=summary)
    spec = found.spec({"a": 1}, {"channel": ["a"]})
    assert spec.scale == (2.0, 1.0, 1.5, 0.25, 0.25)
    assert spec.units == ("s", "", "um", "um", "um")
    assert spec.dtype == np.uint16
    assert ArrayPlan.from_json(found.to_json()) == found
