"""One run, all faces: what a run means is the same in every reader, mirror and export.

Each face is read from its own documents (`face_readers`); what a format has no word for, our note has, and our reader
gives it back from every copy. A face that cannot say something is named in `CANNOT`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import acqstream
from acqstream.arrays.channel_looks import channel_looks
from acqstream.model.acquisition_spec import AxisSpec
from tests.conformance.face_readers import FACES, Said
from tests.export.sample_exports import export
from tests.log.make_frames import Frame, frame_of, write_log
from tests.mirrors.mirror_cases import finish, places_of, run_of

pytest.importorskip("xarray")
SHAPE = (20, 30)
MIDDLE = (9.5, 14.5)  # of an image, in pixels from its first one
CANNOT: Mapping[str, frozenset[str]] = {
    "ome-zarr": frozenset({"times", "stage"}),
    "n5": frozenset({"time", "times", "stage", "looks", "bits", "unknown"}),  # one unit for x, y and z
    "n5 multiscale": frozenset({"time", "times", "stage", "looks", "bits"}),
    "wkw": frozenset({"time", "times", "first", "stage", "looks of one", "unknown"}),
    "precomputed": frozenset({"time", "times", "first", "stage", "looks", "bits", "unknown"}),
    "hdf5": frozenset({"time", "stage", "looks", "bits"}),
    "ome-tiff": frozenset({"first", "windows"}),
}


@dataclass(frozen=True, kw_only=True)
class FaceRun:
    """metadata: of each frame, by its axes. distances: those that every face must say, by axis; others are unknown.

    first: (z, y, x) of the first pixel; None: not asked. times: of the first frame of each time, as measured.
    """

    order: tuple[str, ...] = ("time", "z")
    sizes: Mapping[str, int] = field(default_factory=lambda: {"time": 4, "z": 3})
    values: Mapping[str, Any] = field(default_factory=dict)
    metadata: Any = None
    summary: Mapping[str, Any] = field(default_factory=dict)
    axes: tuple[AxisSpec, ...] = ()
    distances: Mapping[str, float] = field(default_factory=dict)
    first: tuple[float, float, float] | None = None
    stage: tuple[float, float] | None = None
    times: tuple[float, ...] | None = None
    colors: tuple[str, ...] | None = None
    bits: int = 16

    def frames(self) -> list[Frame]:
        places = places_of(self.order, self.sizes, self.values)
        return [
            frame_of(number, SHAPE, axes=place, metadata=None if self.metadata is None else self.metadata(place))
            for number, place in enumerate(places)
        ]


def stage(place: Mapping[str, Any], *, pixel: float = 0.5, **more: Any) -> dict[str, Any]:
    return {"XPositionUm": 100.0, "YPositionUm": 50.0, "ZPositionUm": 7.0 + 2.0 * place.get("z", 0), **more} | (
        {"PixelSizeUm": pixel} if pixel else {}
    )


def timed(*seconds: float) -> Any:
    return lambda place: {"ElapsedTime-ms": 1000.0 * seconds[place["time"]], "PixelSizeUm": 0.5}


PIXELS = {"y": 0.5, "x": 0.5}
FIRST = (7.0, 50 - MIDDLE[0] * 0.5, 100 - MIDDLE[1] * 0.5)
RUNS: dict[str, FaceRun] = {
    "nothing known": FaceRun(),
    "frames say all": FaceRun(
        metadata=lambda place: stage(place, **{"ElapsedTime-ms": 5000.0 * place["time"]}),
        distances={"z": 2.0, "time": 5.0, **PIXELS},
        first=FIRST,
        stage=(100.0, 50.0),
        times=(0.0, 5.0, 10.0, 15.0),
    ),
    "the frames contradict the summary": FaceRun(
        metadata=lambda place: stage(place, **{"ElapsedTime-ms": 5000.0 * place["time"]}),
        summary={"z-step_um": 0.3, "Interval_ms": 1000, "PixelSizeUm": 0.1},
        distances={"z": 2.0, "time": 5.0, **PIXELS},
        first=FIRST,
    ),
    "the summary alone": FaceRun(
        summary={"z-step_um": 0.3, "Interval_ms": 1000, "PixelSizeUm": 0.1},
        distances={"z": 0.3, "time": 1.0, "y": 0.1, "x": 0.1},
    ),
    "declared": FaceRun(
        metadata=stage,
        axes=(AxisSpec("time", 4, "ms", 250), AxisSpec("z", 3, "nm", 2500)),
        summary={"z-step_um": 9},
        distances={"z": 2.5, "time": 0.25, **PIXELS},
    ),
    "uneven times": FaceRun(
        metadata=timed(0, 61.5, 127, 202),
        distances=PIXELS,
        times=(0.0, 61.5, 127.0, 202.0),
        summary={"Interval_ms": 60000},
    ),
    "two phases": FaceRun(metadata=timed(0, 0.2, 0.4, 1.4), distances=PIXELS, times=(0.0, 0.2, 0.4, 1.4)),
    "late but even": FaceRun(
        metadata=timed(0, 5, 10, 15.4), distances={"time": 5.12, **PIXELS}, times=(0.0, 5.0, 10.0, 15.4)
    ),
    "z uneven": FaceRun(
        metadata=lambda place: {"ZPositionUm": float(place["z"] ** 2), "PixelSizeUm": 0.5}, distances=PIXELS
    ),
    "z goes down": FaceRun(
        metadata=lambda place: stage(place) | {"ZPositionUm": 7.0 - 2.0 * place["z"]},
        distances={"z": 2.0, **PIXELS},
        first=(-7.0, *FIRST[1:]),
    ),
    "far indices": FaceRun(
        values={"z": [0, 100, 200]},
        metadata=lambda place: {"ZPositionUm": place["z"] * 0.01, "PixelSizeUm": 0.5},
        distances={"z": 1.0, **PIXELS},
    ),
    "negative z": FaceRun(
        values={"z": [-2, -1, 0]},
        metadata=lambda place: {"ZPositionUm": place["z"] * 0.5, "PixelSizeUm": 0.5},
        distances={"z": 0.5, **PIXELS},
    ),
    "late values": FaceRun(
        values={"z": [1, 0, -1]}, summary={"z-step_um": 0.5, "PixelSizeUm": 0.5}, distances={"z": 0.5, **PIXELS}
    ),
    "turned camera": FaceRun(
        metadata=lambda place: stage(place, PixelSizeAffine="0;-0.5;0;0.5;0;0"),
        distances={"z": 2.0, **PIXELS},
        first=(7.0, -100 - MIDDLE[0] * 0.5, 50 - MIDDLE[1] * 0.5),
        stage=(100.0, 50.0),
    ),
    "mirrored camera": FaceRun(
        metadata=lambda place: stage(place, PixelSizeAffine="0.5;0;0;0;-0.5;0"),
        distances={"z": 2.0, **PIXELS},
        first=(7.0, -50 - MIDDLE[0] * 0.5, 100 - MIDDLE[1] * 0.5),
    ),
    "the default affine, binned": FaceRun(
        metadata=lambda place: stage(place, PixelSizeAffine="2;0;0;0;2;0"),
        distances={"z": 2.0, **PIXELS},
        first=FIRST,
    ),
    "an affine of another size": FaceRun(
        metadata=lambda place: stage(place, PixelSizeAffine="0;-1;0;1;0;0"),
        distances={"z": 2.0, **PIXELS},
        first=(7.0, -100 - MIDDLE[0] * 0.5, 50 - MIDDLE[1] * 0.5),
    ),
    "channels by name": FaceRun(
        order=("channel", "z"),
        sizes={"z": 2},
        values={"channel": ["DAPI", "GFP", "BF"]},
        distances={},
        colors=("#4393ff", "#00ff00", "#ffffff"),
    ),
    "channels of Micro-Manager": FaceRun(
        order=("channel", "z"),
        sizes={"z": 2},
        values={"channel": ["GFP", "DAPI"]},
        summary={"ChNames": ["DAPI", "GFP"], "ChColors": [-16776961, -16711936]},
        colors=("#00ff00", "#0000ff"),
    ),
}


def make(tmp_path: Path, run: FaceRun, face: str) -> tuple[Path, Said]:
    settings, read = FACES[face]
    write_log(tmp_path / "cells", run.frames(), axes=run.axes, summary=run.summary)
    if isinstance(settings, str):
        path = tmp_path / ("cells.h5" if settings == "hdf5" else "cells.ome.tif")
        export(tmp_path / "cells", settings, path)  # type: ignore[arg-type]
        return path, read(path)
    finish(run_of(tmp_path / "cells", {**settings, "levels": 1}, settings["format"]))
    (path,) = (one for one in tmp_path.iterdir() if one.is_dir() and one.name != "cells" and ".view" not in one.name)
    return path, read(path)


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("name", RUNS)
def test_a_face_says_what_the_run_means(tmp_path: Path, name: str, face: str) -> None:
    run, cannot = RUNS[name], CANNOT[face]
    path, said = make(tmp_path, run, face)
    expected = {axis: size for axis, size in run.distances.items() if axis not in cannot}
    found = {axis: size for axis, size in said.distances.items() if axis not in cannot}
    if "unknown" in cannot:  # the format demands a number
        found = {axis: size for axis, size in found.items() if axis in expected}
    assert found == pytest.approx(expected)
    if run.first is not None and "first" not in cannot:
        assert said.first == pytest.approx(run.first)
    if run.stage is not None and "stage" not in cannot:
        assert said.stage == run.stage
    if run.times is not None and "times" not in cannot:
        assert said.times == pytest.approx(run.times)
    with acqstream.open(tmp_path / "cells") as ds:
        looks = channel_looks(list(ds.axes.get("channel", [])), ds.summary_metadata, ds.display_settings)
    if run.colors is not None and "looks" not in cannot:
        assert said.colors == list(run.colors) == [look.color for look in looks]
    if isinstance(FACES[face][0], str):
        return
    with acqstream.open(tmp_path / "cells") as ds, acqstream.open(path) as copy:
        ours, theirs = ds.levels[0], copy.levels[0]
        assert theirs.axes == ours.axes
        assert theirs.units == ours.units
        assert theirs.scale == pytest.approx(ours.scale)
        assert theirs.translation == pytest.approx(ours.translation)
        assert theirs.source.evidence == ours.source.evidence
        if run.times is not None:
            times = [
                one.levels[0].source.coordinates(one.levels[0].source.layout())["time_s"].values for one in (ds, copy)
            ]
            own = times[0].reshape(len(run.times), -1)[:, 0]
            step = run.distances.get("time", 0.0)
            assert np.abs(own - times[1]).max() <= step / 2
