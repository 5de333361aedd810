"""Types of HDF5 in JSON and numpy types: both ways, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.errors import CorruptDataset, UnsupportedFeature
from acqstream.formats.hsds.hdf_type import VARIABLE_TEXT, parse_type, type_to_json

I32 = {"class": "H5T_INTEGER", "base": "H5T_STD_I32LE"}
F32 = {"class": "H5T_FLOAT", "base": "H5T_IEEE_F32BE"}

# The JSON is written out here: an encoder and a parser with the same mistake would agree with each other.
BOTH_WAYS = [
    ("|u1", {"class": "H5T_INTEGER", "base": "H5T_STD_U8LE"}),
    ("|i1", {"class": "H5T_INTEGER", "base": "H5T_STD_I8LE"}),
    ("<u2", {"class": "H5T_INTEGER", "base": "H5T_STD_U16LE"}),
    (">i8", {"class": "H5T_INTEGER", "base": "H5T_STD_I64BE"}),
    ("<f2", {"class": "H5T_FLOAT", "base": "H5T_IEEE_F16LE"}),
    (">f4", F32),
    ("<f8", {"class": "H5T_FLOAT", "base": "H5T_IEEE_F64LE"}),
    ("|S16", {"class": "H5T_STRING", "length": 16, "charSet": "H5T_CSET_ASCII", "strPad": "H5T_STR_NULLPAD"}),
    (
        "|b1",
        {
            "class": "H5T_ENUM",
            "base": {"class": "H5T_INTEGER", "base": "H5T_STD_I8LE"},
            "members": {"FALSE": 0, "TRUE": 1},
        },
    ),
    (
        "<c8",
        {
            "class": "H5T_COMPOUND",
            "fields": [
                {"name": "r", "type": {"class": "H5T_FLOAT", "base": "H5T_IEEE_F32LE"}},
                {"name": "i", "type": {"class": "H5T_FLOAT", "base": "H5T_IEEE_F32LE"}},
            ],
        },
    ),
    (
        [("at", "<i4"), ("mean", ">f4", (3, 2))],
        {
            "class": "H5T_COMPOUND",
            "fields": [
                {"name": "at", "type": I32},
                {"name": "mean", "type": {"class": "H5T_ARRAY", "base": F32, "dims": [3, 2]}},
            ],
        },
    ),
]


@pytest.mark.parametrize(("dtype", "json"), BOTH_WAYS, ids=[str(one[0]) for one in BOTH_WAYS])
def test_both_ways(dtype, json):
    assert type_to_json(np.dtype(dtype)) == json
    assert parse_type(json, "a.json") == np.dtype(dtype)


def test_variable_strings():
    json = {"class": "H5T_STRING", "length": "H5T_VARIABLE", "charSet": "H5T_CSET_UTF8", "strPad": "H5T_STR_NULLTERM"}
    assert type_to_json(VARIABLE_TEXT) == json
    assert parse_type(json, "a.json") == VARIABLE_TEXT


def test_texts_and_other_enums_are_read():
    assert parse_type("H5T_STD_U16LE", "a.json") == np.dtype("<u2")
    fields = [{"name": "a", "type": "H5T_IEEE_F64BE"}]
    assert parse_type({"class": "H5T_COMPOUND", "fields": fields}, "a.json") == np.dtype([("a", ">f8")])
    enum = {"class": "H5T_ENUM", "base": {"class": "H5T_INTEGER", "base": "H5T_STD_U16LE"}, "mapping": {"RED": 3}}
    assert parse_type(enum, "a.json") == np.dtype("<u2")


simple = st.sampled_from(["<u1", ">u2", "<i4", "<u8", ">f4", "<f8", "S3", "?", "<c16"]).map(np.dtype)
nested = st.recursive(
    simple,
    lambda inner: st.dictionaries(st.text("abc", min_size=1, max_size=3), inner, min_size=1, max_size=3).map(
        lambda fields: np.dtype([*fields.items()])
    ),
    max_leaves=6,
)


@given(nested)
def test_any_type_comes_back(dtype):
    assert parse_type(type_to_json(dtype), "a.json") == dtype


@pytest.mark.parametrize("dtype", ["<U4", "<M8[s]", "V3", "g"])
def test_types_without_a_form_are_refused(dtype):
    with pytest.raises(ValueError, match="no HDF5 type"):
        type_to_json(np.dtype(dtype))


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        "H5T_STD_U12LE",
        {},
        {"class": "H5T_INTEGER"},
        {"class": "H5T_INTEGER", "base": ["H5T_STD_U16LE"]},
        {"class": "H5T_STRING", "length": 0},
        {"class": "H5T_STRING", "length": True},
        {"class": "H5T_STRING", "length": "H5T_LONG"},
        {"class": "H5T_ENUM", "base": F32},
        {"class": "H5T_COMPOUND", "fields": []},
        {"class": "H5T_COMPOUND", "fields": ["a"]},
        {"class": "H5T_COMPOUND", "fields": [{"name": "a", "type": I32}, {"name": "a", "type": I32}]},
        {"class": "H5T_ARRAY", "base": I32, "dims": [0]},
        {"class": "H5T_ARRAY", "base": I32, "dims": 3},
        {"class": ["H5T_INTEGER"]},
    ],
    ids=repr,
)
def test_damaged_types(value):
    with pytest.raises(CorruptDataset, match=r"a\.json: has .*, expected"):
        parse_type(value, "a.json")


def nested_arrays(depth: int) -> object:
    return I32 if depth == 0 else {"class": "H5T_ARRAY", "base": nested_arrays(depth - 1), "dims": [1]}


@pytest.mark.parametrize(
    "value",
    [
        {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"},
        {"class": "H5T_OPAQUE", "size": 3},
        {"class": "H5T_VLEN", "base": I32},
        {"class": "H5T_STRING", "length": (1 << 31) - 1},
        {"class": "H5T_ARRAY", "base": I32, "dims": [1 << 23, 1 << 23]},
        {"class": "H5T_ARRAY", "base": {"class": "H5T_STRING", "length": "H5T_VARIABLE"}, "dims": [2]},
        {"class": "H5T_COMPOUND", "fields": [{"name": "a", "type": {"class": "H5T_STRING", "length": "H5T_VARIABLE"}}]},
        nested_arrays(40),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_types_that_are_not_read(value):
    with pytest.raises(UnsupportedFeature, match=r"a\.json: "):
        parse_type(value, "a.json")
