"""Arrays by themselves, fill values, growth, and bounded memory."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import acqstream
from acqstream.errors import AcqStreamError, DatasetError
from acqstream.formats.ome_zarr.foreign import open_array
from acqstream.storage.files.boundary import following_links
from acqstream.storage.stores.data_path import data_path_of
from tests.formats.ome_zarr.ome_zarr_golden import EXPECTED, GOLDEN, read_all
from tests.host_system import make_link


def _write(folder: Path, **changes: Any) -> None:
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [3, 4, 5],
        "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 4, 4]}},
        "chunk_key_encoding": {"name": "default"},
        "fill_value": 7,
        "codecs": [{"name": "bytes"}],
        **changes,
    }
    (folder / "zarr.json").write_text(json.dumps(document), encoding="utf-8")


def test_the_axes_of_an_array_by_itself(tmp_path: Path) -> None:
    _write(tmp_path)
    assert open_array(data_path_of(tmp_path))[0].spec.axes == ("dim0", "y", "x")
    _write(tmp_path, dimension_names=["t", "Y", "X"])
    assert open_array(data_path_of(tmp_path))[0].spec.axes == ("time", "y", "x")
    _write(tmp_path, dimension_names=["t", None, "x"])
    assert open_array(data_path_of(tmp_path))[0].spec.axes == ("dim0", "y", "x")


def test_an_array_without_axes(tmp_path: Path) -> None:
    grid = {"name": "regular", "configuration": {"chunk_shape": []}}
    _write(tmp_path, shape=[], chunk_grid=grid)
    with acqstream.open(tmp_path) as ds:
        assert (ds.shape, ds.levels[0].read().tolist()) == ((), 7)
        (tmp_path / "c").write_bytes(bytes([9]))
        assert ds.levels[0].read().tolist() == 9


def test_that_missing_chunks_have_the_fill_value(tmp_path: Path) -> None:
    _write(tmp_path)
    reader = open_array(data_path_of(tmp_path))[0]
    chunk = reader.read_chunk((1, 0, 1))
    assert chunk is not None
    assert (chunk.shape, set(chunk.ravel().tolist())) == ((1, 4, 1), {7})
    _write(tmp_path, fill_value=0)
    reader.refresh()
    assert reader.read_chunk((1, 0, 1)) is None
    with pytest.raises(IndexError):
        reader.read_chunk((2, 0, 0))


def test_that_a_grown_array_is_seen_after_refresh(tmp_path: Path) -> None:
    _write(tmp_path)
    reader = open_array(data_path_of(tmp_path))[0]
    _write(tmp_path, shape=[9, 4, 5])
    assert reader.spec.shape == (3, 4, 5)
    reader.refresh()
    assert reader.spec.shape == (9, 4, 5)
    (tmp_path / "zarr.json").unlink()
    with pytest.raises(DatasetError):
        reader.refresh()
    assert reader.spec.shape == (9, 4, 5)


def test_that_links_out_of_an_image_are_followed_on_request_only(tmp_path: Path) -> None:
    source = GOLDEN / "ts_raw_shard.ome.zarr"
    image = tmp_path / "image"
    image.mkdir()
    (image / "zarr.json").write_bytes((source / "zarr.json").read_bytes())
    make_link(image / "0", source / "0")
    with pytest.raises(AcqStreamError, match="link"):
        open_array(data_path_of(image))
    with following_links(allowed=True):
        reader = open_array(data_path_of(image))[0]
    assert np.any(read_all(reader))


@pytest.mark.parametrize("name", ["zstd_bomb", "blosc_huge", "index_nbytes_huge", "index_of_2_40", "chunk_huge"])
def test_that_damage_takes_no_memory(name: str) -> None:
    assert f"corrupt/{name}.ome.zarr" in [entry["path"] for entry in EXPECTED["corrupt"]]
    tracemalloc.start()
    try:
        with pytest.raises(AcqStreamError):
            read_all(open_array(data_path_of(GOLDEN / "corrupt" / f"{name}.ome.zarr"))[0])
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()
