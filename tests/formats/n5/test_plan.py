"""How arrays are cut, and which levels are made of them."""

from __future__ import annotations

import numpy as np
import pytest

from acqstream.arrays.array_spec import ArraySpec
from acqstream.errors import ConfigError
from acqstream.formats.chunk_layout import Plan
from acqstream.formats.n5 import FORMAT


def plan(shape, axes=("z", "y", "x"), dtype="uint16", scale=(), **given):
    array = ArraySpec(axes=tuple(axes), shape=tuple(shape), dtype=np.dtype(dtype), scale=tuple(scale))
    return FORMAT.plan(array, FORMAT.parse_options(given)).levels


def test_blocks_hold_a_few_mebibytes():
    assert plan((100, 2048, 2048))[0].chunk_shape == (16, 512, 512)
    assert plan((5, 300, 2048))[0].chunk_shape == (5, 300, 512)
    assert plan((1, 2048, 2048))[0].chunk_shape == (1, 1024, 1024)
    assert plan((0, 2048, 2048))[0].chunk_shape == (16, 512, 512)  # z not known yet
    assert plan((100, 2048, 2048), blocks=[64, 128, 128])[0].chunk_shape == (64, 128, 128)
    assert plan((10, 20, 30), blocks=[64, 128, 128])[0].chunk_shape == (10, 20, 30)


def test_levels_go_on_until_one_fits_into_a_block():
    assert [level.shape for level in plan((100, 2000, 1500))] == [(100, 2000, 1500), (50, 1000, 750), (25, 500, 375)]
    assert len(plan((100, 512, 512))) == 1
    assert len(plan((100, 2000, 1500), levels=1)) == 1
    assert [level.shape for level in plan((4, 7, 5), levels=9)] == [(4, 7, 5), (2, 3, 2), (1, 1, 1)]
    assert plan((0, 2000, 1500))[2].shape == (0, 500, 375)


def test_voxels_that_are_longer_along_z_become_cubes_first():
    levels = plan((64, 4096, 4096), scale=(0.5, 0.1, 0.1))
    assert [level.factors for level in levels] == [(1, 1, 1), (1, 2, 2), (1, 4, 4), (2, 8, 8)]
    assert levels[3].scale == pytest.approx((1.0, 0.8, 0.8))
    assert levels[3].translation == pytest.approx((0.25, 0.35, 0.35))  # centre of the first voxel of a mean
    assert [level.factors for level in plan((64, 2048, 2048), downsample="xy")] == [(1, 1, 1), (1, 2, 2), (1, 4, 4)]


def test_axes_come_in_the_order_of_the_format():
    level = plan((3, 20, 30, 3, 2), axes=("time", "y", "x", "c", "channel"))[0]
    assert (level.axes, level.shape) == (("time", "channel", "c", "z", "y", "x"), (3, 2, 3, 1, 20, 30))
    assert level.chunk_shape == (1, 1, 1, 1, 20, 30)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"shape": (2, 3), "axes": ("z", "x")}, "axes y and x"),
        ({"shape": (2, 3, 4), "axes": ("x", "y", "x")}, "axes y and x, each once"),
        ({"shape": (2, 3, 4), "dtype": "float16"}, "no items of dtype float16"),
        ({"shape": (2, 3, 4), "dtype": "bool"}, "no items of dtype bool"),
        ({"shape": (1 << 12, 1 << 10, 1 << 10), "blocks": [1 << 10, 1 << 10, 1 << 10]}, "larger than 2147483647 bytes"),
    ],
)
def test_arrays_that_n5_cannot_hold_are_refused(given, text):
    with pytest.raises(ConfigError, match=text):
        plan(**given)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"colour": 1}, "no option 'colour', only layout, compression"),
        ({"layout": "zarr"}, "layout is 'zarr', expected one of bdv, multiscale, array"),
        ({"blocks": [1, 2]}, "three positive integers"),
        ({"blocks": [1, 2, 0]}, "three positive integers"),
        ({"blocks": [1 << 20, 1 << 10, 1 << 10]}, "three positive integers"),
        ({"levels": 0}, '"auto" or 1 to 16'),
        ({"levels": True}, '"auto" or 1 to 16'),
        ({"downsample": "z"}, "expected one of xyz, xy"),
        ({"compression": "jpeg"}, "expected one of raw, gzip, bzip2, xz, lz4, blosc, zstd"),
        ({"compression": {"level": 1}}, "expected one of raw"),
        ({"compression": 5}, "expected one of raw"),
        ({"compression": {"type": ["gzip"]}}, "expected one of raw"),
        ({"compression": {"type": "gzip", "level": 10}}, "gzip: level is 10, expected -1 to 9"),
        ({"compression": {"type": "xz", "preset": 6.0}}, "xz: preset is 6.0, expected 0 to 9"),
        ({"compression": {"type": "gzip", "level": True}}, "gzip: level is True"),
        ({"compression": {"type": "gzip", "useZlib": 1}}, "gzip: useZlib is 1, expected one of False, True"),
        ({"compression": {"type": "blosc", "cname": "snappy"}}, "blosc: cname is 'snappy', expected one of blosclz"),
        ({"compression": {"type": "blosc", "nthreads": 2}}, "blosc has no 'nthreads', only cname"),
        ({"compression": {"type": "raw", "level": 2}}, "raw has no 'level', only its type"),
    ],
)
def test_wrong_options_are_named(given, text):
    with pytest.raises(ConfigError, match=text):
        FORMAT.parse_options(given)


@pytest.mark.parametrize(
    ("given", "parameters"),
    [
        ("blosc", ("lz4", 1, 2)),
        ({"type": "blosc", "clevel": 9}, ("lz4", 9, 2)),
        ({"type": "blosc", "shuffle": 1}, ("lz4", 5, 1)),
        ({"type": "blosc", "shuffle": 0, "clevel": 1}, ("lz4", 1, 0)),
        ({"type": "blosc", "cname": "zstd"}, ("zstd", 5, 1)),
        ({"type": "blosc", "cname": "zstd", "shuffle": 2}, ("zstd", 5, 2)),
    ],
)
def test_blosc_shuffles_bits_for_lz4_unless_told_otherwise(given, parameters):
    cname, clevel, shuffle = parameters
    expected = {"type": "blosc", "cname": cname, "clevel": clevel, "shuffle": shuffle, "blocksize": 0}
    assert FORMAT.parse_options({"compression": given}).compression.to_json() == expected


def test_the_memory_of_encoding_is_known():
    levels = plan((16, 512, 512))

    def memory(**given):
        return FORMAT.layout(Plan(levels=levels), FORMAT.parse_options(given)).max_encode_memory(levels[0])

    assert memory(compression="raw") == 8 * 2**20  # the copy in big-endian
    assert memory() == (3 * 8 + 16) * 2**20 + 65536
    assert memory(compression={"type": "xz", "preset": 9}) == (3 * 8 + 674) * 2**20 + 65536
