"""What a producer writes is what the daemon reads."""

from __future__ import annotations

import pytest

from acqstream.errors import ConfigError, FrameRefused
from acqstream.model.axes import axes_json
from acqstream.model.frame_header import FrameHeader
from acqstream.model.metadata import frame_metadata
from acqstream.model.pixel_type import PixelType
from acqstream.protocol.encoding import decode_header
from acqstream.protocol.frame_batch import Frames
from acqstream.protocol.request_fields import FrameEncoder, FrameFields, encode_request, metadata_bytes
from acqstream.protocol.requests import Frame, Skip, parse_request

GRAY = PixelType("<u2", 1, 16)


def fields(**changes) -> FrameFields:
    plain = FrameFields(GRAY, (4, 5), {"time": 0}, None, None, 0)
    return plain._replace(**changes)


KINDS = [
    {},
    {"pixel_type": PixelType("<u2", 1, 12)},
    {"metadata": {"a": [1, None]}, "time_ns": 17, "axes": {"z": -1, "channel": "DAPI"}},
]


def expected(number: int, frame: FrameFields) -> FrameHeader:
    text, words = axes_json(frame.axes), frame_metadata(frame.metadata, frame.axes)
    return FrameHeader(number, frame.pixel_type, 4, 5, dict(frame.axes), words, frame.checksum, frame.time_ns, text)


@pytest.mark.parametrize("changes", KINDS)
@pytest.mark.parametrize("checksum", [0, 255, 2**64 - 1])
def test_frames_both_ways(changes, checksum):
    frame = fields(**changes, checksum=checksum)
    decoded, _ = decode_header(FrameEncoder("b0e1").frame(3, frame))
    assert parse_request(decoded) == Frame("b0e1", expected(3, frame))


@pytest.mark.parametrize("changes", KINDS)
def test_many_frames_both_ways(changes):
    frames = [fields(**changes, checksum=number) for number in range(3)]
    frames[1] = frames[1]._replace(metadata={"only": "here"}, time_ns=5)
    batch = parse_request(decode_header(FrameEncoder("b0e1").frames(7, frames))[0])
    assert isinstance(batch, Frames)
    assert (batch.first, batch.count, batch.frame_bytes, batch.refused) == (7, 3, 40, None)
    assert list(batch.headers) == [expected(7 + position, frame) for position, frame in enumerate(frames)]


@pytest.mark.parametrize("axes", [{"time": 5, "channel": "DA'PI\""}, {"z": -(2**31)}, {}])
def test_plain_frames_both_ways(axes):
    """Without metadata they are taken column by column."""
    frames = [fields(axes=axes, checksum=number) for number in range(3)]
    batch = parse_request(decode_header(FrameEncoder("b0e1").frames(7, frames))[0])
    assert isinstance(batch, Frames)
    assert list(batch.headers) == [expected(7 + position, frame) for position, frame in enumerate(frames)]


@pytest.mark.parametrize(
    ("position", "changes"),
    [
        (1, {"ax": {"time": [0, 2**31, 2]}}),
        (2, {"ax": {"time": [0, 1, True]}}),
        (0, {"ax": {"time": ["a" * 200, "b", "c"]}}),
        (1, {"ax": {"channel": ["a", "b\n", "c"]}}),
        (0, {"ax": {"9": [0, 1, 2]}}),
        (2, {"sums": ["0" * 16, "1" * 16, "x" * 16]}),
        (1, {"sums": ["0" * 16, "1" * 15, "2" * 16]}),
        (1, {"sums": ["0" * 16, 7, "2" * 16]}),
    ],
)
def test_the_first_bad_one_of_many_is_named(position, changes):
    values = {"t": "frames", "ds": "b0e1", "n": 7, "count": 3, "dt": "<u2", "sh": [4, 5], "ax": {"time": [0, 1, 2]}}
    batch = parse_request({**values, **changes})
    assert isinstance(batch, Frames)
    assert len(batch.headers) == position
    assert batch.refused is not None
    assert batch.refused.number == 7 + position


@pytest.mark.parametrize("metadata", [{"a": object()}, {"a": 2**70}, {"a": "x" * 2**20}])
def test_metadata_that_cannot_be_sent(metadata):
    with pytest.raises(FrameRefused, match="frame 3"):
        metadata_bytes(3, metadata)


def test_metadata_is_measured():
    assert metadata_bytes(0, {"a": 1}) == 4


def test_other_requests():
    assert parse_request(decode_header(encode_request("skip", ds="b0e1", n=1, count=2))[0]) == Skip("b0e1", 1, 2, "")


@pytest.mark.parametrize("value", ["x" * 2**20, object(), 2**70])
def test_what_fits_into_no_message(value):
    with pytest.raises(ConfigError, match="'open'"):
        encode_request("open", summary=value)
