"""Cubes of every kind through the reference library: what one writes the other reads."""

from __future__ import annotations

import numpy as np
import pytest

from acqstream.errors import CorruptDataset
from acqstream.formats.check_report import CheckReport
from acqstream.formats.wkw import FORMAT
from acqstream.formats.wkw.cube_folder import CubeFolder
from acqstream.formats.wkw.foreign import open_array
from acqstream.formats.wkw.header import VOXEL_TYPES, BlockType, Header
from acqstream.storage.stores.data_path import data_path_of
from tests.formats.wkw.wkw_data import noise, read_all, write_cubes

wkw = pytest.importorskip("wkw")
pytestmark = pytest.mark.oracle

LENGTHS = [(1, 1), (1, 8), (4, 1), (4, 4), (8, 2), (32, 1), (32, 2)]


def read_wkw(folder, shape):
    """(z, y, x[, c]) through the reference library."""
    with wkw.Dataset.open(str(folder)) as dataset:
        array = dataset.read((0, 0, 0), shape[2::-1])
    return array.transpose(3, 2, 1, 0) if len(shape) == 4 else array[0].transpose(2, 1, 0)


def write_wkw(folder, header, voxels):
    kind = wkw.Header(
        header.dtype.type,
        header.channels,
        block_len=header.block_side,
        file_len=header.cube_blocks,
        block_type=int(header.block_type),
    )
    with wkw.Dataset.create(str(folder), kind) as dataset:
        array = voxels.transpose(3, 2, 1, 0) if voxels.ndim == 4 else voxels.transpose(2, 1, 0)
        dataset.write((0, 0, 0), np.asfortranarray(array))


@pytest.mark.parametrize("block_type", BlockType)
@pytest.mark.parametrize("channels", [1, 3])
def test_every_voxel_type_both_ways(tmp_path, block_type, channels):
    for dtype in VOXEL_TYPES.values():
        check_both_ways(tmp_path / str(dtype), Header(4, 2, block_type, dtype, channels), cubes=2)


@pytest.mark.parametrize("block_type", [BlockType.RAW, BlockType.LZ4])
def test_lengths_of_blocks_and_cubes_both_ways(tmp_path, block_type):
    for block_side, cube_blocks in LENGTHS:
        header = Header(block_side, cube_blocks, block_type, np.dtype(np.uint16))
        check_both_ways(tmp_path / f"{block_side}_{cube_blocks}", header, cubes=1)


@pytest.mark.parametrize("block_type", [BlockType.RAW, BlockType.LZ4])
def test_the_widest_voxel_both_ways(tmp_path, block_type):
    check_both_ways(tmp_path, Header(2, 2, block_type, np.dtype(np.uint16), channels=127), cubes=1)


def check_both_ways(path, header, cubes):
    side = header.cube_side
    channels = (header.channels,) if header.channels > 1 else ()
    voxels = noise((side, side, cubes * side, *channels), header.dtype)
    path.mkdir(exist_ok=True)
    write_cubes(path / "ours", header, voxels)
    assert np.array_equal(read_wkw(path / "ours", voxels.shape), voxels)
    write_wkw(path / "theirs", header, voxels)
    (reader,) = open_array(data_path_of(path / "theirs"))
    assert reader.spec.shape == voxels.shape
    assert np.array_equal(read_all(reader), voxels)
    for file in ("header.wkw", "z0/y0/x0.wkw"):
        ours, theirs = ((path / who / file).read_bytes() for who in ("ours", "theirs"))
        if header.block_type is BlockType.RAW or file == "header.wkw":
            assert ours == theirs
        else:
            assert ours[:16] == theirs[:16]


def test_what_the_reference_library_transcoded_is_read(tmp_path):
    header = Header(8, 2, BlockType.RAW, np.dtype(np.uint16))
    voxels = noise((16, 16, 32), np.uint16) // 1000
    write_cubes(tmp_path / "raw", header, voxels)
    with wkw.Dataset.open(str(tmp_path / "raw")) as dataset:
        dataset.compress(str(tmp_path / "packed"), compress_files=True).close()
    folder = CubeFolder(data_path_of(tmp_path / "packed"))
    assert folder.header.block_type is BlockType.LZ4HC
    assert np.array_equal(read_all(open_array(data_path_of(tmp_path / "packed"))[0]), voxels)


@pytest.mark.parametrize("told", [BlockType.LZ4, BlockType.LZ4HC])
def test_lz4_and_lz4_hc_in_one_folder_are_read_as_the_reference_library_reads_them(tmp_path, told):
    stored = BlockType.LZ4HC if told is BlockType.LZ4 else BlockType.LZ4
    voxels = noise((16, 16, 16), np.uint16) // 1000
    write_cubes(tmp_path / "a", Header(8, 2, stored, np.dtype(np.uint16)), voxels)
    header = bytearray((tmp_path / "a" / "header.wkw").read_bytes())
    header[5] = told
    (tmp_path / "a" / "header.wkw").write_bytes(header)
    assert np.array_equal(read_wkw(tmp_path / "a", voxels.shape), voxels)
    assert np.array_equal(read_all(open_array(data_path_of(tmp_path / "a"))[0]), voxels)
    assert FORMAT.check is not None
    report = CheckReport()
    FORMAT.check(data_path_of(tmp_path / "a"), report)
    assert not report.problem_count


@pytest.mark.parametrize("told", [BlockType.LZ4, BlockType.LZ4HC])
def test_raw_cubes_are_not_read_as_compressed_ones(tmp_path, told):
    write_cubes(tmp_path / "a", Header(8, 2, BlockType.RAW, np.dtype(np.uint16)), noise((16, 16, 16), np.uint16))
    header = bytearray((tmp_path / "a" / "header.wkw").read_bytes())
    header[5] = told
    (tmp_path / "a" / "header.wkw").write_bytes(header)
    with pytest.raises(CorruptDataset, match="begins with"):
        read_all(open_array(data_path_of(tmp_path / "a"))[0])
