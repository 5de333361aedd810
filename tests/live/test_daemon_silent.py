"""The daemon is stopped for a while (SIGSTOP): connected, but without a word."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import acqstream
from acqstream.client.connector import Transport
from acqstream.errors import AcqStreamError, DaemonUnavailable
from tests.live.daemon_process import DaemonProcess
from tests.live.stored import check_frames, image_of
from tests.waiting import in_time

pytestmark = pytest.mark.slow

SHAPE = (256, 256)
SILENCE_S = 3.0
PATIENCE_S = 2.0


@pytest.mark.parametrize(("transport", "shape"), [("shm", (400, 401)), ("tcp", SHAPE)])
def test_silence_shorter_than_the_patience_costs_nothing(
    daemon: DaemonProcess, transport: Transport, shape: tuple[int, int]
) -> None:
    errors: list[AcqStreamError] = []
    options: dict[str, Any] = {"transport": transport, "patience_s": 10, "on_error": errors.append}
    with acqstream.create("cells", endpoint=daemon.endpoint, buffer_mb=8, **options) as run:
        for number in range(300):
            if number == 100:
                daemon.pause()
                threading.Timer(SILENCE_S, daemon.go_on).start()
            run.put(image_of(number, shape), time=number)
    assert errors == []
    assert run.transport == transport
    assert run.receipt is not None
    assert run.receipt.complete
    assert check_frames(run.path, lambda _: shape) == 300


@pytest.mark.promise("nothing-hangs")
def test_silence_longer_than_the_patience_is_an_error_in_time(daemon: DaemonProcess) -> None:
    errors: list[AcqStreamError] = []
    told = threading.Event()

    def on_error(error: AcqStreamError) -> None:
        errors.append(error)
        told.set()

    run = acqstream.create("cells", endpoint=daemon.endpoint, patience_s=PATIENCE_S, buffer_mb=8, on_error=on_error)
    try:
        for number in range(50):
            run.put(image_of(number, SHAPE), time=number)
        daemon.pause()
        began_s = time.monotonic()
        with pytest.raises(DaemonUnavailable) as info:
            while True:
                number += 1
                run.put(image_of(number, SHAPE), time=number)
        assert time.monotonic() - began_s < PATIENCE_S + in_time(1.0)
        assert told.wait(in_time(1.0))
        assert errors == [info.value]
        with pytest.raises(DaemonUnavailable):
            run.put(image_of(0, SHAPE), time=-1)  # for ever after
        began_s = time.monotonic()
        with pytest.raises(DaemonUnavailable):
            run.close()
        assert time.monotonic() - began_s < in_time(1.0)
    finally:
        daemon.go_on()
    assert daemon.stop() == 0
    assert check_frames(run.path, lambda _: SHAPE, least=run.progress.published) <= number


def test_the_error_comes_without_another_put(daemon: DaemonProcess) -> None:
    told = threading.Event()
    run = acqstream.create(
        "cells", endpoint=daemon.endpoint, patience_s=PATIENCE_S, buffer_mb=8, on_error=lambda _: told.set()
    )
    run.put(image_of(0, SHAPE), time=0)
    daemon.pause()
    try:
        assert told.wait(PATIENCE_S + in_time(1.0))
        with pytest.raises(DaemonUnavailable):
            run.close()
    finally:
        daemon.go_on()
