"""Ctrl-C in the middle of `create`, `put`, `skip` and `close`."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from acqstream.client.producer import create
from acqstream.errors import AcquisitionFailed
from tests.waiting import WAIT_S

GRAY = np.arange(6, dtype="<u2").reshape(2, 3)


def start(daemon):
    return create("cells", endpoint=daemon.endpoint, buffer_mb=1, patience_s=1.0)


def test_a_create_interrupted_when_it_was_opened_leaves_no_run_that_nobody_has(daemon, monkeypatch):
    def interrupt(_run):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("acqstream.client.run._enter", interrupt)
        start(daemon)
    for thread in [one for one in threading.enumerate() if one.name == "acqstream-run-cells"]:
        thread.join(WAIT_S)
        assert not thread.is_alive()


@pytest.mark.parametrize("step", ["frame", "skip"])
def test_a_put_that_was_interrupted_half_way_ends_the_run(daemon, monkeypatch, step):
    run = start(daemon)
    run.put(GRAY, time=0)
    daemon.wait_for(lambda: daemon.next == 1)
    outbox = run._state.outbox

    def interrupted(*_arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        if step == "frame":
            patch.setattr(outbox.ring, "take", interrupted)  # numbers are counted already
            run.put(GRAY, time=1)
        patch.setattr(outbox, "_skip", interrupted)
        run.skip(1, reason="test")
    for action in (lambda: run.put(GRAY, time=2), run.close):
        with pytest.raises(AcquisitionFailed, match="interrupted in the middle of a put"):
            action()
    assert list(daemon.frames) == [0]


def test_an_interrupted_close_goes_on_and_can_be_repeated(daemon, monkeypatch):
    run = start(daemon)
    for number in range(3):
        run.put(GRAY, time=number)

    def interrupt(_status):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(run._buffer, "wait_for_end", interrupt)
        run.close()
    with pytest.raises(AcquisitionFailed, match="is closed"):
        run.put(GRAY, time=3)
    assert run.close().status == "completed"
    assert list(daemon.frames) == [0, 1, 2]
