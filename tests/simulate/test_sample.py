"""The virtual sample: windows fit each other, and pictures and places differ."""

from __future__ import annotations

import numpy as np
import pytest

from acqstream.simulate import pattern


@pytest.mark.parametrize(("dtype", "bits"), [("uint8", None), ("uint16", None), ("uint16", 12)])
@pytest.mark.parametrize("tail", [(), (3,)], ids=["grey", "rgb"])
def test_windows_are_parts_of_one_picture(dtype: str, bits: int | None, tail: tuple[int, ...]) -> None:
    whole = pattern.window(-50, -40, (200, 300, *tail), dtype, bits=bits)
    part = pattern.window(10, -7, (40, 90, *tail), dtype, bits=bits)
    assert np.array_equal(whole[60:100, 33:123], part)
    assert part.dtype == dtype
    most = 2 ** (bits or 8 * part.itemsize) - 1
    assert whole.max() <= most
    assert whole.max() > most // 2


def test_places_and_pictures_are_told_apart() -> None:
    first = pattern.window(0, 0, (64, 64), "uint16")
    for other in (pattern.window(0, 1, (64, 64), "uint16"), pattern.window(1, 0, (64, 64), "uint16")):
        assert (other != first).mean() > 0.9
    assert (pattern.window(0, 0, (64, 64), "uint16", picture=1) != first).mean() > 0.9
