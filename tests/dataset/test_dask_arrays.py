"""Levels as dask arrays."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import acqstream
from acqstream.dataset import dask_arrays
from acqstream.errors import ConfigError, UnsupportedFeature
from acqstream.frames.frame_region import FrameLevel
from tests.formats.ndtiff.ndtiff_bytes import GOLDEN, Folder, image

dask = pytest.importorskip("dask")


@pytest.fixture(autouse=True)
def _threads_that_end() -> Iterator[None]:
    """dask keeps its own pool of threads for ever."""
    with ThreadPoolExecutor(4) as pool, dask.config.set(scheduler="threads", pool=pool):
        yield


@pytest.mark.parametrize("name", ["py_uint16", "java_rgb", "java_pyramid_u16", "java_pyramid_rgb_odd"])
def test_every_level_is_the_array_that_numpy_has(name: str) -> None:
    with acqstream.open(GOLDEN / name / "data") as ds:
        for number, level in enumerate(ds.levels):
            array, whole = ds.to_dask(number), level.read()
            assert (array.shape, array.dtype) == (whole.shape, whole.dtype)
            assert np.array_equal(array.compute(), whole)
            assert np.array_equal(level.to_dask()[0].compute(), whole[0])


@pytest.mark.parametrize("shape", [(2**40, 2, 2), (2, 2**40, 2)])
def test_an_array_of_too_many_places_is_refused_by_dask(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """Such a shape costs a line in a document; dask has a list for each axis."""
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": "uint8",
        "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1, 2, 2]}},
        "chunk_key_encoding": {"name": "default"},
        "codecs": [{"name": "bytes"}],
    }
    (tmp_path / "zarr.json").write_text(json.dumps(document), encoding="utf-8")
    with acqstream.open(tmp_path) as ds, pytest.raises(UnsupportedFeature, match="dask lists the places"):
        ds.to_dask()


def test_nothing_is_read_before_it_is_computed_and_then_one_frame_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(tmp_path / "data")
    for time in range(6):
        folder.add({"time": time}, image(time))
    monkeypatch.setattr(dask_arrays, "CHUNK_BYTES", 1)
    read = FrameLevel.read
    asked: list[object] = []

    def read_and_note(level: FrameLevel, layout: Any, taken: Any) -> Any:
        asked.append(taken)
        return read(level, layout, taken)

    monkeypatch.setattr(FrameLevel, "read", read_and_note)
    with acqstream.open(folder.path) as ds:
        array = ds.to_dask()
        assert array.chunks == ((1,) * 6, (3,), (4,))
        assert not asked
        assert np.array_equal(array[4].compute(), image(4))
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("frames", "chunks"),
    [
        (1, ((1,) * 4, (1,) * 3)),
        (2, ((1,) * 4, (2, 1))),
        (3, ((1,) * 4, (3,))),
        (7, ((2, 2), (3,))),
        (99, ((4,), (3,))),
    ],
)
def test_small_frames_are_grouped_along_the_fastest_axis_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frames: int, chunks: object
) -> None:
    folder = Folder(tmp_path / "data")
    for time in range(4):
        for z in range(3):
            folder.add({"time": time, "z": z}, image(3 * time + z))
    monkeypatch.setattr(dask_arrays, "CHUNK_BYTES", frames * image(0).nbytes)
    with acqstream.open(folder.path) as ds:
        assert ds.to_dask().chunks[:2] == chunks
        assert np.array_equal(ds.to_dask().compute(), ds.levels[0].read())


def test_chunks_of_stitched_levels_are_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_arrays, "CHUNK_BYTES", 1)
    with acqstream.open(GOLDEN / "java_pyramid_u16" / "data") as ds:
        height, width = ds.levels[0].chunk_shape[-2:]
        array = ds.to_dask()
        assert set(array.chunks[-2]) == {height}
        assert set(array.chunks[-1]) == {width}
        assert np.array_equal(array.compute(), ds.levels[0].read())


@pytest.mark.slow
def test_other_processes_open_the_dataset_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_arrays, "CHUNK_BYTES", 1)
    monkeypatch.setenv("PYTHONPATH", str(Path(acqstream.__file__).parents[1]))
    with acqstream.open(GOLDEN / "java_pyramid_u16" / "data") as ds, dask.config.set(pool=None):
        array: Any = ds.to_dask()
        with_process = array.map_blocks(lambda block: block + np.uint64(os.getpid() << 16), dtype=np.uint64)
        found = with_process.compute(scheduler="processes", num_workers=2)
        assert np.array_equal(found & np.uint64(0xFFFF), ds.levels[0].read())
        assert os.getpid() not in np.unique(found >> np.uint64(16))


def test_a_dataset_that_grew_is_asked_again(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    folder.add({"time": 0}, image(0))
    with acqstream.open(folder.path) as ds:
        short = ds.to_dask()
        folder.add({"time": 1}, image(1))
        ds.refresh()
        assert np.array_equal(ds.to_dask().compute(), [image(0), image(1)])
        assert np.array_equal(short.compute(), [image(0)])
        assert short.name != ds.to_dask().name


def test_without_dask_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(tmp_path / "data")
    folder.add({"time": 0}, image(0))
    monkeypatch.setitem(sys.modules, "dask.array", None)
    with acqstream.open(folder.path) as ds, pytest.raises(ConfigError, match=r"pip install .*\[dask\]"):
        ds.to_dask()
