"""Receives the messages of producers: frames straight into the file image, all others for `request_handler`.

The header of a frame is checked before its payload is received.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import zmq

from acqstream.daemon.acquisition import AcquisitionRegistry, ActiveAcquisition, Peer
from acqstream.daemon.announcer import Announcer
from acqstream.daemon.connection_guard import ConnectionGuard
from acqstream.daemon.request_handler import RequestHandler
from acqstream.errors import AcqStreamError, FrameRefused, ProtocolError
from acqstream.log.intake import Slot
from acqstream.model.frame_header import FrameHeader
from acqstream.protocol.encoding import Encoding, decode_header, decode_part
from acqstream.protocol.frame_batch import Frame, FrameBatch, MemoryPlace
from acqstream.protocol.requests import Open, parse_request
from acqstream.protocol.session import Verdict

_SCRAP_BYTES = 64 * 2**10
MAX_PARTS_AT_ONCE = 2000  # dropped before the loop looks after others: a message of 1 MB can have 500,000, for over 1 s
_MAX_PIECES = 16  # of a batch, where the ring or the stack file ends; then frame by frame
TURN_S = 0.02  # how long one turn of the loop takes messages before it looks after the acquisitions


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
        self.dropped_bytes = 0  # of the message whose parts were dropped last
        self.is_draining = False  # parts of the message are left: `drain` comes before anything is received

    def receive(self, peer: Peer, request: Frame | FrameBatch, *, has_payload: bool) -> None:
        """Store one frame, or many, and refuse those that cannot be stored.

        Raises FrameRefused or ProtocolError for a message that breaks the protocol; the payload may then not be taken.
        """
        acquisition = self._registry.of_producer(peer, request.dataset_id)
        try:
            self._receive(acquisition, request, has_payload=has_payload)
        except AcqStreamError as error:
            if acquisition.log.error is None and getattr(error, "code", "") != "closing":
                raise
            self.drain()  # the log has ended: the supervisor reports why

    def _receive(self, acquisition: ActiveAcquisition, request: Frame | FrameBatch, *, has_payload: bool) -> None:
        try:
            if has_payload == (request.place is not None):
                text = "it has two parts, header and pixels, or one that names the place of its pixels in shared memory"
                raise FrameRefused(f"frame {request.first}: {text}", code="payload_size", number=request.first)
            if isinstance(request, Frame):
                self._receive_one(acquisition, request)
            else:
                self._receive_many(acquisition, request)
        except FrameRefused as error:  # all frames of the message
            acquisition.refuse(error, request.count, request.payload_bytes // request.count)
            self.drain()

    def drain(self) -> bool:
        """Drop parts of the message, a limited number; True if none is left."""
        if not self.is_draining:
            self.dropped_bytes = 0
        self.is_draining = True
        for _ in range(MAX_PARTS_AT_ONCE):
            if not self._socket.get(zmq.RCVMORE):
                self.is_draining = False
                return True
            self.dropped_bytes += self._socket.recv_into(self._scrap)  # what is too long for the scrap is cut off
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
        """In one piece where all is in order, else frame by frame: bad ones are refused, the others stored."""
        log = acquisition.log
        if batch.payload_bytes > self._max_payload_bytes:
            text = f"{batch.count} frames of {batch.frame_bytes} bytes are more than one message may hold"
            raise FrameRefused(text, code="payload_size", number=batch.first)
        pixels, done, rest = self._shared_payload(acquisition, batch), 0, batch.run
        if rest is not None and not acquisition.session.takes_run(rest, log.received, log.received_payload_bytes):
            rest = None
        for _ in range(_MAX_PIECES):
            slot = log.reserve_run(rest) if rest is not None and len(rest) else None
            if rest is None or slot is None:
                break
            if pixels is None and slot.count == batch.count:
                self._take(slot, rest[0])
            else:
                pixels = self._whole_payload(batch, slot) if pixels is None else pixels
                start, stop = done * batch.frame_bytes, (done + slot.count) * batch.frame_bytes
                self._take(slot, rest[0], pixels[start:stop])
            acquisition.shape_watch.note(rest[0])
            done, rest = done + slot.count, rest.part(slot.count, len(rest))
        if pixels is None and done < batch.count:
            pixels = self._whole_payload(batch)
        for position in range(done, batch.count):
            start = position * batch.frame_bytes
            assert pixels is not None
            try:
                self._take_part(acquisition, batch.headers[position], pixels[start : start + batch.frame_bytes], batch)
            except FrameRefused as error:
                acquisition.refuse(error, 1, batch.frame_bytes)

    def _whole_payload(self, batch: FrameBatch, slot: Slot | None = None) -> memoryview:
        """All pixels of the message, in memory of their own; slot: abandoned if they are not right."""
        pixels = memoryview(bytearray(batch.payload_bytes))
        try:
            self._fill(pixels, batch.first, f"{batch.count} frames of {batch.frame_bytes} bytes")
        except BaseException:
            if slot is not None:
                slot.abandon()
            raise
        return pixels

    def _take_part(
        self, acquisition: ActiveAcquisition, header: FrameHeader | FrameRefused, part: memoryview, batch: FrameBatch
    ) -> None:
        """Store one frame of a batch. Raises FrameRefused."""
        if isinstance(header, FrameRefused):
            raise header
        if not self._is_due(acquisition, header):
            return
        if batch.place is not None:
            acquisition.log.adopt(header, part)
        else:  # the memory of the message is in no budget: it goes now
            acquisition.log.reserve(header).fill(part)
        acquisition.shape_watch.note(header)

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
        verdict, refusal = acquisition.session.judge(
            header.number, header.payload_bytes, log.received, log.received_payload_bytes
        )
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


class MessageReceiver:
    """Reads from `socket`, the ROUTER of all producers. Used by the loop only."""

    def __init__(
        self,
        socket: zmq.Socket[bytes],
        guard: ConnectionGuard,
        handler: RequestHandler,
        reception: Reception,
    ) -> None:
        self._socket = socket
        self._guard = guard
        self._handler = handler
        self._reception = reception

    def receive_turn(self) -> bool:
        """Take messages for up to TURN_S; return True if none is left."""
        until = time.perf_counter() + TURN_S  # time.monotonic has steps of 15.6 ms on Windows
        while time.perf_counter() < until:
            if self._reception.is_draining and not self._reception.drain():
                continue
            try:
                identity = self._socket.recv(zmq.DONTWAIT)
            except zmq.Again:
                return True
            self._receive(identity)
        return False

    def _receive(self, identity: bytes) -> None:
        """Take one message of one peer. All parts have arrived: ZeroMQ delivers a multipart message complete."""
        part = self._socket.recv(copy=False)
        self._guard.note(part)
        encoding = Encoding.JSON
        fields: dict[str, Any] = {}
        try:
            fields, encoding = decode_header(part.bytes)
            if part.more and fields.get("t") == "patch":
                part = self._socket.recv(copy=False)
                fields |= decode_part(part.bytes)
            request = parse_request(fields)
            if isinstance(request, Frame | FrameBatch):
                self._reception.receive(Peer(identity, encoding), request, has_payload=part.more)
                return
            if part.more:
                raise ProtocolError(f"message {fields['t']!r} must have one part; more parts came")
            if isinstance(request, Open):
                self._handler.open(Peer(identity, encoding), request, self._guard.permission(part))
            else:
                self._handler.handle(Peer(identity, encoding), request)
        except (ProtocolError, FrameRefused) as error:
            self._reception.drain()
            self._handler.refuse(Peer(identity, encoding), fields, error, self._reception.dropped_bytes)
        except zmq.ZMQError:
            raise
        except Exception as error:  # noqa: BLE001 - one message must not end everybody's acquisitions
            self._reception.drain()
            self._handler.fail(Peer(identity, encoding), fields, error)
