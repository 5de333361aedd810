"""Datasets of arrays as users see them."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

import acqstream
from acqstream.arrays.level_layout import LevelAxis, pixel_axis
from acqstream.dataset import dask_arrays
from acqstream.dataset.level_array import LevelArray
from acqstream.errors import UnsupportedFeature
from tests.formats.n5.n5_samples import make_dataset, samples, write_pyramid

AXES = ("time", "z", "y", "x")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    array = samples((3, 5, 21, 30), "uint16")
    path = tmp_path_factory.mktemp("chunks") / "a.n5"
    write_pyramid(
        path, array, AXES, levels=2, blocks=[2, 8, 16], scale=(1, 0.5, 0.1, 0.1), units=("s", "um", "um", "um")
    )
    return path, array


@pytest.mark.parametrize(
    "selection",
    [
        ...,
        0,
        -1,
        (..., 3),
        (1, 2, 3, 4),
        (slice(None), 2),
        (slice(1, 3), ..., slice(5, 20), slice(None, None, 7)),
        (..., slice(None, None, -1)),
        (0, slice(4, None, -2), slice(20, 2, -5), slice(-1, 0, -9)),
        (slice(2, 2), ...),
        (np.int64(1), slice(0, 100)),
    ],
)
def test_parts_are_selected_as_in_numpy(made, selection):
    path, array = made
    with acqstream.open(path) as ds:
        found = ds.levels[0].read(selection)
        assert found.dtype == array.dtype
        assert np.array_equal(found, array[selection])
        assert np.array_equal(ds.levels[0][selection], array[selection])
        assert found.flags.writeable or not found.ndim
        assert np.array_equal(np.asarray(ds.levels[0]), array)


@pytest.mark.parametrize("selection", [3, (0, 0, 0, 0, 0), (..., 30), (..., ...)])
def test_parts_that_do_not_fit_are_index_errors(made, selection):
    with acqstream.open(made[0]) as ds, pytest.raises(IndexError):
        ds.levels[0].read(selection)


def test_only_the_chunks_selected_are_read_and_each_once(made, monkeypatch):
    path, array = made
    with acqstream.open(path) as ds:
        reader, seen = ds.levels[0].source.reader, []
        plain = reader.read_chunk
        monkeypatch.setattr(reader, "read_chunk", lambda position: (seen.append(position), plain(position))[1])
        assert np.array_equal(ds.levels[0].read((1, slice(3, None, -1), 8, slice(15, 17))), array[1, 3::-1, 8, 15:17])
        assert sorted(seen) == [(1, 0, 1, 0), (1, 0, 1, 1), (1, 1, 1, 0), (1, 1, 1, 1)]


def test_what_is_known_of_it(made):
    path, array = made
    with acqstream.open(path) as ds:
        assert (ds.path, ds.format, ds.complete, ds.writing, ds.state) == (path, "n5", True, False, None)
        assert (ds.shape, ds.dtype, ds.axes) == (array.shape, array.dtype, {"time": [0, 1, 2], "z": [0, 1, 2, 3, 4]})
        full, half = ds.levels
        assert (full.chunk_shape, half.shape) == ((1, 2, 8, 16), (3, 5, 10, 15))
        assert (full.pixel_size_um, half.pixel_size_um, half.z_step_um) == (0.1, 0.2, 0.5)
        assert (full.missing(), full.missing_count, full.ndim) == ([], 0, 4)
        assert "n5" in repr(ds)


def test_missing_chunks_are_zeros_and_told(made, tmp_path):
    import shutil

    path, array = made
    copy = tmp_path / "copy.n5"
    shutil.copytree(path, copy)
    (copy / "setup0" / "timepoint1" / "s0" / "1" / "0" / "2").unlink()
    with acqstream.open(copy) as ds:
        expected = array.copy()
        expected[1, 4:, :8, 16:] = 0
        assert np.array_equal(ds.levels[0].read(), expected)
        assert (ds.levels[0].missing(), ds.levels[0].missing_count) == ([{"time": 1, "z": 2, "y": 0, "x": 1}], 1)
        assert ds.levels[0].missing((1, slice(4, None))) == ds.levels[0].missing((1, 4, 0, slice(16, 17)))
        assert ds.levels[0].missing((0, 4)) == ds.levels[0].missing((..., slice(0, 16))) == []
        shutil.copy(
            path / "setup0" / "timepoint1" / "s0" / "1" / "0" / "2", copy / "setup0" / "timepoint1" / "s0" / "1" / "0"
        )
        assert np.array_equal(ds.levels[0].read(), array)  # nothing is remembered of what was missing


def test_a_layout_that_reaches_beyond_the_array_has_zeros_there(made):
    path, array = made
    with acqstream.open(path) as ds:
        level = ds.levels[0]
        layout = level.source.layout()
        pixels = (pixel_axis("y", -2, 30), pixel_axis("x", 25, 20))
        depths = LevelAxis("z", [4, 9, 0], [4, 9, 0])
        wide = LevelArray(level.source, replace(layout, outer=(layout.outer[0], depths), pixels=pixels))
        expected = np.zeros((3, 3, 30, 20), array.dtype)
        expected[:, 0, 2:23, :5], expected[:, 2, 2:23, :5] = array[:, 4, :, 25:], array[:, 0, :, 25:]
        assert np.array_equal(wide[...], expected)


def test_dask_reads_chunk_by_chunk_in_other_processes_too(made, monkeypatch):
    pytest.importorskip("dask")
    monkeypatch.setattr(dask_arrays, "CHUNK_BYTES", 1)
    path, array = made
    with acqstream.open(path) as ds:
        lazy = ds.to_dask()
        assert (lazy.shape, lazy.dtype, lazy.chunksize) == (array.shape, array.dtype, (1, 2, 8, 16))
        monkeypatch.setattr(dask_arrays, "CHUNK_BYTES", 2 * 2 * 2 * 8 * 16)  # a chunk and its neighbour along z
        assert ds.to_dask().chunksize == (1, 4, 8, 16)
        assert np.array_equal(lazy[1:, 2].compute(scheduler="sync"), array[1:, 2])
        assert np.array_equal(ds.to_dask(1).compute(scheduler="sync"), ds.levels[1].read())
        sent = pickle.loads(pickle.dumps(ds.levels[0]))  # noqa: S301
        assert np.array_equal(sent.read((0, 0)), array[0, 0])


def test_xarray_has_names_and_places(made):
    pytest.importorskip("xarray")
    with acqstream.open(made[0]) as ds:
        half = ds.to_xarray(1)
        assert repr(ds.levels[1]) == f"<Level {str(made[0])!r}, {', '.join(AXES)}: {half.shape} {half.dtype}>"
        assert (half.dims, half.name) == (AXES, "a.n5")
        assert half.coords["x"].values[:2] == pytest.approx([0.05, 0.25])
        assert half.coords["x"].attrs == {"units": "um"}
        assert np.array_equal(half.compute(scheduler="sync").values, ds.levels[1].read())


@pytest.mark.parametrize(
    ("ask", "instead"),
    [
        (lambda ds: ds.keys(), "axes"),
        (lambda ds: ds.read_frame(time=0), r"levels\[0\]\.read"),
        (lambda ds: ds.read_metadata({"time": 0}), "summary_metadata"),
        (lambda ds: ds.frames(), r"levels\[0\]\.read"),
        (lambda ds: ds.follow(timeout_s=1), "refresh"),
    ],
)
def test_what_is_asked_of_frames_says_what_to_use(made, ask, instead):
    with (
        acqstream.open(made[0]) as ds,
        pytest.raises(UnsupportedFeature, match=f"n5 keeps arrays, not frames; use .*{instead}"),
    ):
        ask(ds)


def test_an_axis_of_hostile_length_is_told_and_not_listed(tmp_path):
    (tmp_path / "a.n5" / "s0").mkdir(parents=True)
    attributes = '{"dimensions": [9, 9, 1125899906842624], "blockSize": [9, 9, 9], "dataType": "uint8"'
    (tmp_path / "a.n5" / "s0" / "attributes.json").write_text(attributes + ', "compression": {"type": "raw"}}')
    with acqstream.open(tmp_path / "a.n5") as ds:
        assert len(ds.levels[0].axis_values()["z"]) == 2**50
        with pytest.raises(UnsupportedFeature, match=r"axis 'z' has 1,125,899,906,842,624 positions"):
            _ = ds.axes
        assert not ds.levels[0].read((2**49, 0)).any()


def test_no_more_missing_chunks_are_listed_than_the_limit(tmp_path):
    make_dataset(tmp_path / "a.n5" / "s0", (10, 10), (4, 5))
    with acqstream.open(tmp_path / "a.n5") as ds:
        level = ds.levels[0]
        missing = level.missing()
        assert len(missing) == level.missing_count == 6
        for limit in (0, 1, 5, 6, 7):
            assert level.missing(limit=limit) == missing[:limit]
            assert level.missing((slice(0, 9), ...), limit=limit) == missing[:limit]


def test_a_refresh_finds_a_larger_shape_and_new_levels(tmp_path):
    make_dataset(tmp_path / "a.n5" / "s0", (10, 10), (5, 5))
    with acqstream.open(tmp_path / "a.n5") as ds:
        assert [level.shape for level in ds.levels] == [(10, 10)]
        make_dataset(tmp_path / "a.n5" / "s0", (10, 20), (5, 5))
        make_dataset(tmp_path / "a.n5" / "s1", (5, 10), (5, 5), downsamplingFactors=[2, 2])
        assert [level.shape for level in ds.levels] == [(10, 10)]
        assert ds.refresh() == []
        assert [level.shape for level in ds.levels] == [(20, 10), (10, 5)]
