"""The function for the image hook."""

from __future__ import annotations

import inspect
import queue
import subprocess
import sys
import types

import numpy as np
import pytest

import acqstream
from acqstream.client.pycromanager import forward, forwarding

IMAGE = np.arange(6, dtype="u2").reshape(2, 3)
METADATA = {"Axes": {"time": 3, "channel": "DAPI"}, "Camera": "Camera"}


class Taker:
    """Stands for a run that has stored frames with these axes before."""

    name = "cells"

    def __init__(self, error=None, stored=()):
        self.error = error
        self.stored = stored
        self.frames = []
        self.refused = types.SimpleNamespace(is_raised=True)

    def put(self, image, axes, *, meta, bits, time_ns):
        if self.error is not None:
            raise self.error
        self.frames.append((image.tolist(), axes, meta["Camera"]))


def test_a_diverted_frame_is_kept_from_pycromanager():
    run = Taker()
    assert forward(run)(IMAGE, dict(METADATA), None) is None
    assert run.frames == [([[0, 1, 2], [3, 4, 5]], METADATA["Axes"], "Camera")]


def test_a_frame_kept_locally_goes_on_as_it_came():
    run, metadata = Taker(), dict(METADATA)
    image, passed_on = forward(run, keep_local=True)(IMAGE, metadata, None)
    assert image is IMAGE
    assert passed_on is metadata
    assert metadata == METADATA
    assert len(run.frames) == 1


def test_frames_that_are_stored_are_dropped_and_said_once(caplog):
    run = Taker(stored=[METADATA["Axes"]])
    take = forward(run, keep_local=True)
    for time in (3, 3, 4):
        metadata = {**METADATA, "Axes": {**METADATA["Axes"], "time": time}}
        assert take(IMAGE, metadata, None)[1] is metadata
    assert [axes["time"] for _, axes, _ in run.frames] == [4]
    assert len(caplog.records) == 1


def test_an_error_is_raised_and_the_queue_of_events_ends_after_the_abort(monkeypatch):
    monkeypatch.setattr(forwarding, "ABORT_S", 0.01)
    events = queue.Queue()
    error = acqstream.DiskFull(OSError(28, "No space left on device"), "cells", "write")
    with pytest.raises(acqstream.DiskFull):
        forward(Taker(error))(IMAGE, METADATA, events)
    assert events.get(timeout=50) is None


def test_pycromanager_sees_three_parameters():
    assert len(inspect.signature(forward(Taker())).parameters) == 3


MISSING = """
import sys
sys.modules["pycromanager"] = None
import acqstream.client.pycromanager
print(acqstream.client.pycromanager.forward)
try:
    acqstream.client.pycromanager.Acquisition
except ImportError as error:
    print(error)
"""


def test_the_extra_is_named_where_it_is_missing():
    output = subprocess.run([sys.executable, "-c", MISSING], capture_output=True, text=True, check=True).stdout
    assert "[pycromanager]" in output
