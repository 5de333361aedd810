"""What a producer writes is what the daemon reads."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
import xxhash

from acqstream.errors import ConfigError, FrameRefused
from acqstream.model.axes import axes_json
from acqstream.model.frame_header import FrameHeader, PixelType
from acqstream.model.metadata import encode_given, frame_metadata
from acqstream.protocol.encoding import decode_header
from acqstream.protocol.frame_batch import Frame, FrameBatch, FrameEncoder, FrameKind, encode_request
from acqstream.protocol.requests import Skip, parse_request

GRAY = PixelType("<u2", 1, 16)


@dataclass(frozen=True)
class OneFrame:
    pixel_type: PixelType = GRAY
    axes: dict[str, int | str] = field(default_factory=lambda: {"time": 0})
    metadata: dict | None = None
    time_ns: int | None = None
    checksum: int = 0


KINDS = [
    {},
    {"pixel_type": PixelType("<u2", 1, 12)},
    {"metadata": {"a": [1, None]}, "time_ns": 17, "axes": {"z": -1, "channel": "DAPI"}},
]


def header_of(number: int, frames: list[OneFrame]) -> bytes:
    first = frames[0]
    kind = FrameKind(first.pixel_type, (4, 5), tuple(first.axes), 40)
    fields = [
        (tuple(frame.axes.values()), frame.checksum, *encode_given(frame.metadata or {}, frame.time_ns))
        for frame in frames
    ]
    return FrameEncoder("b0e1").header(number, kind, fields)


def expected(number: int, frame: OneFrame) -> FrameHeader:
    text, words = axes_json(frame.axes), frame_metadata(frame.metadata, frame.axes, frame.time_ns)
    sums = (frame.checksum, frame.time_ns, text, xxhash.xxh3_64_intdigest(words))
    return FrameHeader(number, frame.pixel_type, 4, 5, dict(frame.axes), words, *sums)


def check_many(frames: list[OneFrame]) -> dict:
    """The header of these frames, which must be read back as they are."""
    header = decode_header(header_of(7, frames))[0]
    batch = parse_request(header)
    assert isinstance(batch, FrameBatch)
    assert (batch.first, batch.count, batch.frame_bytes) == (7, len(frames), 40)
    assert batch.run is not None
    assert list(batch.headers) == [expected(7 + position, frame) for position, frame in enumerate(frames)]
    return header


@pytest.mark.parametrize("changes", KINDS)
@pytest.mark.parametrize("checksum", [0, 255, 2**64 - 1])
def test_frames_both_ways(changes, checksum):
    frame = OneFrame(**changes, checksum=checksum)
    decoded, _ = decode_header(header_of(3, [frame]))
    assert parse_request(decoded) == Frame("b0e1", expected(3, frame))


@pytest.mark.parametrize("changes", KINDS)
def test_many_frames_both_ways(changes):
    frames = [OneFrame(**changes, checksum=number) for number in range(3)]
    frames[1] = replace(frames[1], metadata={"only": "here"}, time_ns=5)
    check_many(frames)


@pytest.mark.parametrize("axes", [{"time": 5, "channel": "DA'PI\"%d"}, {"z": -(2**31)}, {}])
def test_plain_frames_both_ways(axes):
    """Without metadata they are taken column by column."""
    check_many([OneFrame(axes=axes, checksum=2**64 - 1 - number) for number in range(3)])


@pytest.mark.parametrize(
    ("values", "column"),
    [
        ([5, 6, 7], {"start": 5, "step": 1}),
        ([3, 3, 3], {"start": 3, "step": 0}),
        ([4, 0, -4], {"start": 4, "step": -4}),
        ([0, 1, 3], [0, 1, 3]),
        ([-(2**31), 2**31 - 1], [-(2**31), 2**31 - 1]),
        (["A", "B", "%b"], ["A", "B", "%b"]),
    ],
)
def test_values_that_are_evenly_spaced_are_sent_as_a_step(values, column):
    header = check_many([OneFrame(axes={"c": "\u00b5%s", "a": value}) for value in values])
    assert header["ax"]["a"] == column


@pytest.mark.parametrize(
    ("sums", "good"),
    [
        ("0123456789abcdef" * 3, 3),
        ("0123456789abcdef" * 2 + "0123456789abcdeX", 2),
        ("0123456789abcd 0" + "0123456789abcdef" * 2, 0),
    ],
)
def test_checksums_in_one_text(sums, good):
    values = {"t": "frames", "ds": "b0e1", "n": 7, "count": 3, "dt": "<u2", "sh": [4, 5], "ax": {"time": [0, 1, 2]}}
    batch = parse_request({**values, "sums": sums})
    assert isinstance(batch, FrameBatch)
    found = [header.checksum for header in (batch.run or batch.headers) if isinstance(header, FrameHeader)]
    assert found == [0x0123456789ABCDEF] * len(found)
    assert (len(found), batch.run is None) == (3 - (good < 3), good < 3)
    with pytest.raises(FrameRefused, match="'sums' must be null, "):
        parse_request({**values, "sums": sums[1:]})


@pytest.mark.parametrize(
    ("position", "changes"),
    [
        (1, {"ax": {"time": [0, 2**31, 2]}}),
        (2, {"ax": {"time": [0, 1, True]}}),
        (0, {"ax": {"time": ["a" * 200, "b", "c"]}}),
        (1, {"ax": {"channel": ["a", "b\n", "c"]}}),
        (range(3), {"ax": {"9": [0, 1, 2]}}),
        (2, {"sums": ["0" * 16, "1" * 16, "x" * 16]}),
        (1, {"sums": ["0" * 16, "1" * 15, "2" * 16]}),
        (1, {"sums": ["0" * 16, 7, "2" * 16]}),
    ],
)
def test_the_first_bad_one_of_many_is_named(position, changes):
    values = {"t": "frames", "ds": "b0e1", "n": 7, "count": 3, "dt": "<u2", "sh": [4, 5], "ax": {"time": [0, 1, 2]}}
    batch = parse_request({**values, **changes})
    assert isinstance(batch, FrameBatch)
    refused = [header for header in batch.headers if isinstance(header, FrameRefused)]
    assert [header.number - 7 for header in refused] == ([position] if isinstance(position, int) else list(position))


def test_axes_of_both_kinds_in_one_message():
    """The mistake of one frame: the daemon refuses it, and the sender goes on."""
    frames = [OneFrame(axes={"time": value}) for value in (0, 1, "late", 3)]
    assert check_many(frames)["ax"] == {"time": [0, 1, "late", 3]}


def test_other_requests():
    assert parse_request(decode_header(encode_request("skip", ds="b0e1", n=1, count=2))[0]) == Skip("b0e1", 1, 2, "")


@pytest.mark.parametrize("value", ["x" * 2**20, object(), 2**70])
def test_what_fits_into_no_message(value):
    with pytest.raises(ConfigError, match="'open'"):
        encode_request("open", summary=value)
