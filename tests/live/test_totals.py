"""The totals of a running daemon are the sums of its receipts, and never fall."""

from __future__ import annotations

import json

import pytest

import acqstream
from acqstream.client.daemon_requests import fetch_status, stop_acquisition
from acqstream.errors import AcquisitionFailed
from acqstream.model.status import DaemonTotals
from tests.command import command
from tests.live.daemon_process import DaemonProcess
from tests.live.stored import image_of
from tests.waiting import until

SHAPE = (64, 64)
FRAME_BYTES = 64 * 64 * 2


def totals_of(daemon: DaemonProcess) -> DaemonTotals:
    totals = fetch_status(daemon.endpoint).totals
    assert totals is not None
    return totals


@pytest.mark.promise("frames-accounted")
def test_totals_are_the_sums_of_the_receipts(daemon: DaemonProcess) -> None:
    assert totals_of(daemon) == DaemonTotals()
    with acqstream.create("first", endpoint=daemon.endpoint) as run:
        for number in range(20):
            run.put(image_of(number, SHAPE), time=number)
        run.skip(3, reason="camera timeout")
        run.put(image_of(20, (32, 32)), time=23)  # a warning
    assert totals_of(daemon).frames_published == 21
    stopped = acqstream.create("second", endpoint=daemon.endpoint)
    for number in range(5):
        stopped.put(image_of(number, SHAPE), time=number)
    until(lambda: stopped.progress.durable == 5, "all frames are durable")
    running = totals_of(daemon)
    assert (running.frames_received, running.frames_published, running.frames_durable) == (26, 26, 26)
    assert running.ended == {"completed": 1}
    stop_acquisition("second", daemon.endpoint)
    with pytest.raises(AcquisitionFailed):
        stopped.close()
    totals = totals_of(daemon)
    assert (totals.frames_received, totals.frames_published, totals.frames_durable) == (26, 26, 26)
    assert (totals.frames_skipped, totals.frames_missing) == (3, 0)
    assert totals.payload_bytes == 25 * FRAME_BYTES + 32 * 32 * 2
    assert totals.warnings == {"shape_changed": 1}
    assert totals.ended == {"completed": 1, "canceled": 1}
    for latency in (totals.publish_latency, totals.durable_latency):
        assert sum(latency.counts) == 26
        assert latency.sum_s > 0


def test_a_resumed_run_counts_its_new_frames(daemon: DaemonProcess) -> None:
    with acqstream.create("cells", endpoint=daemon.endpoint) as run:
        for number in range(4):
            run.put(image_of(number, SHAPE), time=number)
        until(lambda: run.progress.durable == 4, "all frames are durable")
        daemon.stop()
        daemon.start()
        for number in range(4, 6):
            run.put(image_of(number, SHAPE), time=number)
    assert run.receipt is not None
    assert run.receipt.stored == 6
    totals = totals_of(daemon)
    assert (totals.frames_received, totals.frames_durable) == (2, 2)
    assert totals.payload_bytes == 2 * FRAME_BYTES
    assert sum(totals.publish_latency.counts) == 2
    assert totals.ended == {"completed": 1}


def test_the_status_of_a_run_has_its_times(daemon: DaemonProcess, capsys: pytest.CaptureFixture[str]) -> None:
    with acqstream.create("cells", endpoint=daemon.endpoint) as run:
        run.put(image_of(0, SHAPE), time=0)
        until(lambda: run.progress.published == 1, "the frame is published")
        (status,) = fetch_status(daemon.endpoint).acquisitions
        assert status.running_s is not None
        assert status.seconds_since_frame is not None
        assert 0 <= status.seconds_since_frame <= status.running_s
        command("status", "--endpoint", daemon.endpoint, "--json")
        shown = json.loads(capsys.readouterr().out)["totals"]
        assert (shown["frames_published"], shown["publish_latency"]["bounds_s"][0]) == (1, 0.001)
