"""Colours and contrast from display settings of any content."""

from __future__ import annotations

from typing import Any

import pytest

from acqstream.arrays.channel_looks import channel_looks


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"Min": 1, "Max": 2.5}, (1.0, 2.5)),
        ({"Min": 2, "Max": 2}, None),
        ({"Min": 0, "Max": 10**400}, None),
        ({"Min": 0, "Max": float("inf")}, None),
        ({"Min": float("nan"), "Max": 1}, None),
    ],
)
def test_limits_are_finite_or_none(settings: dict[str, Any], expected: tuple[float, float] | None) -> None:
    (look,) = channel_looks(["a"], {}, {"a": settings})
    assert look.limits == expected
