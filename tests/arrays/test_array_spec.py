"""Levels of arrays: which items lie side by side."""

from __future__ import annotations

import numpy as np
import pytest

from acqstream.arrays.array_spec import ArraySpec


@pytest.mark.parametrize(
    ("labels", "is_uneven"),
    [
        (["-1", "0", "1"], False),
        (["-1", "0", "3"], True),
        (["0", "100", "200"], False),
        (["--1", "0", "1-"], False),  # names, whatever they look like
        (["9" * 5000, "²", ""], False),
    ],
)
def test_items_with_uneven_integers_are_no_neighbours(labels: list[str], is_uneven: bool) -> None:
    spec = ArraySpec(axes=("z", "y", "x"), shape=(3, 4, 5), dtype=np.dtype("u2"), labels={"z": labels})
    assert spec.is_uneven("z") is is_uneven
    assert not spec.is_uneven("x")
