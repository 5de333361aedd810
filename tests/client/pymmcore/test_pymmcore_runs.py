"""Runs of a real core, with a stand-in for the daemon: what is sent, how runs end, that the engine comes back."""

from __future__ import annotations

import queue
import threading
import time

import pytest
import useq
from pymmcore_plus.mda import MDAEngine, SkipEvent

import acqstream
from acqstream.client.pymmcore import install, streaming

SNAPS = useq.MDASequence.model_validate({"channels": ["DAPI", "FITC"], "z_plan": {"range": 2, "step": 1}})
BURST = useq.MDASequence.model_validate({"time_plan": {"interval": 0, "loops": 20}})


def run_streamed(core, sequence, **options):
    with streaming(core, "cells", **options):
        core.mda.run(sequence)


def shas(run):
    return [frame[1] for frame in run.frames]


def test_a_channel_z_run_arrives_whole(core, fake, delivered):
    with streaming(core, "cells") as streamer:
        core.mda.run(SNAPS)
    [run] = fake.runs
    assert shas(run) == [sha for _, sha in delivered]
    assert run.axes == [{"channel": c, "z": z} for c in ("DAPI", "FITC") for z in range(3)]
    assert (run.name, run.status) == ("cells", "completed")
    assert run.options["expect"] == 6
    assert run.options["summary"]["ChNames"] == ["DAPI", "FITC"]
    assert streamer.last_receipt.complete
    assert streamer.last_run is run


def test_a_burst_arrives_whole_with_the_fill_of_the_buffer(core, fake, delivered):
    with streaming(core, "burst"):
        core.mda.run(BURST)
    [run] = fake.runs
    assert shas(run) == [sha for _, sha in delivered]
    assert run.axes == [{"time": t} for t in range(20)]
    meta = run.frames[-1][4]
    assert meta["hardware_triggered"] is True
    assert meta["images_remaining_in_buffer"] == 0
    assert meta["camera_metadata"]["ImageNumber"] == "19"
    assert "sequence" not in meta["mda_event"]
    times = [frame[6] for frame in run.frames]
    assert times == sorted(times)


def test_grid_and_positions_with_grids_of_their_own_become_rows_and_columns(core, fake):
    positions = [(0, 0, 0), {"x": 9, "y": 9, "z": 9, "sequence": {"grid_plan": {"rows": 2, "columns": 2}}}]
    with streaming(core, "tiles"):
        core.mda.run(useq.MDASequence(stage_positions=positions))
    assert fake.runs[0].axes == [
        {"position": 0, "row": 0, "column": 0},
        {"position": 1, "row": 1, "column": 0},  # the plan begins at the largest y, and goes to and fro
        {"position": 1, "row": 1, "column": 1},
        {"position": 1, "row": 0, "column": 1},
        {"position": 1, "row": 0, "column": 0},
    ]


GRID = {"rows": 2, "columns": 3, "overlap": (10, 25), "mode": "row_wise_snake"}


def test_a_grid_becomes_tiles(core, fake):
    with streaming(core, "tiles", levels=2):
        core.mda.run(useq.MDASequence(grid_plan=GRID, channels=["DAPI", "FITC"]))
    [run] = fake.runs
    assert (run.options["tiles"], run.options["levels"]) == ({"overlap": (8, 6)}, 2)  # 25 % of 32, 10 % of 64
    places = {}
    for axes, *_, meta, _, _ in run.frames:
        cell = dict(axes)
        places[cell["row"], cell["column"]] = (meta["YPositionPix"], meta["XPositionPix"])
        assert meta["PixelSizeUm"] > 0
        assert {"XPositionUm", "YPositionUm"} <= meta.keys()
    # Rounded from 57.6 pixels a column: two of the steps of the overlap, 58, would be 116.
    assert places == {(row, column): (24 * row, (0, 58, 115)[column]) for row in range(2) for column in range(3)}
    order = [(axes["row"], axes["column"]) for axes in run.axes[::2]]
    assert order == [(1, 0), (1, 1), (1, 2), (0, 2), (0, 1), (0, 0)]


def test_stage_positions_of_tiles_are_where_the_stage_was(core, fake):
    plan = useq.GridFromEdges(left=0, right=100, top=50, bottom=0, overlap=10)
    with streaming(core, "tiles"):
        core.mda.run(useq.MDASequence(grid_plan=plan))
    metas = {(dict(frame[0])["row"], dict(frame[0])["column"]): frame[4] for frame in fake.runs[0].frames}
    step_um = metas[0, 1]["XPositionUm"] - metas[0, 0]["XPositionUm"]
    step_px = metas[0, 1]["XPositionPix"] - metas[0, 0]["XPositionPix"]
    assert step_um == pytest.approx(step_px * metas[0, 0]["PixelSizeUm"], abs=1)


