"""Volumes that other software wrote: every scale, voxel for voxel."""

from __future__ import annotations

import hashlib
import math
import shutil

import numpy as np
import pytest

from acqstream.formats.check_report import CheckReport
from acqstream.formats.precomputed.foreign import check_volume
from acqstream.storage.stores.data_path import data_path_of
from tests.formats.precomputed.precomputed_data import EXPECTED, GOLDEN, open_at, read_all

SPARSE = "ts_f32_sparse"


@pytest.mark.parametrize("name", EXPECTED)
def test_every_scale_is_as_written(name):
    readers = open_at(GOLDEN / name)
    assert len(readers) == len(EXPECTED[name]["scales"])
    for reader, expected in zip(readers, EXPECTED[name]["scales"], strict=True):
        x, y, z, channels = expected["shape_xyzc"]
        shape = (channels, z, y, x)
        assert (reader.spec.shape, str(reader.spec.dtype)) == (shape if channels > 1 else shape[1:], expected["dtype"])
        array = read_all(reader)
        little = array.astype(array.dtype.newbyteorder("<"))
        assert hashlib.sha256(little.tobytes()).hexdigest() == expected["sha256_c_order_czyx"]
        for at_x, at_y, at_z, channel, value in expected["samples"]:
            assert array.reshape(shape)[channel, at_z, at_y, at_x] == pytest.approx(value)


@pytest.mark.parametrize("name", EXPECTED)
def test_stored_chunks_are_listed_and_whole(name):
    expected = sum(math.prod(reader.spec.grid_shape) for reader in open_at(GOLDEN / name))
    for reader in open_at(GOLDEN / name):
        stored = [*reader.stored()]
        assert len(set(stored)) == len(stored)
        for position in np.ndindex(*reader.spec.grid_shape):
            assert (reader.read_chunk(position) is not None) == (position in stored)
    report = CheckReport()
    counts = check_volume(data_path_of(GOLDEN / name), report)
    assert not report.problems
    assert not report.notes
    assert counts.arrays == len(EXPECTED[name]["scales"])
    assert counts.chunks + counts.missing == expected
    assert (counts.missing > 0) == (name == SPARSE)


def test_resolution_and_offset_are_micrometers_of_voxel_centres():
    first, second = (reader.spec for reader in open_at(GOLDEN / "ts_u16_unsharded_2scales"))
    assert (first.axes, first.units) == (("z", "y", "x"), ("um", "um", "um"))
    assert (first.scale, first.translation) == ((0.5, 0.2, 0.2), (0.0, 0.0, 0.0))
    assert (second.scale, second.factors) == ((0.5, 0.4, 0.4), (1, 2, 2))
    assert second.translation == pytest.approx((0.0, 0.1, 0.1))
    (moved,) = open_at(GOLDEN / "ts_u8_c3_murmur_raw")
    assert moved.spec.axes == ("c", "z", "y", "x")
    assert moved.spec.translation == pytest.approx((0.0, 0.007, -0.006, 0.005))
    assert moved.spec.units == ("", "um", "um", "um")


def test_all_golden_volumes_are_tested():
    assert {path.parent.name for path in GOLDEN.glob("*/info")} == set(EXPECTED)


@pytest.mark.parametrize("name", ["cv_u16_unsharded_gz", "cv_u16_sharded"])
def test_a_file_of_no_chunk_is_noted(name, tmp_path):
    shutil.copytree(GOLDEN / name, tmp_path / name)
    (folder,) = {path.parent for path in (tmp_path / name).glob("*/*") if path.is_file()}
    (folder / "notes.txt").write_text("by a stranger")
    report = CheckReport()
    check_volume(data_path_of(tmp_path / name), report)
    assert report.notes == [f"{folder / 'notes.txt'} belongs to no chunk"]
