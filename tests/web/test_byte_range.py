"""Ranges and entity tags, as values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.web.answers import RangeMissed, matches_tag, parse_range

WHOLE, MISSED = None, "missed"


@pytest.mark.parametrize(
    ("header", "size", "expected"),
    [
        (None, 10, WHOLE),
        ("", 10, WHOLE),
        ("bytes=0-3", 10, (0, 4)),
        ("bytes=4-", 10, (4, 10)),
        ("bytes=-3", 10, (7, 10)),
        ("bytes=-30", 10, (0, 10)),
        ("bytes=9-100", 10, (9, 10)),
        ("bytes=10-", 10, MISSED),
        ("bytes=-0", 10, MISSED),
        ("bytes=0-", 0, MISSED),
        ("bytes=5-3", 10, WHOLE),
        ("bytes=0-1,4-5", 10, WHOLE),
        ("items=0-1", 10, WHOLE),
        ("bytes=-", 10, WHOLE),
        ("bytes=99999999999999999999-", 10, WHOLE),
    ],
)
def test_ranges(header, size, expected):
    if expected == MISSED:
        with pytest.raises(RangeMissed):
            parse_range(header, size)
    else:
        assert parse_range(header, size) == expected


@given(st.text(), st.integers(0, 100))
def test_a_range_lies_inside(header, size):
    try:
        found = parse_range(header, size)
    except RangeMissed:
        return
    assert found is None or 0 <= found[0] < found[1] <= size


@pytest.mark.parametrize(
    ("header", "is_same"),
    [('"a"', True), ('W/"a"', True), ('"b", "a"', True), ("*", True), ('"b"', False), ("a", False), (None, False)],
)
def test_tags(header, is_same):
    assert matches_tag(header, '"a"') is is_same
