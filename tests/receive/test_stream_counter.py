"""What lies between two values of a sender's counter."""

from __future__ import annotations

import pytest

from acqstream.receive.frame_order import MAX_LOST, StreamCounter


@pytest.mark.parametrize(
    ("last", "frame", "lost"),
    [
        (None, 500, 0),
        (4, 5, 0),
        (4, 8, 3),
        (4, 4, None),
        (4, 0, None),
        (4, None, 0),
        (4, 5 + MAX_LOST, MAX_LOST),
        (4, 6 + MAX_LOST, None),
    ],
)
def test_lost_frames_and_new_beginnings(last, frame, lost):
    counter = StreamCounter()
    counter.advance(last)
    assert counter.lost_before(frame) == lost
