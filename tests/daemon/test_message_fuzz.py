"""Any header, any order of messages: each is answered or dropped, and never a fault of the daemon."""

from __future__ import annotations

import json
import time
import uuid
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
import zmq
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import acqstream
from acqstream.daemon.config import DaemonConfig
from acqstream.daemon.server import Server
from tests.waiting import until

PEERS = (b"peer-a", b"peer-b")
CODES_OF_FAULTS = {"internal"}
END_S = 20.0
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)  # examples with files are slow to shrink


class Part:
    """What `recv(copy=False)` gives."""

    def __init__(self, content: bytes, *, more: bool) -> None:
        self.bytes = content
        self.more = more

    def get(self, _option: int) -> int:
        return -1


class ScriptedSocket:
    """The message being received, and what was sent."""

    def __init__(self) -> None:
        self.parts: deque[bytes] = deque()
        self.sent: list[dict[str, Any]] = []

    def recv(self, *, copy: bool) -> Part:
        assert not copy
        content = self.parts.popleft()
        return Part(content, more=bool(self.parts))

    def recv_into(self, memory: memoryview) -> int:
        content = self.parts.popleft()
        length = min(len(content), len(memory))
        memory[:length] = content[:length]
        return len(content)

    def get(self, option: int) -> int:
        assert option == zmq.RCVMORE
        return int(bool(self.parts))

    def send_multipart(self, parts: list[bytes], _flags: int) -> None:
        header = parts[1]
        self.sent.append(json.loads(header) if header[:1] == b"{" else msgpack.unpackb(header))


class Bench:
    """A daemon's loop without its sockets."""

    def __init__(self, data: Path) -> None:
        self.data = data
        memory: dict[str, Any] = {"memory_mb": 64}
        self.server = Server(DaemonConfig(data=data, endpoints=["tcp://127.0.0.1:*"], ipc=False, **memory))
        self.socket = ScriptedSocket()
        self.receiver = self.server._receiver
        self.receiver._socket = self.socket  # type: ignore[assignment]
        self.receiver._reception._socket = self.socket  # type: ignore[assignment]
        self.server._supervisor._announcer._producers = self.socket  # type: ignore[assignment]

    def receive(self, identity: bytes, parts: list[bytes]) -> list[dict[str, Any]]:
        """One message and a turn of the loop; the answers."""
        self.socket.parts = deque(parts)
        self.socket.sent = []
        self.receiver._receive(identity)
        assert not self.socket.parts, "parts were left behind: the next message would begin with them"
        opens = self.server._handler._opens

        def is_answered() -> bool:
            self.server._handler.tick(time.monotonic())
            return not opens

        until(is_answered, "an `open` is answered")
        self.server._supervisor.tick(time.monotonic())
        return self.socket.sent

    def end_all(self) -> None:
        """Close what is open, and wait for the receipts."""
        supervisor = self.server._supervisor
        supervisor.stop_all()
        deadline = time.monotonic() + END_S
        while self.server._registry:
            assert time.monotonic() < deadline
            supervisor.tick(time.monotonic())
            time.sleep(0.001)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    one = Bench(tmp_path_factory.mktemp("fuzz"))
    yield one
    one.server.close()


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 5)
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "cells", "..", "<u2", "|u1", "time", "\x00", "é", "completed", "error", "number", "batch"])
    | st.text(max_size=8)
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
)
OF_FRAMES = ["t", "ds", "n", "count", "dt", "sh", "ax", "bits", "tns", "meta", "sum", "sums", "reason"]
OF_OTHERS = [
    "summary",
    "display",
    "status",
    "v",
    "client",
    "name",
    "frame",
    "expect",
    "axes",
    "durability",
    "duplicates",
    "on_exists",
    "resume",
    "epoch",
    "mirrors",
    "tiles",
]
KEYS = OF_FRAMES + OF_OTHERS
KINDS = ("hello", "open", "frame", "frame", "frame", "frames", "skip", "patch", "close", "ping")
axes = st.fixed_dictionaries({"time": st.integers(0, 6)}, optional={"channel": st.sampled_from(["a", "b", 0])})


