"""Shared memory on the wire: what is said of it, and what is refused."""

from __future__ import annotations

import pytest

from acqstream.errors import FrameRefused, ProtocolError
from acqstream.model.frame_header import pixel_type_of
from acqstream.protocol import shared_memory as wire
from acqstream.protocol.encoding import decode_header
from acqstream.protocol.frame_batch import (
    Frame,
    FrameBatch,
    FrameEncoder,
    FrameFields,
    FrameKind,
    MemoryPlace,
    parse_place,
)
from acqstream.protocol.requests import Open, parse_request

PLACE = MemoryPlace(7, 8192)
KIND = FrameKind(pixel_type_of("<u2", (2, 3)), (2, 3), ("time",), 12)
FRAME: FrameFields = ((0,), 5, b"", None)


def test_a_place_goes_through_both_kinds_of_frame() -> None:
    encoder = FrameEncoder("b0e1")
    one = parse_request(decode_header(encoder.header(3, KIND, [FRAME], PLACE))[0])
    many = parse_request(decode_header(encoder.header(3, KIND, [FRAME, FRAME], PLACE))[0])
    without = parse_request(decode_header(encoder.header(3, KIND, [FRAME]))[0])
    assert isinstance(one, Frame)
    assert isinstance(many, FrameBatch)
    assert isinstance(without, Frame)
    assert (one.place, many.place, without.place) == (PLACE, PLACE, None)


@pytest.mark.parametrize(
    "value", [7, "7", [], [7], [7, 0, 0], [0, 0], [-1, 0], [7, -1], [7, 2**63], [7.0, 0], [7, None], [True, 0], {}]
)
def test_what_is_no_place(value: object) -> None:
    with pytest.raises(FrameRefused, match=r"frame 3: .*'mem(\[[01]\])?' must be") as caught:
        parse_place({"mem": value}, 3)
    assert (caught.value.code, caught.value.number) == ("bad_header", 3)


def test_an_offer() -> None:
    for fields, offer in (
        ({}, wire.MemoryOffer()),
        ({"memory": None}, wire.MemoryOffer()),
        ({"memory": {"token": "0a" * 16}}, wire.MemoryOffer("0a" * 16)),
        ({"memory": {"why": "another machine"}}, wire.MemoryOffer(why="another machine")),
    ):
        request = parse_request({"t": "open", "ds": "b0e1", "name": "x", **fields})
        assert isinstance(request, Open)
        assert request.memory == offer


@pytest.mark.parametrize("memory", [7, {"token": 7}, {"token": "0A" * 16}, {"token": "0" * 31}, {"why": "x" * 301}])
def test_what_is_no_offer(memory: object) -> None:
    with pytest.raises(ProtocolError):
        parse_request({"t": "open", "ds": "b0e1", "name": "x", "memory": memory})


def test_the_handing_over_there_and_back() -> None:
    for message in (("0a" * 16, None, None), ("0a" * 16, 396, None), ("0a" * 16, None, 4096), ("0a" * 16, 396, 0)):
        assert wire.parse_handover(wire.encode_handover(*message)) == wire.MemoryMessage(*message)
    assert wire.parse_handover_answer(wire.encode_taken(7, 4096)) == 7
    with pytest.raises(ProtocolError, match="not take it: too small"):
        wire.parse_handover_answer(wire.encode_not_taken("too small"))


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff",
        b'{"t":"memory"}',
        b'{"t":"memory","v":1,"token":"x"}',
        *(
            b'{"t":"memory","v":1,"token":"%s","handle":%s}' % (b"0a" * 16, one)
            for one in (b"0", b"-1", b'"4"', b"1e1")
        ),
    ],
)
def test_what_is_no_handing_over(message: bytes) -> None:
    for parse in (wire.parse_handover, wire.parse_handover_answer):
        with pytest.raises(ProtocolError):
            parse(message)
