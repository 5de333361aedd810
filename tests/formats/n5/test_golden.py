"""Containers that other software wrote: every dataset, element for element."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

import acqstream
from acqstream.errors import DatasetError, UnsupportedFeature
from tests.formats.n5.n5_samples import EXPECTED, GOLDEN

FOREIGN_LZ4 = [path for path, entry in EXPECTED.items() if entry.get("interoperable") is False]
READABLE = [path for path in EXPECTED if path not in FOREIGN_LZ4]


@pytest.mark.parametrize("path", READABLE)
def test_every_dataset_is_as_written(path):
    expected = EXPECTED[path]
    with acqstream.open(GOLDEN / path) as ds:
        (level,) = ds.levels
        array = level.read()
        assert (ds.format, str(level.dtype), list(level.shape)) == ("n5", expected["dtype"], expected["numpy_shape"])
        assert list(level.chunk_shape) == expected["blockSize"][::-1]
        little = array.astype(array.dtype.newbyteorder("<"))
        assert hashlib.sha256(little.tobytes()).hexdigest() == expected["sha256"]
        for missing in expected.get("missing_blocks") or ():
            assert dict(zip(level.axes, missing[::-1], strict=True)) in level.missing()


@pytest.mark.parametrize("path", FOREIGN_LZ4)
def test_two_dialects_of_lz4_are_refused(path):
    with acqstream.open(GOLDEN / path) as ds:
        with pytest.raises(UnsupportedFeature, match=r"0: lz4: one .*LZ4 block.* expected the stream"):
            ds.levels[0].read()


def test_all_golden_datasets_are_tested():
    files = [file for file in GOLDEN.rglob("attributes.json") if "blockSize" in file.read_text()]
    found = {file.parent.relative_to(GOLDEN).as_posix() for file in files}
    assert found == set(EXPECTED)
    assert len(FOREIGN_LZ4) == 2


def test_a_container_of_several_arrays_lists_them():
    with pytest.raises(
        DatasetError, match=r"java.n5: holds arrays that do not make up one; open one of them: f32_xz, "
    ):
        acqstream.open(GOLDEN / "java.n5")


def test_the_setups_and_time_points_of_bigdataviewer_are_axes():
    with acqstream.open(GOLDEN / "multiscale_bdv.n5") as ds:
        assert [level.shape for level in ds.levels] == [(2, 2, 12, 48, 64), (2, 2, 12, 24, 32), (2, 2, 6, 12, 16)]
        assert ds.levels[0].axes == ("time", "channel", "z", "y", "x")
        assert [level.factors[2:] for level in ds.levels] == [(1, 1, 1), (1, 2, 2), (2, 4, 4)]
        assert ds.levels[2].scale[2:] == (1.0, 0.4, 0.4)
        assert ds.levels[2].units[2:] == ("um", "um", "um")
        assert ds.levels[2].translation[2:] == pytest.approx((0.25, 0.15, 0.15))
        assert (ds.levels[1].pixel_size_um, ds.levels[1].z_step_um) == (0.2, 0.5)
        for number, level in enumerate(ds.levels):
            for time, setup in np.ndindex(2, 2):
                part = GOLDEN / "multiscale_bdv.n5" / f"setup{setup}" / f"timepoint{time}" / f"s{number}"
                with acqstream.open(part) as alone:
                    assert np.array_equal(level.read((time, setup)), alone.levels[0].read())


@pytest.mark.parametrize(
    ("inside", "shape"),
    [
        ("setup0", (2, 12, 48, 64)),
        ("setup0/timepoint1", (12, 48, 64)),
        ("setup0/timepoint1/s1", (12, 24, 32)),
        ("setup0/timepoint1/s1/attributes.json", (12, 24, 32)),
        ("setup0/timepoint1/s1/0/0/0", (12, 24, 32)),
        ("setup0/timepoint1/s1/0", (12, 24, 32)),
        ("attributes.json", (2, 2, 12, 48, 64)),
    ],
)
def test_any_place_in_a_container_opens(inside, shape):
    with acqstream.open(GOLDEN / "multiscale_bdv.n5" / inside) as ds:
        assert ds.shape == shape
        if "s1" in inside:
            assert ds.levels[0].factors == (1, 2, 2)


def test_the_axes_of_tensorstore_are_read():
    with acqstream.open(GOLDEN / "tensorstore.n5" / "u16_raw") as ds:
        assert ds.levels[0].axes == ("z", "y", "x")
        assert (ds.levels[0].scale, ds.levels[0].units) == ((0.5, 0.1, 0.1), ("um", "um", "um"))


def test_containers_behind_urls_are_read():
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    path = GOLDEN / "java.n5" / "u16_raw"
    for file in path.rglob("*"):
        if file.is_file():
            memory.pipe(f"/golden_n5/a.n5/{file.relative_to(path.parent).as_posix()}", file.read_bytes())
    try:
        with acqstream.open("memory://golden_n5/a.n5/u16_raw") as ds, acqstream.open(path) as here:
            assert np.array_equal(ds.levels[0].read(), here.levels[0].read())
            assert ds.levels[0].missing() == here.levels[0].missing()
    finally:
        memory.rm("/golden_n5", recursive=True)
