"""A second daemon on the same folder through another mount is refused, and a run does not write after foreign bytes."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import acqstream
from tests.live.daemon_process import DaemonProcess
from tests.live.mounts import mounted
from tests.live.stored import check_frames, image_of, state_of
from tests.waiting import until

SHAPE = (64, 64)
LOCKED = 75


@pytest.fixture(params=[("bindfs", False), ("bindfs", True), ("overlay", False), ("overlay", True)], ids=str)
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Path]]:
    """The data directory by two paths; the first daemon takes the first."""
    kind, is_swapped = request.param
    with mounted(kind, tmp_path / "s", tmp_path / "m") as mount:
        both = [tmp_path / "s" / "data", mount / "data"]
        (mount / "data").mkdir()
        yield both[::-1] if is_swapped else both


@pytest.mark.promise("one-writer")
def test_the_second_daemon_is_refused_and_the_run_is_whole(places: list[Path], tmp_path: Path) -> None:
    with DaemonProcess(places[0], home=tmp_path) as first:
        second = DaemonProcess(places[1], home=tmp_path)
        with acqstream.create("cells", endpoint=first.endpoint) as run:
            for number in range(200):
                run.put(image_of(number, SHAPE), time=number)
                if number == 50:
                    second.launch()
                if number == 100:
                    assert second.wait() == LOCKED
        assert f"pid {first.pid} " in second.output()
        assert run.receipt is not None
        assert (run.receipt.status, run.receipt.stored) == ("completed", 200)
        assert check_frames(places[0] / "cells", lambda _: SHAPE) == 200


@pytest.mark.promise("one-writer")
@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no process can be stopped")
def test_a_stopped_daemon_keeps_its_folder_and_a_killed_one_gives_it_back_at_once(
    places: list[Path], tmp_path: Path
) -> None:
    first, second = (DaemonProcess(place, home=tmp_path) for place in places)
    first.start()
    run = acqstream.create("cells", endpoint=first.endpoint, patience_s=1)
    run.put(image_of(0, SHAPE), time=0)
    until(lambda: run.progress.published == 1, "the frame")
    first.pause()
    second.launch()
    assert second.wait() == LOCKED
    first.kill()
    with second:
        assert state_of(places[1] / "cells")["state"] == "INTERRUPTED"
        assert "still grow" not in second.output()
    with pytest.raises(acqstream.AcqStreamError):
        run.close()
