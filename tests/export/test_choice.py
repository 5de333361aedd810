from __future__ import annotations

import numpy as np
import pytest

from acqstream.arrays.level_layout import LevelAxis, LevelLayout, pixel_axis
from acqstream.errors import ConfigError
from acqstream.export.exporter import chosen, parse_choices

LAYOUT = LevelLayout(
    outer=(LevelAxis("time", [0, 2, 4, 6], [0, 2, 4, 6]), LevelAxis("channel", ["DAPI", "GFP", "a:b"], None)),
    pixels=(pixel_axis("y", 10, 20), pixel_axis("x", 0, 30)),
    dtype=np.dtype("<u2"),
    chunk_shape=(1, 1, 20, 30),
)


def values(*texts: str) -> dict[str, list[object]]:
    return {axis.name: list(axis.values) for axis in chosen(LAYOUT, parse_choices(texts)).all_axes}


def test_values_and_ranges_of_values() -> None:
    found = values("time=1:5 channel=GFP")
    assert found["time"] == [2, 4]
    assert found["channel"] == ["GFP"]
    assert values("time=:3")["time"] == [0, 2]
    assert values("time=0:4")["time"] == [0, 2]
    assert values("time=4:")["time"] == [4, 6]
    assert values("time=6")["time"] == [6]
    assert values("channel=a:b")["channel"] == ["a:b"]


def test_numbers_of_a_part_are_those_of_its_values() -> None:
    part = chosen(LAYOUT, parse_choices(["time=2:"]))
    assert part.outer[0].numbers == [2, 4, 6]
    assert part.outer[1].numbers is None


def test_pixels_are_chosen_by_their_numbers() -> None:
    part = chosen(LAYOUT, parse_choices(["y=15:25", "x=3"]))
    assert part.pixels[0].values == range(15, 25)
    assert part.pixels[1].values == range(3, 4)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["time"], "must be AXIS=VALUE"),
        (["time="], "must be AXIS=VALUE"),
        (["time=0", "time=2"], "chosen twice"),
        (["depth=1"], "no axis 'depth'; expected one of time, channel, y, x"),
        (["time=1"], "no value '1'; it has 0, 2, 4, 6"),
        (["channel=0:2"], "no value '0:2'"),
        (["y=0:5"], "no pixels '0:5'; it has 10 to 29"),
        (["y=9"], "no pixels '9'; it has 10 to 29"),
        (["x=left"], "no pixels 'left'"),
    ],
)
def test_a_choice_that_does_not_fit_is_named(texts: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        chosen(LAYOUT, parse_choices(texts))
