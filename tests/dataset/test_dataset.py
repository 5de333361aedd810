"""What people read with."""

from __future__ import annotations

import subprocess
import sys
from enum import IntEnum
from pathlib import Path

import numpy as np
import pytest

import acqstream
from acqstream.errors import DatasetError, FrameNotFound, UnknownFormat
from tests.formats.ndtiff.ndtiff_bytes import GOLDEN, STACK, Folder, image


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path / "cells", {"AxisOrder": ["channel", "time", "unused"]})
    for seed, (time, channel) in enumerate([(1, "GFP"), (0, "GFP"), (0, "DAPI")]):
        folder.add({"time": time, "channel": channel, "z": 5}, image(seed), metadata={"n": seed})
    return folder


def test_what_a_dataset_tells(folder: Folder) -> None:
    with acqstream.open(folder.path) as ds:
        assert ds.format == "ndtiff"
        assert ds.axes == {"channel": ["GFP", "DAPI"], "time": [0, 1], "z": [5]}
        assert list(ds.axes) == ["channel", "time", "z"]
        assert (ds.shape, ds.dtype, ds.complete) == ((2, 2, 1, 3, 4), np.dtype("<u2"), True)
        assert ds.levels[0].axes == ("channel", "time", "z", "y", "x")
        assert ds.summary_metadata == {"AxisOrder": ["channel", "time", "unused"]}
        assert next(ds.keys()) == {"time": 1, "channel": "GFP", "z": 5}
        assert repr(ds).endswith("3 frames>")


@pytest.mark.parametrize("inside", ["", "NDTiff.index", STACK])
def test_a_folder_or_a_file_in_it_opens(folder: Folder, inside: str) -> None:
    with acqstream.open(str(folder.path / inside)) as ds:
        assert len(list(ds.keys())) == 3


def test_frames_are_found_by_mapping_by_keyword_or_both(folder: Folder) -> None:
    class Time(IntEnum):
        FIRST = 0

    with acqstream.open(folder.path) as ds:
        assert np.array_equal(ds.read_frame(time=0, channel="DAPI", z=5), image(2))
        assert np.array_equal(ds.read_frame({"time": 1, "channel": "GFP", "z": 5}), image(0))
        assert np.array_equal(ds.read_frame({"time": np.int64(1), "channel": np.str_("GFP")}, z=np.uint8(5)), image(0))
        assert ds.read_metadata({"channel": "GFP", "z": 5}, time=Time.FIRST) == {"n": 1}
        for key in list(ds.keys()):
            assert ds.read_frame(key).shape == (3, 4)


def test_a_missing_frame_says_what_there_is(folder: Folder) -> None:
    with acqstream.open(folder.path) as ds:
        with pytest.raises(FrameNotFound, match=r"time=7.*axes are time \(0, 1\), channel \('GFP', 'DAPI'\)"):
            ds.read_frame(time=7, channel="GFP", z=5)
        with pytest.raises(LookupError):
            ds.read_metadata(time=0)


def test_a_frame_is_not_found_by_its_number(folder: Folder) -> None:
    with acqstream.open(folder.path) as ds:
        for number in (0, 1):
            with pytest.raises(TypeError, match=rf"read_frame\(time=0\).* not by {number}"):
                ds.read_frame(number)  # type: ignore[arg-type]


@pytest.mark.parametrize(("count", "told"), [(5, "0, 1, 2, 3, 4"), (7, "0, 1, 2, 3, ..., 6")])
def test_few_values_are_all_told(tmp_path: Path, count: int, told: str) -> None:
    folder = Folder(tmp_path / "cells", {})
    for time in range(count):
        folder.add({"time": time}, image(time))
    with acqstream.open(folder.path) as ds, pytest.raises(FrameNotFound, match=rf"its axes are time \({told}\)$"):
        ds.read_frame(time=99)


def test_refresh_gives_the_new_keys(folder: Folder) -> None:
    with acqstream.open(folder.path) as ds:
        assert ds.refresh() == []
        folder.add({"time": 2, "channel": "GFP", "z": 5}, image(7))
        with pytest.raises(FrameNotFound):
            ds.read_frame(time=2, channel="GFP", z=5)
        assert ds.refresh() == [{"time": 2, "channel": "GFP", "z": 5}]
        assert np.array_equal(ds.read_frame(time=2, channel="GFP", z=5), image(7))
        assert ds.axes["time"] == [0, 1, 2]


def test_an_empty_dataset_has_no_shape_yet(tmp_path: Path) -> None:
    Folder(tmp_path / "empty")
    with acqstream.open(tmp_path / "empty") as ds:
        assert (ds.axes, list(ds.keys()), ds.complete) == ({}, [], False)
        for ask in (lambda: ds.shape, lambda: ds.dtype, lambda: ds.levels[0].axes, ds.levels[0].read):
            with pytest.raises(DatasetError, match="no frame yet"):
                ask()


def test_a_place_without_a_dataset_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(UnknownFormat, match=r"Looked for ndtiff: NDTiff\.index"):
        acqstream.open(tmp_path)
    for nowhere in (tmp_path / "nowhere", tmp_path / "nowhere" / "NDTiff.index"):
        with pytest.raises(DatasetError, match="no such file or folder"):
            acqstream.open(nowhere)


def test_levels_of_a_pyramid() -> None:
    with acqstream.open(GOLDEN / "java_pyramid_u16" / "data") as ds:
        assert len(ds.levels) == 4
        assert ds.levels[1].axes == ("channel", "y", "x")
        assert ds.levels[1].chunk_shape == (1, 32, 32)  # without the overlap
        assert list(ds.axes) == ["column", "row", "channel"]
        assert ds.shape == ds.levels[0].shape


def test_importing_loads_nothing_heavy() -> None:
    code = (
        "import sys, acqstream; assert acqstream.CorruptDataset; dir(acqstream);"
        "print(sorted({'numpy', 'zmq', 'tifffile', 'msgpack'} & set(sys.modules)));"
        "acqstream.open; print(sorted({'zmq', 'tifffile', 'msgpack'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split("\n")[:2] == ["[]", "[]"]


def test_every_public_name_is_there() -> None:
    for name in acqstream.__all__:
        if name != "create":  # needs the client's libraries
            assert getattr(acqstream, name)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = acqstream.nonsense
