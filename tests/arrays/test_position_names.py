"""Names of stage positions in summaries of several programs."""

from __future__ import annotations

from typing import Any

import pytest

from acqstream.description.image_positions import position_names


@pytest.mark.parametrize(
    ("summary", "names"),
    [
        ({"PositionNames": ["A1", "A2"], "StagePositions": [{"Label": "x"}]}, ["A1", "A2"]),
        (
            {"StagePositions": [{"Label": "A1-Site_0", "GridRow": 0}, {"Label": "A1-Site_1"}]},
            ["A1-Site_0", "A1-Site_1"],
        ),
        ({"InitialPositionList": [{"Label": "Pos0"}]}, ["Pos0"]),
        ({"mda_sequence": {"stage_positions": [{"x": 1, "name": "B2"}]}}, ["B2"]),
        ({"mda_sequence": {"stage_positions": [{"name": "B2"}, {"name": None}]}}, []),
        ({"mda_sequence": {"stage_positions": {"plate": {}}}}, []),
        ({"PositionNames": []}, []),
        ({"PositionNames": ["A1", ""]}, []),
        ({"PositionNames": "A1", "StagePositions": [3], "mda_sequence": 4}, []),
        ({}, []),
    ],
)
def test_names_of_positions(summary: dict[str, Any], names: list[str]) -> None:
    assert position_names(summary) == names
