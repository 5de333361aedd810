"""A follower in another process, while the frames are written."""

from __future__ import annotations

import pytest

import acqstream
from tests.live import programs
from tests.live.daemon_process import DaemonProcess
from tests.live.stored import image_of

FRAMES = 10_000
STEP = 1000


@pytest.mark.slow
def test_ten_thousand_small_frames_whole_in_order_and_none_twice(daemon: DaemonProcess) -> None:
    with acqstream.create("cells", endpoint=daemon.endpoint, buffer_mb=16) as run:
        follower = programs.start(programs.FOLLOWER, run.path, str(STEP))
        try:
            assert programs.line_of(follower) == "ready"
            for number in range(FRAMES):
                run.put(image_of(number, (16, 16)), time=number)
                if number % STEP == STEP - 1:  # the follower has seen these before there are more
                    assert programs.line_of(follower) == str(number + 1)
            run.close()
            assert programs.line_of(follower) == f"end {FRAMES} True"
            assert programs.end(follower) == (0, "")
        finally:
            programs.kill(follower)
