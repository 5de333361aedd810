"""What the producer writes, the daemon reads."""

from __future__ import annotations

import numpy as np
import pytest

from acqstream.client.arguments import axes_hint, frame_hint, hello, tiles_request
from acqstream.errors import ConfigError, ProtocolError
from acqstream.model.acquisition_spec import AxisSpec
from acqstream.protocol.encoding import decode_header
from acqstream.protocol.requests import Hello, parse_request


def test_hello_is_understood():
    request = parse_request(decode_header(hello("1.2.3"))[0])
    assert isinstance(request, Hello)
    assert request.client["version"] == "1.2.3"


@pytest.mark.parametrize(
    "frame",
    [np.zeros((2, 3), ">u2"), ((2, 3), "uint16"), ((np.int64(2), 3), np.uint16), {"sh": [2, 3], "dt": "<u2"}],
)
def test_frame_hints_in_all_forms(frame):
    assert frame_hint(frame) == {"dt": "<u2", "sh": [2, 3]}


@pytest.mark.parametrize("frame", [np.zeros((2, 3)), ((2, 3), "nonsense"), {"sh": None, "dt": "<u2"}, 7])
def test_hints_that_no_stack_holds_are_refused(frame):
    with pytest.raises(ConfigError, match="frame="):
        frame_hint(frame)


def test_axes_hints_in_all_forms():
    hints = axes_hint(["time", AxisSpec("z", 5, "um", 0.5), {"name": "channel", "labels": ("a", "b")}])
    assert hints == [
        {"name": "time"},
        {"name": "z", "size": 5, "unit": "um", "scale": 0.5},
        {"name": "channel", "labels": ["a", "b"]},
    ]


def test_other_axes_hints_are_refused():
    with pytest.raises((ConfigError, ProtocolError)):
        axes_hint([7])  # type: ignore[list-item]


def test_tiles_in_all_forms():
    assert tiles_request(None, "auto") is None
    plain = {"overlap": [12, 16], "levels": None, "wait_s": None}
    assert tiles_request({"overlap": (12, 16)}, "auto") == plain
    assert tiles_request({"overlap": np.array([12, 16])}, np.int64(3)) == {**plain, "levels": 3}
    assert tiles_request({"overlap": [12, 16], "wait_s": 5}, 0) == {**plain, "levels": 0, "wait_s": 5.0}


@pytest.mark.parametrize(
    ("tiles", "levels", "text"),
    [
        (None, 3, "only tiles have levels"),
        ({}, "auto", "overlap None"),
        ({"overlap": 3}, "auto", "two numbers"),
        ({"overlap": (3, 4), "levels": 2}, "auto", "unknown key 'levels'"),
        ({"overlap": (3, -4)}, "auto", "overlap -4"),
        ({"overlap": (3, 4)}, "all", "levels 'all'"),
        ({"overlap": (3, 4)}, -1, "levels -1"),
        (7, "auto", "tiles=7"),
    ],
)
def test_tiles_that_cannot_be_are_refused(tiles, levels, text):
    with pytest.raises(ConfigError, match=text):
        tiles_request(tiles, levels)
