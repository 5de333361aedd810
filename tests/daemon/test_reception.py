"""Where the pixels of a message go."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import xxhash
import zmq

from acqstream.daemon import reception
from acqstream.daemon.acquisition import Peer
from acqstream.daemon.reception import Reception
from acqstream.log.log import Log
from acqstream.protocol.encoding import Encoding
from acqstream.protocol.requests import parse_request
from acqstream.protocol.session import Verdict
from tests.log.make_frames import memory_of, start_log
from tests.log.read_back import stack_paths

SHAPE = (1, 4096 * 65)  # whole blocks: where the first of two frames lies on a block, the second one does too


class OneMessage:
    """A socket in the middle of a message, before its payload part."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload

    def recv_into(self, memory: memoryview) -> int:
        memory[: len(self._payload)] = self._payload
        return len(self._payload)

    def get(self, option: int) -> int:
        assert option == zmq.RCVMORE
        return 0


def test_large_frames_of_one_message_take_the_memory_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the message happens to lie on a block: what it takes is in nobody's budget, and soon goes."""
    monkeypatch.setattr(reception, "bytearray", memory_of, raising=False)
    images = [np.full(SHAPE, number, np.uint8) for number in (1, 2)]
    sums = [f"{xxhash.xxh3_64_intdigest(image.data):016x}" for image in images]
    fields: dict[str, Any] = {"t": "frames", "ds": "cells", "n": 0, "count": 2, "dt": "|u1", "sh": list(SHAPE)}
    request: Any = parse_request({**fields, "ax": {"time": [0, 1]}, "sums": sums})
    session = SimpleNamespace(takes_run=lambda *_: True, judge=lambda *_: (Verdict.STORE, None))
    with start_log(tmp_path / "cells") as log:
        acquisition = SimpleNamespace(log=log, session=session, shape_watch=SimpleNamespace(note=lambda _header: None))
        registry: Any = SimpleNamespace(of_producer=lambda *_: acquisition)
        announcer: Any = None
        socket: Any = OneMessage(b"".join(image.tobytes() for image in images))
        Reception(socket, registry, announcer, max_payload_bytes=2**24).receive(
            Peer(b"one", Encoding.JSON), request, has_payload=True
        )
    assert isinstance(log, Log)
    assert log.memory_peak_bytes >= sum(image.nbytes for image in images)
    assert len(stack_paths(tmp_path / "cells")) == 1


def test_a_message_of_many_parts_is_dropped_in_pieces() -> None:
    """Others are looked after in between, and the message behind it is received as it is."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        router, dealer = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
        router.bind("inproc://parts")
        dealer.connect("inproc://parts")
        dealer.send_multipart([b"header", *[b""] * 10_000])
        dealer.send_multipart([b"next", b"payload"])
        unused: Any = None
        one = Reception(router, unused, unused, max_payload_bytes=2**20)
        assert router.poll(10_000)
        assert (len(router.recv()), router.recv()) == (5, b"header")
        turns = 0
        while not one.drain():
            assert one.is_draining
            turns += 1
        assert (turns, one.is_draining) == (5, False)
        assert router.recv_multipart()[1:] == [b"next", b"payload"]
    finally:
        context.destroy(linger=0)
