"""A real daemon on a disk that fills up: it waits and says so, goes on when there is space, or ends whole."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import acqstream
from acqstream.client.connector import Transport
from acqstream.client.daemon_requests import fetch_status, stop_acquisition
from acqstream.client.run import Run
from acqstream.errors import AcqStreamError, AcquisitionFailed, DiskFull
from acqstream.model.status import AcquisitionStatus
from acqstream.storage.files.free_space import BALLAST_NAME
from tests.host_system import needs_a_real_disk
from tests.live.daemon_process import DaemonProcess
from tests.live.impatience import make_impatient
from tests.live.small_disk import fill, small_volume
from tests.live.stored import check_frames, image_of, state_of
from tests.waiting import HANG_S, in_time, until

SHAPE = (512, 512)
FRAME_BYTES = 2 * 512 * 512
PATIENCE_S = 1.5
MIB = 2**20


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    """On a file system of 64 MiB, 4 of which are kept, and 1 for the end.

    How long the space lasts is no news here: with the rate, which is any, it would come never, once or twice.
    """
    options: dict[str, Any] = {"memory_mb": 32, "reserve_mb": 4, "ballast_mb": 1, "low_space_minutes": 0.0}
    with small_volume(tmp_path / "small", 64) as place:
        with DaemonProcess(place / "data", home=tmp_path, **options) as process:
            yield process


def open_run(daemon: DaemonProcess, transport: Transport = "shm", *, patience_s: float = PATIENCE_S, **options) -> Run:
    if transport == "ipc":
        assert daemon.ipc  # skips where it is missing
    way: dict[str, Any] = {"endpoint": daemon.endpoint, "transport": transport}
    run = acqstream.create("cells", **way, buffer_mb=8, **options)
    make_impatient(run, patience_s)
    assert run.transport == transport
    return run


def status_of(daemon: DaemonProcess) -> AcquisitionStatus:
    (one,) = fetch_status(daemon.endpoint).acquisitions
    return one


def codes(run) -> list[str]:
    return [warning.code for warning in run.warnings]


@pytest.mark.promise("full-disk")
@pytest.mark.parametrize("transport", ["shm", "ipc"])
def test_it_waits_for_space_and_goes_on_without_loss(daemon: DaemonProcess, transport: Transport) -> None:
    with open_run(daemon, transport) as run:
        for number in range(20):
            run.put(image_of(number, SHAPE), time=number)
        until(lambda: run.progress.published == 20, "all published")
        assert (status_of(daemon).state, status_of(daemon).paused) == ("RUNNING", "")
        filler = fill(daemon.data, MIB // 4)  # beside what the stack file has reserved
        filled = time.monotonic()
        until(lambda: status_of(daemon).state == "PAUSED", "the run is paused")
        until(lambda: "disk_full" in codes(run), "the producer was told")
        assert time.monotonic() - filled < 2.0
        assert "are kept" in status_of(daemon).paused
        assert status_of(daemon).frames_left == 0
        number = 20
        while run.progress.behind_bytes < 4 * MIB:  # what the window lets through is stored, the rest waits here
            run.put(image_of(number, SHAPE), time=number)
            number += 1
        filler.unlink()
        for last in range(number, 50):
            run.put(image_of(last, SHAPE), time=last)
    assert codes(run) == ["disk_low", "disk_full", "disk_space"]
    assert run.receipt is not None
    assert run.receipt.complete
    check_frames(run.path, lambda _: SHAPE, least=50)


def test_what_waits_in_the_program_is_seen_from_outside(daemon: DaemonProcess) -> None:
    way: dict[str, Any] = {"endpoint": daemon.endpoint, "buffer_mb": 24, "patience_s": 120}
    with acqstream.create("cells", **way) as run:
        for number in range(5):
            run.put(image_of(number, SHAPE), time=number)
        until(lambda: (status_of(daemon).sent, status_of(daemon).received) == (5, 5), "all has come")
        filler = fill(daemon.data, MIB // 4)
        until(lambda: status_of(daemon).state == "PAUSED", "the run is paused")
        while run.progress.behind_bytes < 16 * MIB:  # more than the daemon's window
            number += 1
            run.put(image_of(number, SHAPE), time=number)
        until(lambda: status_of(daemon).sent == number + 1 == run.progress.sent, "the status shows what was put")
        assert status_of(daemon).received < number + 1
        filler.unlink()
        until(lambda: status_of(daemon).received == number + 1, "all has come")
    assert run.receipt is not None
    assert run.receipt.complete


@needs_a_real_disk
@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_the_last_byte_taken_by_somebody_else(daemon: DaemonProcess, transport: Transport) -> None:
    """Writing itself fails: what was received stays in memory until there is space."""
    with open_run(daemon, transport) as run:
        for number in range(10):
            run.put(image_of(number, SHAPE), time=number)
        until(lambda: run.progress.published == 10, "all published")
        (daemon.data / BALLAST_NAME).rename(daemon.data / "taken")  # it must not help now
        filler = fill(daemon.data, 0)
        for number in range(10, 16):
            run.put(image_of(number, SHAPE), time=number)
        until(lambda: status_of(daemon).state == "PAUSED", "the run is paused")
        filler.unlink()
        until(lambda: run.progress.published == 16, "it went on")
    check_frames(run.path, lambda _: SHAPE, least=16)


@pytest.mark.parametrize(
    ("how", "leave_bytes", "transport"),
    [
        ("put", MIB // 4, "shm"),
        pytest.param("put", 0, "shm", marks=needs_a_real_disk),
        pytest.param("put", 0, "tcp", marks=needs_a_real_disk),
        ("close", MIB // 4, "ipc"),
        pytest.param("close", 0, "shm", marks=needs_a_real_disk),
    ],
)
def test_without_space_put_and_close_say_so_in_time_and_the_dataset_is_whole(
    daemon: DaemonProcess, how: str, leave_bytes: int, transport: Transport
) -> None:
    began = time.monotonic()
    with pytest.raises(DiskFull, match="No space left on device") as caught, open_run(daemon, transport) as run:
        for number in range(10):
            run.put(image_of(number, SHAPE), time=number)
        until(lambda: run.progress.published == 10, "all published")
        fill(daemon.data, leave_bytes)
        until(lambda: status_of(daemon).state == "PAUSED" or leave_bytes == 0, "the run is paused")
        began = time.monotonic()
        for number in range(10, 24 if how == "close" else 1000):
            run.put(image_of(number, SHAPE), time=number)
            began = time.monotonic()
    assert time.monotonic() - began < PATIENCE_S + in_time(2.0)
    assert caught.value.errno == errno.ENOSPC
    stored = caught.value.number
    assert stored is not None
    assert stored >= 10
    assert run.receipt is not None
    assert run.receipt.status == "error"
    assert run.receipt.stored >= stored
    missing = sum(gap.count for gap in run.receipt.missing)
    assert run.receipt.stored + missing == run.receipt.sent
    until(lambda: not fetch_status(daemon.endpoint).acquisitions, "the run has ended")
    assert state_of(run.path)["state"] == "ERRORED"
    check_frames(run.path, lambda _: SHAPE, least=run.receipt.stored)


@needs_a_real_disk
def test_a_daemon_that_is_stopped_does_not_wait_for_space(daemon: DaemonProcess) -> None:
    """The frames are still with the producer, and go into the dataset when there is space."""
    run = open_run(daemon, patience_s=20)
    for number in range(10):
        run.put(image_of(number, SHAPE), time=number)
    until(lambda: run.progress.published == 10, "all published")
    filler = fill(daemon.data, 0)
    for number in range(10, 14):
        run.put(image_of(number, SHAPE), time=number)
    until(lambda: status_of(daemon).state == "PAUSED", "the run is paused")
    assert daemon.stop() == 0
    assert state_of(run.path)["state"] == "INTERRUPTED"
    filler.unlink()
    daemon.start()
    run.put(image_of(14, SHAPE), time=14)
    assert run.close().complete
    check_frames(run.path, lambda _: SHAPE, least=15)


def test_a_run_that_cannot_fit_is_refused(daemon: DaemonProcess) -> None:
    with pytest.raises(DiskFull, match="are kept"):
        open_run(daemon, expect=1000, frame=(SHAPE, "<u2"))
    fill(daemon.data, MIB // 4)
    until(lambda: (fetch_status(daemon.endpoint).free_bytes or 0) < 3 * MIB, "the daemon has looked")
    with pytest.raises((DiskFull, AcquisitionFailed)):
        open_run(daemon)


def keep_full(folder: Path, is_over: threading.Event) -> None:
    """Another program that takes every byte there is."""
    with (folder / "greedy").open("ab", buffering=0) as file:
        while not is_over.is_set():
            try:
                file.write(bytes(4096))
            except OSError:
                is_over.wait(0.001)


def test_a_close_whose_receipt_finds_no_space(daemon: DaemonProcess) -> None:
    """All frames are stored; the end waits for the patience, and takes what is kept for it if it can."""
    run = open_run(daemon)
    for number in range(10):
        run.put(image_of(number, SHAPE), time=number)
    until(lambda: run.progress.published == 10, "all published")
    fill(daemon.data, 0)
    is_over = threading.Event()
    other = threading.Thread(target=keep_full, args=(daemon.data, is_over))
    other.start()
    began = time.monotonic()
    failure: AcqStreamError | None = None
    try:
        run.close()
    except AcqStreamError as error:
        failure = error
    finally:
        is_over.set()
        other.join()
    assert time.monotonic() - began < PATIENCE_S + in_time(4.0)
    assert failure is None or isinstance(failure, DiskFull) or failure.code == "incomplete"
    (daemon.data / "greedy").unlink()
    assert run.receipt is not None
    assert run.receipt.stored == 10
    check_frames(run.path, lambda _: SHAPE, least=10)


def test_an_error_before_the_pause_is_known_ends_the_run_too(daemon: DaemonProcess) -> None:
    run = acqstream.create("cells", endpoint=daemon.endpoint, buffer_mb=64, patience_s=9)
    for number in range(10):
        run.put(image_of(number, SHAPE), time=number)
    until(lambda: run.progress.published == 10, "all published")
    daemon.pause()
    fill(daemon.data, 0)
    for number in range(10, 100):
        run.put(image_of(number, SHAPE), time=number)
    closing = threading.Thread(target=lambda: run.close("error", "an exception"))
    closing.start()
    until(lambda: run._state.ending is not None, "the end was asked for")
    assert not run._state.report.pause_reason
    daemon.go_on()
    closing.join(20)
    assert not closing.is_alive()
    assert run.receipt is not None
    assert run.receipt.status == "error"
    assert run.receipt.stored + sum(gap.count for gap in run.receipt.missing) == 100
    check_frames(run.path, lambda _: SHAPE, least=run.receipt.stored)


def test_an_operator_ends_a_run_that_waits_for_space_to_close(daemon: DaemonProcess) -> None:
    run = open_run(daemon, patience_s=60)
    for number in range(10):
        run.put(image_of(number, SHAPE), time=number)
    until(lambda: run.progress.published == 10, "all published")
    fill(daemon.data, 0)
    for number in range(10, 24):
        run.put(image_of(number, SHAPE), time=number)
    until(lambda: status_of(daemon).state == "PAUSED", "the run is paused")
    errors: list[AcqStreamError] = []

    def close() -> None:
        try:
            run.close()
        except AcqStreamError as error:
            errors.append(error)

    closing = threading.Thread(target=close)
    closing.start()
    receipt = stop_acquisition("cells", daemon.endpoint, timeout_s=HANG_S)
    assert receipt.status == "canceled"
    closing.join(20)
    assert errors
    check_frames(run.path, lambda _: SHAPE, least=receipt.stored)
