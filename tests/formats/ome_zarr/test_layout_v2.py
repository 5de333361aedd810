"""Layouts of Zarr that only viewers use: keys, chunks and documents."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.arrays.array_spec import ArraySpec
from acqstream.formats.chunk_layout import Plan
from acqstream.formats.compression import ZARR_COMPRESSION
from acqstream.formats.ome_zarr.plan import OmeZarrOptions, plan
from acqstream.formats.ome_zarr.viewer_layouts import OmeZarrV2Layout, XarrayLayout, create_layout_v2, plan_for_xarray

OPTIONS = OmeZarrOptions(
    compression=ZARR_COMPRESSION.parse("none"), chunks=(1, 8, 8), is_sharded=False, levels=2, is_plate=False
)
SPEC = ArraySpec(
    axes=("time", "position", "channel", "z", "y", "x"),
    shape=(3, 2, 2, 4, 20, 30),
    dtype=np.dtype("u2"),
    scale=(1.0, 1.0, 1.0, 2.0, 0.5, 0.5),
    units=("", "", "", "um", "um", "um"),
    axis_values={"channel": ("DAPI", "GFP"), "time": range(3)},
    shown_axes=("position", "time", "channel", "z", "y", "x"),
    attributes={"PixelSize_um": 0.5},
)


def layout_of(spec: ArraySpec = SPEC) -> OmeZarrV2Layout:
    return create_layout_v2(plan(spec, OPTIONS), OPTIONS)


@given(st.data())
def test_every_chunk_has_one_key_and_comes_back(data):
    layout = layout_of()
    level = data.draw(st.integers(0, 1))
    spec = layout.plan.levels[level]
    position = tuple(data.draw(st.integers(0, count - 1)) for count in spec.grid_shape)
    key = layout.key(level, position)
    assert layout.parse_key(key) == (level, position)
    assert not key.startswith("c/")
    values = np.arange(np.prod(spec.chunk_shape), dtype="u2").reshape(spec.chunk_shape)
    encoded = b"".join(layout.encode(level, position, values))
    assert layout.raw_head(level, position) == b""
    assert encoded == values.astype("<u2").tobytes()
    assert np.array_equal(layout.decode(level, position, encoded, "here").reshape(values.shape), values)


@given(st.text("0123456789/c.az", max_size=20))
def test_any_key_is_that_of_a_chunk_or_none(key):
    layout = layout_of()
    found = layout.parse_key(key)
    assert found is None or layout.key(*found) == key


def test_documents_of_a_collection():
    layout = layout_of()
    assert json.loads(layout.documents(complete=True)[".zattrs"]) == {"bioformats2raw.layout": 3}
    documents = layout.member_documents((1,))
    assert sorted(documents) == ["1/.zattrs", "1/.zgroup", "1/0/.zarray", "1/0/.zattrs", "1/1/.zarray", "1/1/.zattrs"]
    array = json.loads(documents["1/0/.zarray"])
    assert (array["shape"], array["chunks"], array["dtype"]) == ([3, 2, 4, 20, 30], [1, 1, 1, 8, 8], "<u2")
    assert json.loads(documents["1/0/.zattrs"]) == {"_ARRAY_DIMENSIONS": ["t", "c", "z", "y", "x"]}
    (image,) = json.loads(documents["1/.zattrs"])["multiscales"]
    assert (image["version"], len(image["datasets"])) == ("0.4", 2)
    assert all(layout.member_of(key) == (1,) for key in documents)
    assert layout.member_of("7x/.zattrs") is None
    assert json.loads(layout.listings("cells")["OME/.zattrs"]) == {"series": ["0", "1"]}


def test_shards_are_refused():
    with pytest.raises(ValueError, match="without shards"):
        create_layout_v2(plan(SPEC, OPTIONS), replace(OPTIONS, is_sharded=True))


def test_xarray_has_coordinates_and_a_copy_of_all_documents():
    layout = XarrayLayout(plan_for_xarray(SPEC, (20, 30)))
    assert layout.plan.full.axes == SPEC.shown_axes
    documents = layout.documents(complete=True)
    copy = json.loads(documents["zarr.json"])["consolidated_metadata"]["metadata"]
    assert sorted(copy) == sorted(["image", *SPEC.axes])
    for name, document in copy.items():
        assert json.loads(documents[f"{name}/zarr.json"]) == document
    assert np.frombuffer(documents["z/c/0"], "<f8").tolist() == [0.0, 2.0, 4.0, 6.0]
    assert documents["channel/c/0"] == b"\2\0\0\0\4\0\0\0DAPI\3\0\0\0GFP"
    assert np.frombuffer(documents["time/c/0"], "<i8").tolist() == [0, 1, 2]


@given(st.data())
def test_chunks_for_xarray_come_back(data):
    layout = XarrayLayout(plan_for_xarray(SPEC, (8, 16)))
    spec = layout.plan.full
    position = tuple(data.draw(st.integers(0, count - 1)) for count in spec.grid_shape)
    assert layout.parse_key(layout.key(0, position)) == (0, position)
    values = np.arange(np.prod(spec.chunk_shape), dtype="u2").reshape(spec.chunk_shape)
    encoded = b"".join(layout.encode(0, position, values))
    assert np.array_equal(layout.decode(0, position, encoded, "here"), values)


def test_places_without_a_frame_have_their_own_number():
    spec = replace(SPEC, axis_values={"time": (0, None, 2)})
    layout = XarrayLayout(Plan(levels=plan_for_xarray(spec, (20, 30)).levels))
    assert np.frombuffer(layout.documents(complete=False)["time/c/0"], "<i8").tolist() == [0, 1, 2]
