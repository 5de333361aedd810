from __future__ import annotations

from typing import Any

import pytest

from acqstream.client.pycromanager.options import with_tiles
from acqstream.errors import ConfigError


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {}),
        ({"tiles": {"overlap": (1, 2)}, "levels": 3}, {"tiles": {"overlap": (1, 2)}, "levels": 3}),
        ({"tile_overlap": 20, "expect": 5}, {"tiles": {"overlap": (20, 20)}, "expect": 5}),
        ({"tile_overlap": (10, 30), "max_multi_res_index": -1}, {"tiles": {"overlap": (30, 10)}}),
        ({"tile_overlap": (10, 30), "max_multi_res_index": 0}, {"tiles": {"overlap": (30, 10)}, "levels": 0}),
    ],
)
def test_overlaps_turn_round(options: dict[str, Any], expected: dict[str, Any]) -> None:
    assert with_tiles(options) == expected


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_multi_res_index": 2}, "tile_overlap too"),
        ({"tile_overlap": 20, "levels": 2}, "either"),
        ({"tile_overlap": (1, 2, 3)}, r"\(x, y\)"),
    ],
)
def test_options_that_say_nothing_clear(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        with_tiles(options)
