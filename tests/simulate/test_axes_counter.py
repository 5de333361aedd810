from __future__ import annotations

import pytest

from acqstream.simulate.axes_counter import parse_axes


def test_last_axis_counts_fastest() -> None:
    counter = parse_axes("time=10,channel=DAPI|FITC,z=5")
    assert counter.count == 100
    assert counter.at(0) == {"time": 0, "channel": "DAPI", "z": 0}
    assert counter.at(6) == {"time": 0, "channel": "FITC", "z": 1}
    assert counter.at(99) == {"time": 9, "channel": "FITC", "z": 4}
    assert list(counter.at(0)) == ["time", "channel", "z"]
    assert len({tuple(counter.at(number).items()) for number in range(100)}) == 100


def test_behind_the_last_position() -> None:
    with pytest.raises(IndexError, match="100 is after the last of 100"):
        parse_axes("time=10,z=10").at(100)


@pytest.mark.parametrize("text", ["time,z=3", "time=,z=3"])
def test_first_axis_goes_on_as_needed(text: str) -> None:
    counter = parse_axes(text)
    assert counter.count is None
    assert counter.at(3_000_001) == {"time": 1_000_000, "z": 1}


def test_one_name_is_a_name() -> None:
    assert parse_axes("channel=DAPI").at(0) == {"channel": "DAPI"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("time=10,z", "'z' needs a size"),
        ("time=0", "size 0"),
        ("time=2,time=3", "twice"),
        ("channel=A|A", "must not be empty or equal"),
        ("channel=A|", "must not be empty or equal"),
        ("9time=3", "axis name"),
        ("", "axis name"),
        ("time=3,,z=2", "needs a size"),
    ],
)
def test_refuses(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_axes(text)
