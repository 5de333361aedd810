"""Runs of a real core into a real daemon, read back from the disk."""

from __future__ import annotations

import threading
import time

import pytest
import useq

import acqstream
from acqstream.client.daemon_requests import fetch_status
from acqstream.client.pymmcore import streaming
from acqstream.model.metadata import dump_ascii
from tests.conformance.odd_metadata import ODD_METADATA
from tests.live.daemon_process import DaemonProcess
from tests.live.small_disk import small_disk
from tests.waiting import in_time, until

PATIENCE_S = 2.0


@pytest.fixture
def attach(core, live_daemon):
    def attach_as(name, **options):
        return streaming(core, name, endpoint=live_daemon.endpoint, buffer_mb=64, **options)

    return attach_as


def read_back(path, sha):
    """Index of every frame in order of arrival, and sha of its pixels on the disk."""
    until(lambda: acqstream.open(path).complete, "all is there, levels of tiles included")
    dataset = acqstream.open(path)
    frame_keys = dataset.keys()
    keys = [dict(key) for key in frame_keys]
    return keys, [sha(dataset.read_frame(**key)) for key in keys]


def assert_stored(streamer, delivered, sha):
    """Everything that was delivered is stored, in order; the axes of the frames."""
    assert delivered
    keys, stored = read_back(streamer.last_run.path, sha)
    assert stored == [image for _, image in delivered]
    assert streamer.last_receipt.complete
    assert streamer.last_receipt.stored == len(delivered)
    return keys


def test_odd_metadata_of_events_are_stored_as_those_of_put(core, attach):
    deeper = {"metadata that fail", "deep", "too deep"}  # three levels down here
    odd = [one for one in ODD_METADATA if one.name not in deeper]
    with attach("odd") as streamer:
        core.mda.run([useq.MDAEvent(index={"t": t}, metadata={"odd": one.given()}) for t, one in enumerate(odd)])
    with acqstream.open(streamer.last_run.path) as dataset:
        stored = [dataset.read_metadata(key)["mda_event"]["metadata"]["odd"] for key in dataset.keys()]  # noqa: SIM118
        times = dataset.frame_times()
    assert [dump_ascii(one) for one in stored] == [dump_ascii(one.expected) for one in odd]
    assert (times[1:] >= times[:-1]).all()


@pytest.mark.slow
def test_a_burst_of_300_frames(core, attach, delivered, sha, camera_size):
    camera_size(512, 512)
    core.setProperty("Camera", "Mode", "Artificial Waves")
    core.setProperty("Camera", "DisplayImageNumber", 1)
    with attach("burst") as streamer:
        core.mda.run(useq.MDASequence(time_plan={"interval": 0, "loops": 300}))
    assert len({image for _, image in delivered}) == 300
    assert assert_stored(streamer, delivered, sha) == [{"time": t} for t in range(300)]


