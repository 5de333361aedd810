"""A producer as anybody may write one: from docs/protocol.md and with ZeroMQ alone, nothing of this package."""

from __future__ import annotations

import json
import time
import uuid
from types import TracebackType
from typing import Any, Literal, Self

import msgpack
import zmq

ANSWER_S = 10.0
OPTIONS = {
    zmq.LINGER: 0,
    zmq.IMMEDIATE: 1,
    zmq.RECONNECT_IVL: -1,
    zmq.SNDHWM: 1000,
}


def new_dataset_id() -> str:
    return uuid.uuid4().hex


class WireClient:
    """One DEALER. `limits` and `cursors` are what the daemon said last, by dataset id."""

    def __init__(self, endpoint: str, encoding: Literal["json", "msgpack"] = "json") -> None:
        self.encoding = encoding
        self.heard = ""
        self.limits: dict[str, dict[str, int]] = {}
        self.cursors: dict[str, tuple[int, int, int]] = {}
        self._sent_bytes: dict[str, int] = {}
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        for option, value in OPTIONS.items():
            self._socket.setsockopt(option, value)
        self._socket.connect(endpoint)

    def send_parts(self, *parts: bytes) -> None:
        """Any message at all."""
        assert self._socket.poll(int(ANSWER_S * 1000), zmq.POLLOUT), "the daemon cannot be written to"
        self._socket.send_multipart(parts)

    def send(self, t: str, payload: bytes | None = None, /, **fields: Any) -> None:
        """One message of type `t`."""
        header = {"t": t, **fields}
        if self.encoding == "json":
            first = json.dumps(header).encode("utf-8")
        else:
            first = msgpack.packb(header)
        self.send_parts(first, *([payload] if payload is not None else []))

    def receive(self, timeout_s: float = ANSWER_S) -> dict[str, Any]:
        """The next message; must have one part. `heard` is its encoding."""
        assert self._socket.poll(int(timeout_s * 1000)), "no word from the daemon"
        (part,) = self._socket.recv_multipart()
        message: dict[str, Any] = json.loads(part) if part[:1] == b"{" else msgpack.unpackb(part)
        self.heard = "json" if part[:1] == b"{" else "msgpack"
        if message["t"] in ("ack", "opened"):
            self.limits[message["ds"]] = message["limit"]
        if message["t"] == "ack":
            self.cursors[message["ds"]] = (message["received"], message["published"], message["durable"])
        return message

    def wait_for(self, *types: str) -> dict[str, Any]:
        """The next message of one of these types; those before it are taken note of."""
        deadline = time.monotonic() + ANSWER_S
        seen = []
        while time.monotonic() < deadline:
            message = self.receive()
            if message["t"] in types:
                return message
            seen.append(message)
        raise AssertionError(f"no {types} within {ANSWER_S} s, but {seen}")

    def hello(self) -> dict[str, Any]:
        self.send("hello", v=1, client={"name": "a test", "version": "1", "lang": "Python"})
        return self.wait_for("welcome", "error")

    def open(self, name: str, ds: str, **more: Any) -> dict[str, Any]:
        self.send("open", ds=ds, name=name, **more)
        answer = self.wait_for("opened", "error", "closed")
        while answer["t"] != "opened" and answer.get("ds", ds) not in (ds, None):  # of an acquisition that ended before
            answer = self.wait_for("opened", "error", "closed")
        if answer["t"] == "opened":
            self._sent_bytes[answer["ds"]] = answer["bytes"]  # what limit.bytes counts from
        return answer

    def frame(self, ds: str, n: int, payload: bytes, shape: tuple[int, ...], ax: dict[str, Any], **more: Any) -> None:
        """Send one uint16 frame as soon as the window allows it."""
        end = self._sent_bytes[ds] + len(payload)
        while not (n < self.limits[ds]["n"] and end <= self.limits[ds]["bytes"]):
            assert self.receive()["t"] in ("ack", "status")
        self._sent_bytes[ds] = end
        self.send("frame", payload, ds=ds, n=n, dt="<u2", sh=list(shape), ax=ax, **more)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._context.destroy(linger=0)
