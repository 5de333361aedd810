"""Which arrays of foreign containers make up one."""

from __future__ import annotations

import json

import numpy as np
import pytest

import acqstream
from acqstream.errors import DatasetError
from acqstream.formats.n5.foreign import find_datasets
from acqstream.storage.stores.data_path import data_path_of
from tests.formats.n5.n5_samples import block, make_dataset, put_block
from tests.host_system import make_link


def fill(folder, value):
    put_block(folder, (0, 0), block((2, 2), [value] * 4))


def make_group(folder, value, sizes=(4, 2)):
    for level, size in enumerate(sizes):
        fill(make_dataset(folder / f"s{level}", [size, size], [2, 2]), value + level)


def test_a_group_of_levels_opens_as_one(tmp_path):
    make_group(tmp_path / "a.n5" / "em", 5)
    with acqstream.open(tmp_path / "a.n5" / "em") as ds:
        assert [level.shape for level in ds.levels] == [(4, 4), (2, 2)]
        assert ds.levels[1].factors == (2, 2)  # nothing said: halved along all axes
        assert ds.levels[1].read().tolist() == [[6, 6], [6, 6]]
        assert ds.levels[0].pixel_size_um is None


def test_the_only_array_of_a_container_opens_with_it(tmp_path):
    make_group(tmp_path / "a.n5" / "volumes" / "raw", 5)
    with acqstream.open(tmp_path / "a.n5") as ds:
        assert ds.levels[0].shape == (4, 4)


def test_links_that_lead_round_in_a_ring_are_passed_over(tmp_path):
    volumes = tmp_path / "a.n5" / "volumes"
    make_group(volumes / "raw", 5)
    for name in ("a", "b", "c"):  # looked into before `raw`
        make_link(volumes / name, volumes)
    expected = [data_path_of(volumes / "raw" / name) for name in ("s0", "s1")]
    assert find_datasets(data_path_of(tmp_path / "a.n5"), 10) == expected


def test_numbered_groups_are_an_axis(tmp_path):
    for time in (0, 1, 3):
        for channel in (0, 1):
            make_group(tmp_path / "a.n5" / f"c{channel}" / f"t{time}", 10 * time + 100 * channel)
    with acqstream.open(tmp_path / "a.n5") as ds:
        assert ds.levels[0].axes == ("time", "channel", "y", "x")
        assert ds.shape == (4, 2, 4, 4)
        assert ds.levels[1].read((3, 1)).tolist() == [[131, 131], [131, 131]]
        assert not ds.levels[1].read(2).any()
        assert [tuple(position.values())[:2] for position in ds.levels[1].missing()] == [(2, 0), (2, 1)]
        assert ds.axes == {"time": [0, 1, 2, 3], "channel": [0, 1]}


def test_missing_time_points_of_bigdataviewer_are_zeros(tmp_path):
    make_group(tmp_path / "a.n5" / "setup0" / "timepoint0", 1)
    make_group(tmp_path / "a.n5" / "setup1" / "timepoint2", 2)
    (tmp_path / "a.n5" / "setup1" / "timepoint5").mkdir()
    (tmp_path / "a.n5" / "interestpoints").mkdir()
    with acqstream.open(tmp_path / "a.n5") as ds:
        assert (ds.levels[0].axes, ds.shape) == (("time", "channel", "y", "x"), (3, 2, 4, 4))
        assert [int(ds.levels[0].read((t, c, 0, 0))) for t, c in np.ndindex(3, 2)] == [1, 0, 0, 0, 0, 2]


def test_arrays_of_other_shapes_are_listed(tmp_path):
    make_group(tmp_path / "a.n5" / "setup0" / "timepoint0", 1)
    make_group(tmp_path / "a.n5" / "setup1" / "timepoint0", 1, sizes=(6, 3))
    with pytest.raises(DatasetError, match=r"do not make up one; open one of them: setup0.timepoint0.s0, "):
        acqstream.open(tmp_path / "a.n5")
    with acqstream.open(tmp_path / "a.n5" / "setup1") as ds:
        assert ds.shape == (1, 6, 6)


