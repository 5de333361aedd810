"""How arrays are cut into images, shards and chunks, and the documents that say so."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.arrays.array_spec import ArraySpec
from acqstream.description.image_positions import ImagePlaces
from acqstream.errors import ConfigError, CorruptDataset, DatasetExists
from acqstream.formats.array_members import member_number, numbered_member, numbering_of
from acqstream.formats.ome_zarr.layout import OmeZarrLayout, create_layout
from acqstream.formats.ome_zarr.plan import (
    MAX_COMPRESSED_SHARD_BYTES,
    MAX_RAW_SHARD_BYTES,
    MAX_SHARD_PLANE_BYTES,
    parse_options,
    plan,
)


def layout_of(axes: tuple[str, ...], shape: tuple[int, ...], **options: Any) -> OmeZarrLayout:
    spec = ArraySpec(axes=axes, shape=shape, dtype=np.dtype("uint16"), units=("",) * len(axes))
    parsed = parse_options(options)
    return create_layout(plan(spec, parsed), parsed)


def document(layout: OmeZarrLayout, member: tuple[int, ...], key: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(layout.member_documents(member)[key])
    return content


def test_raw_shards_hold_planes_of_chunks_up_to_half_a_gibibyte() -> None:
    layout = layout_of(("time", "z", "y", "x"), (0, 200, 2048, 2048), compression="none")
    level = layout.plan.full
    assert (level.block_shape, level.chunk_shape) == ((1, 1, 512, 512), (1, 1, 2048, 2048))
    assert level.shard_shape == (1, 50, 2048, 2048)  # 200 planes in four equal shards
    assert np.prod(level.shard_shape) * 2 <= MAX_RAW_SHARD_BYTES
    assert [spec.shape[-2:] for spec in layout.plan.levels] == [(2048, 2048), (1024, 1024), (512, 512)]


SIDE = st.integers(1, 60_000)


@given(SIDE, SIDE, st.sampled_from([64, 500, 512, 2048]), st.sampled_from(["none", "blosc"]))
def test_large_planes_are_cut_into_shards(height: int, width: int, chunk: int, compression: str) -> None:
    """A part of a plane has whole chunks, and no more than the bound, unless a single chunk has."""
    levels = layout_of(
        ("z", "y", "x"), (100, height, width), compression=compression, chunks=[1, chunk, chunk]
    ).plan.levels
    full = levels[0]
    for level in levels:
        depth, *sides = level.shard_shape
        assert all(side % block == 0 for side, block in zip(sides, level.block_shape[1:], strict=True))
        assert math.prod(sides) * 2 <= max(MAX_SHARD_PLANE_BYTES, math.prod(level.block_shape) * 2)
        assert depth == full.shard_shape[0]
        for axis in (1, 2):  # shards of a level end where its chunks end, or where those of level 0 do
            assert level.shard_shape[axis] - level.shape[axis] < level.block_shape[axis]
            assert level.shard_shape[axis] <= max(full.shard_shape[axis], level.block_shape[axis])
    padded = [-(-size // block) * block for size, block in zip(full.shape[1:], full.block_shape[1:], strict=True)]
    if math.prod(padded) * 2 <= MAX_SHARD_PLANE_BYTES:
        assert list(full.shard_shape[1:]) == padded
    else:
        assert full.shard_shape[1:] == full.block_shape[1:] or math.prod(full.shard_shape[1:]) * 8 > (
            MAX_SHARD_PLANE_BYTES
        )
    if compression == "blosc":  # all shards of a plane may be in memory at once
        held = full.shard_shape[0] * math.prod(padded) * 2
        assert held <= max(MAX_COMPRESSED_SHARD_BYTES, math.prod(padded) * 2)


def test_a_frame_of_4_megapixels_has_shards_of_complete_planes() -> None:
    for compression in ("none", "blosc"):
        for chunk in ([1, 512, 512], [16, 256, 256]):
            level = layout_of(("z", "y", "x"), (64, 2048, 2048), compression=compression, chunks=chunk).plan.full
            assert level.shard_shape[1:] == (2048, 2048)


def test_an_array_in_other_shards_is_not_continued() -> None:
    layout = layout_of(("z", "y", "x"), (8, 4096, 4096), compression="none")
    other = layout.with_levels([replace(level, shard_shape=(8, 4096, 4096)) for level in layout.plan.levels])
    documents = {**other.documents(complete=False), **other.member_documents(())}
    with pytest.raises(CorruptDataset, match=r"in shards of \(8, 4096, 4096\), expected .* in \(8, 2048, 4096\)"):
        layout.resume({key: documents[key] for key in layout.resume_keys()}, "cells")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 63, 64, 65, 1000])
def test_a_shard_is_never_deeper_than_the_plan(size: int) -> None:
    for compression in ("none", "blosc"):
        level = layout_of(("z", "y", "x"), (size, 64, 64), compression=compression).plan.full
        assert level.shard_shape[0] <= size


def test_time_is_the_depth_of_shards_without_z() -> None:
    layout = layout_of(("time", "channel", "y", "x"), (0, 2, 256, 256), compression="none")
    assert layout.plan.full.shard_shape == (64, 1, 256, 256)


def test_axes_beyond_those_of_an_image_separate_images() -> None:
    layout = layout_of(("position", "angle", "time", "z", "y", "x"), (3, 2, 4, 5, 16, 16))
    assert layout.plan.member_axes == ("position", "angle")
    assert layout.key(0, (2, 1, 3, 0, 0, 0)) == "5/0/c/3/0/0/0"
    listing = json.loads(layout.listings("cells")["OME/zarr.json"])
    assert listing["attributes"]["ome"]["series"] == ["0", "1", "2", "3", "4", "5"]


def test_places_on_the_stage_are_translations_of_images() -> None:
    spec = ArraySpec(
        axes=("position", "y", "x"),
        shape=(2, 16, 16),
        dtype=np.dtype("uint16"),
        scale=(1.0, 0.5, 0.5),
        units=("", "um", "um"),
        translation=(0.0, 7.0, 0.0),  # of an image without a place
        places=ImagePlaces.of_positions([(0.0, 10.0, 20.0), None]),
        stage_axes="parallel",
    )
    options = parse_options({"levels": 2})
    layout = create_layout(plan(spec, options), options)
    datasets = document(layout, (0,), "0/zarr.json")["attributes"]["ome"]["multiscales"][0]["datasets"]
    translations = [dataset["coordinateTransformations"][1]["translation"] for dataset in datasets]
    assert translations == [[10.0, 20.0], [10.25, 20.25]]
    other = document(layout, (1,), "1/zarr.json")["attributes"]["ome"]["multiscales"][0]["datasets"]
    assert other[0]["coordinateTransformations"][1]["translation"] == [7.0, 0.0]
    units = [
        axis.get("unit")
        for axis in document(layout, (1,), "1/zarr.json")["attributes"]["ome"]["multiscales"][0]["axes"]
    ]
    assert units == ["micrometer", "micrometer"]


def test_an_unknown_distance_has_no_unit() -> None:
    layout = layout_of(("y", "x"), (16, 16))
    root = json.loads(layout.documents(complete=False)["zarr.json"])
    axes = root["attributes"]["ome"]["multiscales"][0]["axes"]
    assert axes == [{"name": "y", "type": "space"}, {"name": "x", "type": "space"}]
    assert root["attributes"]["acqstream"]["calibrated"] is False


def test_omero_has_an_entry_for_every_channel() -> None:
    spec = ArraySpec(
        axes=("channel", "y", "x"), shape=(3, 8, 8), dtype=np.dtype("uint8"), labels={"channel": ["DAPI", "GFP"]}
    )
    options = parse_options({})
    layout = create_layout(plan(spec, options), options)
    channels = json.loads(layout.documents(complete=False)["zarr.json"])["attributes"]["ome"]["omero"]["channels"]
    assert [(one["label"], one["color"]) for one in channels] == [
        ("DAPI", "4393FF"),
        ("GFP", "00FF00"),
        ("2", "00FF00"),
    ]
    assert channels[0]["window"] == {"min": 0, "max": 255, "start": 0, "end": 255}


@given(
    options=st.sampled_from([{"compression": "none"}, {}, {"shards": False}]),
    depth=st.integers(1, 9),
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    data=st.data(),
)
def test_a_chunk_is_decoded_as_it_was_encoded(
    options: dict[str, Any], depth: int, height: int, width: int, data: st.DataObject
) -> None:
    layout = layout_of(("z", "y", "x"), (depth, height, width), chunks=[1, 16, 16], levels=1, **options)
    spec = layout.plan.full
    position = tuple(data.draw(st.integers(0, size - 1)) for size in spec.grid_shape)
    chunk = np.random.default_rng(1).integers(0, 99, spec.memory_shape).astype("uint16")
    encoded = layout.encode(0, position, chunk)
    stored = b"".join(encoded)
    if layout.needs == "in_place":
        runs, head, length, tail = layout.in_place(0, position, encoded)
        assert not head
        object_bytes = bytearray(length - len(tail[0])) + tail[0]
        for offset, content in runs:
            for part in content:
                object_bytes[offset : offset + len(part)] = part
                offset += len(part)  # noqa: PLW2901 - the parts follow each other
        stored = bytes(object_bytes)
    assert np.array_equal(layout.decode(0, position, stored, "here"), chunk)
    key = layout.key(0, position)
    found = layout.parse_key(key)
    assert found is not None
    assert layout.key(*found) == key


@given(st.lists(st.integers(0, 5), min_size=1, max_size=3), st.data())
def test_numbers_of_images_have_an_inverse(sizes: list[int], data: st.DataObject) -> None:
    member = tuple(data.draw(st.integers(0, size - 1 if size else 40)) for size in sizes)
    numbering = numbering_of(sizes)
    assert numbered_member(member_number(member, sizes, numbering), sizes, numbering) == member


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compression": "lz4"}, "expected one of none, blosc, zstd, gzip"),
        ({"compression": {"type": "zstd", "level": 99}}, "level is 99, expected -7 to 19"),
        ({"chunks": [0, 1, 1]}, "three positive integers"),
        ({"shards": "yes"}, "expected true or false"),
        ({"levels": 0}, "1 to 16"),
        ({"blocks": [1, 1, 1]}, "no option 'blocks'"),
    ],
)
def test_options_that_do_not_exist_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_options(options)


@pytest.mark.parametrize(
    ("asked", "parameters"),
    [
        ("blosc", ("lz4", 1, "bitshuffle")),
        ({"type": "blosc", "clevel": 9}, ("lz4", 9, "bitshuffle")),
        ({"type": "blosc", "shuffle": "shuffle"}, ("lz4", 5, "shuffle")),
        ({"type": "blosc", "cname": "zstd"}, ("zstd", 5, "shuffle")),
        ({"type": "blosc", "cname": "zstd", "clevel": 1, "shuffle": "bitshuffle"}, ("zstd", 1, "bitshuffle")),
    ],
)
def test_blosc_shuffles_bits_for_lz4_unless_told_otherwise(asked: object, parameters: tuple[str, int, str]) -> None:
    compression = parse_options({"compression": asked}).compression
    assert compression.parameters == dict(zip(("cname", "clevel", "shuffle"), parameters, strict=True), blocksize=0)
    there = pickle.loads(pickle.dumps(compression))  # noqa: S301
    assert (there, there.named) == (compression, compression.named)


@pytest.mark.parametrize(
    ("asked", "is_kept"),
    [
        ("blosc", True),
        ({"type": "blosc", "clevel": 5}, True),
        ({"type": "blosc", "shuffle": "shuffle"}, True),
        ({"type": "blosc", "shuffle": "bitshuffle"}, False),
        ({"type": "blosc", "clevel": 1}, False),
        ("zstd", False),
    ],
)
def test_a_container_keeps_the_parameters_that_the_user_does_not_name(asked: object, is_kept: bool) -> None:
    existing = layout_of(("z", "y", "x"), (4, 8, 8), compression={"type": "blosc", "shuffle": "shuffle"})
    documents = {**existing.member_documents(()), **existing.documents(complete=False)}
    layout = layout_of(("z", "y", "x"), (4, 8, 8), compression=asked)
    if is_kept:
        assert layout.resume(documents, "here") == (existing, False)
    else:
        with pytest.raises(DatasetExists, match="'shuffle': 'shuffle'"):
            layout.resume(documents, "here")


@pytest.mark.parametrize(("axes", "shape"), [(("z", "x"), (1, 1)), (("position", "y", "x"), (2_000_000, 1, 1))])
def test_arrays_that_are_no_images_are_refused(axes: tuple[str, ...], shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError):
        layout_of(axes, shape)
