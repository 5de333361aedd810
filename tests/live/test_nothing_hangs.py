"""A disk that stands still, and threads that fall over: the daemon ends as it was told, and says what is not stored."""

from __future__ import annotations

import time
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import zmq

import acqstream
from acqstream.cli.output import ExitCode
from acqstream.client.connector import Transport
from acqstream.client.daemon_requests import fetch_status
from acqstream.errors import AcquisitionFailed, WriterBehind
from acqstream.storage.platform.capabilities import has_terminate_signal
from tests.live.daemon_process import DaemonProcess
from tests.live.stored import check_frames, image_of
from tests.waiting import in_time, until

SHAPE = (512, 512)

# While the trigger exists every fdatasync stands still, or falls over with an error that nobody expects.
PRELUDE = """
import time
from pathlib import Path
from typing import Any
from acqstream.storage.files.disk import LocalDisk
trigger, force = Path({trigger!r}), LocalDisk.fdatasync
def fdatasync(self, fd):
    if {mode!r} == "fault" and trigger.exists():
        raise ZeroDivisionError("a fault made for a test")
    while trigger.exists():
        time.sleep(0.005)
    force(self, fd)
LocalDisk.fdatasync = fdatasync
"""


def daemon_with(mode: str, trigger: Path, data: Path, **options: Any) -> DaemonProcess:
    return DaemonProcess(data, prelude=PRELUDE.format(trigger=str(trigger), mode=mode), **options)


@pytest.mark.promise("nothing-hangs")
@pytest.mark.parametrize(
    ("how", "transport"),
    [
        ("timeout", "ipc" if zmq.has("ipc") else "tcp"),
        pytest.param(
            "second signal",
            "shm",
            marks=pytest.mark.skipif(not has_terminate_signal(), reason="a second request hurries nothing"),
        ),
    ],
)
def test_a_daemon_whose_disk_stands_still_ends_in_time(tmp_path: Path, how: str, transport: Transport) -> None:
    trigger = tmp_path / "stand still"
    stop_timeout_s = 1.0 if how == "timeout" else 600.0
    daemon = daemon_with("stall", trigger, tmp_path / "data", stop_timeout_s=stop_timeout_s).start()
    run = acqstream.create("cells", endpoint=daemon.endpoint, transport=transport, buffer_mb=64, patience_s=20)
    run.put(image_of(0, SHAPE), time=0)
    until(lambda: run.progress.published == 1, "published")
    trigger.touch()
    for number in range(1, 40):
        run.put(image_of(number, SHAPE), time=number)  # fills the daemon's window
    until(lambda: fetch_status(daemon.endpoint).acquisitions[0].stall, "the stall is told")
    assert "fdatasync of cells_NDTiffStack.tif" in fetch_status(daemon.endpoint).acquisitions[0].stall
    began = time.monotonic()
    daemon.begin_stop()
    if how == "second signal":
        until(lambda: "shutting_down" in [warning.code for warning in run.warnings], "the first signal was heard")
        daemon.begin_stop()
    assert daemon.wait() == ExitCode.STORAGE
    assert time.monotonic() - began < in_time(6.0)
    assert "frames 1 to " in daemon.output()
    assert "were received and are not stored" in daemon.output()
    assert "fdatasync" in daemon.output()

    trigger.unlink()
    daemon.start()  # the producer still has them
    assert run.close().complete
    daemon.stop()
    assert check_frames(run.path, lambda _: SHAPE) == 40


def test_a_stall_is_told_and_costs_nothing(tmp_path: Path) -> None:
    trigger = tmp_path / "stand still"
    with daemon_with("stall", trigger, tmp_path / "data") as daemon:
        with acqstream.create("cells", endpoint=daemon.endpoint, buffer_mb=64, patience_s=20) as run:
            with acqstream.create("other", endpoint=daemon.endpoint, buffer_mb=16) as other:
                run.put(image_of(0, SHAPE), time=0)
                other.put(image_of(0, SHAPE), time=0)
                until(lambda: run.progress.published == 1, "published")
                trigger.touch()
                run.put(image_of(1, SHAPE), time=1)
                until(lambda: fetch_status(daemon.endpoint).acquisitions[0].stall, "the stall is told")
                trigger.unlink()
            until(lambda: [one for one in run.warnings if one.code == "disk_stalled"], "the producer was told")
    assert run.receipt is not None
    stalls = [stall for stall in run.receipt.stalls if stall.call == "fdatasync"]
    assert stalls
    assert all(stall.seconds >= 1.0 for stall in stalls)
    assert check_frames(run.path, lambda _: SHAPE) == 2


def test_a_producer_that_waits_too_long_hears_of_the_stall(tmp_path: Path) -> None:
    """The error names what `status` shows, and the stall counts once, whatever else has waited for the disk."""
    trigger = tmp_path / "stand still"
    with daemon_with("stall", trigger, tmp_path / "data") as daemon:
        run = acqstream.create("cells", endpoint=daemon.endpoint, buffer_mb=4, patience_s=in_time(3))
        run.put(image_of(0, SHAPE), time=0)
        until(lambda: run.progress.published == 1, "published")
        trigger.touch()
        with pytest.raises(WriterBehind, match=r"its disk stalls: fdatasync of cells_NDTiffStack\.tif takes [\d.]+ s"):
            for number in range(1, 1000):
                run.put(image_of(number, SHAPE), time=number)
        trigger.unlink()
        receipt = run.close()
    assert receipt.complete
    spans = [(datetime.fromisoformat(one.began_at).timestamp(), one.seconds) for one in receipt.stalls]
    assert all(at + seconds <= later + 0.01 for (at, seconds), (later, _) in pairwise(spans))
    assert len([one for one in receipt.stalls if one.seconds >= 2]) == 1
    assert len([one for one in run.warnings if one.code == "disk_stalled"]) == len(spans)


def test_a_thread_that_falls_over_is_heard_of_everywhere(tmp_path: Path) -> None:
    """By the producer, in the daemon's log, and in its exit code; and the daemon goes on for the others."""
    trigger = tmp_path / "fall over"
    daemon = daemon_with("fault", trigger, tmp_path / "data").start()
    with pytest.raises(AcquisitionFailed, match="a fault made for a test") as caught:
        with acqstream.create("cells", endpoint=daemon.endpoint, buffer_mb=16) as run:
            run.put(image_of(0, SHAPE), time=0)
            until(lambda: run.progress.durable == 1, "durable")
            trigger.touch()
            run.put(image_of(1, SHAPE), time=1)
    trigger.unlink()
    assert caught.value.number == 1
    assert run.receipt is not None
    assert (run.receipt.status, run.receipt.stored) == ("failed", 1)
    with acqstream.create("after", endpoint=daemon.endpoint, buffer_mb=16) as after:
        after.put(image_of(0, SHAPE), time=0)
    assert daemon.stop() == ExitCode.ERROR
    assert "ZeroDivisionError" in daemon.output()
    check_frames(run.path, lambda _: SHAPE, least=1)