def test_many_arrays_are_not_all_listed(tmp_path):
    for number in range(30):
        make_dataset(tmp_path / "a.n5" / f"array_{number}_x", [2], [2])
    with pytest.raises(DatasetError, match=r", \.\.\.$"):
        acqstream.open(tmp_path / "a.n5")


def test_sizes_are_read_from_a_group_of_neuroglancer(tmp_path):
    make_group(tmp_path / "a.n5" / "em", 5)
    attributes = {
        "resolution": [4, 8],
        "units": ["nm", "nm"],
        "axes": ["x", "y"],
        "downsamplingFactors": [[1, 1], [2, 4]],
    }
    (tmp_path / "a.n5" / "em" / "attributes.json").write_text(json.dumps(attributes))
    with acqstream.open(tmp_path / "a.n5" / "em") as ds:
        assert (ds.levels[1].scale, ds.levels[1].units) == ((32.0, 8.0), ("nm", "nm"))
        assert ds.levels[1].translation == (12.0, 2.0)
        assert ds.levels[1].pixel_size_um == pytest.approx(0.008)


def test_the_transform_of_cosem_comes_before_all_else(tmp_path):
    transform = {"axes": ["y", "x"], "scale": [8, 4], "translate": [2, -1.5], "units": ["nm", "um"]}
    resolution = {"unit": "mm", "dimensions": [1, 1]}
    folder = make_dataset(tmp_path / "a.n5" / "d", [2, 2], [2, 2], transform=transform, pixelResolution=resolution)
    with acqstream.open(folder) as ds:
        level = ds.levels[0]
        assert (level.axes, level.scale, level.translation, level.units) == (
            ("y", "x"),
            (8, 4),
            (2, -1.5),
            ("nm", "um"),
        )
    make_dataset(folder, [2, 2], [2, 2], transform={**transform, "axes": ["x", "y"], "scale": [4, 8], "ordering": "F"})
    with acqstream.open(folder) as ds:
        assert (ds.levels[0].axes, ds.levels[0].scale) == (("y", "x"), (8, 4))


@pytest.mark.parametrize(
    "wrong",
    [
        {"pixelResolution": {"unit": "um", "dimensions": [1, 1, 1]}},
        {"pixelResolution": {"unit": 5, "dimensions": [1, -1]}},
        {"transform": {"scale": [1, float("nan")]}},
        {"transform": "none", "axes": [{"name": "x"}, {"name": "y"}]},
        {"resolution": [10**400, 1], "units": "um"},
        {"downsamplingFactors": [0, 1], "axes": ["x", "x"]},
    ],
)
def test_sizes_that_make_no_sense_are_passed_over(tmp_path, wrong):
    folder = make_dataset(tmp_path / "a.n5" / "d", [2, 2], [2, 2], **wrong)
    with acqstream.open(folder) as ds:
        level = ds.levels[0]
        assert (level.axes, level.scale, level.factors) == (("y", "x"), (1, 1), (1, 1))


def test_a_dataset_that_grows_is_seen_after_refresh(tmp_path):
    folder = make_dataset(tmp_path / "a.n5" / "d", [2, 2], [2, 2])
    with acqstream.open(folder) as ds:
        assert not ds.levels[0].read().any()
        fill(folder, 3)  # a block inside the bounds is seen at once
        assert ds.levels[0].read().all()
        make_dataset(folder, [2, 4], [2, 2])
        put_block(folder, (0, 1), block((2, 2), [4] * 4))
        assert ds.shape == (2, 2)
        ds.refresh()
        assert ds.levels[0].read()[:, 0].tolist() == [3, 3, 4, 4]


def test_a_refresh_that_fails_leaves_all_as_it_was(tmp_path):
    folder = make_dataset(tmp_path / "a.n5" / "d", [2, 2], [2, 2])
    fill(folder, 3)
    with acqstream.open(folder) as ds:
        make_dataset(folder, [4, 4], [2, 2], dataType="float16")
        with pytest.raises(DatasetError, match="float16"):
            ds.refresh()
        (folder / "attributes.json").unlink()
        with pytest.raises(DatasetError):
            ds.refresh()
        assert ds.levels[0].read().tolist() == [[3, 3], [3, 3]]
