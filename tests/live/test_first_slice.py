"""The whole way once: a producer, a daemon in its own process, a dataset, two readers."""

from __future__ import annotations

import contextlib
import io
from typing import Literal

import ndstorage
import numpy as np
import pytest

import acqstream
from acqstream.simulate import pattern
from tests.live.daemon_process import DaemonProcess


@pytest.mark.promise("frames-accounted")
@pytest.mark.parametrize("transport", ["tcp", "ipc", "shm"])
def test_frames_sent_over_a_socket_are_what_other_readers_find(
    daemon: DaemonProcess, transport: Literal["tcp", "ipc", "shm"]
) -> None:
    endpoint = daemon.endpoint if transport != "ipc" else daemon.ipc
    with acqstream.create("cells", endpoint=endpoint, summary={"PixelSizeUm": 0.5}, transport=transport) as run:
        for number in range(20):
            image = pattern.frame(number, (300, 400), "uint16")
            run.put(image, time=number // 2, channel=("DAPI", "GFP")[number % 2], meta={"number": number})
    assert (run.transport, bool(run.transport_why)) == (transport, transport != "shm")
    assert run.receipt is not None
    assert run.receipt.complete
    assert (run.receipt.sent, run.receipt.stored, run.receipt.without_checksum) == (20, 20, 0)

    with contextlib.redirect_stdout(io.StringIO()):
        oracle = ndstorage.Dataset(run.path)
    with acqstream.open(run.path) as dataset:
        assert dataset.complete
        assert len(list(dataset.keys())) == 20
        for number in range(20):
            axes = {"time": number // 2, "channel": ("DAPI", "GFP")[number % 2]}
            expected = pattern.frame(number, (300, 400), "uint16")
            assert np.array_equal(dataset.read_frame(axes), expected)
            assert dataset.read_metadata(axes) == {"number": number, "Axes": axes}
            assert np.array_equal(oracle.read_image(**axes), expected)
    oracle.close()
