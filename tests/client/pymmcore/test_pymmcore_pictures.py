"""Runs of a real core whose camera sees a sample: tiles lie where the sample is, and cameras are who they say."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import useq
from pymmcore_plus.mda import MDAEngine

import acqstream
from acqstream.client.pymmcore import streaming
from acqstream.description.stage import StageAffine
from tests.waiting import until

SAMPLE = np.random.default_rng(0).integers(0, 60000, (1200, 1200), "u2")  # 1 um a pixel; the middle is at stage (0, 0)
AFFINES = [
    (1, 0, 0, 1),  # no evidence: parallel
    (1, 0, 0, -1),
    (-1, 0, 0, 1),
    (-1, 0, 0, -1),
    (0, -1, 1, 0),
    (0, 1, -1, 0),
    (0, 1, 1, 0),
    (0, -1, -1, 0),
]
GRID = {"rows": 2, "columns": 3, "overlap": (12.5, 25)}


def seen(affine, shape, x=0.0, y=0.0):
    """The picture of the sample that a camera of this shape takes at a place of the stage."""
    row, column = np.mgrid[: shape[0], : shape[1]] - (np.array(shape)[:, None, None] - 1) / 2
    at_x, at_y = affine.to_stage(column, row)
    return SAMPLE[np.floor(600 + y + at_y + 1e-6).astype(int), np.floor(600 + x + at_x + 1e-6).astype(int)]


def keys_of(dataset):
    found = dataset.keys()
    return [dict(key) for key in found]


class Microscope(MDAEngine):
    """Its camera sees the sample."""

    affine = StageAffine(1, 0, 0, 1)

    def exec_event(self, event):
        for image, done, meta in super().exec_event(event):
            yield seen(self.affine, image.shape, event.x_pos, event.y_pos), done, meta


@pytest.fixture
def acquire(core, live_daemon, camera_size):
    """Run a sequence with a camera of this orientation; the dataset."""
    camera_size(64, 64)
    core.setProperty("Camera", "PixelType", "16bit")
    engine = core.mda.engine

    def run(affine, sequence, um=1.0, name="sample", **options):
        xx, xy, yx, yy = affine
        core.setPixelSizeAffine("Res10x", [xx, xy, 0, yx, yy, 0])
        microscope = Microscope(core)
        microscope.affine = StageAffine(*(um * number for number in affine))
        core.mda.set_engine(microscope)
        options.setdefault("on_exists", "error" if options else "number")
        with streaming(core, name, endpoint=live_daemon.endpoint, buffer_mb=64, **options) as streamer:
            core.mda.run(useq.MDASequence(**sequence))
        until(lambda: acqstream.open(streamer.last_run.path).complete, "it is complete")
        return acqstream.open(streamer.last_run.path)

    yield run
    core.mda.set_engine(engine)


@pytest.mark.parametrize("affine", AFFINES, ids=str)
def test_a_stitched_grid_is_a_picture_of_the_sample(acquire, affine):
    dataset = acquire(affine, {"stage_positions": [(0, 0)], "grid_plan": GRID})
    stage = StageAffine(*affine)
    picture = dataset.levels[0].read((0, ...))
    assert picture.shape == ((168, 96) if affine[0] == 0 else (96, 168))
    np.testing.assert_array_equal(picture, seen(stage, picture.shape))
    for key in keys_of(dataset):
        meta = dataset.read_metadata(key)
        first = dataset.read_metadata({**key, "row": 0, "column": 0})
        way = stage.to_pixels(*(meta[f"{axis}PositionUm"] - first[f"{axis}PositionUm"] for axis in "XY"))
        assert way == pytest.approx((meta["XPositionPix"], meta["YPositionPix"]), abs=0.1)  # stages are not exact


def test_a_binned_camera_without_calibration_is_parallel(core, acquire):
    core.setProperty("Camera", "Binning", "2")
    dataset = acquire((1, 0, 0, 1), {"stage_positions": [(0, 0)], "grid_plan": GRID}, um=2.0)
    picture = dataset.levels[0].read((0, ...))
    np.testing.assert_array_equal(picture, seen(StageAffine(2, 0, 0, 2), picture.shape))


def test_a_camera_that_is_not_square(acquire, camera_size):
    camera_size(80, 48)
    dataset = acquire((1, 0, 0, -1), {"stage_positions": [(0, 0)], "grid_plan": GRID})
    picture = dataset.levels[0].read((0, ...))
    np.testing.assert_array_equal(picture, seen(StageAffine(1, 0, 0, -1), (72, 210)))


@pytest.mark.parametrize("affine", AFFINES, ids=str)
def test_positions_with_grids_of_their_own(acquire, affine):
    grids = [{"rows": rows, "columns": columns, "overlap": 25} for rows, columns in ((2, 3), (3, 1))]
    positions = [{"x": 200.0 * number, "y": 9.0, "sequence": {"grid_plan": grid}} for number, grid in enumerate(grids)]
    dataset = acquire(affine, {"stage_positions": positions}, mirrors=["ome-zarr"], on_exists="number")
    until(
        lambda: any(mirror.name == "ome-zarr" and mirror.state == "complete" for mirror in dataset.mirrors.values()),
        "mirrored",
    )
    [folder] = [mirror.path for mirror in dataset.mirrors.values() if mirror.name == "ome-zarr"]
    mirror = acqstream.open(dataset.path / folder)
    swaps = affine[0] == 0
    tiles = {(key["position"], key["row"], key["column"]) for key in keys_of(dataset)}
    shapes = [(3, 2), (1, 3)] if swaps else [(2, 3), (3, 1)]
    assert tiles == {(p, *cell) for p, shape in enumerate(shapes) for cell in itertools.product(*map(range, shape))}
    for position, shape in enumerate(shapes):
        height, width = (48 * count for count in shape)
        picture = dataset.levels[0].read((position, slice(0, height), slice(0, width)))
        np.testing.assert_array_equal(picture, seen(StageAffine(*affine), (height, width), 200.0 * position, 9.0))
        x, y = StageAffine(*affine).to_pixels(200.0 * position, 9.0)
        place = (0.0, y - (height - 1) / 2, x - (width - 1) / 2)
        for face in (dataset, mirror):
            assert face.levels[0].place_of(position=position) == pytest.approx(place, abs=0.1)


def test_a_turned_camera_gets_the_nearest_rows_and_columns(acquire):
    dataset = acquire((0.6, -0.8, 0.8, 0.6), {"stage_positions": [(0, 0)], "grid_plan": GRID})
    cells = [(key["row"], key["column"]) for key in keys_of(dataset)]
    assert cells == [(2, 1), (1, 1), (0, 1), (0, 0), (1, 0), (2, 0)]


@pytest.mark.parametrize("is_earlier", [False, True])
def test_a_resumed_grid_counts_as_its_stored_frames(acquire, live_daemon, is_earlier):
    """Earlier versions counted rows and columns along the stage."""
    cells = [(0, 0), (0, 1), (0, 2)] if is_earlier else [(1, 0), (1, 1), (1, 2)]
    name = f"resumed{is_earlier}"
    with pytest.raises(ValueError, match="of the script"):
        with acqstream.create(name, endpoint=live_daemon.endpoint, tiles={"overlap": (16, 8)}) as run:
            for row, column in cells:
                run.put(np.zeros((64, 64), "u2"), position=0, row=row, column=column)
            raise ValueError("of the script")
    sequence = {"stage_positions": [(0, 0)], "grid_plan": GRID}
    dataset = acquire((1, 0, 0, 1), sequence, name=name, resume=True)
    rest = [(1, 2), (1, 1), (1, 0)] if is_earlier else [(0, 2), (0, 1), (0, 0)]
    assert [(key["row"], key["column"]) for key in keys_of(dataset)] == cells + rest


LIGHT = {"TL": "Both", "RFP": "Camera2", "Dark": ""}


@pytest.fixture
def switched(two_cameras):
    """Channels of the group Light choose both cameras, one, or leave them as they are."""
    core = two_cameras
    core.setCameraDevice("Camera")
    for config, camera in LIGHT.items():
        core.defineConfig("Light", config, *(("Core", "Camera", camera) if camera else ("Core", "AutoShutter", "1")))
    return core


def light(*names, **more):
    return {"channels": [{"group": "Light", "config": name} for name in names], **more}


TIMES = {"time_plan": {"interval": 0, "loops": 2}}
BOTH = {"x": 0, "y": 0, "properties": [("Core", "Camera", "Both")]}


@pytest.mark.parametrize(
    ("sequence", "frames"),
    [
        (light("TL", "RFP"), 3),
        (light("RFP", "TL"), 3),
        (light("TL", "Dark", **TIMES), 8),
        (light("RFP", "TL", **TIMES), 6),
        ({"stage_positions": [(0, 0), BOTH], **TIMES, "axis_order": "pt"}, 6),
        ({"stage_positions": [{"x": 0, "y": 0, "sequence": light(name)} for name in ("RFP", "TL")]}, 3),
    ],
)
@pytest.mark.parametrize("is_numbered", [False, True])
def test_a_value_of_the_axis_is_one_camera(switched, fake, sequence, frames, is_numbered):
    with streaming(switched, "cameras", micromanager=is_numbered):
        switched.mda.run(useq.MDASequence(**sequence))
    [run] = fake.runs
    assert (len(run.frames), run.options["expect"]) == (frames, frames)
    pairs = {(dict(axes)["camera"], meta["Camera"]) for axes, _, _, _, meta, _, _ in run.frames}
    assert len(pairs) == 2
    [declared] = [axis for axis in run.options["axes"] if axis["name"] == "camera"]
    if is_numbered:
        assert ({number for number, _ in pairs}, declared) == ({0, 1}, {"name": "camera", "size": 2})
    else:
        assert pairs == {("Camera", "Camera"), ("Camera2", "Camera2")}
        assert set(declared["labels"]) == {"Camera", "Camera2"}


def test_one_camera_at_a_time_has_no_axis(switched, fake):
    switched.setCameraDevice("Both")
    switched.defineConfig("Light", "TL", "Core", "Camera", "Camera")
    with streaming(switched, "cameras"):
        switched.mda.run(useq.MDASequence(**light("TL", "RFP")))
    assert fake.runs[0].axes == [{"channel": "TL"}, {"channel": "RFP"}]


def test_cameras_of_a_list_of_events(two_cameras, fake):
    single = {"properties": [("Core", "Camera", "Camera2")]}
    with streaming(two_cameras, "cameras"):
        two_cameras.mda.run([useq.MDAEvent(index={"t": 0}), useq.MDAEvent(index={"t": 1}, **single)])
    taken = [(axes["time"], axes["camera"]) for axes in fake.runs[0].axes]
    assert taken == [(0, "Camera"), (0, "Camera2"), (1, "Camera2")]


@pytest.mark.parametrize("is_earlier", [False, True])
def test_resumed_cameras_are_named_as_the_stored_ones(switched, live_daemon, is_earlier):
    """Earlier versions numbered them."""
    names = [0, 1] if is_earlier else ["Camera", "Camera2"]
    name = f"cameras{is_earlier}"
    with pytest.raises(ValueError, match="of the script"):
        with acqstream.create(name, endpoint=live_daemon.endpoint) as run:
            for camera in names:
                run.put(np.zeros((32, 64), "u2"), time=0, channel="TL", camera=camera)
            run.put(np.zeros((32, 64), "u2"), time=0, channel="RFP", camera=names[1])
            raise ValueError("of the script")
    with streaming(switched, name, endpoint=live_daemon.endpoint, buffer_mb=64, resume=True) as streamer:
        switched.mda.run(useq.MDASequence(**light("TL", "RFP", **TIMES)))
    assert streamer.last_skipped == 2
    rest = keys_of(acqstream.open(streamer.last_run.path))[3:]
    taken = [("TL", names[0]), ("TL", names[1]), ("RFP", names[1])]
    assert rest == [{"time": 1, "channel": channel, "camera": camera} for channel, camera in taken]
