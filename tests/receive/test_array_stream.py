"""Headers of streams as real senders write them."""

from __future__ import annotations

import json

import hypothesis
import pytest
from hypothesis import strategies as st

from acqstream.errors import ProtocolError
from acqstream.receive.array_stream import parse_array_header


def parsed(**fields: object):
    return parse_array_header(json.dumps(fields).encode())


@pytest.mark.parametrize("htype", ["array-1.0", ["array-1.0"]])
@pytest.mark.parametrize("spelling", ["endianness", "endianess"])
@pytest.mark.parametrize(("order", "dtype"), [("big", ">u2"), ("little", "<u2"), ("Big", ">u2")])
def test_htype_and_byte_order_in_all_spellings(htype, spelling, order, dtype):
    header = parsed(htype=htype, type="uint16", shape=[4, 5], frame=7, source="cam", **{spelling: order})
    assert (header.dtype, header.shape, header.frame, header.encoding) == (dtype, (4, 5), 7, "")
    assert (header.payload_bytes, header.broken, header.metadata) == (40, False, {"source": "cam"})


def test_little_endian_is_assumed():
    assert parsed(htype="array-1.0", type="uint16", shape=[2, 2], frame=0).dtype == "<u2"


@pytest.mark.parametrize(("name", "dtype"), [("uint16", "<u2"), (">u2", ">u2"), ("<u2", "<u2"), ("|u1", "|u1")])
def test_the_numpy_recipe(name, dtype):
    header = parsed(dtype=name, shape=[3, 4])
    assert (header.dtype, header.frame) == (dtype, None)


def test_broken_json_gives_the_needed_fields():
    raw = (
        b'{"htype":["array-1.0"], "type":"uint16", "shape":[3,4], "frame":12, "timeStamp":nan, "encoding":"", '
        b'"ndattr":{"comment":"a "quoted" word\xff","type":"float64","frame":99}}'
    )
    header = parse_array_header(raw)
    assert header.broken
    assert (header.dtype, header.shape, header.frame, header.encoding) == ("<u2", (3, 4), 12, "")
    assert str(header.metadata["header_text"]).startswith('{"htype"')


def test_broken_json_with_big_endian_and_encoding():
    raw = b'{"type":"uint16","shape":[ 3, 4 ],"frame":1,"endianess":"big","encoding":"lz4","x":inf'
    header = parse_array_header(raw)
    assert (header.dtype, header.encoding, header.broken) == (">u2", "lz4", True)


ODIN = (
    b'{"frame_num":12,"acquisition_id":"a%s","dtype":"uint16","dsize":24,"dataset":"data","compression":"%s",'
    b'"shape":["3","4"]}'
)


@pytest.mark.parametrize(("name", "broken"), [(b"", False), (b"\xe9", True)])  # rapidjson passes Latin-1 on
@pytest.mark.parametrize(("compression", "encoding"), [(b"none", ""), (b"BSLZ4", "BSLZ4"), (b"unknown", "unknown")])
def test_a_live_view_of_odin(name, broken, compression, encoding):
    header = parse_array_header(ODIN % (name, compression))
    assert (header.dtype, header.shape, header.frame, header.payload_bytes) == ("<u2", (3, 4), 12, 24)
    assert (header.encoding, header.dataset, header.broken) == (encoding, "data", broken)
    if not broken:
        assert header.metadata == {"acquisition_id": "a", "dataset": "data"}


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"GET / HTTP/1.1",
        b'{"shape":[1,1]}',
        b'{"type":"uint16"}',
        b'{"type":"uint16","shape":"4"}',
        b'{"type":"uint16","shape":["4","5"]}',
        b'{"type":"uint16","shape":[4,0]}',
        (ODIN % (b"", b"none")).replace(b'"3"', b'"-3"'),
        (ODIN % (b"", b"none")).replace(b"uint16", b"unknown"),
        b'{"type":"uint16","shape":[4,true]}',
        b'{"type":"O","shape":[4,4]}',
        b'{"type":"(","shape":[4,4]}',
        b'{"type":3,"shape":[4,4]}',
        b'{"htype":"chunk-1.0","type":"uint16","shape":[4,4]}',
        b'{"type":"uint16","shape":[4,4],"frame":-1}',
        b'{"type":"uint16","shape":[4,4],"frame":1.5}',
        b'{"type":"uint16","shape":[4,4],"endianness":"middle"}',
        b"{" + b" " * 2**20 + b"}",
    ],
)
def test_what_cannot_be_understood_is_refused(raw):
    with pytest.raises(ProtocolError):
        parse_array_header(raw)


@hypothesis.given(st.binary(max_size=200), st.integers(0, 80))
def test_any_bytes_give_a_header_or_a_protocol_error(noise, place):
    good = b'{"htype":"array-1.0","type":"uint16","shape":[4,5],"frame":7,"ndattr":{"a":1}}'
    for raw in (noise, good[:place] + noise + good[place:]):
        try:
            parse_array_header(raw)
        except ProtocolError:
            pass
