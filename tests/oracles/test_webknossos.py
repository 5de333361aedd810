"""Our WKW containers through the webknossos package: layers, magnifications, extents and voxels, also while they grow.

It cannot be installed beside what the other tests need, so it has an environment of its own; see
docs/decisions/016-wkw.md.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from acqstream.formats.chunk_format import ArraySpec
from acqstream.formats.wkw.reader import open_readers
from tests.formats.wkw.wkw_data import begin, noise, planned, read_all, store, write_array

webknossos = pytest.importorskip("webknossos")
pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]

U2 = np.dtype(np.uint16)
SPEC = ArraySpec(
    axes=("channel", "z", "y", "x"), shape=(2, 70, 90, 130), dtype=U2, scale=(1, 0.5, 0.1, 0.1),
    units=("", "um", "um", "um"), labels={"channel": ("DAPI", "GFP")},
)  # fmt: skip


def voxels(layer, mag, shape):
    """(z, y, x) of one magnification."""
    z, y, x = shape
    steps = layer.get_mag(mag).mag
    size = (x * steps.x, y * steps.y, z * steps.z)
    found = layer.get_mag(mag).read(absolute_offset=(0, 0, 0), size=size)
    return found[0].transpose(2, 1, 0) if found.shape[0] == 1 else found.transpose(3, 2, 1, 0)


@pytest.mark.parametrize("compression", ["raw", "lz4", "lz4hc"])
def test_layers_and_magnifications_are_found_with_their_voxels(tmp_path, compression):
    arrays = write_array(tmp_path / "a", SPEC, levels=4, compression=compression, cube=64)
    dataset = webknossos.Dataset.open(tmp_path / "a")
    assert [*dataset.layers] == ["DAPI", "GFP"]
    assert dataset.voxel_size_with_unit.factor == pytest.approx((0.1, 0.1, 0.5))
    assert dataset.voxel_size_with_unit.unit.value == "micrometer"
    for channel, layer in enumerate(dataset.layers.values()):
        assert layer.bounding_box.size.to_tuple() == (130, 90, 70)
        assert [mag.to_layer_name() for mag in sorted(layer.mags)] == ["1", "2-2-1", "4-4-1", "8-8-2"]
        for mag, array in zip(sorted(layer.mags), arrays, strict=True):
            assert np.array_equal(voxels(layer, mag, array.shape[1:]), array[channel])


def test_rgb_and_every_time_point(tmp_path):
    spec = ArraySpec(axes=("time", "z", "y", "x", "c"), shape=(2, 33, 40, 50, 3), dtype=np.dtype(np.uint8))
    (array,) = write_array(tmp_path / "a", spec, levels=1)
    for time in range(2):
        (layer,) = webknossos.Dataset.open(tmp_path / "a" / f"time000{time}").layers.values()
        assert layer.num_channels == 3
        assert np.array_equal(voxels(layer, "1", (33, 40, 50)), array[time])


def test_the_dataset_opens_at_every_step_of_growing(tmp_path):
    final = planned(SPEC, levels=2, cube=32)
    growing = [replace(level, shape=(2, 0, *level.shape[2:])) for level in final]
    writer = begin(tmp_path / "a", growing, levels=2, cube=32)
    arrays = [noise(level.shape, U2, seed) for seed, level in enumerate(final)]
    for depth in (32, 64, 70):
        for number, level in enumerate(final):
            part = replace(level, shape=(2, depth, *level.shape[2:]))
            store(writer, number, part, arrays[number])
            writer.grow(number, part.shape)
        layer = webknossos.Dataset.open(tmp_path / "a").get_layer("GFP")
        assert layer.bounding_box.size.z == depth
        assert np.array_equal(voxels(layer, "2-2-1", (depth, 45, 65)), arrays[1][1, :depth])


def test_a_dataset_of_the_package_is_read(tmp_path):
    dataset = webknossos.Dataset(tmp_path / "a", voxel_size=(11.24, 11.24, 28))
    array = noise((40, 50, 60), np.uint16)
    box = webknossos.BoundingBox((0, 0, 0), (60, 50, 40))
    layer = dataset.add_layer("color", "color", dtype="uint16", data_format="wkw", bounding_box=box)
    layer.add_mag(1, compress=True).write(array.transpose(2, 1, 0), absolute_offset=(0, 0, 0), allow_unaligned=True)
    layer.downsample(coarsest_mag=webknossos.Mag("4-4-2"))
    readers = open_readers(tmp_path / "a")
    assert [reader.spec.factors for reader in readers] == [(1, 1, 1), (1, 2, 2), (2, 4, 4)]
    assert np.array_equal(read_all(readers[0]), array)
    assert readers[0].spec.units == ("nm",) * 3
