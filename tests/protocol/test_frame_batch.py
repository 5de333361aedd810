"""`frames` headers: columns, and what is wrong with them."""

from __future__ import annotations

import pytest

from acqstream.errors import FrameRefused, ProtocolError
from acqstream.protocol.frame_batch import FrameBatch
from acqstream.protocol.requests import parse_request

PLAIN = {"t": "frames", "ds": "b0e1", "n": 5, "count": 3, "dt": "<u2", "sh": [2, 3], "ax": {"time": [0, 1, 2]}}


def parse(**changes: object) -> FrameBatch:
    request = parse_request({**PLAIN, **changes})
    assert isinstance(request, FrameBatch)
    return request


def test_columns_become_frames() -> None:
    batch = parse(ax={"time": {"start": 4, "step": -2}, "channel": ["A", "B", "A"]}, sums=["0" * 16, None, "f" * 16])
    assert [header.axes for header in batch.headers] == [
        {"time": 4, "channel": "A"},
        {"time": 2, "channel": "B"},
        {"time": 0, "channel": "A"},
    ]
    assert [header.checksum for header in batch.headers] == [0, None, 2**64 - 1]
    assert [header.number for header in batch.headers] == [5, 6, 7]
    assert batch.payload_bytes == 36


def test_a_constant_axis_has_step_0() -> None:
    assert [header.axes["z"] for header in parse(ax={"z": {"start": 7, "step": 0}}).headers] == [7, 7, 7]


@pytest.mark.parametrize(
    ("changes", "good"),
    [
        ({"ax": {"time": [0, 1.5, 2]}}, 1),
        ({"sums": ["0" * 16, "0" * 16, "xyz"]}, 2),
        ({"meta": [None, {"a": 1}, 5]}, 2),
        ({"tns": [1, "later", 3]}, 1),
        ({"meta": [{"a": float("nan")}, None, None]}, 0),
    ],
)
def test_the_frames_before_a_bad_one_are_good(changes: dict[str, object], good: int) -> None:
    batch = parse(**changes)
    assert len(batch.headers) == good
    assert batch.refused is not None
    assert (batch.refused.code, batch.refused.number) == ("bad_header", 5 + good)


@pytest.mark.parametrize(
    "changes",
    [
        {"ax": [0, 1, 2]},
        {"ax": {"time": [0, 1]}},
        {"ax": {"time": {"start": 0}}},
        {"ax": {"time": {"start": 2**40, "step": 1}}},
        {"sums": ["0" * 16]},
        {"meta": {}},
        {"dt": "<f4"},
        {"sh": [2]},
        {"bits": 9},
        {"bits": "12"},
    ],
)
def test_a_batch_of_no_kind_names_its_first_frame(changes: dict[str, object]) -> None:
    with pytest.raises(FrameRefused) as info:
        parse(**changes)
    assert info.value.number == 5


@pytest.mark.parametrize("changes", [{"count": 0}, {"count": 10**6}, {"count": None}, {"n": -1}, {"ds": ""}])
def test_a_batch_without_numbers_is_no_message(changes: dict[str, object]) -> None:
    with pytest.raises(ProtocolError):
        parse(**changes)
