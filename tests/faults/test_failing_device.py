"""A device that answers EIO in the middle of a run: the receipt counts what survives, and the run is resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import acqstream
from acqstream.errors import StorageError
from acqstream.integrity.verify import verify
from acqstream.model.receipt import UNFORCED, Receipt
from tests.faults.loop_disk import LoopDisk, why_not
from tests.live.daemon_process import DaemonProcess
from tests.live.stored import check_frames, image_of
from tests.waiting import until

SHAPE = (256, 512)
FRAMES, MORE = 12, 20


@pytest.fixture
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    if why := why_not(request.param):
        pytest.skip(why)
    with LoopDisk(request.param, tmp_path / "image", tmp_path / "disk", 2**30) as one:
        yield one


@pytest.mark.promise("failing-device")
@pytest.mark.parametrize("durability", ["close", 0.2, "batch"])
@pytest.mark.parametrize("disk", ["ext4", "xfs", "btrfs"], indirect=True)
def test_a_receipt_counts_no_frame_that_a_failing_device_lost(tmp_path: Path, disk: LoopDisk, durability: Any) -> None:
    daemon = DaemonProcess(disk.place / "data", home=tmp_path, reserve_mb=4, ballast_mb=1).start()
    try:
        stored = record_until_failure(disk, daemon, durability).stored
        daemon.kill()
        disk.mend()
        disk.unmount()
        disk.mount()
        survived = check_frames(disk.place / "data" / "cells", lambda _: SHAPE, oracle=False)
        assert survived >= stored
        daemon.start()
        resume(daemon, stored)
    finally:
        daemon.kill_if_running()


@pytest.mark.promise("failing-device")
@pytest.mark.parametrize("disk", ["ext4"], indirect=True)
def test_a_disk_that_is_plugged_in_again_needs_no_other_daemon(tmp_path: Path, disk: LoopDisk) -> None:
    daemon = DaemonProcess(disk.place / "data", home=tmp_path, reserve_mb=4, ballast_mb=1).start()
    try:
        stored = record_until_failure(disk, daemon, 0.2).stored
        with pytest.raises(acqstream.AcqStreamError, match=r"Input/output|Read-only|cells"):
            acqstream.create("cells", endpoint=daemon.endpoint, buffer_mb=16, resume=True)
        disk.mend()
        disk.reconnect()
        resume(daemon, stored)
    finally:
        daemon.kill_if_running()


def record_until_failure(disk: LoopDisk, daemon: DaemonProcess, durability: Any) -> Receipt:
    with pytest.raises(StorageError) as caught:
        with acqstream.create("cells", endpoint=daemon.endpoint, buffer_mb=16, durability=durability) as run:
            for number in range(FRAMES):
                run.put(image_of(number, SHAPE), time=number)
            until(lambda: run.progress.published == FRAMES, "all are published")
            if durability != "close":
                until(lambda: run.progress.durable == FRAMES, "all are durable")
            disk.fail()
            for number in range(FRAMES, 10_000):
                run.put(image_of(number, SHAPE), time=number)
    receipt = run.receipt
    assert receipt is not None
    assert (receipt.status, receipt.stored) == ("failed", 0 if durability == "close" else FRAMES)
    first = receipt.missing[0]
    assert first.first == receipt.stored == caught.value.number
    if durability == "close":
        assert (first.count, first.reason) == (FRAMES, UNFORCED)
        assert "frames 0 to 11 were written" in "".join(caught.value.__notes__)
    numbers = [number for gap in receipt.missing for number in range(gap.first, gap.first + gap.count)]
    assert numbers == list(range(receipt.stored, receipt.stored + len(numbers)))
    return receipt


def resume(daemon: DaemonProcess, least: int) -> None:
    """The run goes on after the frames that survived, and is complete."""
    with acqstream.create("cells", endpoint=daemon.endpoint, buffer_mb=16, resume=True) as run:
        assert run.next >= least
        for number in range(MORE):
            if not run.is_stored(time=number):
                run.put(image_of(number, SHAPE), time=number)
    assert run.receipt is not None
    assert (run.receipt.complete, run.receipt.stored) == (True, MORE)
    assert check_frames(run.path, lambda _: SHAPE) == MORE
    assert verify(Path(run.path)).problems == []
