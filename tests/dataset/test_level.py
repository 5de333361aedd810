"""A level as an array, against numpy's own indexing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import acqstream
from acqstream.dataset.dataset import Dataset
from acqstream.dataset.level import Level
from acqstream.errors import DatasetError
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.frames.frame_region import FrameLevel
from tests.formats.ndtiff.ndtiff_bytes import Folder, image

TIMES, CHANNELS = 4, ["b", "a", "c"]
SHAPE = (TIMES, len(CHANNELS), 3, 4)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Level, NDArray[Any]]]:
    """Times -1 to 2, channels in order of first appearance, one frame missing, and the array they make."""
    folder = Folder(tmp_path_factory.mktemp("level") / "data")
    array = np.zeros(SHAPE, "<u2")
    for t in range(TIMES):
        for c, channel in enumerate(CHANNELS):
            if (t, c) != (2, 1):
                array[t, c] = image(10 * t + c)
                folder.add({"time": t - 1, "channel": channel}, array[t, c])
    with acqstream.open(folder.path) as ds:
        yield ds.levels[0], array


def reader_of(level: Level) -> NDTiffReader:
    assert isinstance(level.source, FrameLevel)
    return level.source.reader


def selectors(size: int) -> st.SearchStrategy[Any]:
    return st.one_of(st.slices(size), st.integers(-size, size - 1), st.integers(0, size - 1).map(np.int64))


SELECTIONS = st.tuples(*map(selectors, SHAPE)).flatmap(
    lambda full: st.one_of(
        st.just(full),
        st.integers(0, 4).map(lambda n: full[:n]),
        st.integers(0, 4).map(lambda n: (..., *full[n:])),
        st.integers(0, 3).map(lambda n: (*full[:n], ..., *full[n + 1 :])),
    )
)


@given(SELECTIONS)
def test_selections_are_those_of_numpy(whole: tuple[Level, NDArray[Any]], selection: Any) -> None:
    level, array = whole
    found = level.read(selection)
    assert found.shape == array[selection].shape
    assert found.dtype == array.dtype
    assert np.array_equal(found, array[selection])


def test_all_of_it(whole: tuple[Level, NDArray[Any]]) -> None:
    level, array = whole
    assert (level.axes, level.shape) == (("time", "channel", "y", "x"), SHAPE)
    for found in (level.read(), level.read(...), level.read(slice(None)), level.read(())):
        assert np.array_equal(found, array)


@pytest.mark.parametrize("selection", [4, (0, -4), (0, 0, 3), (0, 0, 0, -5), (0,) * 5, (..., 0, ...)])
def test_selections_that_do_not_fit(whole: tuple[Level, NDArray[Any]], selection: Any) -> None:
    level, array = whole
    for source in (level.read, array.__getitem__):
        with pytest.raises(IndexError):
            source(selection)


@pytest.mark.parametrize("selection", [[0, 1], (0, None), (0, 1.5), np.array([True, False])])
def test_only_integers_and_slices_select(whole: tuple[Level, NDArray[Any]], selection: Any) -> None:
    with pytest.raises(TypeError, match=r"axis [01] is selected with .*; expected an integer, a slice or \.\.\.$"):
        whole[0].read(selection)


def test_only_selected_frames_are_read(whole: tuple[Level, NDArray[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    level, _ = whole
    asked: list[int] = []
    read = reader_of(level).read_rows

    def note_and_read(row: int, first: int, stop: int) -> NDArray[Any]:
        asked.append(row)
        assert (first, stop) == (0, 1)
        return read(row, first, stop)

    monkeypatch.setattr(reader_of(level), "read_rows", note_and_read)
    monkeypatch.setattr(reader_of(level), "read_pixels", None)
    level.read((slice(1, 2), slice(None, None, 2), 0, slice(0, 2)))
    assert asked == [3, 5]
    level.read((slice(3, 3), ...))
    assert len(asked) == 2


def test_frames_of_another_shape_or_dtype_are_named(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    for t, other in enumerate([image(0), image(1, (2, 4)), image(2, (3, 4), "|u1")]):
        folder.add({"time": t}, other)
    with acqstream.open(folder.path) as ds:
        assert ds.levels[0].read(0).shape == (3, 4)
        for t in (1, 2):
            with pytest.raises(DatasetError, match=rf"frame {{'time': {t}}} has shape"):
                ds.levels[0].read(t)


def open_rgb(path: Path) -> Dataset:
    folder = Folder(path)
    folder.add({"row": 0, "column": 0}, image(0, (2, 4, 3), "|u1"))
    folder.add({"row": 1, "column": -1}, image(1, (2, 4, 3), "|u1"))
    return acqstream.open(folder.path)


def test_rgb_has_an_axis_more(tmp_path: Path) -> None:
    with open_rgb(tmp_path / "data") as ds:
        level = ds.levels[0]
        assert (level.axes, level.shape) == (("row", "column", "y", "x", "c"), (2, 2, 2, 4, 3))
        assert np.array_equal(level.read((1, 0, ..., 2)), image(1, (2, 4, 3), "|u1")[..., 2])
        assert not level.read((0, 0)).any()


def test_a_frame_without_axes_is_the_array(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    folder.add({}, image(3))
    with acqstream.open(folder.path) as ds:
        assert np.array_equal(ds.levels[0].read(), image(3))
        assert np.array_equal(ds.read_frame(), image(3))


def test_what_is_missing_is_told(whole: tuple[Level, NDArray[Any]]) -> None:
    level, _ = whole
    assert level.missing() == [{"time": 1, "channel": "a"}]
    assert level.missing(limit=0) == level.missing((slice(0, 2), ...)) == []
    assert level.missing((2, 1, 0, 0)) == [{"time": 1, "channel": "a"}]
    assert level.missing_count == 1


def test_what_the_array_measures(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data", {"PixelSizeUm": 0.5, "z-step_um": -2})
    folder.add({"z": 0}, image(0))
    folder.add({"z": 1}, image(1))
    folder.add({"other": 1}, image(2))
    with acqstream.open(folder.path) as ds:
        level = ds.levels[0]
        assert (level.pixel_size_um, level.z_step_um) == (0.5, -2)
        assert (level.origin, level.is_stitched, level.chunk_shape) == ((0, 0), False, (1, 1, 3, 4))
        assert level.axis_values() == {"other": [0, 1], "z": [0, 1]}
        assert level.missing() == [{"other": 1, "z": 1}]  # frames that lack an axis count as 0 on it
        assert level.missing_count == 1
        assert np.array_equal(level.read()[:, 0], [image(0), image(2)])


@pytest.mark.parametrize("size", [0, -1, "1", None, True, float("nan"), pytest.param(10**400, id="huge")])
def test_without_a_pixel_size_the_frame_is_asked(tmp_path: Path, size: Any) -> None:
    folder = Folder(tmp_path / "data", {} if size is None else {"PixelSizeUm": size})
    folder.add({"z": 0}, image(0), metadata={"PixelSizeUm": 0.25})
    with acqstream.open(folder.path) as ds:
        assert ds.levels[0].pixel_size_um == 0.25
        assert ds.levels[0].z_step_um is None


def test_a_level_says_what_it_is(whole: tuple[Level, NDArray[Any]], tmp_path: Path) -> None:
    level, array = whole
    assert repr(level) == f"<Level {str(level.path)!r}, time, channel, y, x: {array.shape} uint16>"
    folder = Folder(tmp_path / "empty")
    with acqstream.open(folder.path) as ds:
        assert repr(ds.levels[0]) == f"<Level {str(folder.path)!r}, no frame yet>"


def test_numpy_takes_all_of_it(whole: tuple[Level, NDArray[Any]]) -> None:
    level, array = whole
    assert np.array_equal(np.asarray(level), array)
    assert np.asarray(level, dtype="f4").dtype == np.float32
    assert np.max(level) == array.max()  # type: ignore[call-overload]


def test_planned_places_without_frames_are_missing_once_the_run_has_ended(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    axes = [{"name": "time", "size": 3}, {"name": "channel", "labels": ["A", "B"]}]
    state = {"format": "acqstream", "version": 1, "state": "RUNNING", "request": {"axes": axes}}
    (folder.path / "acqstream.json").write_text(json.dumps(state))
    for time, channel in [(0, "A"), (0, "B"), (1, "A")]:
        folder.add({"time": time, "channel": channel}, image(0))
    with acqstream.open(folder.path) as ds:
        level = ds.levels[0]
        assert (level.missing_count, level.missing()) == (1, [{"time": 1, "channel": "B"}])
        (folder.path / "new").write_text(json.dumps(state | {"state": "COMPLETE"}))
        (folder.path / "new").replace(folder.path / "acqstream.json")
        ds.refresh()
        assert level.shape == (2, 2, 3, 4)
        assert level.missing_count == 3
        assert level.missing() == [
            {"time": 1, "channel": "B"},
            {"time": 2, "channel": "A"},
            {"time": 2, "channel": "B"},
        ]
        assert level.missing((1, ...)) == [{"time": 1, "channel": "B"}]


@pytest.mark.parametrize("turn", [1, -1])
def test_the_last_of_two_frames_at_one_place_is_read(tmp_path: Path, turn: int) -> None:
    folder = Folder(tmp_path / "data")
    folder.add({"channel": "DAPI", "z": 1}, image(9))
    keys: list[dict[str, Any]] = [{"channel": "BF"}, {"channel": "BF", "z": 0}]
    for seed, key in enumerate(keys[::turn]):
        folder.add(key, image(seed))
    with acqstream.open(folder.path) as ds:
        level = ds.levels[0]
        assert level.axis_values() == {"channel": ["DAPI", "BF"], "z": [0, 1]}
        assert np.array_equal(level.read((1, 0)), image(1))


@pytest.mark.parametrize(
    ("axes", "summary", "start"),
    [
        ({"time": 0}, {}, (19.5, 9.25)),  # of 3 x 4 pixels: the stage is at their middle
        ({"position": 0}, {}, (0, 0)),
        ({"row": 0, "column": 0}, {"TiledImageStorage": True}, (0, 0)),
    ],
)
def test_pixels_lie_at_the_stage_place_unless_there_are_several(
    tmp_path: Path, axes: dict[str, Any], summary: dict[str, Any], start: tuple[float, float]
) -> None:
    overlap = {"GridPixelOverlapY": 0, "GridPixelOverlapX": 0}
    folder = Folder(tmp_path / "Full resolution", {**summary, **overlap, "PixelSizeUm": 0.5})
    folder.add(axes, image(0), metadata={"XPositionUm": 10, "YPositionUm": 20})
    with acqstream.open(tmp_path) as ds:
        level = ds.levels[0]
        assert level.is_stitched == bool(summary)
        assert level.translation[-2:] == start
        assert level.places == (((0, 19.5, 9.25),) if "position" in axes else ())


def test_distances_are_looked_for_again_in_new_frames(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    folder.add({"z": 0}, image(0), metadata={"ZPositionUm": 5})
    with acqstream.open(folder.path) as ds:
        level = ds.levels[0]
        assert level.z_step_um is None
        folder.add({"z": 1}, image(1), metadata={"ZPositionUm": 7})
        assert level.z_step_um is None
        ds.refresh()
        assert level.z_step_um == 2
