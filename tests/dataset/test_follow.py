"""Following a dataset while it grows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import acqstream
from tests.formats.ndtiff.ndtiff_bytes import Folder, image

POLL_S = 0.001


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
                assert taken.acquire(timeout=10)  # the reader goes on while we are at it
        folder.set_state("COMPLETE")

    with acqstream.open(folder.path) as ds, in_thread(write):
        times = []
        for key in ds.follow(timeout_s=10, poll_s=POLL_S):
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
        assert list(ds.follow(timeout_s=10)) == [{"time": 0}]


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
        keys = ds.follow(timeout_s=10, poll_s=POLL_S)
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
