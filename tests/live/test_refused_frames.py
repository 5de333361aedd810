"""One mistake costs one frame: it is refused by number, raised at the next call, and the run goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import acqstream
from acqstream.client.connector import Transport
from acqstream.client.pycromanager.forwarding import forward
from acqstream.client.run import Run
from acqstream.integrity.verify import verify
from tests.live.daemon_process import DaemonProcess
from tests.live.stored import image_of
from tests.waiting import until

SMALL, LARGE = (16, 16), (512, 512)


def refused_numbers(run: Run) -> list[int]:
    assert run.receipt is not None
    return [number for gap in run.receipt.missing for number in range(gap.first, gap.first + gap.count)]


def told_by(call: Callable[..., object], *arguments: object, **options: object) -> list[int]:
    """The numbers of refused frames that a call names; it has done its work nevertheless."""
    try:
        call(*arguments, **options)
    except acqstream.FrameRefused as error:
        return list(error.earlier)
    return []


def check(run: Run, times: list[int], shape: tuple[int, int]) -> None:
    """The frames of these times are stored, each with its pixels; all numbers are accounted for."""
    receipt = run.receipt
    assert receipt is not None
    assert receipt.status == "completed"
    assert not receipt.complete
    assert (receipt.sent, receipt.stored) == (run.next, len(times))
    assert receipt.stored + sum(gap.count for gap in receipt.missing) == receipt.sent
    assert receipt.refused == len(refused_numbers(run))
    with acqstream.open(run.path) as dataset:
        assert [key["time"] for key in list(dataset.keys())] == times
        for time in times:
            assert np.array_equal(dataset.read_frame(time=time), image_of(time, shape)), time
    assert verify(Path(run.path)).problems == []


@pytest.mark.promise("refused-frames")
@pytest.mark.parametrize("transport", ["shm", "ipc", "tcp"])
@pytest.mark.parametrize("shape", [SMALL, LARGE])
def test_a_script_that_goes_on_loses_the_refused_frames_only(
    shared_daemon: DaemonProcess, transport: Transport, shape: tuple[int, int]
) -> None:
    """Duplicates among frames that are on their way: each call that raises has done its work."""
    options: dict[str, Any] = {"endpoint": shared_daemon.endpoint, "transport": transport, "on_exists": "number"}
    told: list[int] = []
    texts: list[str] = []
    run = acqstream.create("refused", **options, buffer_mb=32)
    for call in range(60):
        time = 3 if call % 20 == 7 else call
        try:
            run.put(image_of(time, shape), time=time)
        except acqstream.FrameRefused as error:
            told += error.earlier
            texts.append(f"{error.number} {error.code} {error}")
    told += told_by(run.close)
    assert all("duplicate_axes frame" in text and "stored already" in text for text in texts)
    assert told == [7, 27, 47] == refused_numbers(run)
    check(run, [call for call in range(60) if call % 20 != 7], shape)
    assert run.close() == run.receipt
    warnings = [warning.text for warning in run.warnings if warning.code == "frame_refused"]
    assert [text.partition(" was refused")[0] for text in warnings] == ["frame 7", "frame 27", "frame 47"]


@pytest.mark.promise("refused-frames")
@pytest.mark.parametrize("call", ["put", "skip", "reserve", "close"])
def test_the_next_call_raises_and_has_done_its_work(shared_daemon: DaemonProcess, call: str) -> None:
    run = acqstream.create("told", endpoint=shared_daemon.endpoint, on_exists="number", buffer_mb=16)
    run.put(image_of(0, SMALL), time=0)
    run.put(image_of(0, SMALL), time=0)
    until(lambda: bool(run.warnings), "the frame is refused")
    with pytest.raises(acqstream.FrameRefused, match="this call did its work") as caught:
        if call == "put":
            run.put(image_of(1, SMALL), time=1)
        elif call == "skip":
            run.skip(reason="shutter")
        elif call == "reserve":
            with run.reserve(SMALL, "uint16", time=1) as image:
                image[...] = image_of(1, SMALL)
        else:
            run.close()
    assert (caught.value.number, caught.value.earlier) == (1, (1,))
    run.close()
    assert run.receipt is not None
    is_frame = call in ("put", "reserve")
    assert (run.receipt.sent, run.receipt.stored, run.receipt.skipped) == (
        2 + (call != "close"),
        1 + is_frame,
        call == "skip",
    )


def test_a_with_block_that_ends_tells(shared_daemon: DaemonProcess) -> None:
    with pytest.raises(acqstream.FrameRefused) as caught:
        with acqstream.create("block", endpoint=shared_daemon.endpoint, on_exists="number", buffer_mb=16) as run:
            for time in (0, 1, 1):
                run.put(image_of(time, SMALL), time=time)
    assert caught.value.number == 2
    check(run, [0, 1], SMALL)


def test_a_script_that_names_no_axes_is_told_and_bounded(shared_daemon: DaemonProcess) -> None:
    """for image in camera: run.put(image)"""
    run = acqstream.create("noaxes", endpoint=shared_daemon.endpoint, on_exists="number", buffer_mb=16)
    told = [number for _ in range(3000) for number in told_by(run.put, image_of(0, SMALL))] + told_by(run.close)
    receipt = run.receipt
    assert receipt is not None
    assert (len(told), receipt.refused, receipt.stored, receipt.sent) == (2999, 2999, 1, 3000)
    assert sum(gap.count for gap in receipt.missing) == 2999
    assert len(receipt.missing) <= 101
    assert len([one for one in run.warnings if one.code == "frame_refused"]) == 100
    assert verify(Path(run.path)).problems == []


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_refused_large_frames_do_not_close_the_window(shared_daemon: DaemonProcess, transport: Transport) -> None:
    """Their bytes count at both sides: far more of them than the window has."""
    shape = (1024, 1024)
    options: dict[str, Any] = {"endpoint": shared_daemon.endpoint, "transport": transport, "on_exists": "number"}
    run = acqstream.create("window", **options, buffer_mb=64)
    told: list[int] = []
    for number in range(400):
        told += told_by(run.put, image_of(0, shape), time=number if number % 100 == 0 else 0)
    told += told_by(run.close)
    assert run.receipt is not None
    assert (run.receipt.stored, run.receipt.refused, len(told)) == (4, 396, 396)


def test_a_mirror_leaves_the_refused_frame_out(shared_daemon: DaemonProcess) -> None:
    options: dict[str, Any] = {"endpoint": shared_daemon.endpoint, "on_exists": "number", "buffer_mb": 16}
    with pytest.raises(acqstream.FrameRefused):
        with acqstream.create("mirrored", **options, mirrors=["ome-zarr"]) as run:
            for time in (0, 1, 1, 2):
                run.put(image_of(time, LARGE), time=time)
    assert [mirror.state for mirror in run.wait_for_mirrors()] == ["complete"]
    with acqstream.open(f"{run.path}.ome.zarr") as mirror:
        assert np.array_equal(mirror.levels[0].read(...), [image_of(time, LARGE) for time in range(3)])


def test_after_a_kill_refused_numbers_are_refused_again_and_told_once(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data") as daemon:
        run = acqstream.create("killed", endpoint=daemon.endpoint, buffer_mb=16, patience_s=30)
        told: list[int] = []
        for call in range(40):
            if call == 20:
                daemon.kill()
                daemon.start()
            told += told_by(run.put, image_of(call, SMALL), time=call - call % 2)
        told += told_by(run.close)
        assert sorted(told) == list(range(1, 40, 2)) == sorted(set(told)) == refused_numbers(run)
        check(run, list(range(0, 40, 2)), SMALL)


def test_a_hook_goes_on_with_a_warning(shared_daemon: DaemonProcess) -> None:
    run = acqstream.create("hook", endpoint=shared_daemon.endpoint, on_exists="number", buffer_mb=16)
    process = forward(run)
    for time in (0, 1, 1, 2):
        process(image_of(time, SMALL), {"Axes": {"time": time}}, None)
        until(lambda: run.progress.received == run.next, "it has come")
    run.close()
    assert [warning.code for warning in run.warnings] == ["frame_refused"]
    check(run, [0, 1, 2], SMALL)
