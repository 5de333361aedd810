"""The same frames give the same array in every format: axes, shape, coordinates, units, holes and pixels.

`python -m tests.conformance.one_array_table` prints the table of kinds and formats.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import acqstream
from acqstream.dataset.dataset import Dataset
from acqstream.errors import AcqStreamError
from acqstream.formats.registry import chunk_format
from acqstream.integrity.container_proof import verify_chunks
from acqstream.log.log import Log
from acqstream.model.axes import AxisValue
from acqstream.views.view_run import ViewState
from tests.conformance.frame_runs import RUNS, FrameRun, grid, without
from tests.log import make_frames
from tests.log.make_frames import Frame, frame_of, start_log, write_log
from tests.mirrors.mirror_cases import finish, halved, run_of

FORMATS: Mapping[str, Mapping[str, Any]] = {
    "n5 bdv": {"format": "n5", "levels": 2, "blocks": [4, 16, 16]},
    "n5 multiscale": {"format": "n5", "layout": "multiscale", "levels": 2, "blocks": [4, 16, 16]},
    "n5 array": {"format": "n5", "layout": "array", "levels": 2, "blocks": [4, 16, 16]},
    "ome-zarr raw": {"format": "ome-zarr", "levels": 2, "chunks": [4, 16, 16], "compression": "none"},
    "ome-zarr": {"format": "ome-zarr", "levels": 2, "chunks": [4, 16, 16]},
    "ome-zarr unsharded": {"format": "ome-zarr", "levels": 2, "chunks": [4, 16, 16], "shards": False},
    "precomputed": {"format": "precomputed", "levels": 2, "chunks": [1, 16, 16]},
    "precomputed deep": {"format": "precomputed", "levels": 2, "chunks": [4, 16, 16]},
    "precomputed shards": {"format": "precomputed", "levels": 2, "chunks": [4, 16, 16], "shards": True},
    "hsds": {"format": "hsds", "pixels": "copy", "levels": 2},
    "hsds deep": {"format": "hsds", "pixels": "copy", "levels": 2, "chunks": [4, 16, 16], "compression": "zlib"},
    "wkw": {"format": "wkw", "levels": 2, "cube": 32},
}


def _suffix(settings: Mapping[str, Any]) -> str:
    return chunk_format(settings["format"]).suffix.removeprefix(".")


def expected_array(run: FrameRun) -> NDArray[Any]:
    """The pixels, by the values that the run states and nothing else."""
    sizes = [len(values) for values in run.values.values()]
    if run.name == "tiles":
        rows, columns = 2, 2
        found = np.zeros((*sizes, rows * run.shape[0], columns * run.shape[1]), run.dtype)
        for frame in run.frames:
            row, column = int(frame.axes["row"]) * run.shape[0], int(frame.axes["column"]) * run.shape[1]
            found[0, row : row + run.shape[0], column : column + run.shape[1]] = frame.image
        return found
    found = np.zeros((*sizes, *run.shape), run.dtype)
    for frame in run.frames:
        found[tuple(place_of(run, frame))] = frame.image
    return found


def place_of(run: FrameRun, frame: Frame) -> list[int]:
    return [list(values).index(frame.axes.get(name, run.homes.get(name, ""))) for name, values in run.values.items()]


def append(log: Log, run: FrameRun, start: int, stop: int) -> None:
    frames = {frame.header.number: frame for frame in run.frames}
    for number in range(start, stop):
        if number in frames:
            log.append(frames[number].header, frames[number].image)
        else:
            log.skip(number, 1, "camera timeout")


def write(folder: Path, run: FrameRun, settings: Mapping[str, Any] | None, *, is_live: bool) -> None:
    """Write the run, and mirror it: afterwards, or when half of the frames are there and then to the end."""
    frames = run.frames
    first = frames[: max(1, len(frames) // 2)] if is_live else frames
    mirror = None
    with start_log(folder, **run.spec) as log:
        append(log, run, 0, first[-1].header.number + 1)
        if is_live and settings is not None:
            assert log.wait_for_published(first[-1].header.number + 1)
            mirror = run_of(folder, settings, name=settings["format"])
            while mirror.progress().state is not ViewState.WAITING:
                mirror.step()
        append(log, run, first[-1].header.number + 1, len(run.keys))
    if settings is not None:
        finish(mirror or run_of(folder, settings, name=settings["format"]))


def centres_of(ds: Dataset) -> dict[str, list[float]]:
    """Where the places of each axis lie, for axes with a unit."""
    source = ds.levels[0].source
    found = {}
    for axis in source.layout().all_axes:
        spacing = source.spacing(axis.name)
        if spacing.unit and (centres := axis.centres(spacing)) is not None:
            found[axis.name] = centres.tolist()
    return found


def places_by_value(ds: Dataset) -> dict[AxisValue, Any]:
    """Where positions lie, of those with a known place."""
    positions = ds.axes.get("position", [])
    return {value: place for value, place in zip(positions, ds.levels[0].places, strict=False) if place is not None}


def check(ds: Dataset, run: FrameRun) -> None:
    level, pixels = ds.levels[0], expected_array(run)
    assert level.axes == (*run.values, *("y", "x", "c")[: len(run.shape)])
    assert level.shape == pixels.shape
    assert {name: list(values) for name, values in level.axis_values().items()} == run.values
    assert {axis: unit for axis, unit in zip(level.axes, level.units, strict=True) if unit} == run.units
    centres = centres_of(ds)
    for axis, places in run.centres.items():
        assert centres[axis][: len(places)] == pytest.approx(places, abs=1e-5), axis
    assert np.array_equal(level.read(), pixels)
    if pixels.ndim > 2 and pixels.shape[0] > 1:
        assert np.array_equal(level.read((slice(None, None, -1), ..., slice(3, 9))), pixels[::-1][..., 3:9])
        assert np.array_equal(level.read(pixels.shape[0] - 1), pixels[-1])


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_the_dataset(tmp_path: Path, run: FrameRun) -> None:
    write(tmp_path / "cells", run, None, is_live=False)
    with acqstream.open(tmp_path / "cells") as ds:
        check(ds, run)
        assert ds.levels[0].missing_count == run.missing
        assert len(ds.levels[0].missing()) == run.missing


@pytest.mark.parametrize("name", FORMATS)
def test_black_frames_are_not_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Frames 2 to 5 are black, and frame 7 never comes: chunks of zeros need not be stored, but tell both apart."""
    real = make_frames.image_of
    monkeypatch.setattr(make_frames, "image_of", lambda at, *more: real(at, *more) * (not 2 <= at <= 5))
    keys = without(grid(time=range(6), channel=[0, 1]), {"time": 3, "channel": 1})
    write_log(tmp_path / "cells", [frame_of(number, (40, 50), axes=key) for number, key in enumerate(keys)])
    run = finish(run_of(tmp_path / "cells", FORMATS[name], FORMATS[name]["format"]))
    container = Path(run.view.summary()["container"])
    with acqstream.open(container) as ds:
        absent = [{(at["time"], at["channel"]) for at in level.missing()} for level in ds.levels]
        assert all(some <= {(3, 1)} for some in absent)
        if name in ("n5 bdv", "ome-zarr", "ome-zarr unsharded"):
            assert absent[0] == {(3, 1)}
        assert verify_chunks(container, chunk_format(FORMATS[name]["format"])).missing == sum(
            one.missing_count for one in ds.levels
        )


