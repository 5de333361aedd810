"""Frames and skips that the socket refuses stay in the outbox and are sent again."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from acqstream.client.connection import FrameSender
from acqstream.client.link import Link
from acqstream.client.outbox import OutboxMessage
from acqstream.client.producer import create
from acqstream.model.frame_header import PixelType
from acqstream.model.metadata import dump_ascii
from acqstream.protocol.frame_batch import FrameFields, FrameKind

KIND = FrameKind(PixelType("|u1", 1, 8), (1, 4), ("time",), 4)


def frames(number: int, count: int, *, metadata_bytes: int = 0) -> OutboxMessage:
    metadata = dump_ascii({"text": "x" * metadata_bytes})
    fields: list[FrameFields] = [((number + index,), 0, metadata, None) for index in range(count)]
    return OutboxMessage(number, count, 4 * number, kind=KIND, frames=fields, end=4 * count, frame_bytes=4)


MESSAGES = [frames(0, 1), OutboxMessage(1, 10, 4, header=b"skip"), frames(11, 3)]


class FullLink:
    """A link whose socket takes `capacity` messages."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.headers: list[bytes] = []

    def send(self, header: bytes) -> bool:
        if len(self.headers) == self.capacity:
            return False
        self.headers.append(header)
        return True

    def send_frame(self, header: bytes, memory: memoryview, start: int, size: int) -> bool:
        return self.send(header)


@pytest.mark.parametrize("generation", [None, 1], ids=["messages", "shared memory"])
@pytest.mark.parametrize(("capacity", "refused"), [(0, 0), (1, 1), (2, 11), (3, None)])
def test_the_first_number_that_the_socket_refused_is_returned(capacity, refused, generation):
    sender = FrameSender(SimpleNamespace(pages=memoryview(bytes(64))))
    sender.begin("id", generation)
    link = FullLink(capacity)
    assert sender.send(link, MESSAGES) == refused
    assert len(link.headers) == capacity


def test_a_refused_half_of_a_message_is_returned():
    """Frames whose metadata exceeds a header are sent as two messages."""
    sender = FrameSender(SimpleNamespace(pages=memoryview(bytes(64))))
    sender.begin("id", None)
    message = frames(0, 4, metadata_bytes=300_000)
    assert sender.send(FullLink(2), [message]) is None
    assert sender.send(FullLink(1), [message]) == 2


@pytest.mark.parametrize("method", ["send", "send_frame"])
def test_frames_and_skips_that_the_socket_refused_arrive(daemon, monkeypatch, method):
    """Every second message of the run is refused once."""
    real = getattr(Link, method)
    calls = []

    def send(link, header, *arguments):
        calls.append(header)
        return False if len(calls) % 2 else real(link, header, *arguments)

    with create("cells", endpoint=daemon.endpoint, buffer_mb=1) as run:
        monkeypatch.setattr(Link, method, send)
        for time in range(0, 20, 2):
            run.put(np.full((2, 3), time, "u2"), time=time)
            run.skip(1, reason="not taken")
    monkeypatch.undo()
    assert calls
    assert sorted(daemon.frames) == list(range(0, 20, 2))
    assert len(daemon.skips) == 10
    assert run.receipt is not None
    assert run.receipt.status == "completed"
