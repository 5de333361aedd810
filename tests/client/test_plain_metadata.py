"""Metadata as it comes, and what is stored."""

from __future__ import annotations

import datetime
import enum
from collections import OrderedDict
from pathlib import PurePosixPath

import numpy as np
import pytest

from acqstream.client.plain_metadata import MAX_DEPTH, plain_metadata
from acqstream.errors import ProtocolError


class Axis(str, enum.Enum):
    TIME = "t"


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "wrong"


CASES = [
    ({"a": np.float32(0.5), "b": np.int64(3), "c": np.bool_(True)}, {"a": 0.5, "b": 3, "c": True}),
    ({Axis.TIME: Axis.TIME, Text("k"): Text("v")}, {"t": "t", "k": "v"}),
    ({1: "one", None: "nothing"}, {"1": "one", "None": "nothing"}),
    ({"a": (1, 2), "b": np.arange(3), "c": range(2)}, {"a": [1, 2], "b": [0, 1, 2], "c": [0, 1]}),
    ({"a": np.array(3), "b": np.array(0.5), "c": np.array("x")}, {"a": 3, "b": 0.5, "c": "x"}),
    ({"a": np.array("2026-01-02", "M8[D]")}, {"a": "2026-01-02"}),
    ({"a": OrderedDict(b=np.uint8(1))}, {"a": {"b": 1}}),
    ({"p": PurePosixPath("/x"), "d": datetime.date(2026, 1, 2)}, {"p": "/x", "d": "2026-01-02"}),
]


@pytest.mark.parametrize(("metadata", "expected"), CASES)
def test_foreign_values_become_plain_ones(metadata, expected):
    plain, replaced = plain_metadata(metadata)
    assert plain == expected
    assert replaced == 0
    assert all(type(key) is str for key in plain)
    assert type(plain.get("k", "")) is str


def test_what_is_plain_already_is_not_copied():
    metadata = {"a": 1, "b": [0.5, None, {"c": "d"}], "e": True}
    assert plain_metadata(metadata)[0] is metadata


def test_nan_becomes_none_and_is_counted():
    metadata = {"a": float("nan"), "b": [float("inf"), 1.0], "c": np.float64("-inf"), "d": np.array([np.nan, 2])}
    assert plain_metadata(metadata) == ({"a": None, "b": [None, 1.0], "c": None, "d": [None, 2.0]}, 4)


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({"a": {"b": b"raw"}}, r"\['a'\]\['b'\]: bytes"),
        ({"a": [1, object()]}, r"\['a'\]\[1\]: object"),
        ({"a": 2**63}, "does not fit 64 bits"),
        ({"a": np.uint64(2**63)}, "does not fit 64 bits"),
        ({(1, 2): 3}, "must be a string"),
        ({1: 2, "1": 3}, "two keys become"),
        ([1], "must be a mapping"),
    ],
)
def test_what_cannot_be_stored_is_named(metadata, text):
    with pytest.raises(ProtocolError, match=text):
        plain_metadata(metadata)


def test_depth_is_bounded_also_for_a_circle():
    circle: dict = {}
    circle["again"] = circle
    with pytest.raises(ProtocolError, match=f"deeper than {MAX_DEPTH}"):
        plain_metadata(circle)
