"""Headers in both encodings, and what is no header."""

from __future__ import annotations

import json

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.errors import ProtocolError
from acqstream.protocol.encoding import MAX_HEADER_BYTES, Encoding, decode_header, encode_header

HEADERS = [
    {},
    {"t": "ping"},
    {"t": "frame", "n": 2**63 - 1, "least": -(2**63), "f": 0.1, "s": "µm \u2028", "l": [1, [2]], "m": {"a": None}},
    {str(i): i for i in range(20)},
    {str(i): i for i in range(70_000)},
]


@pytest.mark.parametrize("fields", HEADERS, ids=lambda fields: f"{len(fields)} fields")
@pytest.mark.parametrize("encoding", Encoding)
def test_both_ways(fields, encoding):
    raw = encode_header(fields, encoding)
    if len(raw) <= MAX_HEADER_BYTES:
        assert decode_header(raw) == (fields, encoding)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), VALUES, max_size=5))
def test_both_ways_for_whatever_can_be_said(fields):
    for encoding in Encoding:
        assert decode_header(encode_header(fields, encoding)) == (fields, encoding)


REFUSED = {
    "empty": b"",
    "too long": b'{"a":"' + b"x" * MAX_HEADER_BYTES + b'"}',
    "http": b"GET / HTTP/1.1\r\n",
    "list": b"[1]",
    "number": b"7",
    "half json": b'{"t":',
    "two values": b"{}{}",
    "not utf-8": b'{"t":"\xff"}',
    "nan": b'{"t":NaN}',
    "infinity": b'{"t":-Infinity}',
    "deep json": b'{"a":' + b"[" * 200_000,
    "key twice": b'{"t":1,"t":2}',
    "long integer": b'{"a":' + b"9" * 5000 + b"}",
    "half msgpack": b"\x82\xa1t",
    "msgpack and more": b"\x80\x80",
    "msgpack of many": b"\xdf\xff\xff\xff\xff",
    "integer key": msgpack.packb({1: 2}),
    "binary key": msgpack.packb({b"t": 2}),
    "extension": msgpack.packb({"a": msgpack.ExtType(5, b"x")}),
    "deep msgpack": b"\x81\xa1a" + b"\x91" * 5000 + b"\xc0",
    "bad text": b"\x81\xa1a\xa1\xff",
}


@pytest.mark.parametrize("raw", [pytest.param(raw, id=name) for name, raw in REFUSED.items()])
def test_what_is_no_header_is_refused(raw):
    with pytest.raises(ProtocolError) as info:
        decode_header(raw)
    assert info.value.code == "bad_header"


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(raw):
    for prefix in (b"", b"{", b"\x83", b"\xde\x00"):
        try:
            fields, _ = decode_header(prefix + raw)
        except ProtocolError:
            continue
        assert all(type(key) is str for key in fields)


def test_json_is_ascii():
    assert encode_header({"a": "µ"}, Encoding.JSON) == json.dumps({"a": "µ"}, separators=(",", ":")).encode("ascii")