def test_data_names_the_daemon_in_place_of_an_endpoint(core, fake, tmp_path):
    run_streamed(core, useq.MDASequence(channels=["DAPI"]), data=tmp_path)
    assert (fake.runs[0].options["data"], fake.runs[0].options["endpoint"]) == (tmp_path, None)


@pytest.mark.parametrize(
    ("sequence", "options", "tiles"),
    [
        ({"grid_plan": {"rows": 1, "columns": 2}}, {}, {"overlap": (0, 0)}),
        ({"grid_plan": {"rows": 1, "columns": 2, "overlap": -10}}, {}, {"overlap": (0, 0)}),
        ({"grid_plan": {"rows": 1, "columns": 2}}, {"tiles": None, "levels": 3}, None),
        ({"grid_plan": {"rows": 1, "columns": 2}}, {"tiles": {"overlap": (3, 4)}}, {"overlap": (3, 4)}),
        ({"channels": ["DAPI"]}, {"levels": 3}, None),
        ({"grid_plan": {"num_points": 2, "max_width": 9, "max_height": 9, "random_seed": 1}}, {}, None),
    ],
)
def test_what_becomes_tiles(core, fake, sequence, options, tiles):
    with streaming(core, "tiles", **options):
        core.mda.run(useq.MDASequence(**sequence))
    [run] = fake.runs
    assert run.options["tiles"] == tiles
    assert ("levels" in run.options) == ("levels" in options and tiles is not None)
    assert all(("XPositionPix" in frame[4]) == (tiles is not None) for frame in run.frames)


def test_grids_that_overlap_differently_stay_flat(core, fake, caplog):
    grids = [{"rows": 1, "columns": 2, "overlap": overlap} for overlap in (5, 10)]
    positions = [{"x": 0, "y": 0, "z": 0, "sequence": {"grid_plan": grid}} for grid in grids]
    with streaming(core, "tiles"):
        core.mda.run(useq.MDASequence(stage_positions=positions))
    assert fake.runs[0].options["tiles"] is None
    assert {"row", "column"} < fake.runs[0].axes[0].keys()
    assert "one overlap" in caplog.text


def test_events_without_index_are_counted(core, fake):
    with streaming(core, "events"):
        core.mda.run([useq.MDAEvent(), useq.MDAEvent(exposure=2), useq.MDAEvent()])
    assert fake.runs[0].axes == [{"frame": 0}, {"frame": 1}, {"frame": 2}]
    assert fake.runs[0].options["expect"] is None


def test_the_same_index_twice_is_counted(core, fake):
    with streaming(core, "events"):
        core.mda.run([useq.MDAEvent(index={"t": t}) for t in (0, 1, 0)])
    assert fake.runs[0].axes == [{"time": 0, "frame": 0}, {"time": 1, "frame": 0}, {"time": 0, "frame": 1}]


def test_events_from_a_queue(core, fake):
    events = queue.SimpleQueue()
    for t in range(3):
        events.put(useq.MDAEvent(index={"t": t}))
    events.put(None)
    with streaming(core, "events"):
        core.mda.run(iter(events.get, None))
    assert fake.runs[0].status == "completed"
    assert [axes["time"] for axes in fake.runs[0].axes] == [0, 1, 2]


def test_rgb(core, fake, delivered):
    core.setProperty("Camera", "PixelType", "32bitRGB")
    with streaming(core, "colours"):
        core.mda.run(useq.MDASequence(time_plan={"interval": 0, "loops": 2}))
    assert [frame[2:4] for frame in fake.runs[0].frames] == [((32, 64, 3), "|u1")] * 2
    assert shas(fake.runs[0]) == [sha for _, sha in delivered]


@pytest.mark.parametrize("pixel_type", ["32bit", "64bitRGB"])
def test_pixels_that_cannot_be_stored_are_refused_before_the_run(core, fake, delivered, pixel_type):
    core.setProperty("Camera", "PixelType", pixel_type)
    with pytest.raises(acqstream.ConfigError, match=r"Choose another pixel type"):
        with streaming(core, "cells"):
            core.mda.run(BURST)
    assert not fake.runs
    assert not delivered


