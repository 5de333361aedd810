"""Sends frames and skips of the outbox over a link, as messages or as places in shared memory."""

from __future__ import annotations

from collections.abc import Iterable

from acqstream.client.link import Link
from acqstream.client.local_memory import LocalMemory
from acqstream.client.outbox import OutboxMessage
from acqstream.protocol.encoding import MAX_HEADER_BYTES
from acqstream.protocol.frame_batch import FrameEncoder, FrameKind
from acqstream.protocol.shared_memory import MemoryPlace


class FrameSender:
    """Used by the connection's thread only. `begin` comes before `send`."""

    def __init__(self, memory: LocalMemory) -> None:
        self._memory = memory
        self._encoder: FrameEncoder | None = None
        self._generation: int | None = None

    def begin(self, dataset_id: str, generation: int | None) -> None:
        """The daemon has opened this dataset. generation: its number for the memory, None where it mapped none."""
        self._encoder = FrameEncoder(dataset_id)
        self._generation = generation

    def send(self, link: Link, messages: Iterable[OutboxMessage]) -> int | None:
        """The number of the first frame or skip that the socket did not take; None if it took all."""
        for message in messages:
            if message.kind is None:
                refused = None if link.send(message.header) else message.number
            else:
                refused = self._send_frames(link, message, message.kind)
            if refused is not None:
                return refused
        return None

    def _send_frames(self, link: Link, message: OutboxMessage, kind: FrameKind) -> int | None:
        pages, generation, start = self._memory.pages, self._generation, message.start
        assert pages is not None
        assert self._encoder is not None
        place = MemoryPlace(generation, start) if generation is not None else None
        header = self._encoder.header(message.number, kind, message.frames, place)
        if len(header) > MAX_HEADER_BYTES and message.numbers > 1:  # axes and metadata need two messages
            half = message.numbers // 2
            return self.send(link, (message.part(0, half), message.part(half, message.numbers)))
        size = message.payload_bytes
        is_taken = link.send(header) if place is not None else link.send_frame(header, pages, start, size)
        return None if is_taken else message.number
