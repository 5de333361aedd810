"""Small frames that follow soon wait for one another, and share a message."""

from __future__ import annotations

import numpy as np
import pytest

from acqstream.client import connection
from acqstream.client.outbox import BATCH_BYTES
from acqstream.client.producer import create
from acqstream.protocol.frame_batch import FrameBatch


@pytest.fixture(autouse=True)
def waits_long(monkeypatch):
    monkeypatch.setattr(connection, "_LINGER_S", 3600.0)


def start(daemon, **arguments):
    return create("cells", **{"endpoint": daemon.endpoint, "buffer_mb": 1, "patience_s": 5.0, **arguments})


def test_small_frames_that_follow_soon_share_a_message(daemon):
    image = np.zeros((4, 8), "u2")  # places are 64 bytes apart: these lie back to back
    with start(daemon) as run:
        run.put(image, time=0)
        daemon.wait_for(lambda: daemon.next == 1)  # the first one waits for nobody
        for time in range(1, 6):
            run.put(image, time=time)
    together = [request.count for request in daemon.requests if isinstance(request, FrameBatch)]
    assert (daemon.next, together) == (6, [5])


def test_what_fills_a_message_waits_no_longer(daemon):
    image = np.zeros((256, 256), "u2")
    with start(daemon, buffer_mb=8) as run:
        run.put(image, time=0)
        daemon.wait_for(lambda: daemon.next == 1)
        for time in range(1, 1 + BATCH_BYTES // image.nbytes):
            run.put(image, time=time)
        daemon.wait_for(lambda: daemon.next == 1 + BATCH_BYTES // image.nbytes)


def test_a_patch_does_not_wait_for_frames(daemon):
    with start(daemon) as run:
        run.put(np.zeros((2, 3), "u2"), time=0)
        daemon.wait_for(lambda: daemon.next == 1)
        run.put(np.zeros((2, 3), "u2"), time=1)
        run.patch(display={"a": 1})
        daemon.wait_for(lambda: daemon.next == 2 and bool(daemon.patches))


def test_words_of_frames_in_one_message_fit_its_header(daemon):
    image = np.zeros((4, 8), "u2")
    with start(daemon) as run:
        run.put(image, time=0)
        daemon.wait_for(lambda: daemon.next == 1)
        for time in range(1, 201):
            run.put(image, time=time, meta={"text": "x" * 8000})
    assert daemon.next == 201
    assert daemon.frames[200][0].header.axes == {"time": 200}
    assert len([request for request in daemon.requests if isinstance(request, FrameBatch)]) == 2


def test_no_message_is_larger_than_the_daemon_takes(daemon):
    daemon.behavior.max_payload = 2**20
    image = np.zeros((256, 256), "u2")
    with start(daemon, buffer_mb=8) as run:
        run.put(image, time=0)
        daemon.wait_for(lambda: daemon.next == 1)
        for time in range(1, 16):
            run.put(image, time=time)
    assert max(request.payload_bytes for request in daemon.requests if isinstance(request, FrameBatch)) == 2**20
    assert daemon.next == 16


def test_a_frame_that_shares_no_message_does_not_wait(daemon):
    image = np.zeros((512, 512), "u2")
    with start(daemon, buffer_mb=8) as run:
        run.put(image, time=0)
        daemon.wait_for(lambda: daemon.next == 1)
        run.put(image, time=1)
        daemon.wait_for(lambda: daemon.next == 2)
