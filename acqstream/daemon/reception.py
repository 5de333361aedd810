"""Receives frames: checks the header, then receives the payload straight into its place in the file image."""

from __future__ import annotations

import numpy as np
import zmq

from acqstream.daemon.acquisition import ActiveAcquisition, Peer
from acqstream.daemon.acquisition_registry import AcquisitionRegistry
from acqstream.daemon.announcer import Announcer
from acqstream.errors import AcqStreamError, FrameRefused, ProtocolError
from acqstream.log.intake import Slot
from acqstream.model.frame_header import FrameHeader
from acqstream.protocol.frame_batch import FrameBatch
from acqstream.protocol.requests import Frame
from acqstream.protocol.session import Verdict
from acqstream.protocol.shared_memory import MemoryPlace

_SCRAP_BYTES = 64 * 2**10
MAX_PARTS_AT_ONCE = 2000  # dropped before the loop looks after others: a message of 1 MB can have 500,000, for over 1 s


class Reception:
    """Receives the payload part of the message whose header was just read from `socket`. Used by the loop only."""

    def __init__(
        self,
        socket: zmq.Socket[bytes],
        registry: AcquisitionRegistry,
        announcer: Announcer,
        *,
        max_payload_bytes: int,
    ) -> None:
        self._socket = socket
        self._max_payload_bytes = max_payload_bytes
        self._registry = registry
        self._announcer = announcer
        self._scrap = memoryview(bytearray(_SCRAP_BYTES))
        self.is_draining = False  # parts of the message are left: `drain` comes before anything is received

    def receive(self, peer: Peer, request: Frame | FrameBatch, *, has_payload: bool) -> None:
        """Store one frame, or many. Raises FrameRefused or ProtocolError; the payload may then not be taken yet."""
        acquisition = self._registry.of_producer(peer, request.dataset_id)
        if has_payload == (request.place is not None):
            number = request.header.number if isinstance(request, Frame) else request.first
            text = (
                "a frame has two parts, header and pixels, or one that names the place of its pixels in shared memory"
            )
            raise FrameRefused(text, code="payload_size", number=number)
        try:
            if isinstance(request, Frame):
                self._receive_one(acquisition, request)
            else:
                self._receive_many(acquisition, request)
        except AcqStreamError as error:
            if acquisition.log.error is None and getattr(error, "code", "") != "closing":
                raise
            self.drain()  # the log has ended: the supervisor reports why

    def drain(self) -> bool:
        """Drop parts of the message, a limited number; True if none is left."""
        self.is_draining = True
        for _ in range(MAX_PARTS_AT_ONCE):
            if not self._socket.get(zmq.RCVMORE):
                self.is_draining = False
                return True
            self._socket.recv_into(self._scrap)  # what is too long for the scrap is cut off
        return False

    def _receive_one(self, acquisition: ActiveAcquisition, frame: Frame) -> None:
        header = frame.header
        if not self._is_due(acquisition, header):
            self.drain()
            return
        if frame.place is not None:
            acquisition.log.adopt(header, self._part(acquisition, frame.place, header.payload_bytes, header.number))
        else:
            self._take(acquisition.log.reserve(header), header)
        acquisition.shape_watch.note(header)

    def _receive_many(self, acquisition: ActiveAcquisition, batch: FrameBatch) -> None:
        """In one piece where all is in order, else frame by frame: the ones before the first bad one are stored."""
        log = acquisition.log
        if batch.payload_bytes > self._max_payload_bytes:
            text = f"{batch.count} frames of {batch.frame_bytes} bytes are more than one message may hold"
            raise FrameRefused(text, code="payload_size", number=batch.first)
        if batch.refused is None and acquisition.session.takes_run(
            batch.headers, log.received, log.received_payload_bytes
        ):
            shared = self._shared_payload(acquisition, batch)
            slot = log.reserve_run(batch.headers)
            if slot is not None:
                self._take(slot, batch.headers[0], shared)
                acquisition.shape_watch.note(batch.headers[0])
                return
        pixels = self._shared_payload(acquisition, batch)
        if pixels is None:
            pixels = memoryview(bytearray(batch.payload_bytes))
            self._fill(pixels, batch.first, f"{batch.count} frames of {batch.frame_bytes} bytes")
        for position, header in enumerate(batch.headers):
            if not self._is_due(acquisition, header):
                continue
            start = position * batch.frame_bytes
            part = pixels[start : start + batch.frame_bytes]
            if batch.place is not None:
                log.adopt(header, part)
            else:  # the memory of the message is in no budget: it goes now
                log.reserve(header).fill(part)
            acquisition.shape_watch.note(header)
        if batch.refused is not None:
            raise batch.refused

    def _shared_payload(self, acquisition: ActiveAcquisition, batch: FrameBatch) -> memoryview | None:
        """The pixels of a batch that lie in shared memory; None if they come as a message part."""
        if batch.place is None:
            return None
        return self._part(acquisition, batch.place, batch.payload_bytes, batch.first)

    def _part(self, acquisition: ActiveAcquisition, place: MemoryPlace, length: int, number: int) -> memoryview:
        if length > self._max_payload_bytes:
            text = f"frame {number} has {length} bytes; at most {self._max_payload_bytes} are taken"
            raise FrameRefused(text, code="payload_size", number=number)
        if acquisition.memory is None:
            text = f"frame {number}: 'mem' names shared memory, and there is none: {acquisition.memory_why}"
            raise FrameRefused(text, code="bad_memory", number=number)
        try:
            return acquisition.memory.part(place, length)
        except ProtocolError as error:
            raise FrameRefused(f"frame {number}: {error}", code=error.code, number=number) from error

    def _is_due(self, acquisition: ActiveAcquisition, header: FrameHeader) -> bool:
        """False for frames to be dropped. Raises FrameRefused."""
        log = acquisition.log
        verdict, refusal = acquisition.session.judge(header, log.received, log.received_payload_bytes)
        if refusal is not None:
            raise FrameRefused(refusal.text, code=refusal.code, number=header.number)
        if verdict is Verdict.KNOWN:
            self._announcer.acknowledge(acquisition)
        return verdict is Verdict.STORE

    def _take(self, slot: Slot, first: FrameHeader, shared: memoryview | None = None) -> None:
        """The payload, that of the message or the shared one, into its place: the daemon's one copy."""
        try:
            if shared is not None:
                _copy(shared, slot.pixels)
            else:
                self._fill(slot.pixels, first.number, f"shape {first.shape} of {first.pixel_type.dtype}")
        except BaseException:
            slot.abandon()
            raise
        slot.commit()

    def _fill(self, pixels: memoryview, number: int, what: str) -> None:
        received = self._socket.recv_into(pixels)
        has_more = self._socket.get(zmq.RCVMORE)
        if received != len(pixels) or has_more:
            extra = " and more parts" if has_more else ""
            text = f"frame {number}: payload of {received} bytes{extra}; {what} needs one part of {len(pixels)}"
            raise FrameRefused(text, code="payload_size", number=number)


def _copy(source: memoryview, target: memoryview) -> None:
    """Through numpy: that lets other threads run meanwhile."""
    np.copyto(np.frombuffer(target, np.uint8), np.frombuffer(source, np.uint8))
