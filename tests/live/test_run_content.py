"""Everything beside the pixels: changing shapes, metadata, settings, gaps, status."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import acqstream
from acqstream.errors import AcquisitionFailed, ProtocolError
from acqstream.simulate import pattern
from tests.live.daemon_process import DaemonProcess
from tests.live.stored import check_frames, image_of, state_of, unstalled
from tests.log.read_back import open_ndstorage
from tests.waiting import HANG_S, until

LEAST_BYTES_PER_S = 1e5
SHAPES = ((64, 64), (64, 64), (33, 65), (512, 700), (1, 1), (64, 64))


def test_shapes_that_change_are_stored_and_warned_of(shared_daemon: DaemonProcess) -> None:
    with acqstream.create("shapes", endpoint=shared_daemon.endpoint) as run:
        for number in range(60):
            run.put(image_of(number, SHAPES[number % 6]), time=number)
    assert run.receipt is not None
    assert run.receipt.complete
    (warning,) = unstalled(run.warnings)  # one for all
    assert warning.code == "shape_changed"
    assert "frame 2 has shape (33, 65), before it was (64, 64)" in warning.text
    assert check_frames(run.path, lambda number: SHAPES[number % 6]) == 60


def test_kinds_of_pixels_side_by_side(shared_daemon: DaemonProcess) -> None:
    kinds = [
        ((48, 64), "uint8", None),
        ((48, 64), "uint16", 12),
        ((48, 64, 3), "uint8", None),
        ((48, 64), "uint16", 10),
    ]
    with acqstream.create("kinds", endpoint=shared_daemon.endpoint) as run:
        for number in range(40):
            shape, dtype, bits = kinds[number % 4]
            run.put(pattern.frame(number, shape, dtype, bits), time=number, bits=bits)
    with acqstream.open(run.path) as dataset, open_ndstorage(run.path) as oracle:
        for number in range(40):
            expected = pattern.frame(number, *kinds[number % 4])
            found = dataset.read_frame(time=number)
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
            assert np.array_equal(found, expected)
            assert np.array_equal(oracle.read_image(time=number), expected)


def test_metadata_summary_and_settings(shared_daemon: DaemonProcess) -> None:
    summary = {"Prefix": "µ", "nested": {"list": [1, 2.5, None, "三"]}, "PixelSizeUm": 0.65}
    with acqstream.create("metadata", endpoint=shared_daemon.endpoint, summary=summary) as run:
        run.patch(summary={"late": True})
        run.put(image_of(0, (8, 8)), time=0, channel="DAPI µ", meta={"a": np.float32(0.5), "b": "三", "c": math.nan})
        run.patch(display={"first": 1})
        with pytest.raises(ProtocolError, match="before frame 0"):
            run.patch(summary={"too late": True})
        run.put(image_of(1, (8, 8)), time=1, channel="FITC", meta={"large": "x" * 900_000})
        run.patch(display={"last": 1})
    with acqstream.open(run.path) as dataset, open_ndstorage(run.path) as oracle:
        assert {**summary, "late": True}.items() <= dict(dataset.summary_metadata).items()
        assert oracle.summary_metadata["nested"] == summary["nested"]
        first = dataset.read_metadata(time=0, channel="DAPI µ")
        assert first == {"a": 0.5, "b": "三", "c": None, "Axes": {"time": 0, "channel": "DAPI µ"}}
        assert oracle.read_metadata(time=0, channel="DAPI µ")["b"] == "三"
        assert len(dataset.read_metadata(time=1, channel="FITC")["large"]) == 900_000
    assert json.loads((Path(run.path) / "display_settings.txt").read_bytes()) == {"last": 1}
    assert state_of(run.path)["request"]["summary"]["Prefix"] == "µ"


def test_skipped_frames_are_in_the_receipt_with_their_reason(shared_daemon: DaemonProcess) -> None:
    with acqstream.create("skips", endpoint=shared_daemon.endpoint) as run:
        run.skip(2, reason="warming up")
        run.put(image_of(0, (64, 64)), time=0)
        run.skip(1, reason="camera timeout")
        run.skip(1, reason="camera timeout")
        run.skip(1, reason="µ lost")
        run.put(image_of(1, (64, 64)), time=1)
        run.skip(1000, reason="given up")
    receipt = run.receipt
    assert receipt is not None
    assert (receipt.sent, receipt.stored, receipt.skipped, receipt.status) == (1007, 2, 1005, "completed")
    assert sum(gap.count for gap in receipt.missing) == 1005
    assert (receipt.missing[0].first, receipt.missing[0].count, receipt.missing[0].reason) == (0, 2, "warming up")
    assert {gap.reason for gap in receipt.missing} == {"warming up", "camera timeout", "µ lost", "given up"}
    assert check_frames(run.path, lambda _: (64, 64)) == 2


def test_a_run_of_skips_only(shared_daemon: DaemonProcess) -> None:
    with acqstream.create("nothing", endpoint=shared_daemon.endpoint, summary={"a": 1}) as run:
        run.skip(5, reason="no light")
    assert run.receipt is not None
    assert (run.receipt.stored, run.receipt.skipped) == (0, 5)
    with acqstream.open(run.path) as dataset:
        assert list(dataset.keys()) == []
        assert dataset.complete
        assert dataset.summary_metadata["a"] == 1


@pytest.mark.parametrize(("status", "state"), [("canceled", "CANCELED"), ("error", "ERRORED")])
def test_a_run_that_does_not_end_as_completed(shared_daemon: DaemonProcess, status: str, state: str) -> None:
    run = acqstream.create(status, endpoint=shared_daemon.endpoint, expect=100)
    run.put(image_of(0, (64, 64)), time=0)
    receipt = run.close(status, reason="the user said so")
    assert (receipt.status, receipt.reason, receipt.stored, receipt.complete) == (status, "the user said so", 1, False)
    assert state_of(run.path)["state"] == state
    assert check_frames(run.path, lambda _: (64, 64)) == 1


def test_the_same_axes_twice_end_the_run_unless_they_replace(shared_daemon: DaemonProcess) -> None:
    run = acqstream.create("twice", endpoint=shared_daemon.endpoint)
    with pytest.raises(AcquisitionFailed) as info:
        with run:
            run.put(image_of(0, (64, 64)), time=0)
            run.put(image_of(1, (64, 64)), time=0)
            run.close()
    assert info.value.code == "duplicate_axes"
    assert check_frames(run.path, lambda _: (64, 64)) == 1

    with acqstream.create("replaced", endpoint=shared_daemon.endpoint, duplicates="replace") as run:
        run.put(image_of(0, (64, 64)), time=0)
        run.put(image_of(1, (64, 64)), time=0)
    with acqstream.open(run.path) as dataset:
        assert list(dataset.keys()) == [{"time": 0}]
        assert np.array_equal(dataset.read_frame(time=0), image_of(1, (64, 64)))


def test_status_of_a_running_acquisition(shared_daemon: DaemonProcess) -> None:
    is_over = threading.Event()
    with acqstream.create("running", endpoint=shared_daemon.endpoint, buffer_mb=8) as run:

        def produce() -> None:
            number = 0
            while not is_over.wait(0.01):
                run.put(image_of(number, (256, 256)), time=number)
                number += 1

        thread = threading.Thread(target=produce)
        thread.start()
        try:
            document = until(lambda: _busy_status(shared_daemon.endpoint), "a rate")
        finally:
            is_over.set()
            thread.join()
        progress = run.progress
    (one,) = (entry for entry in document["acquisitions"] if entry["name"] == "running")
    assert (one["state"], one["path"]) == ("RUNNING", run.path)
    assert 0 < one["durable"] <= one["published"] <= one["received"] <= progress.sent
    assert one["payload_bytes"] >= one["published"] * 256 * 256 * 2
    assert one["queue_frames"] == one["received"] - one["published"]
    assert 0 <= one["queue_bytes"] <= 64 * 2**20
    assert LEAST_BYTES_PER_S < one["bytes_per_s"] < 2e7  # at most 100 frames a second
    assert one["free_bytes"] == document["free_bytes"]  # one data directory
    assert one["seconds_left"] == pytest.approx(one["free_bytes"] / one["bytes_per_s"], rel=0.05)
    assert one["io"] in ("direct", "buffered")
    assert 0 < document["memory_used_bytes"] <= document["memory_budget_bytes"]
    assert progress.free_bytes is not None
    assert progress.free_bytes > 0


def _busy_status(endpoint: str) -> dict | None:
    """`acqstream status --json`, once something is durable and a rate was measured while frames came."""
    command = [sys.executable, "-m", "acqstream", "status", "--json", "--endpoint", endpoint]
    document = json.loads(subprocess.run(command, capture_output=True, timeout=HANG_S, check=True).stdout)
    busy = [one for one in document["acquisitions"] if one["durable"] and one["bytes_per_s"] > LEAST_BYTES_PER_S]
    return document if busy else None
