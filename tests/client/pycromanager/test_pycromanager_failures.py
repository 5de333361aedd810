"""A full disk and a dead daemon end an acquisition of Pycro-Manager with that error, and nothing hangs."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import acqstream
from acqstream.client.daemon_requests import fetch_status
from tests.client.pycromanager import microscope
from tests.live.daemon_process import DaemonProcess
from tests.live.small_disk import small_disk as file_system
from tests.waiting import in_time, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout_s(90),
    pytest.mark.skipif(
        not (importlib.util.find_spec("pycromanager") and importlib.util.find_spec("mm_test_adapters")),
        reason="needs pycromanager and mm-test-adapters",
    ),
]

PATIENCE_S = 2.0

# Without an end: only the error ends them. Frames of 512 KiB fill the disk, or the local buffer and the queues.
SCENARIO = """
set_camera(512, 512)
core.set_exposure(20)  # at most 50 frames a second, so that the core's own buffer does not overflow first


def forever():
    number = 0
    while True:
        yield {"axes": {"time": number}}
        number += 1
        time.sleep(0.02)


def submit(acq):
    if arguments["kind"] == "waiting":
        acq.acquire([{"axes": {"time": 0}}, {"axes": {"time": 1}, "min_start_time": 600}])
    elif arguments["kind"] == "burst":
        acq.acquire([{"axes": {"time": number}} for number in range(20_000)])
    else:
        acq.acquire(forever())


def in_sink():
    with Acquisition("cells", **options) as acq:
        tell(begun=acq.run.path)
        submit(acq)


def in_hook():
    with acqstream.create("cells", **options) as run:
        tell(begun=run.path)
        with pycromanager.Acquisition(image_process_fn=forward(run)) as acq:
            submit(acq)


error = error_of(in_hook if arguments["way"] == "hook" else in_sink)
tell(**error, ended=time.time(), running=core.is_sequence_running())
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with file_system(tmp_path / "small", 8) as place:
        yield place


WAYS = [("sink", "snapped"), ("sink", "burst"), ("hook", "snapped"), ("hook", "burst")]


def frames_in(path: Path) -> int:
    try:
        with acqstream.open(path) as dataset:
            return len(list(dataset.keys()))
    except acqstream.DatasetError:
        return 0


def is_paused(daemon: DaemonProcess) -> bool:
    return any(one.paused for one in fetch_status(daemon.endpoint).acquisitions)


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("way", "kind"), WAYS)
def test_a_full_disk_ends_the_acquisition(small_disk, way, kind):
    with DaemonProcess(
        small_disk / "data", runtime=str(small_disk.parent / "run"), reserve_mb=1, ballast_mb=1
    ) as daemon:
        process = microscope.start(SCENARIO, endpoint=daemon.endpoint, way=way, kind=kind, patience_s=PATIENCE_S)
        until(lambda: is_paused(daemon) or process.poll() is not None, "the disk is full")
        paused = time.time()
        begun, end = microscope.finish(process)
    assert end["ended"] - paused < PATIENCE_S + in_time(2.0)
    assert "No space left on device" in end["text"]
    assert end["kind"] == ("DiskFull" if way == "sink" else "Exception")
    assert not end["running"]
    assert 0 < frames_in(begun["begun"]) <= 16


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("way", "kind"), [*WAYS, ("sink", "waiting")])
def test_a_daemon_that_dies_ends_the_acquisition_within_the_patience(tmp_path, way, kind):
    with DaemonProcess(tmp_path / "data") as daemon:
        process = microscope.start(SCENARIO, endpoint=daemon.endpoint, way=way, kind=kind, patience_s=PATIENCE_S)
        until(lambda: frames_in(tmp_path / "data" / "cells") or process.poll() is not None, "a frame came")
        daemon.kill()
        killed = time.time()
        _, end = microscope.finish(process)
    assert end["ended"] - killed < PATIENCE_S + in_time(2.0)  # the last second for Pycro-Manager itself to end
    assert end["kind"] == ("DaemonUnavailable" if way == "sink" else "Exception")
    assert not end["running"]
