"""The second part of a `patch`."""

from __future__ import annotations

import pytest

from acqstream.errors import ProtocolError
from acqstream.model.metadata import MAX_SUMMARY_ITEMS
from acqstream.protocol.encoding import MAX_PART_BYTES, decode_part


def test_a_map_is_taken():
    assert decode_part(b'{"summary":{"a":[1,"\\u00e9"]}}') == {"summary": {"a": [1, "\u00e9"]}}


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (b'{"summary":{"a":"' + b"x" * MAX_PART_BYTES + b'"}}', "at most"),
        (b'{"summary":{"a":[' + b"1," * MAX_SUMMARY_ITEMS + b"1]}}", "at most"),
        (b'{"summary":{"a":NaN}}', "NaN"),
        (b'{"summary":{"a":1,"a":2}}', "twice|same"),
        (b"[1]", "map"),
        (b"", "JSON"),
    ],
)
def test_others_are_refused(part: bytes, text: str):
    with pytest.raises(ProtocolError, match=text):
        decode_part(part)
