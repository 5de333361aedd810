"""Torn and hostile files, sparse cubes, and the layouts that other software leaves."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acqstream.arrays.array_spec import ArraySpec
from acqstream.errors import AcqStreamError, CorruptDataset, DatasetError, UnsupportedFeature
from acqstream.formats.check_report import CheckReport
from acqstream.formats.wkw import FORMAT
from acqstream.formats.wkw.cube_folder import CubeFolder
from acqstream.formats.wkw.foreign import find_layers, open_array
from acqstream.formats.wkw.header import BlockType, Header
from acqstream.storage.stores.data_path import data_path_of
from tests.formats.blocks import in_blocks
from tests.formats.wkw.wkw_data import GOLDEN, begin, noise, planned, read_all, write_array, write_cubes

U2 = np.dtype(np.uint16)
CUBE = "z0/y0/x0.wkw"


def problems(path):
    report = CheckReport()
    FORMAT.check(data_path_of(path), report)
    return [
        (Path(problem.path).relative_to(path).as_posix(), problem.text, problem.offset) for problem in report.problems
    ]


@pytest.fixture(params=[BlockType.RAW, BlockType.LZ4])
def cubes(tmp_path, request):
    """Two cubes of 8 voxels a side, 8 blocks of 4 each."""
    write_cubes(tmp_path, Header(4, 2, request.param, U2), noise((8, 8, 16), np.uint16))
    return tmp_path


def read(path):
    (reader,) = open_array(data_path_of(path))
    return read_all(reader)


def test_only_a_missing_file_is_zeros(cubes):
    whole = read(cubes)
    (cubes / CUBE).unlink()
    (reader,) = open_array(data_path_of(cubes))
    assert reader.read_chunk((0, 0, 0)) is None
    assert sorted(reader.stored()) == [(0, 0, 1), (1, 0, 1)]
    found = read_all(reader)
    assert not found[:, :, :8].any()
    assert np.array_equal(found[:, :, 8:], whole[:, :, 8:])
    assert problems(cubes) == []


@pytest.mark.parametrize(
    ("offset", "value", "text"),
    [
        (0, b"W W", r"begins with b'W W', expected b'WKW' \(at byte 0\)"),
        (3, b"\0", r"version 0, expected 1 \(at byte 3\)"),
        (4, b"\x22", r"begins with 57 4b 57 01 22 .* header.wkw of its folder with 57 4b 57 01 12 .* \(at byte 4\)"),
        (6, b"\x08", r"header.wkw of its folder .* \(at byte 6\)"),
        (7, b"\4", r"header.wkw of its folder .* \(at byte 7\)"),
        (8, b"\x0f", r"the first block lies at byte 15, expected \d+ \(at byte 8\)"),
    ],
)
def test_a_wrong_header_of_a_cube_is_named(cubes, offset, value, text):
    data = (cubes / CUBE).read_bytes()
    (cubes / CUBE).write_bytes(data[:offset] + value + data[offset + len(value) :])
    with pytest.raises(CorruptDataset, match=rf"x0\.wkw: .*{text}"):
        read(cubes)
    assert [path for path, _, _ in problems(cubes)] == [CUBE]


def test_a_raw_cube_among_compressed_ones_is_named_and_the_reverse(cubes):
    data = bytearray((cubes / CUBE).read_bytes())
    data[5] = BlockType.RAW if data[5] == BlockType.LZ4 else BlockType.LZ4HC
    (cubes / CUBE).write_bytes(data)
    with pytest.raises(CorruptDataset, match=r"x0\.wkw: .*header.wkw of its folder .* \(at byte 5\)"):
        read(cubes)
    assert [path for path, _, _ in problems(cubes)] == [CUBE]


def test_a_file_cut_anywhere_is_an_error_where_it_misses_something(cubes):
    whole, data = read(cubes), (cubes / CUBE).read_bytes()
    raw = CubeFolder(data_path_of(cubes)).header.block_type is BlockType.RAW
    for length in {*range(120), *range(120, len(data), 3), len(data) - 1}:
        (cubes / CUBE).write_bytes(data[:length])
        (reader,) = open_array(data_path_of(cubes))
        for z in (0, 1):
            try:
                chunk = reader.read_chunk((z, 0, 0))
            except CorruptDataset as error:
                assert error.path == str(cubes / CUBE)  # noqa: PT017 - either is right
                continue
            assert not raw
            assert np.array_equal(chunk, whole[4 * z : 4 * z + 4, :, :8])  # its part is whole
        if length % 37 == 0:
            assert problems(cubes)


def test_a_tail_is_read_past_and_reported(cubes):
    whole = read(cubes)
    with (cubes / CUBE).open("ab") as file:
        file.write(b"tail")
    assert np.array_equal(read(cubes), whole)
    ((path, text, _),) = problems(cubes)
    assert path == CUBE
    assert "expected 1040" in text or "the last block ends" in text


def test_a_gap_before_the_first_block_is_read_and_reported(tmp_path):
    write_cubes(tmp_path, Header(4, 1, BlockType.RAW, U2), noise((4, 4, 4), np.uint16))
    whole, data = read(tmp_path), (tmp_path / CUBE).read_bytes()
    (tmp_path / CUBE).write_bytes(data[:8] + (20).to_bytes(8, "little") + b"gap!" + data[16:])
    assert np.array_equal(read(tmp_path), whole)
    assert [text for _, text, _ in problems(tmp_path)] == [
        "the first block lies at byte 20, expected 16",
        "a raw cube of 148 bytes, expected 144",
    ]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(st.integers(0, 400), st.integers(0, 255))
def test_any_byte_changed_gives_voxels_or_our_error(cubes, offset, value):
    data = bytearray((cubes / CUBE).read_bytes())
    before = data[offset]
    data[offset] = value
    (cubes / CUBE).write_bytes(data)
    try:
        assert read(cubes).shape == (8, 8, 16)
    except DatasetError as error:
        assert str(cubes / CUBE) in str(error)  # noqa: PT017 - either is right
    finally:
        data[offset] = before
        (cubes / CUBE).write_bytes(data)


def test_blocks_that_are_no_lz4_or_of_another_length_are_named(tmp_path):
    header = Header(4, 1, BlockType.LZ4, U2)
    write_cubes(tmp_path, header, noise((4, 4, 4), np.uint16))
    data = (tmp_path / CUBE).read_bytes()
    for payload, text in ((b"\xff" * 50, "cannot be decoded"), (b"\x50hello", "an LZ4 block of 5 bytes, expected 128")):
        table = (24 + len(payload)).to_bytes(8, "little")
        (tmp_path / CUBE).write_bytes(data[:16] + table + payload)
        with pytest.raises(CorruptDataset, match=rf"x0\.wkw: .*{text}.* \(at byte 24\)"):
            read(tmp_path)
        assert len(problems(tmp_path)) == 1


def test_a_huge_promise_in_a_small_file_takes_no_memory(tmp_path):
    header = Header(128, 128, BlockType.LZ4, np.dtype(np.uint8), channels=255)  # 535 MB a block
    cube = tmp_path / CUBE
    cube.parent.mkdir(parents=True)
    (tmp_path / "header.wkw").write_bytes(header.encode(0))
    for block_type in BlockType:
        header = Header(128, 128, block_type, np.dtype(np.uint8), channels=255)
        (tmp_path / "header.wkw").write_bytes(header.encode(0))
        cube.write_bytes(header.encode(header.first_block) + bytes(100))
        (reader,) = open_array(data_path_of(tmp_path))
        with pytest.raises(CorruptDataset, match="expected"):
            reader.read_chunk((0, 0, 0, 0))


def test_a_folder_in_the_place_of_a_cube_and_temporary_files(cubes):
    whole = read(cubes)
    (cubes / "z0" / "y0" / "x7.wkw.new").write_bytes(b"torn")
    (cubes / "z0" / "y0" / "x07.wkw").write_bytes(b"other")
    (cubes / "z0" / "notes").write_bytes(b"other")
    assert np.array_equal(read(cubes), whole)
    (cubes / CUBE).unlink()
    (cubes / CUBE).mkdir()
    with pytest.raises(DatasetError, match="not a regular file"):
        read(cubes)


def test_a_header_that_is_gone_is_named(tmp_path):
    shutil.copytree(GOLDEN / "wk_dataset", tmp_path / "a")
    (tmp_path / "a" / "color" / "2-2-1" / "header.wkw").unlink()
    with pytest.raises(CorruptDataset, match=r"color.2-2-1.header\.wkw: is missing"):
        open_array(data_path_of(tmp_path / "a"))
    assert len(problems(tmp_path / "a")) == 1


def test_two_kinds_in_one_array_are_refused(tmp_path):
    spec = ArraySpec(axes=("time", "z", "y", "x"), shape=(2, 32, 32, 32), dtype=U2)
    write_array(tmp_path / "a", spec, levels=1, cube=32)
    write_cubes(tmp_path / "a" / "time0001" / "C0" / "1", Header(32, 1, BlockType.LZ4, U2), noise((32,) * 3, U2))
    (reader,) = open_array(data_path_of(tmp_path / "a"))
    assert reader.read_chunk((0, 0, 0, 0)) is not None
    with pytest.raises(CorruptDataset, match=r"time0001.C0.1.header\.wkw: tells of .*LZ4"):
        reader.read_chunk((1, 0, 0, 0))


def edited(tmp_path, change):
    """A copy of the golden dataset with its properties changed."""
    shutil.copytree(GOLDEN / "wk_dataset", tmp_path / "a", dirs_exist_ok=True)
    path = tmp_path / "a" / "datasource-properties.json"
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))
    return tmp_path / "a"


def test_older_properties_with_resolutions_and_a_bare_scale(tmp_path):
    def change(value):
        value["scale"] = [100, 100, 500]
        for layer in value["dataLayers"]:
            mags = layer.pop("mags")
            layer["wkwResolutions"] = [{"resolution": entry["mag"], "cubeLength": 64} for entry in mags]
        value["dataLayers"][1]["wkwResolutions"] = [{"resolution": 1, "cubeLength": 32}]

    folder = edited(tmp_path, change)
    readers = open_array(data_path_of(folder), "color")
    assert (len(readers), len(open_array(data_path_of(folder), "rgb"))) == (4, 1)
    assert (readers[0].spec.scale, readers[0].spec.units) == ((500, 100, 100), ("nm",) * 3)
    assert np.array_equal(
        read_all(readers[1]), read_all(open_array(data_path_of(GOLDEN / "wk_dataset" / "color" / "2-2-1"))[0])
    )


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda value: value.pop("dataLayers"), "'dataLayers' must be a list, not null or missing"),
        (lambda value: value.update(scale={"factor": [1, 1], "unit": "nm"}), "'scale.factor' must be a list of 3"),
        (lambda value: value.update(scale={"factor": [1, 1, None]}), r"'scale.factor\[2\]' must be a finite number"),
        (lambda value: value["dataLayers"][0].pop("boundingBox"), r"'dataLayers\[0\].boundingBox' must be a map"),
        (
            lambda value: value["dataLayers"][0]["boundingBox"].update(width=-1),
            r"boundingBox.width' must .*, not -1",
        ),
        (lambda value: value["dataLayers"][0]["boundingBox"].update(depth=2**40), "depth"),
        (
            lambda value: value["dataLayers"][0]["boundingBox"].update(depth=1.5),
            "must be an integer from 0 to 4294967295, not 1.5",
        ),
        (lambda value: value["dataLayers"][0]["mags"][0].update(mag=[3, 1, 1]), "must be powers of two"),
        (lambda value: value["dataLayers"][0].update(mags=[]), "one magnification at least, each once"),
        (lambda value: value["dataLayers"][0].update(mags=[{"mag": 1}, {"mag": [1, 1, 1]}]), "each once"),
        (lambda value: value["dataLayers"][0].update(name="../color"), "a name without slashes"),
        (lambda value: value["dataLayers"][0].update(name="\ud800"), "a name without slashes"),
        (lambda value: value["dataLayers"].clear(), "names no layer in WKW"),
    ],
)
def test_properties_that_cannot_be_are_named_by_field(tmp_path, change, text):
    with pytest.raises(CorruptDataset, match=text) as caught:
        open_array(data_path_of(edited(tmp_path, change)))
    assert str(tmp_path / "a") in str(caught.value)


def test_boxes_that_no_index_can_count_are_refused(tmp_path):
    def change(value):
        box = {"topLeft": [2**31] * 3, "width": 2**31, "height": 2**31, "depth": 2**31}
        value["dataLayers"][0]["boundingBox"] = box

    with pytest.raises(CorruptDataset, match=r"more than 2\^63 voxels"):
        open_array(data_path_of(edited(tmp_path, change)), "color")


@pytest.mark.parametrize("path", ["../color/1", "/etc", "https://example.org/1", "color/../../1"])
def test_magnifications_that_lie_elsewhere_are_not_followed(tmp_path, path):
    with pytest.raises(UnsupportedFeature, match="only folders below this one"):
        open_array(data_path_of(edited(tmp_path, lambda value: value["dataLayers"][0]["mags"][0].update(path=path))))


def test_layers_of_other_formats_are_left_out(tmp_path):
    folder = edited(tmp_path, lambda value: value["dataLayers"][0].update(dataFormat="zarr3"))
    assert find_layers(data_path_of(folder)) == ["rgb", "segmentation"]
    with pytest.raises(CorruptDataset, match="names no layer 'color' in WKW"):
        open_array(data_path_of(folder), "color")


def test_a_box_that_begins_elsewhere_keeps_the_positions(tmp_path):
    def change(value):
        value["dataLayers"][0]["boundingBox"] = {"topLeft": [10, 20, 30], "width": 20, "height": 30, "depth": 40}

    reader = open_array(data_path_of(edited(tmp_path, change)), "color")[0]
    assert reader.spec.shape == (70, 50, 30)
    whole = read_all(open_array(data_path_of(GOLDEN / "wk_dataset" / "color"))[0])
    assert np.array_equal(read_all(reader)[:40], whole[:, :50, :30])


@pytest.mark.parametrize("text", ["", "[", "[]", "{", '{"format": 1}', "\udcff", "[" * 100_000])
@pytest.mark.parametrize("name", ["acqstream-array.json", "datasource-properties.json"])
def test_files_that_are_no_json_are_named(tmp_path, name, text):
    write_array(tmp_path / "a", ArraySpec(axes=("z", "y", "x"), shape=(9, 9, 9), dtype=U2), levels=1)
    (tmp_path / "a" / "acqstream-array.json").unlink()
    (tmp_path / "a" / name).write_text(text, errors="surrogateescape")
    with pytest.raises(CorruptDataset, match=name):
        open_array(data_path_of(tmp_path / "a"))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"version": 2}, "'version' must be 1, .*, not 2"),
        ({"axes": ["x", "y", "z"]}, "axes"),
        ({"axes": ["z", "y"]}, "axes"),
        ({"dtype": "float16"}, "'dtype' must be one of .*, not 'float16'"),
        ({"state": "maybe"}, "writing or complete"),
        ({"layers": ["../.."]}, "layers"),
        ({"levels": []}, "one level at least"),
        ({"levels": [{"shape": [1, 1], "factors": [1, 1, 1]}]}, r"'levels\[0\].shape' must be a list of 3"),
        ({"cubes": {"blocks": "RAW", "block_side": 33, "cube_side": 66}}, "cubes.cube_side"),
        ({"cubes": {"blocks": "ZIP", "block_side": 32, "cube_side": 32}}, "'cubes.blocks' must be .*, not 'ZIP'"),
        ({"cubes": {"blocks": "RAW", "block_side": 0, "cube_side": 0}}, "cubes"),
    ],
)
def test_an_array_file_that_cannot_be_is_named_by_field(tmp_path, change, text):
    write_array(tmp_path / "a", ArraySpec(axes=("z", "y", "x"), shape=(9, 9, 9), dtype=U2), levels=1)
    path = tmp_path / "a" / "acqstream-array.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(CorruptDataset, match=text):
        open_array(data_path_of(tmp_path / "a"))


def test_what_grows_elsewhere_is_seen_by_refresh(tmp_path):
    spec = ArraySpec(axes=("channel", "z", "y", "x"), shape=(2, 0, 40, 40), dtype=U2)
    writer = begin(tmp_path / "a", planned(spec, levels=1), levels=1)
    (reader,) = open_array(data_path_of(tmp_path / "a"))
    assert reader.spec.shape == (2, 0, 40, 40)
    chunk = noise((1, 32, 64, 64), np.uint16)
    for channel in (0, 1):
        writer.store(0, [((channel, 0, 0, 0), writer.encode(0, (channel, 0, 0, 0), in_blocks(chunk, (1, 32, 32, 32))))])
    writer.grow(0, (2, 32, 40, 40))
    assert reader.spec.shape[1] == 0
    reader.refresh()
    assert reader.spec.shape[1] == 32
    assert np.array_equal(reader.read_chunk((1, 0, 0, 0)), chunk[:, :, :40, :40])
    with pytest.raises(IndexError, match=r"no chunk .* in a grid of"):
        reader.read_chunk((2, 0, 0, 0))


def test_a_reader_may_be_sent_to_another_process():
    reader = open_array(data_path_of(GOLDEN / "wk_dataset" / "color"))[1]
    sent = pickle.loads(pickle.dumps(reader))  # noqa: S301
    assert sent.spec == reader.spec
    assert np.array_equal(read_all(sent), read_all(reader))


def test_an_empty_folder_is_no_dataset(tmp_path):
    with pytest.raises(AcqStreamError, match=r"neither datasource-properties\.json nor header\.wkw"):
        open_array(data_path_of(tmp_path))


def test_a_folder_of_cubes_without_any_is_an_empty_array(tmp_path):
    (tmp_path / "header.wkw").write_bytes(Header(4, 2, BlockType.RAW, U2).encode(0))
    (reader,) = open_array(data_path_of(tmp_path))
    assert reader.spec.shape == (0, 0, 0)
    assert read_all(reader).shape == (0, 0, 0)
