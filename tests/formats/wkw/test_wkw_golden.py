"""Datasets that other software wrote: every voxel, and zeros around them."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import acqstream
from acqstream.errors import DatasetError
from acqstream.formats.check_report import CheckReport
from acqstream.formats.wkw import FORMAT
from acqstream.formats.wkw.cube_folder import CubeFolder
from acqstream.formats.wkw.foreign import find_levels, open_array
from acqstream.formats.wkw.header import BlockType, encode_jump_table
from acqstream.formats.wkw.layout import Cube, cube_path
from acqstream.storage.stores.data_path import data_path_of
from tests.formats.wkw.wkw_data import GOLDEN, read_all, write_cubes

EXPECTED = json.loads((GOLDEN / "expected.json").read_text())
ARRAYS = {entry["path"]: entry for entry in EXPECTED["arrays"]}
LAYERS = {f"{entry['layer']}/{entry['mag']}": entry for entry in EXPECTED["wk_dataset"]["layers"]}


def sha256(array: NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()).hexdigest()


def region(array: NDArray[Any], entry: dict[str, Any]) -> NDArray[Any]:
    """The voxels that `entry` tells of, zeros where it reaches beyond the array."""
    offset, size = entry["offset_xyz"][::-1], entry["size_xyz"][::-1]
    reach = [max(0, at + count - have) for at, count, have in zip(offset, size, array.shape, strict=False)]
    padded = np.pad(array, [*((0, more) for more in reach), *((0, 0) for _ in array.shape[3:])])
    return padded[tuple(slice(at, at + count) for at, count in zip(offset, size, strict=True))]


@pytest.mark.parametrize("name", ARRAYS)
def test_every_array_is_as_written(name):
    expected = ARRAYS[name]
    (reader,) = open_array(data_path_of(GOLDEN / name))
    array = read_all(reader)
    found = region(array, expected)
    assert (str(found.dtype), list(found.shape)) == (expected["dtype"], expected["numpy_shape"])
    assert sha256(found) == expected["sha256"]
    assert sha256(region(array, expected["padded_read"])) == expected["padded_read"]["sha256"]
    assert {path.relative_to(GOLDEN / name).as_posix() for path in checked(name).own_files} == set(expected["files"])
    header = CubeFolder(data_path_of(GOLDEN / name)).header
    assert (header.block_side, header.cube_blocks) == (expected["block_len"], expected["file_len"])
    assert header.block_type is BlockType[expected["block_type"].upper()]
    assert reader.complete


def checked(name: str) -> CheckReport:
    report = CheckReport()
    FORMAT.check(data_path_of(GOLDEN / name), report)
    assert report.problems == []
    return report


def whole_cube(folder: CubeFolder, cube: Cube) -> NDArray[Any]:
    """(z, y, x[, c]) of a cube file."""
    header = folder.header
    voxels = np.zeros(((header.cube_side,) * 3 + header.block_shape[3:]), header.dtype)
    for position in folder.pieces_of(cube):
        piece = folder.read_piece(position)
        assert piece is not None
        starts = [at * size % header.cube_side for at, size in zip(position, folder.piece_shape, strict=True)]
        voxels[tuple(slice(at, at + size) for at, size in zip(starts, folder.piece_shape, strict=True))] = piece
    return voxels


@pytest.mark.parametrize("name", [path.parent.relative_to(GOLDEN).as_posix() for path in GOLDEN.rglob("header.wkw")])
def test_every_file_comes_out_again_byte_for_byte(tmp_path, name):
    folder = CubeFolder(data_path_of(GOLDEN / name))
    for cube in folder.cubes():
        write_cubes(tmp_path, folder.header, whole_cube(folder, cube), cube)
        ours, theirs = ((path / cube_path(cube)).read_bytes() for path in (tmp_path, GOLDEN / name))
        if folder.header.block_type is BlockType.LZ4:  # its blocks differ with the version of the LZ4 library
            first = folder.header.first_block
            lengths = np.diff(np.frombuffer(theirs, "<u8", folder.header.block_count + 1, offset=8).astype(np.int64))
            ours = ours[:16] + encode_jump_table(folder.header, lengths.tolist())
            theirs = theirs[:first]
        assert ours == theirs
    assert (tmp_path / "header.wkw").read_bytes() == (GOLDEN / name / "header.wkw").read_bytes()


@pytest.mark.parametrize("name", LAYERS)
def test_every_magnification_of_the_dataset_is_as_written(name):
    expected = LAYERS[name]
    (reader,) = open_array(data_path_of(GOLDEN / "wk_dataset" / name))
    found = region(read_all(reader), expected)
    assert (str(found.dtype), list(found.shape)) == (expected["dtype"], expected["numpy_shape"])
    assert sha256(found) == expected["sha256"]
    assert reader.spec.units[:3] == ("um",) * 3
    mag = [*reversed(reader.spec.factors[:3])]
    assert np.allclose(reader.spec.scale[2::-1], np.multiply(EXPECTED["wk_dataset"]["voxel_size"], mag))


def test_layers_that_differ_are_named_and_each_is_a_stack_of_levels():
    with pytest.raises(DatasetError, match=r"open one of them: .*color, .*rgb, .*segmentation"):
        open_array(data_path_of(GOLDEN / "wk_dataset"))
    found = {
        f"{layer}/{'-'.join(map(str, reader.spec.factors[2::-1]))}": reader
        for layer in ("color", "rgb", "segmentation")
        for reader in open_array(data_path_of(GOLDEN / "wk_dataset" / layer))
    }
    assert [name.replace("/1-1-1", "/1") for name in found] == list(LAYERS)
    for reader, expected in zip(found.values(), LAYERS.values(), strict=True):
        assert sha256(region(read_all(reader), expected)) == expected["sha256"]
        assert reader.spec.attributes == {"layer": expected["layer"]}
    assert found["color/1-1-1"].spec.axes == ("z", "y", "x")
    assert found["rgb/1-1-1"].spec.axes == ("z", "y", "x", "c")
    assert checked("wk_dataset").notes == []


@pytest.mark.parametrize(
    "name",
    [
        "wk_dataset",
        "wk_dataset/datasource-properties.json",
        "wk_dataset/color",
        "wk_dataset/color/2-2-1",
        "wk_dataset/color/2-2-1/header.wkw",
        "wk_dataset/color/2-2-1/z0/y0/x0.wkw",
    ],
)
def test_a_dataset_is_found_from_everything_in_it(name):
    path = GOLDEN / name
    assert FORMAT.detect(data_path_of(path))
    assert FORMAT.folder(data_path_of(path)) == data_path_of(GOLDEN / "wk_dataset")
    assert find_levels(data_path_of(path), "color")


def test_other_folders_are_none_of_ours(tmp_path):
    assert not FORMAT.detect(data_path_of(tmp_path))
    assert not FORMAT.detect(data_path_of(GOLDEN.parent / "ndtiff" / "py_uint16" / "data"))
    (tmp_path / "datasource-properties.json").write_text('{"dataLayers": [{"dataFormat": "zarr"}]}')
    assert not FORMAT.detect(data_path_of(tmp_path))


def test_a_layer_opens_as_a_dataset_with_levels():
    with acqstream.open(GOLDEN / "wk_dataset" / "color") as dataset:
        assert (dataset.format, dataset.shape, len(dataset.levels)) == ("wkw", (40, 72, 100), 4)
        whole = read_all(open_array(data_path_of(GOLDEN / "wk_dataset" / "color"))[1])
        assert np.array_equal(dataset.levels[1].read((slice(3, 30), ..., -1)), whole[3:30, :, -1])
        assert dataset.levels[1].missing_count == 0