@pytest.mark.slow
def test_all_axes(core, attach, delivered, sha):
    sequence = useq.MDASequence(
        axis_order="tpgcz",
        time_plan={"interval": 0, "loops": 2},
        stage_positions=[(0, 0, 0), {"x": 900, "y": 900, "z": 1, "name": "B2"}],
        grid_plan={"rows": 1, "columns": 2},
        channels=["DAPI", "FITC"],
        z_plan={"range": 2, "step": 1},
    )
    with attach("all") as streamer:
        core.mda.run(sequence)
    keys = assert_stored(streamer, delivered, sha)
    assert len(keys) == 48
    assert keys[-1] == {"time": 1, "position": 1, "row": 0, "column": 1, "channel": "FITC", "z": 2}
    dataset = acqstream.open(streamer.last_run.path)
    meta = dataset.read_metadata(**keys[-1])
    assert (meta["Channel"], meta["PositionName"], meta["Axes"]) == ("FITC", "B2", keys[-1])
    assert "sequence" not in meta["mda_event"]
    assert dataset.summary_metadata["ChNames"] == ["DAPI", "FITC"]
    assert dataset.summary_metadata["mda_sequence"]["axis_order"] == ["t", "p", "g", "c", "z"]


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.timeout_s(180)
def test_864_positions(core, attach, delivered, sha):
    core.setProperty("Camera", "FastImage", 1)
    sequence = useq.MDASequence(stage_positions=[(x % 36, x // 36, 0) for x in range(864)])
    with attach("plate") as streamer:
        core.mda.run(sequence)
    keys = assert_stored(streamer, delivered, sha)
    assert keys == [{"position": p} for p in range(864)]


def test_integer_axes_for_micromanager(core, attach, delivered, sha):
    with attach("studio", micromanager=True) as streamer:
        core.mda.run(useq.MDASequence(channels=["DAPI", "FITC"]))
    assert assert_stored(streamer, delivered, sha) == [{"channel": 0}, {"channel": 1}]


def test_a_taken_name_stops_the_run_before_its_first_image(core, attach, delivered):
    with attach("taken"):
        core.mda.run([useq.MDAEvent()])
    delivered.clear()
    with pytest.raises(acqstream.DatasetExists):
        with attach("taken"):
            core.mda.run([useq.MDAEvent()])
    assert not delivered


@pytest.mark.slow
@pytest.mark.parametrize("interval_s", [0, 600])
def test_a_daemon_that_dies_ends_the_run_within_the_patience(core, own_daemon, delivered, interval_s):
    """In a burst the next put raises; between time points the run is canceled and leaving the block raises."""
    patience_s = in_time(PATIENCE_S)  # a busy machine needs it to reach the daemon
    killed_at = []
    ended = threading.Event()

    def kill():
        while not delivered and not ended.wait(0.01):
            pass
        own_daemon.process.kill()
        killed_at.append(time.monotonic())

    killer = threading.Thread(target=kill)
    killer.start()
    sequence = useq.MDASequence(time_plan={"interval": interval_s, "loops": 100_000 if interval_s == 0 else 2})
    try:
        with pytest.raises(acqstream.DaemonUnavailable):
            with streaming(core, "cells", endpoint=own_daemon.endpoint, patience_s=patience_s, buffer_mb=64):
                core.mda.run(sequence)
    finally:
        ended.set()
    ended_at = time.monotonic()
    killer.join()
    assert delivered
    assert ended_at - killed_at[0] < patience_s + in_time(1.0)
    assert not core.isSequenceRunning()


@pytest.mark.slow
@pytest.mark.timeout_s(180)
def test_a_full_disk_ends_the_run_with_that_text(core, tmp_path, delivered, camera_size):
    camera_size(512, 512)
    with small_disk(tmp_path / "small", 24) as place:
        options = {"runtime": str(tmp_path / "run"), "memory_mb": 32, "reserve_mb": 2, "ballast_mb": 1}
        with DaemonProcess(place / "data", **options) as daemon:
            told_at = []
            way = {"endpoint": daemon.endpoint, "patience_s": PATIENCE_S, "buffer_mb": 8, "expect": None}
            with pytest.raises(acqstream.DiskFull, match="No space left on device") as caught:
                with streaming(core, "cells", on_error=lambda _: told_at.append(time.time()), **way) as streamer:
                    core.mda.run(useq.MDASequence(time_plan={"interval": 0, "loops": 2_000}))
            assert not core.isSequenceRunning()
            paused_at = [one.time for one in streamer.last_run.warnings if one.code == "disk_full"][-1]
            # Told in time: that the engine ends after it is seen by the end of the block, however long that takes here.
            assert PATIENCE_S <= told_at[0] - paused_at < PATIENCE_S + in_time(2.0)
            receipt = streamer.last_run.receipt
            assert receipt.status == "error"
            assert receipt.stored >= caught.value.number > 0
            with acqstream.open(streamer.last_run.path) as dataset:
                images = [dataset.read_frame(key) for key in list(dataset.keys())]
            assert len(images) == receipt.stored
            assert all(image.shape == (512, 512) for image in images)


@pytest.mark.slow
def test_a_mirror_is_equal_to_the_log(core, attach, live_daemon):
    sequence = useq.MDASequence(
        axis_order="tcz",
        time_plan={"interval": 0, "loops": 2},
        channels=["DAPI", "FITC"],
        z_plan={"range": 3, "step": 1},
    )
    n5, wkw = {"format": "n5", "blocks": [2, 128, 128]}, {"format": "wkw", "compression": "lz4", "cube": 64}
    with attach("mirrored", mirrors=[n5, wkw]) as streamer:
        core.mda.run(sequence)
    path = streamer.last_run.path
    assert streamer.last_receipt.complete

    def is_done():
        return not [one for one in fetch_status(live_daemon.endpoint).views.mirrors if one.path == str(path)]

    until(is_done, "the mirror is complete")
    for suffix in ("n5", "wkw"):
        with acqstream.open(path) as dataset, acqstream.open(f"{path}.{suffix}") as mirror:
            level = mirror.levels[0]
            axes = {axis: list(values) for axis, values in mirror.axes.items()}
            array = level.read()
            keys = list(dataset.keys())
            assert len(keys) == array.size // (array.shape[-1] * array.shape[-2]) == 16
            for key in keys:
                spot = tuple(axes[axis].index(key[axis]) for axis in level.axes[:-2])
                assert (array[spot] == dataset.read_frame(**key)).all(), key
