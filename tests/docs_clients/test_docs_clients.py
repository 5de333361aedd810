"""The senders of docs/clients complete runs with a real daemon, and fail aloud."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import zmq

import acqstream
from tests.docs_clients.built_senders import SOURCES, ToolMissing, c_sender, java_sender
from tests.live.daemon_process import DaemonProcess, free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout_s(400)]  # the first one may fetch a library

LINES = 150  # fewer than this, so that it stays an example
FRAMES, SHAPE = 40, (300, 501)
BUILDERS: dict[str, Callable[[Path], list[str]]] = {"c": c_sender, "java": java_sender}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path_factory.mktemp("clients") / "data") as process:
        yield process


@pytest.fixture(scope="module", params=BUILDERS)
def sender(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    try:
        return BUILDERS[request.param](tmp_path_factory.mktemp(request.param))
    except ToolMissing as error:
        pytest.skip(str(error))


def run(command: list[str], endpoint: str, name: str, frames: int) -> subprocess.CompletedProcess[str]:
    arguments = [endpoint, name, str(frames), str(SHAPE[0]), str(SHAPE[1])]
    return subprocess.run([*command, *arguments], capture_output=True, encoding="utf-8", timeout=90, check=False)


def image_of(number: int) -> np.ndarray:
    size = SHAPE[0] * SHAPE[1]
    return ((number * 1000 + np.arange(size)) % 65536).astype("<u2").reshape(SHAPE)


def test_a_run_is_stored_byte_for_byte(daemon, sender):
    name = Path(sender[0]).name
    done = run(sender, daemon.endpoint, name, FRAMES)
    assert done.returncode == 0, done.stderr
    receipt = json.loads(done.stdout)["receipt"]
    assert (receipt["status"], receipt["sent"], receipt["stored"], receipt["missing"]) == (
        "completed",
        FRAMES,
        FRAMES,
        [],
    )
    with acqstream.open(receipt["path"]) as dataset:
        assert [key["time"] for key in dataset.keys()] == list(range(FRAMES))  # noqa: SIM118 - no mapping
        for number in range(FRAMES):
            assert np.array_equal(dataset.read_frame(time=number), image_of(number)), number

    again = run(sender, daemon.endpoint, name, 1)
    assert again.returncode != 0
    assert "name_taken" in again.stderr


class StingyDaemon:
    """Opens one acquisition and grants a window by hand."""

    def __init__(self, context: zmq.Context) -> None:
        self._socket = context.socket(zmq.ROUTER)
        self._socket.linger = 1000
        self.endpoint = f"tcp://127.0.0.1:{self._socket.bind_to_random_port('tcp://127.0.0.1')}"
        self._peer = b""
        self.ds = ""

    def hear(self, kind: str) -> dict:
        assert self._socket.poll(20_000), f"no {kind}"
        self._peer, header, *_ = self._socket.recv_multipart()
        fields: dict = json.loads(header)
        assert fields["t"] == kind
        self.ds = fields.get("ds", "")
        return fields

    def say(self, kind: str, **fields: object) -> None:
        text = json.dumps({"t": kind, "ds": self.ds, **fields}, separators=(",", ":"))
        self._socket.send_multipart([self._peer, text.encode()])

    def stays_silent(self) -> bool:
        return not self._socket.poll(150)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def stingy() -> Iterator[StingyDaemon]:
    with zmq.Context() as context:
        fake = StingyDaemon(context)
        yield fake
        fake.close()


@pytest.mark.parametrize("stored", [5, 4])
def test_the_window_is_respected_and_the_receipt_is_read(stingy, sender, stored):
    size = image_of(0).nbytes
    arguments = [stingy.endpoint, "x", "5", str(SHAPE[0]), str(SHAPE[1])]
    with subprocess.Popen([*sender, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        stingy.hear("hello")
        stingy.say("welcome", v=1)
        stingy.hear("open")
        stingy.say("opened", next=0, limit={"n": 2, "bytes": 100 * size})
        assert [stingy.hear("frame")["n"] for _ in range(2)] == [0, 1]
        assert stingy.stays_silent()  # the number counts
        stingy.say("status", published=0)
        stingy.say("ack", received=2, published=1, durable=0, limit={"n": 100, "bytes": 4 * size - 1})
        assert stingy.hear("frame")["n"] == 2
        assert stingy.stays_silent()  # the bytes count
        stingy.say("ack", received=3, published=1, durable=0, limit={"n": 100, "bytes": 5 * size})
        assert [stingy.hear("frame")["n"] for _ in range(2)] == [3, 4]
        assert stingy.hear("close")["n"] == 5
        stingy.say("ack", received=5, published=5, durable=5, limit={"n": 100, "bytes": 5 * size})
        stingy.say("closed", receipt={"status": "completed", "stored": stored, "missing": []})
        code = process.wait(20)
    assert (code == 0) == (stored == 5)


@pytest.mark.parametrize("name", ["a//b", 'quote"d'])
def test_a_refusal_is_an_error(daemon, sender, name):
    done = run(sender, daemon.endpoint, name, 1)
    assert done.returncode != 0
    assert "error" in done.stderr


def test_no_daemon_is_an_error(sender):
    done = run(sender, f"tcp://127.0.0.1:{free_port()}", "nobody", 1)
    assert done.returncode != 0
    assert done.stderr


def test_the_examples_are_short():
    for name in ("sender.c", "Sender.java"):
        assert len((SOURCES / name).read_text(encoding="utf-8").splitlines()) < LINES, name
