"""One DEALER socket to a daemon. Its owner is one thread; every ZeroMQ error stops here."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import zmq

from acqstream.client.waker import Waker
from acqstream.errors import ConfigError, DaemonUnavailable
from acqstream.protocol.encoding import decode_header
from acqstream.protocol.replies import Reply, UnknownReply, parse_reply

if TYPE_CHECKING:
    from acqstream.client.keys import CurveKeys

ZERO_COPY_BYTES = 256 * 2**10
"""Smaller payloads are cheaper to copy than to keep referenced until libzmq is done with them."""

_SOCKET_OPTIONS = {
    zmq.LINGER: 0,
    zmq.IMMEDIATE: 1,  # queue to a complete connection only, so that readiness to write means contact
    # Never connect again by itself: the daemon would see an unknown peer in the middle of a run, and frames in the
    # queue of the old connection are lost. A new link opens the acquisition again and learns where to go on.
    zmq.RECONNECT_IVL: -1,
    # No HEARTBEAT_IVL: libzmq 4.3.5 may abort the process (docs/decisions/018); silence is noticed by `ping`.
    zmq.SNDHWM: 1000,  # messages; the bytes are bounded by the daemon's window
    zmq.RCVHWM: 1000,
    zmq.MAXMSGSIZE: 2**20,  # a reply is one header part
    zmq.IPV6: 1,
}
_TCP_SEND_BUFFER_BYTES = 4 * 2**20


class Link:
    """A connection attempt to `endpoint`; `wait_writable` tells when it stands.

    Raises ConfigError for an endpoint that ZeroMQ does not understand.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: str,
        waker: Waker | None = None,
        keys: CurveKeys | None = None,
    ) -> None:
        self.endpoint = endpoint
        self._socket = context.socket(zmq.DEALER)
        self._waker = waker
        try:
            for option, value in _SOCKET_OPTIONS.items():
                self._socket.setsockopt(option, value)
            if endpoint.startswith("tcp:"):
                self._socket.setsockopt(zmq.SNDBUF, _TCP_SEND_BUFFER_BYTES)
                self._secure(keys)
            self._socket.connect(endpoint)
        except zmq.ZMQError as error:
            self._socket.close(0)
            raise ConfigError(f"endpoint {endpoint!r}: {error}; expected for example tcp://127.0.0.1:5271") from error
        self._poller = zmq.Poller()
        if waker is not None:
            self._poller.register(waker.fileno(), zmq.POLLIN)

    def _secure(self, keys: CurveKeys | None) -> None:
        if keys is not None:
            self._socket.setsockopt(zmq.CURVE_SERVERKEY, keys.server)
            self._socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.public)
            self._socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)

    def close(self) -> None:
        """Drop the connection with all that is queued in it."""
        self._socket.close(0)

    def wait(self, timeout_s: float, *, writable: bool = False, wakeable: bool = True) -> bool:
        """Wait for a message, for room to send if `writable`, or for the waker; True unless the time ran out."""
        events = zmq.POLLIN | zmq.POLLOUT if writable else zmq.POLLIN
        timeout_ms = max(0, int(timeout_s * 1000 + 0.999))
        if self._waker is None or not wakeable:
            return bool(self._socket.poll(timeout_ms, events))
        self._poller.register(self._socket, events)
        ready = dict(self._poller.poll(timeout_ms))
        if self._waker.fileno() in ready:
            self._waker.clear()
        return bool(ready)

    def wait_writable(self, timeout_s: float) -> bool:
        """True once the connection stands."""
        return bool(self._socket.poll(max(0, int(timeout_s * 1000)), zmq.POLLOUT))

    def send(self, header: bytes) -> bool:
        """Queue a message without payload; False while there is no room or no connection."""
        return self._send(header, zmq.DONTWAIT)

    def send_frame(self, header: bytes, memory: memoryview, start: int, size: int) -> bool:
        """Queue a frame; its pixels in `memory` must not change until the daemon has them."""
        if not self._send(header, zmq.DONTWAIT | zmq.SNDMORE):
            return False
        pixels = memory[start : start + size]
        # A message whose first part was taken has room for all of it, as the mark counts whole messages. Only if the
        # connection breaks in between the rest is refused: then the first part was dropped too.
        try:
            self._socket.send(pixels, zmq.DONTWAIT, copy=size < ZERO_COPY_BYTES)
        except zmq.Again:
            return False
        return True

    def _send(self, header: bytes, flags: int) -> bool:
        try:
            self._socket.send(header, flags)
        except zmq.Again:
            return False
        return True

    def receive(self) -> Reply | UnknownReply | None:
        """The next message that has arrived, or None. Raises ProtocolError for one that breaks the protocol."""
        try:
            parts = self._socket.recv_multipart(zmq.DONTWAIT)
        except zmq.Again:
            return None
        return parse_reply(decode_header(parts[0])[0])

    def wait_reply(self, deadline: float) -> Reply | UnknownReply | None:
        """The next message, or None when `deadline` (monotonic seconds) passes without one."""
        while (reply := self.receive()) is None:
            left = deadline - time.monotonic()
            if left <= 0 or not self.wait(left, wakeable=False):
                return None
        return reply


def no_daemon(endpoint: str) -> DaemonUnavailable:
    """Nobody answers at all."""
    return DaemonUnavailable(f"no daemon answers at {endpoint}; start one with: acqstream serve --data DIR")
