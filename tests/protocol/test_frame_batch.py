"""`frames` headers: columns, and what is wrong with them."""

from __future__ import annotations

import pytest

from acqstream.errors import FrameRefused, ProtocolError
from acqstream.model.frame_header import FrameRun
from acqstream.protocol.frame_batch import FrameBatch
from acqstream.protocol.requests import parse_request

PLAIN = {"t": "frames", "ds": "b0e1", "n": 5, "count": 3, "dt": "<u2", "sh": [2, 3], "ax": {"time": [0, 1, 2]}}


def parse(**changes: object) -> FrameBatch:
    request = parse_request({**PLAIN, **changes})
    assert isinstance(request, FrameBatch)
    return request


def headers_of(**changes: object) -> FrameRun:
    run = parse(**changes).run
    assert run is not None
    return run


def test_columns_become_frames() -> None:
    batch = parse(ax={"time": {"start": 4, "step": -2}, "channel": ["A", "B", "A"]}, sums=["0" * 16, None, "f" * 16])
    run = batch.run
    assert run is not None
    assert [header.axes for header in run] == [
        {"time": 4, "channel": "A"},
        {"time": 2, "channel": "B"},
        {"time": 0, "channel": "A"},
    ]
    assert [header.checksum for header in run] == [0, None, 2**64 - 1]
    assert [header.number for header in run] == [5, 6, 7]
    assert batch.payload_bytes == 36


def test_a_constant_axis_has_step_0() -> None:
    assert [header.axes["z"] for header in headers_of(ax={"z": {"start": 7, "step": 0}})] == [7, 7, 7]


@pytest.mark.parametrize(
    ("changes", "bad"),
    [
        ({"ax": {"time": [0, 1.5, 2]}}, 1),
        ({"sums": ["0" * 16, "0" * 16, "xyz"]}, 2),
        ({"meta": [None, {"a": 1}, 5]}, 2),
        ({"tns": [1, "later", 3]}, 1),
        ({"meta": [{"a": float("nan")}, None, None]}, 0),
        ({"ax": {"time": [True, 1, 0.5]}}, (0, 2)),
    ],
)
def test_the_frames_beside_a_bad_one_are_good(changes: dict[str, object], bad: int | tuple[int, ...]) -> None:
    batch = parse(**changes)
    assert batch.run is None
    assert [header.number for header in batch.headers] == [5, 6, 7]
    refused = [header for header in batch.headers if isinstance(header, FrameRefused)]
    assert {header.code for header in refused} == {"bad_header"}
    assert tuple(header.number - 5 for header in refused) == (bad if isinstance(bad, tuple) else (bad,))


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