@pytest.mark.thinned(4)
@pytest.mark.parametrize("is_live", [False, True], ids=["afterwards", "live"])
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_mirrors(tmp_path: Path, run: FrameRun, name: str, is_live: bool) -> None:
    check_mirror(tmp_path, run, name, is_live=is_live)


def check_mirror(tmp_path: Path, run: FrameRun, name: str, *, is_live: bool) -> str:
    """Make a mirror of the run and compare it with the dataset. Returns the error that the run is refused with."""
    refused = run.refused_live if is_live else ""
    folder = tmp_path / "cells"
    if refused:
        with pytest.raises(AcqStreamError, match=refused):
            write(folder, run, FORMATS[name], is_live=is_live)
        return refused
    write(folder, run, FORMATS[name], is_live=is_live)
    suffix = _suffix(FORMATS[name])
    with acqstream.open(folder) as log, acqstream.open(tmp_path / f"cells.{suffix}") as mirror:
        check(mirror, run)
        ours, theirs = centres_of(log), centres_of(mirror)
        assert ours.keys() == theirs.keys()
        for axis, centres in ours.items():
            assert theirs[axis] == pytest.approx(centres, abs=1e-5), axis
        assert places_by_value(mirror) == places_by_value(log)
        lower = mirror.levels[1]
        assert lower.axes == log.levels[0].axes
        steps = dict(zip(lower.axes, lower.factors, strict=True))
        reduced = [[*values] for axis, values in run.values.items() if steps[axis] > 1]
        if all(values == [*range(len(values))] for values in reduced):  # stored without places between
            assert np.array_equal(lower.read(), halved(log.levels[0].read(), lower.factors))
    return ""
