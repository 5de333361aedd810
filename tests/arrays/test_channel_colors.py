"""Which colour a channel has by its name."""

from __future__ import annotations

import pytest

from acqstream.description.channels import channel_color

BLUE, CYAN, GREEN, YELLOW, ORANGE, RED, MAGENTA, WHITE = (
    *("4393ff", "50d0ff", "00ff00", "ffe27c", "ff8020", "ff3040", "f03cf4", "ffffff"),
)


@pytest.mark.parametrize(
    ("name", "color"),
    [
        ("DAPI", BLUE),
        ("EBFP", BLUE),  # no bright field
        ("BF", WHITE),
        ("bf-1", WHITE),
        ("Bright Field", WHITE),
        ("eGFP", GREEN),
        ("Fluo-4", GREEN),
        ("mTurquoise2", CYAN),
        ("Venus", YELLOW),
        ("tdTomato", ORANGE),
        ("TexasRed", RED),
        ("PI", RED),
        ("Cy5", MAGENTA),
        ("far_red", MAGENTA),
        ("iRFP670", MAGENTA),
        ("mCherry", RED),
        ("JF549", ORANGE),
        ("Alexa 488", GREEN),
        ("laser640", MAGENTA),
        ("405", BLUE),
        ("525/50", GREEN),
        ("470/22", BLUE),
        ("700/75", MAGENTA),
    ],
)
def test_by_name(name: str, color: str) -> None:
    assert {channel_color(name, place) for place in range(9)} == {color}


@pytest.mark.parametrize("name", ["", "Channel 3", "philtre", "4881", "900", "spiral"])
def test_by_place_where_no_word_is_known(name: str) -> None:
    expected = [WHITE, MAGENTA, GREEN, BLUE, YELLOW, RED, CYAN, ORANGE, WHITE]
    assert [channel_color(name, place) for place in range(9)] == expected