def test_pixels_that_cannot_be_stored_any_more_end_the_run(core, fake):
    events = [useq.MDAEvent(), useq.MDAEvent(properties=[("Camera", "PixelType", "32bit")])]
    with pytest.raises(acqstream.AcquisitionFailed, match=r"frame 1 .*uint8"):
        with streaming(core, "cells"):
            core.mda.run(events)
    assert fake.runs[0].status == "error"
    assert "frame 1" in fake.runs[0].reason
    assert len(fake.runs[0].frames) == 1


def test_significant_bits_also_when_they_change(core, fake):
    core.setProperty("Camera", "BitDepth", "12")
    with streaming(core, "cells"):
        core.mda.run([useq.MDAEvent(), useq.MDAEvent(properties=[("Camera", "BitDepth", "16")])])
    assert [frame[5] for frame in fake.runs[0].frames] == [12, 16]


def test_shapes_may_change(core, fake):
    events = [
        useq.MDAEvent(),
        useq.MDAEvent(roi=(0, 0, 20, 10)),
        useq.MDAEvent(properties=[("Camera", "Binning", "2")]),
    ]
    with streaming(core, "cells"):
        core.mda.run(events)
    shapes = [frame[2] for frame in fake.runs[0].frames]
    assert len(set(shapes)) == 3


def test_two_cameras(two_cameras, fake, delivered):
    core = two_cameras
    with streaming(core, "both"):
        core.mda.run(useq.MDASequence(time_plan={"interval": 0, "loops": 3}))
        core.mda.run(useq.MDASequence(channels=["DAPI"]))
    burst, snap = fake.runs
    names = ("Camera", "Camera2")
    assert {(axes["time"], axes["camera"]) for axes in burst.axes} == {(t, name) for t in range(3) for name in names}
    assert snap.axes == [{"channel": "DAPI", "camera": name} for name in names]
    assert burst.options["expect"] == 6
    assert all(frame[4]["Camera"] == dict(frame[0])["camera"] for frame in burst.frames + snap.frames)
    assert shas(burst) + shas(snap) == [sha for _, sha in delivered]


def test_a_second_run_in_the_block_gets_a_number(core, fake):
    with streaming(core, "cells", mirrors=["n5"]) as streamer:
        core.mda.run(BURST)
        core.mda.run(BURST)
    assert [run.name for run in fake.runs] == ["cells", "cells"]
    assert [run.options.get("on_exists") for run in fake.runs] == [None, "number"]
    assert fake.runs[1].options["mirrors"] == ["n5"]
    assert streamer.last_run is fake.runs[1]


def test_a_daemon_that_is_not_there_stops_the_run_before_its_first_image(core, fake, delivered):
    fake.refusal = acqstream.DaemonUnavailable("no daemon answers at tcp://127.0.0.1:1")
    with pytest.raises(acqstream.DaemonUnavailable):
        with streaming(core, "cells"):
            core.mda.run(BURST)
    assert not delivered
    assert core.mda.status.finish_reason == "errored"


def test_a_daemon_that_was_not_there_is_told_on_leaving_too(core, fake):
    fake.refusal = acqstream.DaemonUnavailable("no daemon")

    def run_and_ignore():
        with streaming(core, "cells"):
            with pytest.raises(acqstream.DaemonUnavailable):
                core.mda.run(BURST)

    with pytest.raises(acqstream.DaemonUnavailable):
        run_and_ignore()


def test_a_failing_put_ends_a_burst_and_stops_the_camera(core, fake, delivered):
    fake.fail_at = 5
    with pytest.raises(acqstream.DiskFull):
        with streaming(core, "cells"):
            core.mda.run(useq.MDASequence(time_plan={"interval": 0, "loops": 10000}))
    assert len(delivered) == 5
    assert not core.isSequenceRunning()
    assert fake.runs[0].status == "error"


def test_an_error_between_frames_cancels_a_waiting_run(core, fake, delivered):
    started = threading.Event()
    core.mda.events.awaitingEvent.connect(started.set)

    def fail():
        assert started.wait(20)
        [run] = fake.runs
        run.fail(acqstream.DaemonUnavailable("the daemon fell silent"))
        run.options["on_error"](run.error)

    failing = threading.Thread(target=fail)
    told = []
    failing.start()
    with pytest.raises(acqstream.DaemonUnavailable):
        run_streamed(core, useq.MDASequence(time_plan={"interval": 600, "loops": 2}), on_error=told.append)
    failing.join()
    assert len(delivered) == 1
    assert told == [fake.runs[0].error]
    assert fake.runs[0].status == "error"


