"""What a user may ask for, and the levels and chunks that follow."""

from __future__ import annotations

import numpy as np
import pytest

from acqstream.arrays.array_spec import ArraySpec
from acqstream.errors import ConfigError
from acqstream.formats.chunk_layout import Plan
from acqstream.formats.wkw.axis_roles import axis_roles, layer_names
from acqstream.formats.wkw.header import BlockType
from acqstream.formats.wkw.layout import create_layout, plan
from acqstream.formats.wkw.metadata import WkwOptions, parse_options
from tests.formats.wkw.wkw_data import planned

U2 = np.dtype(np.uint16)


def stack(**changed):
    values = {"axes": ("z", "y", "x"), "shape": (100, 2048, 2048), "dtype": U2, "scale": (0.5, 0.1, 0.1)}
    return ArraySpec(**({"units": ("um",) * 3} | values | changed))


def encode_memory(levels, **given):
    return create_layout(Plan(levels=levels), parse_options(given)).max_encode_memory(levels[0])


def test_options_and_their_defaults():
    assert parse_options({}) == WkwOptions(BlockType.RAW, 0, None, "xyz")
    assert parse_options({"compression": "lz4"}).cube_side == 128
    given = {"compression": "lz4hc", "cube": 64, "levels": 2, "downsample": "xy"}
    assert parse_options(given) == WkwOptions(BlockType.LZ4HC, 64, 2, "xy")


@pytest.mark.parametrize(
    ("shape", "given", "side"),
    [
        ((1, 512, 512), {}, 32),
        ((10, 2048, 2048), {}, 64),
        ((100, 2048, 2048), {}, 128),
        ((5000, 2048, 2048), {}, 512),
        ((4, 40_000, 30_000), {}, 512),
        ((0, 2048, 2048), {}, 128),
        ((0, 2048, 2048), {"cube": 512}, 512),
        ((10, 2048, 2048), {"compression": "lz4"}, 128),
    ],
)
def test_cubes_follow_the_volume_unless_asked(shape, given, side):
    options = parse_options(given)
    cut = plan(stack(shape=shape), options)
    assert cut.full.shard_shape == (side,) * 3
    assert create_layout(cut.with_shapes([(7, 9, 9)] * len(cut.levels)), options).header.cube_side == side


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"blocks": 32}, "no option 'blocks', only compression, cube, levels, downsample"),
        ({"compression": "gzip"}, "compression is 'gzip', expected one of raw, lz4, lz4hc"),
        ({"compression": ["raw"]}, "expected one of raw"),
        ({"cube": 100}, "cube is 100, expected a power of two from 32 to 4096"),
        ({"cube": 16}, "expected a power of two"),
        ({"cube": True}, "expected a power of two"),
        ({"cube": 8192}, "from 32 to 4096"),
        ({"levels": 0}, 'levels are 0, expected "auto" or 1 to 16'),
        ({"levels": "many"}, "expected"),
        ({"downsample": "z"}, "downsample is 'z', expected one of xyz, xy"),
    ],
)
def test_wrong_options_are_named(given, text):
    with pytest.raises(ConfigError, match=text):
        parse_options(given)


def test_raw_chunks_are_layers_of_blocks_of_one_cube():
    levels = planned(stack(), cube=512)
    assert [level.shape for level in levels] == [(100, 2048, 2048), (100, 1024, 1024), (100, 512, 512)]
    assert [level.factors for level in levels] == [(1, 1, 1), (1, 2, 2), (1, 4, 4)]
    assert [level.chunk_shape for level in levels] == [(32, 512, 512)] * 3
    assert [level.memory_shape for level in levels] == [(1, 16, 16, 32, 32, 32)] * 3
    assert encode_memory(levels) == 0
    (small,) = planned(stack(shape=(100, 300, 20)), levels=1, cube=512)
    assert small.chunk_shape == (32, 320, 32)


def test_compressed_chunks_are_whole_cubes():
    levels = planned(stack(), compression="lz4")
    assert [level.chunk_shape for level in levels] == [(128, 128, 128)] * 3
    assert encode_memory(levels, compression="lz4") > levels[0].chunk_bytes


def test_sizes_on_a_disk_without_holes():
    for depth, n_cubes in ((0, 1), (1, 1), (129, 2)):
        cut = plan(stack(shape=(depth, 300, 128)), parse_options({"cube": 128, "levels": 1}))
        assert cut.sizes() == ((depth or 128) * 300 * 128 * 2, n_cubes * 3 * 128**3 * 2)


def test_levels_follow_the_voxels_and_keep_their_centres():
    *_, last = planned(stack(translation=(1.0, 2.0, 3.0)), levels=4)
    assert (last.factors, last.shape) == ((2, 8, 8), (50, 256, 256))
    assert last.scale == pytest.approx((1.0, 0.8, 0.8))
    assert last.translation == pytest.approx((1.25, 2.35, 3.35))
    assert planned(stack(), levels=4, downsample="xy")[3].factors == (1, 8, 8)
    assert planned(stack(units=("", "", "")), levels=4)[3].factors == (1, 8, 8)
    assert [level.shape for level in planned(stack(shape=(0, 3, 1)), levels=3)] == [(0, 3, 1), (0, 1, 1), (0, 1, 1)]


@pytest.mark.parametrize(
    ("axes", "shape", "expected"),
    [
        (("time", "z", "y", "x"), (5, 6, 7, 8), ("time", "z", "y", "x")),
        (("time", "channel", "y", "x"), (5, 6, 7, 8), ("channel", "time", "y", "x")),
        (("position", "y", "x"), (5, 7, 8), ("position", "z", "y", "x")),
        (("z", "time", "y", "x", "c"), (5, 6, 7, 8, 3), ("time", "z", "y", "x", "c")),
        (("y", "x"), (7, 8), ("z", "y", "x")),
    ],
)
def test_axes_come_in_the_order_of_wkw(axes, shape, expected):
    (level,) = planned(ArraySpec(axes=axes, shape=shape, dtype=np.dtype(np.uint8)), levels=1)
    assert level.axes == expected
    sizes = dict(zip(axes, shape, strict=True))
    assert level.shape == tuple(sizes.get(name, 1) for name in expected)
    assert axis_roles(level.axes).depth == expected.index("y") - 1


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"dtype": np.dtype(np.float16)}, "dtype float16 cannot be stored"),
        ({"dtype": np.dtype(bool)}, "dtype bool cannot be stored"),
        ({"axes": ("z", "y", "w")}, "needs an array with axes y and x"),
        ({"axes": ("y", "x", "c"), "shape": (9, 9, 200)}, "200 components of uint16"),
        ({"axes": ("a b", "a/b", "y", "x"), "shape": (1, 1, 9, 9), "scale": (), "units": ()}, "the same name"),
    ],
)
def test_arrays_that_wkw_cannot_hold_are_refused_in_words(changed, text):
    with pytest.raises(ConfigError, match=text):
        planned(stack(**changed))


def test_names_of_layers_are_plain_and_different():
    assert layer_names({}, 2) == ("C0", "C1")
    labels = {"channel": ["GFP", "gfp", "", "../x", ".hid", "é" * 300]}
    assert layer_names(labels, 7) == ("GFP", "gfp_", "C2", "_._x", "_hid", "_" * 100, "C6")