@st.composite
def messages(draw: st.DrawFn, datasets: list[str]) -> list[bytes]:
    """A message that could be right, with up to two fields changed, in any encoding and number of parts."""
    kind = draw(
        st.sampled_from(["hello", "open", "frame", "frame", "frame", "frames", "skip", "patch", "close", "ping"])
    )
    number = draw(st.integers(0, 6))
    usual: dict[str, dict[str, Any]] = {
        "hello": {"v": 1},
        "open": {"name": "fuzz", "on_exists": "number", "resume": draw(st.booleans())},
        "frame": {"n": number, "dt": "<u2", "sh": [2, 3], "ax": draw(axes)},
        "frames": {"n": number, "count": 2, "dt": "<u2", "sh": [2, 3], "ax": {"time": {"start": number, "step": 1}}},
        "skip": {"n": number},
        "patch": {"display": {"x": 1}},
        "close": {"n": number},
    }
    header = {"t": kind, "ds": draw(st.sampled_from(datasets)), **usual.get(kind, {})}
    header.update(draw(st.dictionaries(st.sampled_from(KEYS), values, max_size=2)))
    for key in draw(st.lists(st.sampled_from(KEYS), max_size=1)):
        header.pop(key, None)
    payloads = {"frame": [bytes(12)], "frames": [bytes(24)]}.get(kind, [])
    if draw(st.integers(0, 9)) == 0:
        payloads = draw(st.lists(st.binary(max_size=30), max_size=3))
    return [draw(encoded(header)), *payloads]


@st.composite
def encoded(draw: st.DrawFn, header: dict[str, Any]) -> bytes:
    """JSON or msgpack, sometimes with bytes changed."""
    try:
        raw = msgpack.packb(header) if draw(st.booleans()) else json.dumps(header).encode("utf-8", "surrogatepass")
    except (OverflowError, ValueError, UnicodeEncodeError):  # what only JSON can say
        raw = json.dumps(header).encode()
    if draw(st.integers(0, 7)) == 0:
        place = draw(st.integers(0, len(raw) - 1))
        raw = raw[:place] + draw(st.binary(max_size=3)) + raw[place + draw(st.integers(0, 3)) :]
    return bytes(raw)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES)
@given(data=st.data())
def test_no_message_meets_a_fault(bench: Bench, data: st.DataObject) -> None:
    datasets = [uuid.uuid4().hex for _ in range(2)]
    for one, peer in zip(datasets, PEERS, strict=True):
        bench.receive(peer, [json.dumps({"t": "open", "ds": one, "name": "fuzz", "on_exists": "number"}).encode()])
    paths = {one.log.folder: one.log for one in bench.server._registry}
    for log in paths.values():
        log.wait_until_open()
    try:
        for _ in range(data.draw(st.integers(1, 25))):
            parts = data.draw(messages(datasets))
            answers = bench.receive(data.draw(st.sampled_from(PEERS)), parts)
            assert not {one.get("code") for one in answers} & CODES_OF_FAULTS, (parts, answers)
        (welcome,) = [one for one in bench.receive(PEERS[0], [b'{"t":"hello","v":1}']) if one["t"] == "welcome"]
        assert welcome["v"] == 1
    finally:
        bench.end_all()
    for path, log in paths.items():
        assert log.receipt is not None
        assert log.receipt.status != "failed", log.receipt
        with acqstream.open(path) as dataset:
            keys = list(dataset.keys())
            assert len(keys) == log.receipt.stored
            for key in keys:
                dataset.read_frame(key)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES)
@given(raw=st.lists(st.binary(max_size=60), min_size=1, max_size=3))
def test_random_bytes_are_answered(bench: Bench, raw: list[bytes]) -> None:
    (answer,) = bench.receive(PEERS[1], raw)
    assert (answer["t"], answer["code"]) == ("error", "bad_header")