def test_cancel_closes_as_canceled(core, fake, delivered):
    def cancel_after_three():
        if len(delivered) == 3:
            core.mda.cancel()

    core.mda.events.frameReady.connect(cancel_after_three)
    try:
        with streaming(core, "cells") as streamer:
            core.mda.run(useq.MDASequence(time_plan={"interval": 0, "loops": 10000}))
    finally:
        core.mda.events.frameReady.disconnect(cancel_after_three)
    run = fake.runs[0]
    assert (run.status, len(run.frames)) == ("canceled", len(delivered))
    assert len(delivered) < 10
    assert streamer.last_error is None


def test_an_error_of_the_engine_closes_with_its_reason(core, fake, monkeypatch):
    def burn(event):
        raise RuntimeError("lamp is out")

    monkeypatch.setattr(core.mda.engine, "setup_event", burn)
    with pytest.raises(RuntimeError, match="lamp is out"):
        run_streamed(core, SNAPS)
    assert (fake.runs[0].status, fake.runs[0].reason) == ("error", "RuntimeError: lamp is out")


def test_an_overflow_of_the_cameras_buffer_leaves_what_came_before(core, fake, delivered):
    def wait_for_overflow():
        deadline = time.monotonic() + 20
        while not core.isBufferOverflowed() and time.monotonic() < deadline:
            time.sleep(0.001)

    fake.hold = wait_for_overflow
    core.setCircularBufferMemoryFootprint(1)
    try:
        with pytest.raises(MemoryError, match="Buffer overflowed"):
            run_streamed(core, useq.MDASequence(time_plan={"interval": 0, "loops": 10000}))
    finally:
        core.setCircularBufferMemoryFootprint(250)
    assert delivered
    assert shas(fake.runs[0]) == [sha for _, sha in delivered]
    assert (fake.runs[0].status, fake.runs[0].reason) == ("error", "MemoryError: Buffer overflowed")


def test_autofocus_yields_no_frames_and_misses_none(core, fake):
    plan = {"autofocus_device_name": "Autofocus", "autofocus_motor_offset": 1, "axes": ("p",)}
    with streaming(core, "cells") as streamer:
        core.mda.run(useq.MDASequence(stage_positions=[(0, 0, 0), (1, 1, 0)], autofocus_plan=plan))
    assert fake.runs[0].axes == [{"position": 0}, {"position": 1}]
    assert fake.runs[0].options["expect"] == 2
    assert streamer.last_receipt.complete


class Listing(MDAEngine):
    """Gives its payloads as a list."""

    def exec_event(self, event):
        return list(super().exec_event(event))


def test_an_engine_that_is_no_generator(core, fake):
    old = core.mda.set_engine(Listing(core))
    try:
        run_streamed(core, SNAPS)
    finally:
        core.mda.set_engine(old)
    assert len(fake.runs[0].frames) == 6


class Skipping(MDAEngine):
    """Skips the second event, and fails to snap the fourth."""

    count = 0

    def setup_event(self, event):
        self.count += 1
        if self.count == 2:
            raise SkipEvent(reason="out of focus")
        super().setup_event(event)

    def exec_event(self, event):
        if self.count != 4:
            yield from super().exec_event(event)


@pytest.fixture
def skipping(core):
    old = core.mda.set_engine(Skipping(core))
    core.mda.engine.use_hardware_sequencing = False
    yield core
    core.mda.set_engine(old)


def test_skipped_frames_are_told_and_lost_ones_are_an_error(skipping, fake):
    core = skipping
    with pytest.raises(acqstream.AcquisitionFailed, match=r"never came.*\{'c': 1, 'z': 0\}") as caught:
        with streaming(core, "cells"):
            core.mda.run(SNAPS)
    assert caught.value.code == "frames_missing"
    run = fake.runs[0]
    assert [count for count, _ in run.skips] == [1, 1]
    assert run.skips[0][1] == "out of focus"
    assert (run.status, len(run.frames)) == ("completed", 4)
    assert core.mda.status.finish_reason == "errored"  # run() itself raised


def test_lost_frames_can_be_accepted(skipping, fake):
    with streaming(skipping, "cells", missing="warn") as streamer:
        skipping.mda.run(SNAPS)
    assert streamer.last_receipt.skipped == 2
    assert sum(gap.count for gap in streamer.last_receipt.missing) == 2


def test_a_frame_that_was_sent_and_not_stored_is_an_error(core, fake):
    fake.loses = 1
    with pytest.raises(acqstream.AcquisitionFailed, match="6 frames were sent and 5 are stored"):
        run_streamed(core, SNAPS)


def test_a_run_in_another_thread_is_waited_for(core, fake):
    with streaming(core, "cells"):
        started = threading.Event()
        core.mda.events.sequenceStarted.connect(started.set)
        thread = core.run_mda(SNAPS)
        assert started.wait(20)
    assert fake.runs[0].status == "completed"
    thread.join()


