"""Frames that pictures are made of: which frame is chosen, and that its pixels are those of the dataset."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acqstream.errors import DatasetError, FrameNotFound, UnknownFormat, UnsupportedFeature
from acqstream.frames.frame_pixels import LevelCache
from acqstream.model.acquisition_spec import TileSpec
from acqstream.web import data_routes
from acqstream.web.data.dataset_shelf import DatasetShelf
from acqstream.web.data.virtual_dataset import ServedDataset
from acqstream.web.page import picture_source
from acqstream.web.page.picture_source import (
    Crop,
    FramePictures,
    PictureSource,
    borrow_pictures,
    chosen_axes,
    pictures_of,
)
from acqstream.web.web_settings import WebLimits
from tests.log.make_frames import Frame, frame_of, start_log, wait_for, write_log
from tests.web.web_process import web_thread

FRAMES = [
    frame_of(number, axes={"time": time, "channel": channel, "z": z}, bits=12)
    for number, (time, channel, z) in enumerate(
        (time, channel, z) for time in range(3) for channel in ("DAPI", "GFP") for z in range(4)
    )
]


def frame_at(**axes: object) -> Frame:
    return next(frame for frame in FRAMES if frame.axes == axes)


def open_pictures(folder: Path) -> PictureSource:
    return pictures_of(ServedDataset(folder, LevelCache(0)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_log(tmp_path / "cells", FRAMES[:-1])
    return tmp_path / "cells"


@pytest.mark.parametrize(
    ("fixed", "expected"),
    [
        ({}, {"time": 2, "channel": "GFP", "z": 2}),
        ({"channel": "DAPI"}, {"time": 2, "channel": "DAPI", "z": 3}),
        ({"channel": "GFP", "z": 3}, {"time": 1, "channel": "GFP", "z": 3}),
        ({"time": 0, "channel": "GFP", "z": 1}, {"time": 0, "channel": "GFP", "z": 1}),
    ],
)
def test_the_newest_frame_with_these_axes(folder: Path, fixed: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    source = open_pictures(folder)
    assert isinstance(source, FramePictures)
    place = source.find(fixed)
    assert place.key == expected
    assert np.array_equal(source.picture(place).complete(), frame_at(**expected).image)
    assert source.shape() == ((32, 48), "uint16", 12)
    assert source.axes() == {"time": [0, 1, 2], "channel": ["DAPI", "GFP"], "z": [0, 1, 2, 3]}
    assert [look.name for look in source.looks().values()] == ["DAPI", "GFP"]


@pytest.mark.skipif(os.name == "nt", reason="a link of Wine leads nowhere")
def test_a_link_out_of_the_dataset_is_not_followed(folder: Path, tmp_path: Path) -> None:
    (stack,) = folder.glob("*.tif")
    stack.rename(tmp_path / "elsewhere.tif")
    stack.symlink_to(tmp_path / "elsewhere.tif")
    with pytest.raises(UnsupportedFeature, match="out of the dataset"):
        open_pictures(folder)


def test_stored_values(folder: Path) -> None:
    source = open_pictures(folder)
    place = source.find({"channel": "DAPI"})
    image = frame_at(time=2, channel="DAPI", z=3).image
    assert [source.value(place, y, x) for y, x in ((0, 0), (31, 47))] == [[image[0, 0]], [image[31, 47]]]
    assert [source.value(place, y, x) for y, x in ((32, 0), (0, 48), (-1, 0))] == [[], [], []]
    assert (source.picture(place).steps, source.spacing("x").unit) == ((1, 1), "")


def test_a_part_of_a_frame(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = open_pictures(folder)
    place, image = source.find({"time": 1, "channel": "DAPI", "z": 0}), frame_at(time=1, channel="DAPI", z=0).image
    for max_whole in (2**26, 0):  # read whole, and by rows
        monkeypatch.setattr(picture_source, "_MAX_WHOLE_BYTES", max_whole)
        drawn = source.picture(place, Crop((7, 11), (20, 99)))
        assert np.array_equal(drawn.complete(), image[7:27, 11:])
        assert (drawn.start, drawn.steps) == ((7, 11), (1, 1))
        with pytest.raises(FrameNotFound, match="has none at"):
            source.picture(place, Crop((32, 0), (1, 1)))


def test_the_size_of_a_pixel_comes_from_the_first_frame(tmp_path: Path) -> None:
    write_log(tmp_path / "cells", [frame_of(0, axes={"time": 0}, metadata={"PixelSizeUm": 0.325})])
    source = open_pictures(tmp_path / "cells")
    assert source.spacing("y") == source.spacing("x") == (0.0, 0.325, "um")


def test_colours_of_channels(folder: Path) -> None:
    source = open_pictures(folder)
    assert [look.color for look in source.looks().values()] == ["#4393ff", "#00ff00"]  # as in OME-Zarr
    (folder / "display_settings.txt").write_text(json.dumps({"GFP": {"Color": -65281}}))
    assert [look.color for look in source.looks().values()] == ["#4393ff", "#ff00ff"]


def test_no_such_frame(folder: Path) -> None:
    source = open_pictures(folder)
    with pytest.raises(FrameNotFound):
        source.find({"time": 9})


def test_axes_come_as_text() -> None:
    axes: dict[str, list[Any]] = {"time": [0, 1], "channel": ["1", "GFP"]}
    assert chosen_axes([("time", "1"), ("channel", "1")], axes) == {"time": 1, "channel": "1"}
    assert chosen_axes([("time", "01")], axes) == {"time": "01"}
    with pytest.raises(FrameNotFound, match="'z'"):
        chosen_axes([("z", "1")], axes)


def test_tiles_are_one_picture(tmp_path: Path) -> None:
    frames = [
        frame_of(number, (40, 50), axes={"row": row, "column": column})
        for number, (row, column) in enumerate((row, column) for row in range(2) for column in range(3))
    ]
    write_log(tmp_path / "tiles", frames[:-1], tiles=TileSpec((0, 0)))
    source = open_pictures(tmp_path / "tiles")
    assert not isinstance(source, FramePictures)
    picture = source.picture(source.find({}))
    pixels = picture.complete()
    assert pixels.shape == (80, 150)
    assert np.array_equal(pixels[40:, 50:100], frames[4].image)
    assert not pixels[40:, 100:].any()
    place = source.find({})
    assert source.value(place, 45, 53) == [frames[4].image[5, 3]]
    crop = source.picture(place, Crop((30, 45), (20, 1000)))
    assert np.array_equal(crop.complete(), pixels[30:50, 45:])
    assert (crop.start, crop.steps) == ((30, 45), (1, 1))
    assert [source.value(place, y, x) for y, x in ((79, 149), (80, 0), (0, 150))] == [[0], [], []]
    assert (picture.steps, source.spacing("x").unit) == ((1, 1), "")


def test_values_under_a_thinned_picture(tmp_path: Path) -> None:
    write_log(tmp_path / "tiles", [frame_of(0, (1100, 2100), axes={"row": 0, "column": 0})], tiles=TileSpec((0, 0)))
    source = open_pictures(tmp_path / "tiles")
    place = source.find({})
    picture = source.picture(place)
    pixels, steps = picture.complete(), picture.steps
    assert (pixels.shape, steps) == ((550, 1050), (2, 2))
    assert source.value(place, 7 * steps[0], 9 * steps[1]) == [pixels[7, 9]]


def test_a_run_without_frames_has_no_picture(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnknownFormat):
        open_pictures(tmp_path / "empty")


class CountedDataset:
    """Stands in for an open dataset, and counts."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self.is_closed = False

    def close(self) -> None:
        assert not self.is_closed
        self.is_closed = True


