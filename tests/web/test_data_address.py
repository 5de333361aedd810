"""Addresses below /data/, as values."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.web.data.data_address import (
    BadAddress,
    DataOptions,
    data_path,
    name_and_options,
    parse_options,
    path_parts,
)


@pytest.mark.parametrize(
    "path",
    [
        "/data/",
        "/data/..",
        "/data/%2e%2e/secret",
        "/data/cells/../../etc/passwd",
        "/data/cells/%2e%2e/x",
        "/data/cells//0",
        "/data//cells",
        "/data/cells/a%2Fb",
        "/data/cells/a%5Cb",
        "/data/cells/a%00b",
        "/data/cells/%ff",
        "/data/cells/C%3A/x",
        "/other/cells",
        "/data/" + "a/" * 100,
    ],
)
def test_paths_that_can_name_nothing_are_refused(path):
    with pytest.raises(BadAddress):
        path_parts(path)


def test_a_part_is_decoded_once():
    assert path_parts("/data/a%20b/%2541") == ("a b", "%41")
    assert path_parts("/data/cells%40g=3/ome.zarr/") == ("cells@g=3", "ome.zarr")


@pytest.mark.parametrize(
    "text",
    [
        "g",
        "g=",
        "g=01",
        "g=+1",
        "g=-1",
        "g=1e3",
        "g=99999999999999999999",
        "g=1,g=2",
        "chunk=63",
        "chunk=8192",
        "chunk=100",
        "id=xyz",
        "id=abc",
        "=1",
        ",",
        "a=1,b=2,c=3,d=4,e=5,f=6,h=7,i=8,j=9",
    ],
)
def test_options_that_are_not_canonical_are_refused(text):
    with pytest.raises(BadAddress):
        parse_options(text)


def test_options():
    found = parse_options("g=81203,chunk=512,position=2,id=0123abcd")
    assert found == DataOptions(generation=81203, chunk=512, identity="0123abcd", fixed={"position": "2"})
    assert name_and_options("cells@g=3") == ("cells", "g=3")
    assert name_and_options("cells") == ("cells", "")
    assert name_and_options("a@b@g=3") == ("a@b", "g=3")


NAMES = st.text(st.characters(blacklist_categories=["C"], blacklist_characters='/\\:*?"<>|@,='), min_size=1).filter(
    lambda name: name not in (".", "..")
)
OPTIONS = st.builds(
    DataOptions,
    generation=st.none() | st.integers(0, 2**53),
    chunk=st.none() | st.sampled_from([64, 512, 4096]),
    identity=st.just("") | st.just("0123456789abcdef"),
    fixed=st.dictionaries(NAMES.filter(lambda name: name not in ("g", "id", "chunk")), NAMES, max_size=3),
)


@given(NAMES, OPTIONS)
def test_every_address_that_is_made_is_understood(name, options):
    path = data_path(name, "ome.zarr", options)
    first, layout = path_parts(path)
    found, text = name_and_options(first)
    assert (found, layout, parse_options(text)) == (name, "ome.zarr", options)


@given(st.text())
def test_a_path_is_refused_or_harmless(text):
    try:
        parts = path_parts("/data/" + quote(text))
    except BadAddress:
        return
    assert not {"", ".", ".."}.intersection(parts)
    assert not any("/" in part or "\\" in part or "\0" in part for part in parts)
