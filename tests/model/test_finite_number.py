"""Numbers out of foreign JSON."""

from __future__ import annotations

import pytest

from acqstream.model.metadata import finite_number


@pytest.mark.parametrize(("value", "number"), [(0, 0.0), (-3, -3.0), (0.25, 0.25), (1e99, 1e99), (10**99, 1e99)])
def test_finite_numbers(value: object, number: float) -> None:
    found = finite_number(value)
    assert found == number
    assert type(found) is float


@pytest.mark.parametrize("value", [None, True, "1", [1], float("nan"), float("inf"), -float("inf"), 1e100, -(10**400)])
def test_anything_else(value: object) -> None:
    assert finite_number(value) is None
