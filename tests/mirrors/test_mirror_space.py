"""Distances and places in mirrors: from hints, summary and frames, the same however the mirror was made."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from numpy.typing import NDArray

import acqstream
from acqstream.description.stage import StageAffine
from acqstream.mirrors import mirror_tasks, mirror_view
from acqstream.mirrors.task_runner import TaskRunner
from acqstream.model.acquisition_spec import AxisSpec
from acqstream.views.view_run import ViewRun
from tests.log.make_frames import Axes, Frame, frame_of, start_log, write_log
from tests.mirrors.mirror_cases import finish, places_of, run_of
from tests.mirrors.test_foreign_datasets import GOLDEN, SETS, dataset_in
from tests.mirrors.test_mirror_tasks import Threads

NOT_WHOLE = ("pyramid", "stitched", "lost", "short", "torn", "tail")  # tiles, and what damage left of others
BDV: Mapping[str, Any] = {"format": "n5", "compression": "raw", "levels": 2}
WKW: Mapping[str, Any] = {"format": "wkw", "cube": 32, "levels": 1}
SHAPE = (20, 30)
PIXEL_UM = 0.5
MIDDLE_UM = (9.5 * PIXEL_UM, 14.5 * PIXEL_UM)  # (y, x) of an image from its first pixel: the stage is there
CORNERS = ((0, 0), (25, 3), (-7, 40), (60, 55))  # (column, row) of each image in one large picture
ANGLE = math.radians(17)
AFFINES = {
    "as the stage": StageAffine(0.5, 0, 0, 0.5),
    "rotated by 90 degrees": StageAffine(0, -0.5, 0.5, 0),
    "rotated by 180 degrees": StageAffine(-0.5, 0, 0, -0.5),
    "mirrored": StageAffine(-0.5, 0, 0, 0.5),
    "mirrored and rotated": StageAffine(0, 0.5, 0.5, 0),
    "rotated by 17 degrees": StageAffine(
        0.5 * math.cos(ANGLE), -0.5 * math.sin(ANGLE), 0.5 * math.sin(ANGLE), 0.5 * math.cos(ANGLE)
    ),
}


def opened(path: Path) -> Any:
    """A dataset or a mirror: their levels differ in what they have."""
    return acqstream.open(path)


def views_of(xml: Path) -> dict[tuple[int, int], NDArray[np.float64]]:
    """As BigDataViewer does it: the matrix of a view is the product of its transforms, the last one applied first."""
    found = {}
    for view in ElementTree.parse(xml).getroot().findall("ViewRegistrations/ViewRegistration"):
        matrix = np.eye(4)
        for transform in view.findall("ViewTransform"):
            rows = [float(number) for number in (transform.findtext("affine") or "").split()]
            matrix = matrix @ np.vstack([np.reshape(rows, (3, 4)), [0, 0, 0, 1]])
        found[int(view.get("timepoint") or 0), int(view.get("setup") or 0)] = matrix
    return found


def voxels_of(xml: Path) -> set[tuple[str | None, str | None]]:
    root = ElementTree.parse(xml).getroot()
    sizes = root.findall("SequenceDescription/ViewSetups/ViewSetup/voxelSize")
    return {(voxel.findtext("unit"), voxel.findtext("size")) for voxel in sizes}


def placed(axes: Iterable[Mapping[str, Any]], affine: StageAffine, *, drift_um: float = 0.0) -> list[Frame]:
    """Frames as they come from a microscope whose camera lies over the stage like that."""
    text = f"{affine.xx};{affine.xy};123.0;{affine.yx};{affine.yy};-7.0"
    frames = []
    for number, place in enumerate(axes):
        x, y = affine.to_stage(*CORNERS[place["position"]])
        metadata = {
            "PixelSizeUm": PIXEL_UM,
            "PixelSizeAffine": text,
            "XPositionUm": 1000 + x + number * drift_um,
            "YPositionUm": -300 + y,
            "ZPositionUm": 50 + 0.3 * place.get("z", 0),
        }
        frames.append(frame_of(number, SHAPE, axes=dict(place), metadata=metadata))
    return frames


@pytest.mark.parametrize("name", AFFINES)
def test_images_lie_where_the_stage_was(tmp_path: Path, name: str) -> None:
    axes = places_of(("position", "z"), {"position": 4, "z": 3})
    write_log(tmp_path / "cells", placed(axes, AFFINES[name]))
    finish(run_of(tmp_path / "cells", BDV))
    assert voxels_of(tmp_path / "cells.xml") == {("um", "0.5 0.5 0.3")}
    views = views_of(tmp_path / "cells.xml")
    first = views[0, 0] @ (0, 0, 0, 1)
    for setup, corner in enumerate(CORNERS):
        for voxel in ((0, 0, 0), (29, 19, 2)):
            found = views[0, setup] @ (*voxel, 1) - first
            in_picture = [(at + start) * PIXEL_UM for at, start in zip(voxel, corner, strict=False)]
            assert found[:2] == pytest.approx(in_picture, abs=1e-5)
            assert found[2] == pytest.approx(0.3 * voxel[2])
    with opened(tmp_path / "cells.n5") as ds:
        own = json.loads((tmp_path / "cells.n5" / "attributes.json").read_text())["acqstream"]
        stage_axes = "parallel" if name == "as the stage" else "affine"  # a multiple of the identity says nothing
        assert (own["calibrated"], own["stage_axes"]) == (True, stage_axes)
        for setup, place in enumerate(ds.levels[1].places):
            assert place == pytest.approx(views[0, setup][2::-1, 3])


def test_without_a_map_axes_are_taken_for_parallel_and_the_note_says_so(tmp_path: Path) -> None:
    frames = placed(places_of(("position",), {"position": 4}), StageAffine(1, 0, 0, 1))
    write_log(tmp_path / "cells", frames)
    finish(run_of(tmp_path / "cells", BDV))
    views = views_of(tmp_path / "cells.xml")
    assert [views[0, setup][:2, 3].tolist() for setup in range(4)] == [
        [1000 + column - MIDDLE_UM[1], -300 + row - MIDDLE_UM[0]] for column, row in CORNERS
    ]
    assert json.loads((tmp_path / "cells.n5" / "attributes.json").read_text())["acqstream"]["stage_axes"] == "parallel"


def test_the_first_frame_of_a_position_tells_its_place(tmp_path: Path) -> None:
    axes = places_of(("time", "position"), {"time": 5, "position": 2})
    write_log(tmp_path / "cells", placed(axes, AFFINES["as the stage"], drift_um=0.1))
    finish(run_of(tmp_path / "cells", BDV))
    views = views_of(tmp_path / "cells.xml")
    assert {views[time, 0][0, 3] for time in range(5)} == {1000.0 - MIDDLE_UM[1]}
    assert {views[time, 1][0, 3] for time in range(5)} == {1012.6 - MIDDLE_UM[1]}


def test_positions_with_names_and_without_the_first_channel(tmp_path: Path) -> None:
    axes = [{"position": 0, "channel": 0}, {"position": 0, "channel": 1}, {"position": 1, "channel": 1}]
    frames = [
        frame_of(n, SHAPE, axes={**place, "position": f"P{place['position']}"}, metadata=made.metadata)
        for n, (place, made) in enumerate(zip(axes, placed(axes, AFFINES["as the stage"]), strict=True))
    ]
    write_log(tmp_path / "cells", frames)
    finish(run_of(tmp_path / "cells", BDV))
    with opened(tmp_path / "cells.n5") as ds:
        assert ds.axes["position"] == ["P0", "P1"]
        assert ds.levels[0].places == ((0.0, -304.75, 992.75), (0.0, -303.25, 1005.25))


def stacks(step_um: float = 0.3, **metadata: Any) -> list[Frame]:
    """Autofocus moves each stack; the drive has noise."""
    generator = np.random.default_rng(7)
    frames = []
    for number, (time_at, z_at) in enumerate(np.ndindex(3, 5)):
        place_um = 20 * time_at + step_um * z_at + generator.normal(0, 0.005)
        axes: Axes = {"time": time_at, "z": z_at}
        frames.append(frame_of(number, SHAPE, axes=axes, metadata={"ZPositionUm": place_um, **metadata}))
    return frames


@pytest.mark.parametrize("step_um", [0.3, -0.3])
def test_noise_autofocus_and_stacks_that_go_down(tmp_path: Path, step_um: float) -> None:
    write_log(tmp_path / "cells", stacks(step_um), summary={"PixelSizeUm": 0.1})
    run = finish(run_of(tmp_path / "cells", BDV))
    with opened(tmp_path / "cells.n5") as ds, opened(tmp_path / "cells") as log:
        assert ds.levels[0].z_step_um == pytest.approx(0.3, rel=0.02)
        assert log.levels[0].z_step_um == pytest.approx(step_um, rel=0.02)
        assert ds.levels[0].units == ("", "um", "um", "um")
    assert run.progress().warning == ""


UNKNOWN: dict[str, tuple[list[Frame], dict[str, Any], str, str, str]] = {
    "nothing": ([frame_of(z, SHAPE, axes={"z": z}) for z in range(3)], {}, "pixel", "1.0 1.0 1.0", "z and y and x"),
    "z uneven": (
        [frame_of(z, SHAPE, axes={"z": z}, metadata={"ZPositionUm": z * z}) for z in range(4)],
        {"PixelSizeUm": 0.1},
        "um",
        "0.1 0.1 1.0",
        "z",
    ),
    "no pixel size": (
        [frame_of(z, SHAPE, axes={"z": z}) for z in range(3)],
        {"z-step_um": 0.3, "PixelSizeUm": 0.0},
        "um",
        "1.0 1.0 0.3",
        "y and x",
    ),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_nothing_tells_has_no_unit(tmp_path: Path, name: str) -> None:
    frames, summary, unit, size, axes = UNKNOWN[name]
    write_log(tmp_path / "cells", frames, summary=summary)
    for settings in (BDV, WKW):
        run = finish(run_of(tmp_path / "cells", settings, name=settings["format"]))
        assert f".{settings['format']}: the distance of items along {axes} is not known" in run.progress().warning
    assert voxels_of(tmp_path / "cells.xml") == {(unit, size)}
    notes = (
        json.loads((tmp_path / "cells.n5" / "attributes.json").read_text())["acqstream"],
        json.loads((tmp_path / "cells.wkw" / "acqstream-array.json").read_text()),
    )
    assert [note["calibrated"] for note in notes] == [False, False]
    for mirror in ("cells.n5", "cells.wkw", "cells.xml", "cells.n5/setup0/timepoint0"):
        with opened(tmp_path / mirror) as ds:
            units = dict(zip(ds.levels[0].axes, ds.levels[0].units, strict=True))
            assert {axis for axis in ("z", "y", "x") if not units[axis]} == set(axes.split(" and ")), mirror
    scale = [json.loads(path.read_text())["scale"] for path in (tmp_path / "cells.wkw").rglob("datasource-*.json")]
    assert {one["unit"] for one in scale} == {"nanometer" if unit == "pixel" else "micrometer"}


def test_a_single_plane_has_no_thickness_and_needs_none(tmp_path: Path) -> None:
    write_log(tmp_path / "cells", [frame_of(0, SHAPE, axes={"time": 0})], summary={"PixelSizeUm": 0.1})
    run = finish(run_of(tmp_path / "cells", BDV))
    assert run.progress().warning == ""
    assert voxels_of(tmp_path / "cells.xml") == {("um", "0.1 0.1 1.0")}
    with opened(tmp_path / "cells.n5") as ds:
        assert (ds.levels[0].axes, ds.levels[0].units) == (("time", "y", "x"), ("", "um", "um"))


def test_a_stack_of_one_plane_needs_no_distance(tmp_path: Path) -> None:
    write_log(tmp_path / "cells", [frame_of(0, SHAPE, axes={"z": 0})], summary={"PixelSizeUm": 0.1})
    for settings in (BDV, WKW):
        run = finish(run_of(tmp_path / "cells", settings, name=settings["format"]))
        assert run.progress().warning == ""
    assert json.loads((tmp_path / "cells.n5" / "attributes.json").read_text())["acqstream"]["calibrated"] is True


@pytest.mark.parametrize("layout", ["array", "multiscale"])
def test_layouts_that_can_leave_it_out_do_not_warn(tmp_path: Path, layout: str) -> None:
    write_log(tmp_path / "cells", UNKNOWN["nothing"][0])
    run = finish(run_of(tmp_path / "cells", {**BDV, "layout": layout}))
    assert run.progress().warning == ""


def test_hints_reach_mirrors_and_log_alike(tmp_path: Path) -> None:
    axes = (AxisSpec("time", 3, "ms", 40), AxisSpec("z", 5, "nm", 700))
    write_log(tmp_path / "cells", stacks(), axes=axes, summary={"PixelSizeUm": 0.1, "z-step_um": 5})
    finish(run_of(tmp_path / "cells", BDV))
    with opened(tmp_path / "cells.n5") as ds, opened(tmp_path / "cells") as log:
        assert (ds.levels[0].scale, ds.levels[0].units) == ((0.04, 0.7, 0.1, 0.1), ("s", "um", "um", "um"))
        assert log.levels[0].z_step_um == 0.7


def places_in(xml: Path) -> int:
    """How many views of an XML file lie elsewhere than at the origin."""
    return sum(bool(matrix[:3, 3].any()) for matrix in views_of(xml).values()) if xml.exists() else 0


def everything(container: Path) -> dict[str, bytes]:
    """All metadata files of a mirror, and its XML file."""
    found = {path.relative_to(container).as_posix(): path.read_bytes() for path in container.rglob("*.json")}
    xml = container.with_suffix(".xml")
    return {**found, "xml": xml.read_bytes()} if xml.exists() else found


def step_until(run: ViewRun, condition: Any) -> None:
    end = time.monotonic() + 50
    while not condition():
        assert time.monotonic() < end, f"still {run.progress()}"
        time.sleep(min(run.step() or 0.0, 0.01))


@pytest.mark.parametrize("positions", [None, 4], ids=["growing", "declared"])
@pytest.mark.parametrize("settings", [BDV, WKW], ids=["n5", "wkw"])
def test_places_come_with_their_positions_also_after_a_kill(
    tmp_path: Path, settings: Mapping[str, Any], positions: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_view, "SHOW_INTERVAL_S", 0.0)
    frames = placed(places_of(("position", "z"), {"position": 4, "z": 3}), AFFINES["rotated by 90 degrees"])
    folder, container = tmp_path / "cells", tmp_path / f"cells.{settings['format']}"

    def places() -> int:
        try:
            with opened(container) as ds:
                noted = len(ds.levels[0].places)
                return noted if settings is WKW else min(noted, places_in(container.with_suffix(".xml")))
        except acqstream.DatasetError:
            return 0

    with start_log(folder, axes=(AxisSpec("position", positions), AxisSpec("z", 3))) as log:
        log.wait_until_open()
        run = run_of(folder, settings, name=settings["format"])
        for number, frame in enumerate(frames):
            log.append(frame.header, frame.image)
            assert log.wait_for_published(number + 1)
            if number % 3 == 2:
                step_until(run, lambda count=number // 3 + 1: places() == count)
            if number in (4, 8):
                run.close()  # what was not saved is lost
                run = run_of(folder, settings, name=settings["format"])
    finish(run)
    other = Path(shutil.copytree(folder, tmp_path / "other" / "cells"))
    finish(run_of(other, settings, name=settings["format"]))
    assert everything(container) == everything(tmp_path / "other" / container.name)
    finish(run_of(folder, settings, name=settings["format"]))  # again changes nothing
    assert everything(container) == everything(tmp_path / "other" / container.name)


@pytest.mark.parametrize("name", [name for name in SETS if not any(word in name for word in NOT_WHOLE)])
def test_coordinates_of_log_and_mirror_agree(tmp_path: Path, name: str) -> None:
    pytest.importorskip("xarray")
    source = dataset_in(GOLDEN / name)
    assert source is not None
    path = Path(shutil.copytree(source, tmp_path / "data"))
    finish(run_of(path, BDV))
    with opened(path) as log, opened(tmp_path / "data.n5") as mirror:
        ours, theirs = log.to_xarray().coords, mirror.to_xarray().coords
        for axis in ("y", "x"):
            assert np.allclose(ours[axis].values, theirs[axis].values)
            assert ours[axis].attrs == theirs[axis].attrs
        for axis, unit in (("z", "um"), ("time", "s")):
            name = f"{axis}_{unit}"
            if axis in log.axes:
                assert (name in ours) == (name in theirs)
            if name in ours:
                more = {dim: 0 for dim in ours[name].dims if dim != axis}  # measured times are those of each frame
                step = float(np.ptp(theirs[name].values[:2])) or 1.0
                assert np.abs(ours[name].isel(more).values - theirs[name].values).max() <= step / 2


def test_levels_of_log_and_mirror_lie_over_each_other(tmp_path: Path) -> None:
    pytest.importorskip("xarray")
    metadata: dict[str, Any] = {"PixelSizeUm": 0.5, "XPositionUm": 70.0, "YPositionUm": 10.0}
    write_log(tmp_path / "cells", stacks(0.3, **metadata))
    finish(run_of(tmp_path / "cells", BDV))
    with opened(tmp_path / "cells") as log, opened(tmp_path / "cells.n5") as mirror:
        ours, theirs = log.to_xarray().coords, mirror.to_xarray().coords
        assert (ours["x"].values[0], ours["y"].values[0], ours["x"].attrs) == (62.75, 5.25, {"units": "um"})
        assert np.allclose(ours["z_um"].values, theirs["z_um"].values)
        for axis in ("y", "x"):
            assert np.allclose(ours[axis].values, theirs[axis].values)
            half = mirror.to_xarray(1).coords[axis].values
            assert half == pytest.approx((ours[axis].values[0::2] + ours[axis].values[1::2]) / 2)


def test_made_in_parts_it_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_tasks, "MIN_TASK_BYTES", 1)
    frames = placed(places_of(("position", "z"), {"position": 4, "z": 3}), AFFINES["mirrored"])
    whole, split = tmp_path / "whole" / "cells", tmp_path / "split" / "cells"
    for folder in (whole, split):
        folder.parent.mkdir()
        write_log(folder, frames)
    finish(run_of(whole, BDV))
    with TaskRunner(Threads, 1) as runner:
        finish(run_of(split, BDV, runner=runner))
    assert everything(whole.with_suffix(".n5")) == everything(split.with_suffix(".n5"))


def test_frames_that_come_again_count_as_they_are_in_the_end(tmp_path: Path) -> None:
    frames = placed(places_of(("position",), {"position": 2}), AFFINES["as the stage"])
    again = placed(places_of(("position",), {"position": 2}), AFFINES["as the stage"], drift_um=8)
    again = [frame_of(n + 2, SHAPE, axes=frame.axes, metadata=frame.metadata) for n, frame in enumerate(again)]
    write_log(tmp_path / "cells", [*frames, *again], replace_duplicates=True)
    finish(run_of(tmp_path / "cells", BDV))
    views = views_of(tmp_path / "cells.xml")
    assert [views[0, setup][0, 3] for setup in range(2)] == [1000.0 - MIDDLE_UM[1], 1020.5 - MIDDLE_UM[1]]
