"""One run, all faces: what a run means is the same in every reader, mirror and export.

Each face is read from its own documents (`face_readers`); what a format has no word for, our note has, and our reader
gives it back from every copy. A face that cannot say something is named in `CANNOT`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import acqstream
from tests.conformance.odd_runs import RUNS, Image, OddRun
from tests.export.sample_exports import export
from tests.mirrors.mirror_cases import finish, run_of

pytest.importorskip("xarray")
from tests.conformance.face_readers import FACES, Said

CANNOT: Mapping[str, frozenset[str]] = {
    "reader": frozenset({"images", "stage", "times", "channels", "colors", "windows", "bits"}),
    "info": frozenset({"images", "first", "stage", "times", "channels", "colors", "windows", "bits"}),
    "xarray": frozenset({"time", "stage", "colors", "windows", "bits"}),
    "napari": frozenset({"images", "stage", "times"}),
    "web": frozenset({"times", "stage"}),
    "neuroglancer": frozenset({"images", "times", "stage", "first", "channels", "colors", "bits"}),
    "ome-zarr": frozenset({"times", "stage"}),
    "n5": frozenset({"time", "times", "stage", "colors", "windows", "bits", "unknown"}),  # one unit for x, y and z
    "n5 multiscale": frozenset({"time", "times", "stage", "channels", "colors", "windows", "bits"}),
    "wkw": frozenset({"time", "times", "first", "stage", "channels", "unknown"}),
    "precomputed": frozenset({"time", "times", "first", "stage", "channels", "colors", "windows", "bits", "unknown"}),
    "hsds": frozenset({"images", "times", "stage", "colors", "windows"}),
    "table": frozenset({"first", "channels", "colors", "windows", "bits", "time", "z", "y", "x"}),
    "hdf5": frozenset({"time", "stage", "colors", "windows", "bits"}),
    "ome-tiff": frozenset({"first", "windows"}),
}
"""What a face has no word for; `unknown`: that a distance is not known."""
ONE_ARRAY = frozenset({"info", "napari", "hsds"})
"""Faces that show all images as one array."""
HOLDS_PLACES = frozenset({"hsds", "web", "neuroglancer", "ome-zarr", "n5", "n5 multiscale", "wkw", "precomputed"})
"""Faces with places for frames that did not come; others show those that did side by side."""


def make(tmp_path: Path, run: OddRun, face: str) -> tuple[Path, list[Said]]:
    settings, read = FACES[face]
    run.write(tmp_path / "cells")
    if settings == "dataset":
        return tmp_path / "cells", read(tmp_path / "cells")
    if isinstance(settings, str):
        path = tmp_path / {"hdf5": "cells.h5", "ome-tiff": "cells.ome.tif", "table": "cells.csv"}[settings]
        export(tmp_path / "cells", settings, path)  # type: ignore[arg-type]
        return path, read(path)
    finish(run_of(tmp_path / "cells", {**settings, "levels": 1}, settings["format"]))
    (path,) = (one for one in tmp_path.iterdir() if one.is_dir() and one.name != "cells" and ".view" not in one.name)
    return path, read(path)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("name", RUNS)
def test_a_face_says_what_the_run_means(tmp_path: Path, name: str, face: str) -> None:
    run, cannot = RUNS[name], CANNOT[face]
    path, images = make(tmp_path, run, face)
    if "images" not in cannot:
        assert len(images) % len(run.images) == 0  # an axis of its own separates images too
    expected = [shared(run.images)] if face in ONE_ARRAY else run.images
    for said, image in zip(images, itertools.cycle(expected), strict=False):
        check(said, image, face)
    for said in images:
        if run.channels and "channels" not in cannot:
            assert said.channels == [*run.channels]
        if run.colors and "colors" not in cannot:
            assert said.colors == [*run.colors]
        if run.windows and "windows" not in cannot:
            assert said.windows == [*run.windows]
        if "bits" not in cannot and len(run.shape) == 2:
            assert said.highest == 2**run.bits - 1 or (said.highest is None and run.bits in (8, 16))
    if isinstance(FACES[face][0], Mapping):
        check_copy(tmp_path / "cells", path, run)


def shared(images: tuple[Image, ...]) -> Image:
    """What is said of all images at once."""
    if len(images) == 1:
        return images[0]
    first, *others = (image.distances.items() for image in images)
    return Image(distances=dict(item for item in first if all(item in other for other in others)))


def check(said: Said, image: Image, face: str) -> None:
    cannot, distances = CANNOT[face], image.distances
    if face in HOLDS_PLACES:
        distances = image.held or distances
    if face == "neuroglancer":  # what it has seen of a source never changes
        distances = image.arrived or distances
    expected = {axis: size for axis, size in distances.items() if axis not in cannot}
    found = {axis: size for axis, size in said.distances.items() if axis not in cannot}
    if "unknown" in cannot:  # the format demands a number
        found = {axis: size for axis, size in found.items() if axis in expected}
    assert found == pytest.approx(expected)
    if image.first is not None and "first" not in cannot:
        assert said.first == pytest.approx(image.first)
    if image.stage is not None and "stage" not in cannot:
        assert said.stage == image.stage
    if image.times is not None and "times" not in cannot:
        assert said.times == pytest.approx(image.times)


def check_copy(folder: Path, path: Path, run: OddRun) -> None:
    """Our reader gives back from a copy what the dataset says."""
    with acqstream.open(folder) as ds, acqstream.open(path) as copy:
        ours, theirs = ds.levels[0], copy.levels[0]
        assert theirs.axes == ours.axes
        assert theirs.units == ours.units
        assert theirs.scale == pytest.approx(ours.scale)
        assert theirs.translation == pytest.approx(ours.translation)
        known = {axis for axis, unit in zip(ours.axes, ours.units, strict=True) if unit}
        given = [{axis: one.source.evidence[axis] for axis in known} for one in (ours, theirs)]
        assert given[0] == given[1]
        if len(run.images) == 1 and (measured := run.images[0].times) is not None:
            times = [
                one.levels[0].source.coordinates(one.levels[0].source.layout())["time_s"].values for one in (ds, copy)
            ]
            own = times[0].reshape(len(measured), -1)[:, 0]
            step = run.images[0].distances.get("time", 0.0)
            copied = times[1].reshape(len(measured), -1)[:, 0]
            assert np.abs(own - copied).max() <= step / 2
