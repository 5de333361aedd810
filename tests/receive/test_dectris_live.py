"""A DECTRIS detector's series, recorded by a real daemon."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zmq

import acqstream
from acqstream.receive.receiver import receive_stream
from acqstream.receive.recorder import StreamSettings, StreamTally
from acqstream.simulate import pattern
from tests.live.daemon_process import DaemonProcess, free_port
from tests.receive import dectris_sender as sender


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path_factory.mktemp("dectris") / "data") as process:
        yield process


def image_of(number: int) -> np.ndarray:
    return pattern.frame(number, (20, 30), "uint16")


def record(daemon: DaemonProcess, name: str, messages: list[bytes], frames: int) -> StreamTally:
    stream = f"tcp://127.0.0.1:{free_port()}"
    settings = StreamSettings(
        stream=stream, daemon=daemon.endpoint, name=name, format="dectris", buffer_mb=4, frames=frames, idle_s=0.01
    )
    with zmq.Context() as context, context.socket(zmq.PUSH) as push:
        push.linger = 5000
        push.bind(stream)
        for_sending = threading.Thread(target=lambda: [push.send(message) for message in messages])
        for_sending.start()
        try:
            return receive_stream(settings, threading.Event())
        finally:
            for_sending.join()


def test_two_series_with_a_gap_and_garbage(daemon):
    both = {number: {"t1": image_of(number), "t2": image_of(100 + number)} for number in range(6)}
    messages = [sender.start(1, ["t1", "t2"], 6)]
    messages += [sender.image(1, 0, both[0]), sender.image(1, 1, both[1], "lz4"), b"garbage"]
    messages += [sender.image(1, 3, both[3], "bslz4"), sender.image(1, 3, both[3]), sender.end(1)]
    messages += [sender.start(2, ["t1"], 2), sender.image(2, 0, {"t1": image_of(7)}, "lz4"), sender.end(2)]
    messages += [sender.image(3, 0, {"x": image_of(9)})]
    tally = record(daemon, "series", messages, frames=8 + 2 + 4 + 1)
    assert (tally.frames, tally.lost, tally.refused) == (8, 2 + 4 + 1, 2)
    assert "no_start" in tally.warnings
    first, second, third = tally.receipts
    assert [(receipt.stored, receipt.skipped) for receipt in tally.receipts] == [(6, 6), (1, 1), (1, 0)]
    assert first.missing[0].reason == "stream image 2 did not arrive"
    assert "series 1 ended" in first.reason
    with acqstream.open(first.path) as dataset:
        for number in (0, 1, 3):
            for channel, pixels in both[number].items():
                assert np.array_equal(dataset.read_frame(time=number, channel=channel), pixels)
        assert dataset.read_metadata(time=3, channel="t2")["Stream"]["image_id"] == 3
        stream = dataset.summary_metadata["Stream"]
        assert (stream["series_id"], stream["start"]["series_unique_id"]) == (1, "u1")
    with acqstream.open(second.path) as dataset:
        assert np.array_equal(dataset.read_frame(time=0), image_of(7))
    with acqstream.open(third.path) as dataset:
        assert np.array_equal(dataset.read_frame(time=0), image_of(9))


def test_uint32_is_refused_before_anything_is_written(daemon):
    wide = {"t1": image_of(0).astype("uint32")}
    messages = [sender.start(1, ["t1"], 1, "uint32"), sender.image(1, 0, wide), sender.end(1)]
    messages += [sender.start(2, ["t1"], 1), sender.image(2, 0, {"t1": image_of(0)})]
    tally = record(daemon, "wide", messages, frames=1)
    assert (tally.frames, tally.refused) == (1, 2)
    advice = "uint32 cannot be stored: acqstream stores uint8 and uint16; set the detector's `auto_summation`"
    assert advice in tally.warnings["refused"]
    [receipt] = tally.receipts
    assert Path(receipt.path).name == "wide"
