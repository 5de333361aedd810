"""Containers of our writer: options, folders, names of chunks, growth, notes and resuming."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import acqstream
from acqstream.arrays.array_spec import ArraySpec
from acqstream.errors import ConfigError, CorruptDataset, DatasetExists
from acqstream.formats.check_report import CheckReport
from acqstream.formats.precomputed import FORMAT
from acqstream.formats.precomputed.layout import PrecomputedLayout, announced_depth
from acqstream.formats.precomputed.metadata import NOTE_NAME, stored_axes
from acqstream.formats.precomputed.shard_layout import create_layout
from acqstream.storage.stores.data_path import data_path_of
from tests.checksum_files import other_keys
from tests.formats.precomputed.precomputed_data import create, store_level, write_container

UM = {"units": ("um", "um", "um"), "scale": (2.0, 0.65, 0.65)}


def array_of(*shape: int, dtype: str = "uint16") -> np.ndarray:
    return np.random.default_rng(2).integers(1, 255, shape).astype(dtype)


def layout_of(
    axes: tuple[str, ...], shape: tuple[int, ...], dtype: str = "uint16", **options: Any
) -> PrecomputedLayout:
    parsed = FORMAT.parse_options(options)
    return create_layout(FORMAT.plan(ArraySpec(axes=axes, shape=shape, dtype=np.dtype(dtype)), parsed), parsed)


def info_at(folder) -> dict[str, Any]:
    return json.loads((folder / "info").read_text())


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"blocks": [1, 2, 3]}, "no option 'blocks', only encoding, chunks, levels, shards"),
        ({"encoding": "jxl"}, "encoding is 'jxl', expected one of raw, png, jpeg, compressed_segmentation"),
        ({"jpeg_quality": 80}, "jpeg_quality is for encoding 'jpeg'"),
        ({"encoding": "jpeg", "jpeg_quality": 0}, "jpeg_quality is 0, expected 1 to 100"),
        ({"encoding": "jpeg", "jpeg_quality": 101}, "jpeg_quality is 101, expected 1 to 100"),
        ({"encoding": "jpeg", "jpeg_quality": True}, "jpeg_quality is True, expected 1 to 100"),
        ({"chunks": [1, 2]}, "three positive integers"),
        ({"chunks": [1, 2, 0]}, "three positive integers"),
        ({"chunks": [2**11, 2**10, 2**10]}, "three positive integers"),
        ({"levels": 17}, "1 to 16"),
        ({"levels": True}, "1 to 16"),
        ({"shards": 7}, "shards are 7, expected true, false or their parameters"),
        ({"shards": {"bits": 7}}, "shards have no 'bits', only preshift_bits"),
        ({"shards": {"preshift_bits": 64}}, "preshift_bits is 64, expected 0 to 63"),
        ({"shards": {"minishard_bits": True}}, "minishard_bits is True, expected 0 to 32"),
        ({"shards": {"hash": "md5"}}, "hash is 'md5', expected one of identity, murmurhash3_x86_128"),
        ({"shards": {"data_encoding": "zstd"}}, "data_encoding is 'zstd', expected one of raw, gzip"),
    ],
)
def test_wrong_options_are_told(given, text):
    with pytest.raises(ConfigError, match=text):
        FORMAT.parse_options(given)


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        (("y", "x"), ("z", "y", "x")),
        (("time", "y", "x"), ("time", "y", "x")),
        (("time", "channel", "y", "x", "c"), ("channel", "c", "time", "y", "x")),
        (("time", "position", "channel", "z", "y", "x"), ("time", "position", "channel", "z", "y", "x")),
        (("z", "y", "x", "c"), ("c", "z", "y", "x")),
    ],
)
def test_z_or_time_is_the_depth_and_the_others_are_members(axes, expected):
    assert stored_axes(axes) == expected
    assert stored_axes(expected) == expected


def test_levels_are_halved_in_the_plane_until_it_fits():
    plan = layout_of(("z", "y", "x"), (40, 1100, 2049)).plan
    assert [level.factors for level in plan.levels] == [(1, 1, 1), (1, 2, 2), (1, 4, 4)]
    assert [level.shape for level in plan.levels] == [(40, 1100, 2049), (40, 550, 1024), (40, 275, 512)]
    assert [level.chunk_shape for level in plan.levels] == [(1, 512, 512), (1, 512, 512), (1, 275, 512)]
    assert len(layout_of(("z", "y", "x"), (4, 600, 5), "uint32", encoding="compressed_segmentation").plan.levels) == 1
    assert layout_of(("y", "x"), (1, 9), levels=9).plan.levels[-1].shape == (1, 1, 1)


@pytest.mark.parametrize(
    ("dtype", "components", "options", "text"),
    [
        ("int64", 1, {}, "readers refuse items of int64"),
        ("float64", 1, {}, "readers refuse items of float64"),
        ("uint16", 6, {"encoding": "png"}, "png takes uint8"),
        ("uint16", 1, {"encoding": "jpeg"}, "jpeg takes uint8 with 1 or 3 components, not 1 of uint16"),
        ("uint8", 2, {"encoding": "jpeg"}, "jpeg takes uint8 with 1 or 3 components, not 2 of uint8"),
        ("int16", 1, {"encoding": "png"}, "png takes uint8"),
        ("uint8", 5, {"encoding": "png"}, "png takes uint8"),
        ("uint16", 1, {"encoding": "compressed_segmentation"}, "takes uint32 or uint64"),
        ("uint32", 1, {"encoding": "compressed_segmentation", "chunks": [64, 512, 512]}, "at most 4194304 voxels"),
        ("uint16", 4, {"chunks": [1024, 1024, 1024]}, "more than 2147483647 bytes"),
    ],
)
def test_arrays_that_cannot_be_stored_are_refused(dtype, components, options, text):
    with pytest.raises(ConfigError, match=text):
        layout_of(("z", "y", "x", "c"), (2000, 2000, 2000, components), dtype, **options)


def test_arrays_without_a_plane_and_with_too_many_volumes_are_refused():
    with pytest.raises(ConfigError, match="axes y and x"):
        layout_of(("z", "x"), (4, 4))
    with pytest.raises(ConfigError, match="more than a million volumes"):
        layout_of(("position", "channel", "z", "y", "x"), (1001, 1000, 1, 4, 4))
    with pytest.raises(ConfigError, match="more than a million volumes"):
        layout_of(("position", "channel", "z", "y", "x"), (0, 1000, 1, 4, 4)).check_growth((1001, 1000, 1, 4, 4))


@pytest.mark.parametrize("depth", [0, 10])
def test_keys_have_an_inverse_and_do_not_depend_on_the_size_that_was_reached(depth):
    axes = ("time", "channel", "z", "y", "x")
    layout = layout_of(axes, (3, 2, depth, 40, 50), chunks=[4, 16, 32], levels=2)
    assert layout.key(0, (2, 1, 2, 2, 1)) == f"time2/channel1/s0/32-50_32-40_8-{depth or 12}"
    assert layout.key(1, (0, 0, 0, 1, 0)) == "time0/channel0/s1/0-25_16-20_0-4"
    for shape in ((3, 2, 3, 40, 50), (3, 2, 10, 40, 50)):
        grown = layout.with_levels([replace(layout.plan.full, shape=shape), layout.plan.levels[1]])
        for position in np.ndindex(3, 2, 3, 3, 2):
            key = grown.key(0, position)
            assert key == layout.key(0, position)
            assert layout.parse_key(key) == (0, position)
    for other in (
        "time2/channel1/s0/32-48_32-40_8-12",
        "time2/channel1/s2/0-32_0-16_0-4",
        "time02/channel1/s0/0-32_0-16_0-4",
        "time2/s0/0-32_0-16_0-4",
        "time2/channel1/s0/-32-0_0-16_0-4",
        "info",
        "time2/channel1/info",
        NOTE_NAME,
    ):
        assert layout.parse_key(other) is None


def test_one_volume_lies_at_the_top():
    layout = layout_of(("time", "channel", "z", "y", "x"), (1, 1, 5, 8, 8))
    assert layout.key(0, (0, 0, 3, 0, 0)) == "s0/0-8_0-8_3-4"
    assert layout.parse_key("s0/0-8_0-8_3-4") == (0, (0, 0, 3, 0, 0))
    assert [*layout.member_documents((0, 0))] == ["info"]
    with pytest.raises(ConfigError, match="one volume was declared"):
        layout.check_growth((2, 1, 5, 8, 8))
    growing = layout_of(("time", "channel", "z", "y", "x"), (0, 1, 5, 8, 8))
    assert growing.key(0, (0, 0, 3, 0, 0)) == "time0/channel0/s0/0-8_0-8_3-4"


@pytest.mark.parametrize(
    ("size", "step", "depth", "expected"),
    [
        (3, 1, 0, 3),
        (3, 4, 0, 4),
        (4, 4, 0, 4),
        (5, 4, 0, 8),
        (3, 4, 10, 4),
        (9, 4, 10, 10),
        (10, 4, 10, 10),
        (9, 4, 8, 12),
    ],
)
def test_the_announced_depth_is_made_of_stored_chunks(size, step, depth, expected):
    assert announced_depth(size, step, depth) == expected


def test_more_planes_than_declared_are_refused_only_where_a_chunk_was_cut():
    cut = layout_of(("z", "y", "x"), (10, 8, 8), chunks=[4, 8, 8])
    with pytest.raises(ConfigError, match="cannot get longer along 'z': it was declared with 10"):
        cut.check_growth((11, 8, 8))
    for depth, chunks in ((12, [4, 8, 8]), (3, [4, 8, 8]), (10, [1, 8, 8]), (0, [4, 8, 8])):
        layout = layout_of(("z", "y", "x"), (depth, 8, 8), chunks=chunks)
        layout.check_growth((depth + 1, 8, 8))
        step = layout.plan.full.chunk_shape[0]
        assert layout.key(0, (depth // step, 0, 0)).endswith(f"_{depth}-{depth + step}")


def test_no_info_before_the_first_plane(tmp_path):
    spec = ArraySpec(axes=("z", "y", "x"), shape=(0, 20, 30), dtype=np.dtype("u2"))
    writer, plan = create(tmp_path, spec, chunks=[1, 16, 16], levels=2)
    assert other_keys(path.name for path in tmp_path.iterdir()) == [NOTE_NAME]
    array = array_of(3, 20, 30)
    with acqstream.open(tmp_path) as ds:
        assert (ds.shape, ds.complete, ds.format) == ((0, 20, 30), False, "precomputed")
        level = replace(plan.full, shape=(3, 20, 30))
        store_level(writer, 0, level, array)
        assert not (tmp_path / "info").exists()
        writer.grow(0, (3, 20, 30))
        assert [scale["key"] for scale in info_at(tmp_path)["scales"]] == ["s0"]  # the other has no planes yet
        writer.grow(1, (3, 10, 15))
        assert [scale["size"] for scale in info_at(tmp_path)["scales"]] == [[30, 20, 3], [15, 10, 3]]
        ds.refresh()
        assert np.array_equal(ds.levels[0].read(), array)


def test_a_container_and_its_members_open(tmp_path):
    array = array_of(2, 3, 20, 30)
    write_container(tmp_path, array, ("channel", "z", "y", "x"), labels={"channel": ["DAPI", "GFP"]}, levels=2)
    with acqstream.open(tmp_path / NOTE_NAME) as ds:
        assert (ds.levels[0].axes, ds.complete) == (("channel", "z", "y", "x"), True)
        assert np.array_equal(ds.levels[0].read(), array)
        assert ds.levels[0].labels == {"channel": ["DAPI", "GFP"]}
    for path in (tmp_path / "channel1", tmp_path / "channel1" / "info"):
        with acqstream.open(path) as ds:
            assert ds.levels[0].axes == ("z", "y", "x")
            assert np.array_equal(ds.levels[0].read(), array[1])
            assert np.array_equal(ds.levels[1].read(), array[1, :, ::2, ::2])
        assert FORMAT.folder(data_path_of(path)).path == tmp_path


def test_distances_are_nanometers_and_unknown_ones_have_no_unit(tmp_path):
    write_container(tmp_path / "known", array_of(3, 20, 30), ("z", "y", "x"), levels=2, **UM)
    first, second = info_at(tmp_path / "known")["scales"]
    assert (first["resolution"], second["resolution"]) == ([650, 650, 2000], [1300, 1300, 2000])
    assert (first["voxel_offset"], first["chunk_sizes"]) == ([0, 0, 0], [[30, 20, 1]])
    write_container(tmp_path / "unknown", array_of(3, 20, 30), ("z", "y", "x"), levels=2)
    assert [scale["resolution"] for scale in info_at(tmp_path / "unknown")["scales"]] == [[1, 1, 1], [2, 2, 1]]
    assert json.loads((tmp_path / "unknown" / NOTE_NAME).read_text())["calibrated"] is False
    with acqstream.open(tmp_path / "unknown") as ds:
        assert ds.levels[0].units == ("", "", "")
    times = {"units": ("s", "um", "um"), "scale": (3.0, 0.5, 0.5)}
    write_container(tmp_path / "times", array_of(3, 20, 30), ("time", "y", "x"), levels=2, **times)
    assert [one["resolution"] for one in info_at(tmp_path / "times")["scales"]] == [[500, 500, 1], [1000, 1000, 1]]
    with acqstream.open(tmp_path / "times") as ds:
        assert (ds.levels[0].axes, ds.levels[0].units) == (("time", "y", "x"), ("s", "um", "um"))


def test_a_container_is_resumed_only_by_its_own_kind(tmp_path):
    spec = ArraySpec(axes=("z", "y", "x"), shape=(0, 20, 30), dtype=np.dtype("u2"))
    writer, plan = create(tmp_path, spec, chunks=[4, 16, 16])
    array = array_of(6, 20, 30)
    store_level(writer, 0, replace(plan.full, shape=(6, 20, 30)), array)
    writer.grow(0, (6, 20, 30))
    # One that knows the size by now: chunks keep the names that they have.
    again, _ = create(tmp_path, replace(spec, shape=(6, 20, 30)), chunks=[4, 16, 16])
    again.finish([replace(plan.full, shape=(6, 20, 30))])
    with acqstream.open(tmp_path) as ds:
        assert ds.complete
        assert np.array_equal(ds.levels[0].read(), array)
    for other in (
        {"chunks": [4, 16, 8]},
        {"chunks": [4, 16, 16], "encoding": "png"},
        {"chunks": [4, 16, 16], "levels": 2},
    ):
        with pytest.raises(DatasetExists, match="exists with"):
            create(tmp_path, spec, **other)
    (tmp_path / NOTE_NAME).write_text('{"format": "another"}')
    with pytest.raises(DatasetExists, match="not a container"):
        create(tmp_path, spec, chunks=[4, 16, 16])


def test_a_container_whose_last_chunk_is_cut_is_not_resumed_with_more_planes(tmp_path):
    spec = ArraySpec(axes=("z", "y", "x"), shape=(6, 20, 30), dtype=np.dtype("u2"))
    create(tmp_path, spec, chunks=[4, 16, 16])
    with pytest.raises(ConfigError, match="cannot get longer along 'z': it was declared with 6"):
        create(tmp_path, replace(spec, shape=(7, 20, 30)), chunks=[4, 16, 16])


def test_verify_compares_info_with_the_array(tmp_path):
    write_container(tmp_path, array_of(2, 3, 20, 30), ("channel", "z", "y", "x"))
    (tmp_path / "channel0" / "info").write_text("{}")
    (tmp_path / "channel1" / "info").unlink()
    (tmp_path / "channel1" / "s0" / "0-30_0-20_9-10").write_bytes(bytes(1200))
    report = CheckReport()
    counts = FORMAT.check(data_path_of(tmp_path), report)
    assert (counts.chunks, counts.missing) == (6, 0)
    assert [Path(problem.path) for problem in report.problems] == [tmp_path / f"channel{at}" / "info" for at in (0, 1)]
    assert [
        note.replace("\\", "/").endswith("/channel1/s0/0-30_0-20_9-10 lies outside the array") for note in report.notes
    ] == [True]


@pytest.mark.parametrize(
    "change",
    [
        {"axes": ["y", "x"]},
        {"axes": ["channel", "y", "z", "x"]},
        {"dtype": "int64"},
        {"encoding": "jxl"},
        {"levels": []},
        {"depth": -1},
        {"single": 3},
        {"version": 2},
        {"level": {"shape": [2, 3, 20]}},
        {"level": {"shape": [10**6, 10**6, 10**6, 30]}},
        {"level": {"chunks": [2, 3, 20, 30]}},
        {"level": {"chunks": [1, 10**6, 10**6, 30]}},
        {"level": {"factors": [1, 0, 1, 1]}},
        {"level": {"scale": [1, 1, 1, "a"]}},
    ],
)
def test_a_damaged_note_is_told(tmp_path, change):
    write_container(tmp_path, array_of(2, 3, 20, 30), ("channel", "z", "y", "x"))
    path = tmp_path / NOTE_NAME
    note = json.loads(path.read_text())
    note["levels"][0] |= change.pop("level", {})
    path.write_text(json.dumps(note | change))
    with pytest.raises(CorruptDataset, match="field"):
        acqstream.open(tmp_path)
    report = CheckReport()
    FORMAT.check(data_path_of(tmp_path), report)
    assert [Path(problem.path) for problem in report.problems] == [path]


def test_a_chunk_that_is_too_long_is_not_read(tmp_path):
    write_container(tmp_path, array_of(3, 20, 30), ("z", "y", "x"))
    path = tmp_path / "s0" / "0-30_0-20_1-2"
    with path.open("ab") as file:
        file.truncate(2**36)
    with acqstream.open(tmp_path) as ds, pytest.raises(CorruptDataset, match="which no chunk takes"):
        ds.levels[0].read(1)


@pytest.mark.parametrize("name", ["info", NOTE_NAME])
def test_folders_of_these_names_are_no_volumes(tmp_path, name):
    (tmp_path / name).mkdir()
    assert not FORMAT.detect(data_path_of(tmp_path))


def sharded(folder: Path, **options: Any) -> Any:
    return create(folder, ArraySpec(axes=("z", "y", "x"), shape=(0, 40, 40), dtype=np.dtype("u2")), **options)


def test_shards_are_resumed_with_their_parameters_alone(tmp_path):
    options = {"chunks": [1, 8, 8], "levels": 1}
    sharded(tmp_path, shards=True, **options)
    sharded(tmp_path, shards=True, **options)
    for shards in (False, {"preshift_bits": 3}, {"data_encoding": "gzip"}):
        with pytest.raises(DatasetExists, match="exists with raw chunks"):
            sharded(tmp_path, shards=shards, **options)


def test_info_states_planes_ahead_and_the_end_cuts_what_ids_allow(tmp_path):
    """40 pixels in chunks of 8 have 3 bits a side, so z needs 2: three planes."""
    for planes, stated in ((1, 3), (3, 3), (5, 5)):
        folder = tmp_path / str(planes)
        array = array_of(planes, 40, 40)
        spec = ArraySpec(axes=("z", "y", "x"), shape=(0, 40, 40), dtype=array.dtype)
        writer, plan = create(folder, spec, chunks=[1, 8, 8], levels=1, shards=True)
        level = replace(plan.full, shape=array.shape)
        store_level(writer, 0, level, array)
        writer.grow(0, array.shape)
        writer.finish([level])
        assert info_at(folder)["scales"][0]["size"] == [40, 40, stated]
        with acqstream.open(folder) as ds:
            assert ds.levels[0].shape == array.shape


def test_a_declared_volume_with_few_planes_gets_no_longer(tmp_path):
    spec = ArraySpec(axes=("z", "y", "x"), shape=(1, 80, 80), dtype=np.dtype("u2"))
    writer, plan = create(tmp_path, spec, chunks=[1, 8, 8], levels=1, shards=True)
    store_level(writer, 0, plan.full, array_of(1, 80, 80))
    with pytest.raises(ConfigError, match="cannot get longer than 1 along 'z'"):
        writer.grow(0, (2, 80, 80))
    writer.finish(plan.levels)
    assert info_at(tmp_path)["scales"][0]["size"] == [80, 80, 1]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("sharding", None, "sharding"),
        ("sharding", {"@type": "x", "hash": "identity"}, "sharding of @type"),
        ("max_cells_z", 0, "max_cells_z"),
        ("max_cells_z", 2**33, "max_cells_z"),
        ("bits", {"preshift_bits": 40}, "shards of at most 65536 chunks"),
        ("bits", {"shard_bits": 0}, "shards of at most 65536 chunks"),
        ("bits", {"hash": "murmurhash3_x86_128"}, "shards of at most 65536 chunks"),
    ],
)
def test_a_damaged_note_of_shards_takes_no_memory(tmp_path, name, value, text):
    sharded(tmp_path, shards=True, chunks=[1, 8, 8], levels=1)
    path = tmp_path / NOTE_NAME
    note = json.loads(path.read_text())
    level = note["levels"][0]
    if name == "bits":
        level["sharding"].update(value)
    else:
        level[name] = value
    path.write_text(json.dumps(note))
    with pytest.raises((CorruptDataset, acqstream.errors.UnsupportedFeature), match=text):
        acqstream.open(tmp_path)


def test_jpeg_without_pillow_is_refused_before_anything_is_made(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ConfigError, match=r"jpeg images take Pillow.*pip install .*\[view\]"):
        layout_of(("z", "y", "x"), (2, 20, 20), "uint8", encoding="jpeg")


def test_images_that_jpeg_cannot_have_are_refused():
    with pytest.raises(ConfigError, match="images of 131072 x 512 pixels; jpeg takes at most 65500 a side"):
        layout_of(("z", "y", "x"), (512, 600, 600), "uint8", encoding="jpeg", chunks=[256, 512, 512])