def test_leaving_by_an_exception_cancels_a_run_in_another_thread(core, fake):
    started = threading.Event()
    core.mda.events.awaitingEvent.connect(started.set)
    threads = []

    def stumble():
        with streaming(core, "cells"):
            threads.append(core.run_mda(useq.MDASequence(time_plan={"interval": 600, "loops": 2})))
            assert started.wait(20)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        stumble()
    assert fake.runs[0].status == "canceled"
    threads[0].join()


def test_a_keyboard_interrupt_closes_the_run_and_the_core_can_be_used_again(core, fake, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(core.mda.engine, "exec_event", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run_streamed(core, SNAPS)
    assert fake.runs[0].status == "error"
    assert fake.runs[0].reason == "canceled by Ctrl-C"
    with streaming(core, "again"):
        core.mda.run(SNAPS)
    assert (fake.runs[1].status, len(fake.runs[1].frames)) == ("completed", 6)


def test_an_interrupted_run_does_not_keep_install_from_being_undone(core, fake, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    inner = core.mda.engine
    installed = install(core)
    with monkeypatch.context() as patch:
        patch.setattr(inner, "setup_event", interrupt)
        with pytest.raises(KeyboardInterrupt):
            core.mda.run(SNAPS)
    installed.uninstall()
    assert fake.runs[0].status == "error"
    assert "interrupted" in fake.runs[0].reason
    core.mda.run(SNAPS)
    assert len(fake.runs) == 1
    core.mda.set_engine(inner)  # the runner let nobody change it while it believed to be running


def test_the_engine_looks_like_the_inner_one(core, fake):
    inner = core.mda.engine
    with streaming(core, "cells"):
        assert core.mda.engine.use_hardware_sequencing is True
        core.mda.engine.use_hardware_sequencing = False
        assert inner.use_hardware_sequencing is False
        assert core.mda.engine.mmcore is core
        with pytest.raises(AttributeError):
            core.mda.engine.no_such_thing  # noqa: B018
        core.mda.engine.use_hardware_sequencing = True
    assert core.mda.engine is inner


def test_streaming_twice_is_refused(core, fake):
    with streaming(core, "cells"):
        with pytest.raises(acqstream.ConfigError, match="already"):
            with streaming(core, "cells"):
                pass


def test_an_engine_that_was_replaced_inside_is_an_error(core, fake):
    old = core.mda.engine
    with pytest.raises(acqstream.ConfigError, match="replaced"):
        with streaming(core, "cells"):
            core.mda.set_engine(old)


def test_install_makes_a_dataset_of_every_run(core, fake):
    installed = install(core, durability="close")
    core.mda.run(BURST)
    core.mda.run(SNAPS)
    assert len(fake.runs) == 2
    assert all(run.options["on_exists"] == "number" for run in fake.runs)
    assert all(run.options["durability"] == "close" for run in fake.runs)
    assert all(run.name[:2] == "20" and "/" not in run.name for run in fake.runs)
    assert installed.last_receipt.stored == 6
    assert installed.last_error is None
    installed.uninstall()
    installed.uninstall()
    core.mda.run(BURST)
    assert len(fake.runs) == 2


def test_install_names_by_function_or_template(core, fake):
    installed = install(core, name=lambda sequence: f"{len(sequence.channels)}channels")
    core.mda.run(SNAPS)
    installed.uninstall()
    installed = install(core, name="cells_{time:%Y}")
    core.mda.run(SNAPS)
    installed.uninstall()
    assert fake.runs[0].name == "2channels"
    assert fake.runs[1].name.startswith("cells_20")


def test_install_cannot_be_undone_during_a_run(core, fake):
    started = threading.Event()
    core.mda.events.awaitingEvent.connect(started.set)
    installed = install(core)
    thread = core.run_mda(useq.MDASequence(time_plan={"interval": 600, "loops": 2}))
    assert started.wait(20)
    with pytest.raises(acqstream.ConfigError, match="a run is on"):
        installed.uninstall()
    core.mda.cancel()
    thread.join()
    installed.uninstall()
    assert fake.runs[0].status == "canceled"


def test_after_an_error_install_takes_the_next_run(core, fake):
    installed = install(core)
    fake.fail_at = 2
    with pytest.raises(acqstream.DiskFull):
        core.mda.run(SNAPS)
    assert isinstance(installed.last_error, acqstream.DiskFull)
    fake.fail_at = None
    core.mda.run(SNAPS)
    assert installed.last_error is None
    assert installed.last_receipt.complete
    installed.uninstall()
