"""Datasets behind URLs: fsspec's memory, and a web server with and without ranges."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import acqstream
from acqstream.dataset import sources as reopened_module
from acqstream.errors import ConfigError, DatasetError, StorageError, UnknownFormat
from acqstream.storage.files.url_path import RemotePath, as_path
from tests.dataset.web_server import serving
from tests.formats.ndtiff.ndtiff_bytes import GOLDEN, Folder, image

fsspec = pytest.importorskip("fsspec")

NAMES = ["py_uint16", "java_pyramid_u16", "java_rgb", "java_rollover", "v1_5_uint16", "py_string_axes"]


@pytest.fixture
def memory() -> Iterator[Any]:
    """fsspec's files in memory, none before and none after."""
    files = fsspec.filesystem("memory")
    yield files
    if files.exists("/acqstream-test"):
        files.rm("/acqstream-test", recursive=True)


def upload(files: Any, folder: Path) -> str:
    for path in folder.rglob("*"):
        if path.is_file():
            files.pipe(f"/acqstream-test/{path.relative_to(folder).as_posix()}", path.read_bytes())
    return "memory://acqstream-test"


def assert_same(url: str, path: Path) -> None:
    with acqstream.open(url) as remote, acqstream.open(path) as local:
        assert (remote.shape, remote.axes, remote.complete) == (local.shape, local.axes, local.complete)
        assert remote.summary_metadata == local.summary_metadata
        assert list(remote.keys()) == list(local.keys())
        assert len(remote.levels) == len(local.levels)
        for one, other in zip(remote.levels, local.levels, strict=True):
            assert np.array_equal(one.read(), other.read())
            assert (one.origin, one.pixel_size_um) == (other.origin, other.pixel_size_um)
        key = next(local.keys())
        assert remote.read_metadata(key) == local.read_metadata(key)
        for (key, frame), (expected_key, expected) in zip(remote.frames(), local.frames(), strict=True):
            assert key == expected_key
            assert np.array_equal(frame, expected)


@pytest.mark.parametrize("name", NAMES)
def test_all_that_a_local_dataset_gives_from_memory(memory: Any, name: str) -> None:
    assert_same(upload(memory, GOLDEN / name / "data"), GOLDEN / name / "data")


@pytest.mark.parametrize("name", NAMES)
def test_all_that_a_local_dataset_gives_over_http(name: str) -> None:
    with serving(GOLDEN / name) as (url, _):
        assert_same(f"{url}/data", GOLDEN / name / "data")


def test_the_index_is_read_in_one_request_and_so_is_a_frame(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "cells")
    frames = [np.full((300, 400), number, "<u2") for number in range(20)]
    for number, frame in enumerate(frames):
        folder.add({"time": number}, frame)
    with serving(tmp_path) as (url, asked), acqstream.open(f"{url}/cells") as ds:
        assert len(asked) <= 20
        assert len([line for line in asked if line.startswith("GET /cells/NDTiff.index bytes")]) == 1
        ds.read_frame(time=0)
        asked.clear()
        for number in (7, 3):
            assert np.array_equal(ds.read_frame(time=number), frames[number])
        assert len(asked) == 2
        assert ds.shape == (20, 300, 400)  # reads the summary, once
        asked.clear()
        assert np.array_equal(ds.levels[0].read((5, slice(10, 20))), frames[5][10:20])
        (line,) = asked
        first, last = map(int, line.rpartition("=")[2].split("-"))
        assert last + 1 - first == 10 * 400 * 2


def test_it_grows(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "cells")
    folder.add({"time": 0}, image(0))
    with serving(tmp_path) as (url, asked), acqstream.open(f"{url}/cells") as ds:
        ds.read_frame(time=0)
        folder.add({"time": 1}, image(1))
        asked.clear()
        assert ds.refresh() == [{"time": 1}]
        assert len(asked) <= 4
        assert np.array_equal(ds.read_frame(time=1), image(1))
        assert np.array_equal(ds.levels[0].read(), [image(0), image(1)])


@pytest.mark.parametrize(("state", "complete"), [("RUNNING", False), ("COMPLETE", True)])
def test_the_state_that_the_daemon_noted(tmp_path: Path, state: str, complete: bool) -> None:
    folder = Folder(tmp_path / "cells")
    folder.add({"time": 0}, image(0))
    (folder.path / "acqstream.json").write_text(f'{{"format": "acqstream", "state": "{state}"}}')
    with serving(tmp_path) as (url, _), acqstream.open(f"{url}/cells") as ds:
        assert (ds.state, ds.complete, ds.writing) == (state, complete, not complete)


