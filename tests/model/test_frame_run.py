"""Columns of frames: as a sequence they are the headers that they were made of."""

from __future__ import annotations

import pytest

from acqstream.model.axes import axes_json
from acqstream.model.frame_header import FrameHeader, FrameRun, PixelType

RGB = PixelType("|u1", 3, 8)


def header_of(number: int) -> FrameHeader:
    axes: dict[str, int | str] = {"time": number, "channel": "A"}
    checksum = number or None
    return FrameHeader(number, RGB, 4, 5, axes, b"m" * number, checksum, number - 3, axes_json(axes))


def headers_of(numbers: range) -> list[FrameHeader]:
    return list(map(header_of, numbers))


def test_a_run_is_the_sequence_of_its_headers() -> None:
    headers = headers_of(range(5, 9))
    run = FrameRun.of(headers)
    assert list(run) == headers
    assert (len(run), run[0], run[-1]) == (4, headers[0], headers[-1])
    assert (run.number, run.next_number, run.frame_bytes, run.payload_bytes) == (5, 9, 60, 240)
    for position in (4, -5):
        with pytest.raises(IndexError):
            run[position]


def test_parts_of_a_run() -> None:
    headers = headers_of(range(4))
    run = FrameRun.of(headers)
    for count in range(6):
        assert list(run.part(0, count)) == headers[:count]
    joined = FrameRun.joined([run.part(0, 2), FrameRun.of(headers[2:3]), FrameRun.of(headers[3:])])
    assert (joined.number, joined.next_number, joined.kind) == (0, 4, run.kind)
    assert joined.axes_texts == run.axes_texts
    assert (joined.metadata, joined.checksums, joined.times_ns) == (run.metadata, run.checksums, run.times_ns)


def test_frames_of_one_run_have_the_same_axes() -> None:
    headers = headers_of(range(2))
    with pytest.raises(KeyError):
        FrameRun.of([headers[0], headers[1]._replace(axes={"time": 1})])