def folders_of(tmp_path: Path, count: int) -> list[Path]:
    folders = [tmp_path / f"run-{number}" for number in range(count)]
    for folder in folders:
        folder.mkdir()
    return folders


def counted_shelf() -> tuple[DatasetShelf, list[CountedDataset]]:
    opened: list[CountedDataset] = []

    def opener(folder: Path) -> Any:
        opened.append(CountedDataset(folder))
        return opened[-1]

    return DatasetShelf(2, opener), opened


def test_a_few_datasets_stay_open(tmp_path: Path) -> None:
    shelf, opened = counted_shelf()
    first, second, third = folders_of(tmp_path, 3)
    for folder in (first, second, first, third, first):
        with shelf.borrow(folder) as source:
            assert source.path == folder
    assert [(one.path, one.is_closed) for one in opened] == [(first, False), (second, True), (third, False)]
    shelf.close()
    assert all(one.is_closed for one in opened)


def test_a_dataset_in_use_is_closed_when_it_is_given_back(tmp_path: Path) -> None:
    shelf, opened = counted_shelf()
    first, second, third = folders_of(tmp_path, 3)
    with shelf.borrow(first):
        for folder in (second, third):
            with shelf.borrow(folder):
                pass
        assert not opened[0].is_closed
    assert opened[0].is_closed


