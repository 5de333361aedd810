"""A follower in another process while frames are written; the daemon and the producer are processes of their own."""

from __future__ import annotations

import pytest

import acqstream
from tests.live import programs
from tests.live.daemon_process import DaemonProcess
from tests.live.stored import image_of


def follow_while_recording(daemon: DaemonProcess, frames: int, step: int) -> None:
    """Record `frames` frames; the follower compares each, and reports every `step` of them before more are sent."""
    with acqstream.create("cells", endpoint=daemon.endpoint, buffer_mb=16) as run:
        follower = programs.start(programs.FOLLOWER, run.path, str(step))
        try:
            assert programs.line_of(follower) == "ready"
            for number in range(frames):
                run.put(image_of(number, (16, 16)), time=number)
                if number % step == step - 1:  # the follower has seen these before there are more
                    assert programs.line_of(follower) == str(number + 1)
            run.close()
            assert programs.line_of(follower) == f"end {frames} True"
            assert programs.end(follower) == (0, "")
        finally:
            programs.kill(follower)


def test_frames_arrive_intact_in_order_and_none_twice(daemon: DaemonProcess) -> None:
    follow_while_recording(daemon, frames=200, step=50)


@pytest.mark.slow
def test_ten_thousand_small_frames_whole_in_order_and_none_twice(daemon: DaemonProcess) -> None:
    follow_while_recording(daemon, frames=10_000, step=1000)