def test_where_folders_are_not_listed_the_index_is_named(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "cells")
    folder.add({"time": 0}, image(0))
    with serving(tmp_path) as (url, asked):
        asked.lists_folders = False
        with acqstream.open(f"{url}/cells/NDTiff.index") as ds:
            assert np.array_equal(ds.read_frame(time=0), image(0))


def test_a_server_without_ranges_is_told(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "cells")
    folder.add({"time": 0}, image(0))
    with serving(tmp_path) as (url, asked), acqstream.open(f"{url}/cells") as ds:
        asked.has_ranges = False
        with pytest.raises(StorageError, match="does not support ranges"):
            ds.read_frame(time=0)


def test_a_server_that_tells_no_length_is_told(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "cells")
    folder.add({"time": 0}, image(0))
    with serving(tmp_path) as (url, asked):
        asked.tells_length = False
        with pytest.raises(StorageError, match="length"):
            acqstream.open(f"{url}/cells/NDTiff.index")


def test_a_state_of_the_same_length_is_seen(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "cells")
    folder.add({"time": 0}, image(0))
    state = folder.path / "acqstream.json"
    state.write_text('{"format": "acqstream", "state": "RUNNING"}')
    with serving(tmp_path) as (url, _), acqstream.open(f"{url}/cells") as ds:
        assert ds.writing
        state.write_text('{"format": "acqstream", "state": "ERRORED"}')
        ds.refresh()
        assert ds.complete


def test_a_server_that_is_gone_is_told(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "cells")
    folder.add({"time": 0}, image(0))
    with serving(tmp_path) as (url, _):
        ds = acqstream.open(f"{url}/cells")
    with ds, pytest.raises(StorageError, match="cells"):
        ds.read_frame(time=0)


def test_what_is_not_there(memory: Any, tmp_path: Path) -> None:
    memory.pipe("/acqstream-test/other/file.txt", b"text")
    for url in ("memory://acqstream-test/nothing", "memory://acqstream-test/other/NDTiff.index"):
        with pytest.raises(DatasetError, match="no such file or folder"):
            acqstream.open(url)
    with pytest.raises(UnknownFormat, match="memory://"):
        acqstream.open("memory://acqstream-test/other")
    with serving(tmp_path) as (url, _), pytest.raises(DatasetError):
        acqstream.open(f"{url}/nothing")


def test_a_short_stack_file_is_damage_there_too(memory: Any) -> None:
    url = upload(memory, GOLDEN / "short_data" / "data")
    with acqstream.open(url) as remote, acqstream.open(GOLDEN / "short_data" / "data") as local:
        key = list(local.keys())[-1]
        errors = []
        for ds in (remote, local):
            with pytest.raises(DatasetError) as error:
                ds.read_frame(key)
            errors.append(type(error.value))
        assert errors[0] is errors[1]


def test_arrays_go_by_url(memory: Any) -> None:
    path = GOLDEN / "java_pyramid_u16" / "data"
    with acqstream.open(upload(memory, path)) as ds:
        copies = [pickle.loads(pickle.dumps(level.as_array())) for level in ds.levels]  # noqa: S301
        for copy, level in zip(copies, ds.levels, strict=True):
            assert np.array_equal(copy[...], level.read())
    for dataset in reopened_module._reopened.values():
        dataset.close()
    reopened_module._reopened.clear()


def test_xarray_opens_urls(memory: Any) -> None:
    xarray = pytest.importorskip("xarray")
    path = GOLDEN / "py_uint16" / "data"
    with xarray.open_dataset(upload(memory, path), engine="acqstream") as found, acqstream.open(path) as ds:
        assert np.array_equal(found["image"].values, ds.levels[0].read())


def test_file_urls_are_local(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "with space")
    folder.add({"time": 0}, image(0))
    assert as_path(folder.path.as_uri()) == folder.path
    with acqstream.open(folder.path.as_uri()) as ds:
        assert np.array_equal(ds.read_frame(time=0), image(0))


def test_an_empty_path_is_not_the_current_folder() -> None:
    with pytest.raises(ConfigError, match="the path is empty"):
        acqstream.open("")


def test_without_the_library_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="nothing-like-this"):
        acqstream.open("nothing-like-this://bucket/cells")
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(ConfigError, match=r"pip install .*\[fsspec\]"):
        acqstream.open("s3://bucket/cells")


def test_a_path_is_one_by_its_url(memory: Any) -> None:
    path = as_path("memory://acqstream-test/a")
    assert isinstance(path, RemotePath)
    assert path / "b" == as_path("memory://acqstream-test/a/b")
    assert (path / "b").parent == path
    assert len({path, as_path("memory://acqstream-test/a/")}) == 1
    assert path < path / "b"
    assert repr(path) == "RemotePath('memory:///acqstream-test/a')"
