"""Following a dataset while it grows."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import acqstream
from acqstream.dataset.frame_source import follow_keys
from acqstream.errors import CorruptDataset, DatasetError
from acqstream.storage.files.read_file import ReadFile
from tests.formats.ndtiff.ndtiff_bytes import Folder, image
from tests.host_system import remove_folder_in_use

POLL_S = 0.001
WAIT_S = 50.0


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path / "data")
    folder.set_state("RUNNING")
    return folder


@contextmanager
def in_thread(work: Callable[[], None]) -> Iterator[None]:
    thread = threading.Thread(target=work, name="writer")
    thread.start()
    try:
        yield
    finally:
        thread.join()


def test_frames_come_once_in_order_as_they_are_written(folder: Folder) -> None:
    taken = threading.Semaphore(0)

    def write() -> None:
        for t in range(20):
            folder.add({"time": t}, image(t))
            if t % 5 == 0:
                folder.add({"time": 0}, image(99))
                assert taken.acquire(timeout=WAIT_S)  # the reader goes on while we are at it
        folder.set_state("COMPLETE")

    with acqstream.open(folder.path) as ds, in_thread(write):
        times = []
        for key in ds.follow(timeout_s=WAIT_S, poll_s=POLL_S):
            times.append(key["time"])
            if key["time"]:
                assert np.array_equal(ds.read_frame(key), image(int(key["time"])))
            taken.release()
        assert times == list(range(20))
        assert ds.complete


@pytest.mark.parametrize("state", ["COMPLETE", "CANCELED", "ERRORED", "FAILED", "INTERRUPTED"])
def test_every_end_ends_it(folder: Folder, state: str) -> None:
    folder.add({"time": 0}, image(0))
    folder.set_state(state)
    with acqstream.open(folder.path) as ds:
        assert list(ds.follow()) == [{"time": 0}]
        assert ds.complete == (state != "INTERRUPTED")


def test_a_dataset_of_another_writer_ends_where_nothing_is_unfinished(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    folder.add({"time": 0}, image(0))
    with acqstream.open(folder.path) as ds:
        assert list(ds.follow(timeout_s=WAIT_S)) == [{"time": 0}]


def test_frames_published_just_before_the_end_are_not_missed(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last frames and the final state come while the follower waits."""

    def write_the_rest(_: float) -> None:
        for t in range(1, 4):
            folder.add({"time": t}, image(t))
        folder.set_state("COMPLETE")

    folder.add({"time": 0}, image(0))
    monkeypatch.setattr("time.sleep", write_the_rest)
    with acqstream.open(folder.path) as ds:
        assert [key["time"] for key in ds.follow()] == [0, 1, 2, 3]


def test_a_refresh_in_between_takes_nothing_away(folder: Folder) -> None:
    folder.add({"time": 0}, image(0))
    with acqstream.open(folder.path) as ds:
        keys = ds.follow(timeout_s=WAIT_S, poll_s=POLL_S)
        assert next(keys) == {"time": 0}
        folder.add({"time": 1}, image(1))
        folder.set_state("COMPLETE")
        ds.refresh()
        assert ds.complete
        assert list(keys) == [{"time": 1}]


def test_two_followers_see_the_same(folder: Folder) -> None:
    folder.add({"time": 0}, image(0))
    with acqstream.open(folder.path) as ds:
        first, second = ds.follow(), ds.follow()
        assert next(first) == next(second) == {"time": 0}
        folder.add({"time": 1}, image(1))
        folder.set_state("COMPLETE")
        assert list(first) == list(second) == [{"time": 1}]


def test_silence_for_too_long_raises(folder: Folder) -> None:
    folder.add({"time": 0}, image(0))
    with acqstream.open(folder.path) as ds:
        keys = ds.follow(timeout_s=0.01, poll_s=POLL_S)
        assert next(keys) == {"time": 0}
        with pytest.raises(TimeoutError, match=r"no new frame within 0\.01 s after frame 1"):
            next(keys)


def test_a_frame_that_came_in_time_is_seen_by_a_follower_that_was_held_up() -> None:
    class HeldUp:
        name, failure, looks = "cells", "", 0

        def refresh(self) -> bool:
            self.looks += 1
            return self.looks < 3

        def reader(self) -> HeldUp:
            if self.looks == 1:
                time.sleep(0.05)  # the frame comes meanwhile
            return self

        def __len__(self) -> int:
            return int(self.looks > 1)

        def keys(self, rows: range) -> list[dict[str, int]]:
            return [{"time": row} for row in rows]

    assert list(follow_keys(HeldUp(), 0.02, POLL_S)) == [{"time": 0}]  # type: ignore[arg-type]


@pytest.fixture
def container(tmp_path: Path) -> Path:
    set_state(tmp_path / "tiled", "RUNNING")
    return tmp_path / "tiled"


def set_state(container: Path, state: str) -> None:
    """As `Folder.set_state`, for a dataset with levels."""
    container.mkdir(exist_ok=True)
    new = container / "acqstream.json.new"
    new.write_text(json.dumps({"format": "acqstream", "version": 1, "state": state}))
    new.replace(container / "acqstream.json")


def add_level(container: Path, tiles: int) -> Folder:
    """A lower level that appears whole, with `tiles` tiles."""
    level = Folder(container.parent / "made", {"TiledImageStorage": True})
    for row in range(tiles):
        level.add({"row": row, "column": 0}, image(100 + row))
    level.path.rename(container / "Downsampled_x2")
    level.path = container / "Downsampled_x2"
    return level