def test_a_dataset_is_open_until_its_answer_was_made(tmp_path: Path) -> None:
    """Other requests must not close it meanwhile."""
    for name in ("one", "other"):
        frames = [frame_of(time, (2048, 2048), axes={"time": time, "channel": 0, "z": 0}) for time in range(2)]
        write_log(tmp_path / name, frames)
    with web_thread(tmp_path, limits=WebLimits(datasets=1)) as site, ExitStack() as lent:
        assert site.context is not None
        found = []
        for time in "01":  # chunks of a lower level, which are too large to be made at once
            one = data_routes._find(site.context, ("one", "ome.zarr", "1", "c", time, *"0000"), None, lent)
            assert isinstance(one, data_routes.FoundObject)
            found.append(one)
        with site.context.shelf.borrow(tmp_path / "other"):
            pass
        assert data_routes._body(found[0]).size == 1024 * 1024 * 2
        lent.close()
        with pytest.raises(DatasetError, match="closed"):
            data_routes._body(found[1])


def test_another_dataset_of_the_same_name_is_opened(tmp_path: Path) -> None:
    shelf, opened = counted_shelf()
    (folder,) = folders_of(tmp_path, 1)
    with shelf.borrow(folder):
        pass
    folder.rename(tmp_path / "old")
    folder.mkdir()
    with shelf.borrow(folder):
        pass
    assert [one.is_closed for one in opened] == [True, False]
    shutil.rmtree(folder)
    with pytest.raises(FileNotFoundError), shelf.borrow(folder):
        pass


def test_threads_open_a_dataset_once(tmp_path: Path) -> None:
    shelf, opened = counted_shelf()
    (folder,) = folders_of(tmp_path, 1)
    barrier = threading.Barrier(6)

    def borrow() -> None:
        barrier.wait()
        for _ in range(50):
            with shelf.borrow(folder):
                pass

    threads = [threading.Thread(target=borrow) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 1


def has_published(log: Any, count: int) -> bool:
    return bool(log.cursors().published >= count)


def test_what_was_published_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acqstream.web.page.picture_source.REFRESH_S", 0.0)
    shelf = DatasetShelf(2, lambda folder: ServedDataset(folder, LevelCache(0)))
    with start_log(tmp_path / "cells") as log:
        for count, frame in enumerate(FRAMES[:3], 1):
            log.append(frame.header, frame.image)
            wait_for(log, partial(has_published, log, count))
            with borrow_pictures(shelf, tmp_path / "cells") as source:
                assert source.count == count
                assert source.find({}).key == frame.axes


def test_a_dataset_that_was_dropped_is_opened_again(tmp_path: Path) -> None:
    shelf, opened = counted_shelf()
    (folder,) = folders_of(tmp_path, 1)
    with shelf.borrow(folder) as dataset:
        shelf.drop(dataset)
        assert not opened[0].is_closed
        with shelf.borrow(folder) as other:
            assert other is not dataset
            shelf.drop(dataset)  # not the other one
    assert [one.is_closed for one in opened] == [True, False]


def test_a_damaged_dataset_is_an_error_each_time(folder: Path) -> None:
    (folder / "NDTiff.index").write_bytes(b"\xff" * 400)
    shelf = DatasetShelf(2, lambda folder: ServedDataset(folder, LevelCache(0)))
    for _ in range(2):
        with pytest.raises(DatasetError), shelf.borrow(folder):
            pass
