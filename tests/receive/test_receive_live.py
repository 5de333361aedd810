"""Streams of other programs, recorded by a real daemon."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import acqstream
from acqstream.errors import AcquisitionRefused, ConfigError, DaemonUnavailable
from acqstream.receive.receiver import receive_stream
from acqstream.receive.recorder import StreamSettings, StreamTally
from acqstream.simulate import pattern
from acqstream.storage.platform.capabilities import has_terminate_signal
from tests.command import command
from tests.live.daemon_process import DaemonProcess, free_port
from tests.receive.stream_senders import StreamSender
from tests.waiting import until

_NAMES = (f"stream{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path_factory.mktemp("receive") / "data") as process:
        yield process


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as one:
        yield one


class Recording:
    """A receiver in its own thread, and the sender for it."""

    def __init__(self, daemon: DaemonProcess, pool: ThreadPoolExecutor, **options: Any) -> None:
        values: dict[str, Any] = {"pattern": "pull", "bind": True, "buffer_mb": 4, "name": next(_NAMES)} | options
        self.settings = StreamSettings(stream=f"tcp://127.0.0.1:{free_port()}", daemon=daemon.endpoint, **values)
        self.stop = threading.Event()
        self.closed = threading.Event()
        self.sender = StreamSender(self.settings.stream, pattern=self.settings.pattern, bind=not self.settings.bind)
        self.result: Future[StreamTally] = pool.submit(
            receive_stream, self.settings, self.stop, lambda _: self.closed.set()
        )

    def __enter__(self) -> StreamSender:
        self.sender.wait_for_receiver()
        return self.sender

    def __exit__(self, kind: object, value: object, trace: object) -> None:
        if kind is not None:
            self.stop.set()
        self.sender.__exit__(None, None, None)

    @property
    def tally(self) -> StreamTally:
        try:
            return self.result.result(50)
        finally:
            self.stop.set()


def image_of(number: int, shape: tuple[int, ...] = (20, 30), dtype: str = "uint16") -> np.ndarray:
    return pattern.frame(number, shape, dtype)


def stored(path: str) -> dict[Any, np.ndarray]:
    """Frames by `time`."""
    with acqstream.open(path) as dataset:
        return {key["time"]: dataset.read_frame(key) for key in dataset.keys()}  # noqa: SIM118 - no mapping


def assert_equal(path: str, expected: dict[int, np.ndarray]) -> None:
    found = stored(path)
    assert list(found) == list(expected)
    for time, image in expected.items():
        assert np.array_equal(found[time], image), time


@pytest.mark.parametrize("pattern_name", ["pull", "sub"])
@pytest.mark.parametrize("bind", [True, False])
def test_an_area_detector_is_recorded(daemon, pool, pattern_name, bind):
    recording = Recording(daemon, pool, pattern=pattern_name, bind=bind, frames=10)
    with recording as sender:
        for number in range(10):
            sender.area_detector(image_of(number), 500 + number)
    tally = recording.tally
    assert (tally.frames, tally.lost, tally.refused, tally.broken_headers) == (10, 0, 0, 0)
    [receipt] = tally.receipts
    assert receipt.complete
    assert receipt.reason.startswith("unacknowledged_stream: ")
    assert "unacknowledged_stream" in tally.warnings
    assert_equal(receipt.path, {number: image_of(number) for number in range(10)})
    with acqstream.open(receipt.path) as dataset:
        assert dataset.read_metadata(time=3)["Stream"] == {
            "timeStamp": 1e9 + 503,
            "ndattr": {"Gain": 1.5, "Note": ""},
            "frame": 503,
        }
        assert dataset.summary_metadata["Stream"]["acknowledged"] is False


def test_a_live_view_of_odin(daemon, pool):
    """Of one dataset: another one, which has counters of its own, and compressed pixels are refused with the reason."""
    recording = Recording(daemon, pool, pattern="sub", bind=False, frames=5)
    with recording as sender:
        sender.odin(image_of(0), 7)
        sender.odin(image_of(9), 8, dataset="data2", compression="LZ4")
        sender.odin(image_of(1), 8)
        sender.odin(image_of(2), 9, compression="BSLZ4")
        sender.odin(image_of(4), 11)
    tally = recording.tally
    assert (tally.frames, tally.lost, tally.refused) == (3, 1, 2)
    assert "dataset_name of Odin's LiveViewPlugin" in tally.warnings["refused"]
    [receipt] = tally.receipts
    assert_equal(receipt.path, {0: image_of(0), 1: image_of(1), 4: image_of(4)})
    with acqstream.open(receipt.path) as dataset:
        stream = {"acquisition_id": "test_3", "dataset": "data", "tags": [], "frame": 11}
        assert dataset.read_metadata(time=4)["Stream"] == stream


def test_a_psi_sender_with_gaps_and_refused_frames(daemon, pool):
    recording = Recording(daemon, pool, frames=12)  # lost and refused ones count
    with recording as sender:
        for number in (10, 11, 14):
            sender.psi(image_of(number), number)
        sender.psi(image_of(15), 15, encoding="bslz4")
        sender.socket.send_multipart([b"{}"])
        sender.socket.send_multipart([b"nonsense", b"pixels"])
        sender.psi(image_of(16, (5, 5)).astype("float32"), 16)
        sender.psi(image_of(17, (5, 5)), 17, shape=[5, 6])
        for number in (19, 20, 21):
            sender.psi(image_of(number), number)
    tally = recording.tally
    assert (tally.frames, tally.lost, tally.refused) == (6, 3, 5)
    assert not tally.complete
    [receipt] = tally.receipts
    assert (receipt.stored, receipt.skipped) == (6, 6)
    assert receipt.complete  # every missing frame is declared
    reasons = {gap.first: gap.reason for gap in receipt.missing}
    assert reasons[2] == "stream frame 12 to 13 did not arrive"
    assert "encoding 'bslz4'" in "".join(reasons.values())
    numbers = (10, 11, 14, 19, 20, 21)
    assert_equal(receipt.path, {number - 10: image_of(number) for number in numbers})


def test_big_endian_rgb_and_8_bit(daemon, pool):
    shapes = {0: ((6, 7, 3), "uint8"), 1: ((6, 7), "uint8"), 2: ((6, 7), "uint16")}
    recording = Recording(daemon, pool, frames=3)
    with recording as sender:
        for number, (shape, dtype) in shapes.items():
            sender.psi(image_of(number, shape, dtype), number)
    for receipt, (number, (shape, dtype)) in zip(recording.tally.receipts, shapes.items(), strict=True):
        assert_equal(receipt.path, {0: image_of(number, shape, dtype)})


def test_a_reset_counter_and_a_new_shape_begin_new_datasets(daemon, pool):
    recording = Recording(daemon, pool, frames=7)
    with recording as sender:
        for frame in (5, 6, 0, 1, 1):  # the second 1 is a repeat: the next number goes on
            sender.area_detector(image_of(frame), frame)
        sender.area_detector(image_of(3, (8, 9)), 3)
        sender.area_detector(image_of(4, (8, 9)), 4)
    tally = recording.tally
    name = recording.settings.name
    assert [Path(receipt.path).name for receipt in tally.receipts] == [
        name,
        *(f"{name}_{n}" for n in (1, 2)),
    ]
    assert [receipt.stored for receipt in tally.receipts] == [2, 2, 2]
    assert [receipt.skipped for receipt in tally.receipts] == [0, 1, 0]  # frame 2, before the shape changed
    assert "counter restarted" in tally.receipts[0].reason
    assert "shape" in tally.receipts[1].reason
    assert (tally.repeated, "repeated_frame" in tally.warnings) == (1, True)
    assert_equal(tally.receipts[2].path, {0: image_of(3, (8, 9)), 1: image_of(4, (8, 9))})


def test_silence_ends_a_dataset_and_the_next_frame_begins_another(daemon, pool):
    recording = Recording(daemon, pool, idle_s=0.1, frames=5)
    with recording as sender:
        sender.area_detector(image_of(0), 0)
        assert recording.closed.wait(20)
        sender.area_detector(image_of(3), 3)
        sender.area_detector(image_of(4), 4)
    tally = recording.tally
    assert [receipt.stored for receipt in tally.receipts][:1] == [1]
    assert sum(receipt.stored for receipt in tally.receipts) == 3
    assert "no message for 0.1 s" in tally.receipts[0].reason
    assert tally.lost == 2
    with acqstream.open(tally.receipts[1].path) as dataset:
        assert dataset.summary_metadata["Stream"]["lost_before"] == 2


def test_broken_headers_are_survived_and_counted(daemon, pool):
    recording = Recording(daemon, pool, frames=3)
    with recording as sender:
        sender.area_detector(image_of(0), 0)
        sender.area_detector(image_of(1), 1, note='a "word" in quotes')
        sender.area_detector(image_of(2), 2, note="\ud7ff\\ue000 \\ud800 lone")
    tally = recording.tally
    assert (tally.frames, tally.broken_headers, tally.refused) == (3, 2, 0)
    assert "broken_header" in tally.warnings
    [receipt] = tally.receipts
    assert_equal(receipt.path, {number: image_of(number) for number in range(3)})
    with acqstream.open(receipt.path) as dataset:
        assert 'a "word"' in dataset.read_metadata(time=1)["Stream"]["header_text"]


def test_the_numpy_recipe_is_recorded_and_says_what_it_cannot(daemon, pool):
    recording = Recording(daemon, pool, frames=5)
    with recording as sender:
        sender.recipe(image_of(0))
        sender.recipe(image_of(1).astype(">u2"))
        sender.recipe(image_of(2).astype("int32"))
        sender.recipe(image_of(3))
        sender.psi(image_of(4), 7, big=2**70)
    tally = recording.tally
    assert "no_counter" in tally.warnings
    assert (tally.frames, tally.refused) == (4, 1)
    assert_equal(tally.receipts[0].path, {number: image_of(number) for number in (0, 1, 3, 4)})


def test_an_error_of_the_daemon_ends_the_recording(daemon, pool):
    refused = Recording(daemon, pool, name="not//a name")
    with refused as sender:
        sender.area_detector(image_of(0), 0)
    with pytest.raises(AcquisitionRefused):
        assert refused.tally


def test_no_daemon(pool):
    settings = StreamSettings(
        stream=f"tcp://127.0.0.1:{free_port()}",
        bind=True,
        name="x",
        daemon=f"tcp://127.0.0.1:{free_port()}",
        patience_s=0.2,
        buffer_mb=1,
    )
    result = pool.submit(receive_stream, settings, threading.Event())
    with StreamSender(settings.stream, pattern="pull", bind=False) as sender:
        sender.recipe(image_of(0))
        with pytest.raises(DaemonUnavailable):
            result.result(30)


@pytest.mark.parametrize("options", [{"stream": "nonsense"}, {"stream": "nothing://here"}])
def test_an_endpoint_that_cannot_be_used(options):
    with pytest.raises(ConfigError, match="stream"):
        receive_stream(StreamSettings(**options, name="x", daemon="tcp://127.0.0.1:1"), threading.Event())


@pytest.mark.parametrize("options", [{"pattern": "rep"}, {"idle_s": 0}, {"queue": 0}])
def test_settings_are_checked(options):
    with pytest.raises(ConfigError):
        StreamSettings(**{"stream": "tcp://127.0.0.1:1", "name": "x", "daemon": "tcp://127.0.0.1:1", **options})


def test_the_verb_prints_a_line_for_each_dataset(daemon, capsys):
    stream = f"tcp://127.0.0.1:{free_port()}"
    with StreamSender(stream, pattern="pull", bind=False) as sender:
        for frame in (0, 1, 0):
            sender.area_detector(image_of(frame), frame)
        to = ("--name", "text", "--endpoint", daemon.endpoint)
        assert command("receive", "--bind", "--stream", stream, *to, "--frames", "3") == 0
    first, second, total = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{daemon.data / 'text'}: completed: 2 frames stored, 0 missing")
    assert second.startswith(f"{daemon.data / 'text_1'}: completed: 1 frame stored")
    assert total == "3 frames in 2 datasets; 0 lost, 0 refused, 0 broken headers"


@pytest.mark.slow
@pytest.mark.skipif(not has_terminate_signal(), reason="such signals kill a process of Windows")
def test_the_verb_ends_in_order_at_sigterm(daemon):
    stream = f"tcp://127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "acqstream", "receive", "--stream", stream, "--bind", "--name", "verb", "--json"]
    command += ["--endpoint", daemon.endpoint, "--idle", "0.3"]
    with StreamSender(stream, pattern="pull", bind=False) as sender:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        sender.area_detector(image_of(0), 0)
        sender.area_detector(image_of(2), 2)
        path = daemon.data / "verb"
        until((path / "receipt.json").exists, "the dataset ends by silence")
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    document = json.loads(out)
    assert process.returncode == 3, err  # a frame was lost
    assert (document["frames"], document["lost"]) == (2, 1)
    assert "unacknowledged_stream" in err
    assert document["receipts"][0]["path"] == str(path)