def test_a_level_is_followed_before_it_is_there(container: Path) -> None:
    full = Folder(container / "Full resolution", {"TiledImageStorage": True})
    came = threading.Semaphore(0)

    def write() -> None:
        full.add({"row": 0, "column": 0}, image(0))
        level = add_level(container, 2)
        assert came.acquire(timeout=WAIT_S)
        level.add({"row": 0, "column": 0}, image(7))  # more of it has arrived
        level.add({"row": 2, "column": 0}, image(8))
        set_state(container, "COMPLETE")

    with acqstream.open(container) as ds, in_thread(write):
        assert not ds.levels[1:]
        rows = []
        for key in ds.follow(timeout_s=WAIT_S, level=1, replaced=True, poll_s=POLL_S):
            rows.append(key["row"])
            came.release()
        assert rows == [0, 1, 0, 2]
        assert [key["row"] for key in ds.follow(level=1)] == [0, 1, 2]
        assert [key["row"] for key in ds.follow()] == [0]
        assert ds.levels[1].shape == (9, 4)
        assert np.array_equal(ds.levels[1].read(slice(0, 3)), image(7))
        assert ds.complete


def test_a_refresh_finds_new_levels_and_keeps_the_old(container: Path) -> None:
    full = Folder(container / "Full resolution", {"TiledImageStorage": True})
    with acqstream.open(container) as ds:
        old = ds.levels[0]
        full.add({"row": 0, "column": 0}, image(0))
        level = add_level(container, 1)
        assert not ds.levels[1:]
        assert len(ds.refresh()) == 1
        assert [each.is_stitched for each in ds.levels] == [True, True]
        assert ds.levels[0] is old
        level.add({"row": -1, "column": 2}, image(3))
        assert ds.levels[1].shape == (3, 4)
        assert ds.refresh() == []
        assert (ds.levels[1].shape, ds.levels[1].origin) == ((6, 12), (-3, 0))
        assert np.array_equal(ds.levels[1].read((slice(0, 3), slice(8, 12))), image(3))


def test_a_lower_level_by_itself_gets_no_more_levels(container: Path) -> None:
    Folder(container / "Full resolution").add({"row": 0, "column": 0}, image(0))
    add_level(container, 1)
    with acqstream.open(container / "Downsampled_x2") as ds:
        (container / "Full resolution").rename(container / "Downsampled_x4")
        ds.refresh()
        assert not ds.levels[1:]


def test_a_level_that_never_comes_is_told(container: Path) -> None:
    Folder(container / "Full resolution").add({"row": 0, "column": 0}, image(0))
    with acqstream.open(container) as ds:
        with pytest.raises(TimeoutError, match=r"level 2: no new frame"):
            list(ds.follow(timeout_s=0.01, level=2, poll_s=POLL_S))
        set_state(container, "COMPLETE")
        with pytest.raises(DatasetError, match="level 2: the level is missing"):
            list(ds.follow(level=2))


def test_refreshing_reads_what_is_new_alone(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    for t in range(50):
        folder.add({"time": t}, image(0))
    size = 0

    def note_and_read(file: ReadFile, offset: int, count: int) -> bytes:
        nonlocal size
        data = read(file, offset, count)
        size += len(data)
        return data

    read = ReadFile.read
    with acqstream.open(folder.path) as ds:
        monkeypatch.setattr(ReadFile, "read", note_and_read)
        new = len(folder.add({"time": 50}, image(1)))
        assert ds.refresh() == [{"time": 50}]
        assert size == new


def test_a_level_is_followed_until_its_view_is_complete(container: Path) -> None:
    Folder(container / "Full resolution").add({"row": 0, "column": 0}, image(0))
    set_state(container, "COMPLETE")
    view = container.with_name("tiled.pyramid")
    view.mkdir()
    (view / "view.json").write_text('{"complete": false}')
    came = threading.Semaphore(0)

    def make() -> None:
        level = add_level(container, 1)
        assert came.acquire(timeout=WAIT_S)
        level.add({"row": 5, "column": 0}, image(1))
        (view / "new").write_text('{"complete": true}')
        (view / "new").replace(view / "view.json")

    with acqstream.open(container) as ds, in_thread(make):
        assert [key["row"] for key in ds.follow()] == [0]
        rows = []
        for key in ds.follow(timeout_s=WAIT_S, level=1, poll_s=POLL_S):
            rows.append(key["row"])
            came.release()
        assert rows == [0, 5]
        set_state(container, "INTERRUPTED")
        (view / "view.json").write_text('{"complete": false}')
        assert [key["row"] for key in ds.follow(level=1)] == [0, 5]
        set_state(container, "COMPLETE")
        (view / "view.json").write_text("{")
        with pytest.raises(CorruptDataset, match="state of the levels"):
            list(ds.follow(level=1))


def test_another_dataset_in_its_place_is_told(folder: Folder) -> None:
    folder.set_state("RUNNING")
    folder.add({"time": 0}, image(0))
    with acqstream.open(folder.path) as ds:
        followed = ds.follow(timeout_s=WAIT_S)
        assert next(followed) == {"time": 0}
        remove_folder_in_use(folder.path)
        with pytest.raises(DatasetError, match="replaced"):
            ds.refresh()
        other = Folder(folder.path)
        other.add({"time": 0}, image(1))
        other.set_state("COMPLETE")
        with pytest.raises(DatasetError, match="replaced"):
            next(followed)
        with pytest.raises(DatasetError, match="replaced"):
            ds.read_frame(time=0)
