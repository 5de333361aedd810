"""Receives the messages of producers and passes frames to `reception`, everything else to `request_handler`."""

from __future__ import annotations

import time
from typing import Any

import zmq

from acqstream.daemon.acquisition import Peer
from acqstream.daemon.connection_guard import ConnectionGuard
from acqstream.daemon.reception import Reception
from acqstream.daemon.request_handler import RequestHandler
from acqstream.errors import FrameRefused, ProtocolError
from acqstream.protocol.encoding import Encoding, decode_header, decode_part
from acqstream.protocol.frame_batch import FrameBatch
from acqstream.protocol.requests import Frame, Open, parse_request

TURN_S = 0.02  # how long one turn of the loop takes messages before it looks after the acquisitions


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
