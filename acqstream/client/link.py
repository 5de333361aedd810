"""One DEALER socket to a daemon. Its owner is one thread; every ZeroMQ error stops here."""

from __future__ import annotations

import os
import stat
import struct
import time
from pathlib import Path

import zmq

from acqstream.client.default_endpoint import hint, starting
from acqstream.client.keys import CurveKeys, port_keys
from acqstream.errors import ConfigError, DaemonUnavailable
from acqstream.protocol.encoding import decode_header
from acqstream.protocol.replies import Reply, UnknownReply, parse_reply
from acqstream.storage.files.boundary import distrust
from acqstream.storage.platform.capabilities import can_fork
from acqstream.storage.waker import Waker

ZERO_COPY_BYTES = 256 * 2**10
"""Smaller payloads are cheaper to copy than to keep referenced until libzmq is done with them."""

_SOCKET_OPTIONS = {
    zmq.LINGER: 0,
    zmq.IMMEDIATE: 1,  # queue to a complete connection only, so that readiness to write means contact
    # Never connect again by itself: the daemon would see an unknown peer in the middle of a run, and frames in the
    # queue of the old connection are lost. A new link opens the acquisition again and gets its next frame number.
    zmq.RECONNECT_IVL: -1,
    # No HEARTBEAT_IVL: libzmq 4.3.5 may abort the process (docs/decisions/018); silence is noticed by `ping`.
    zmq.SNDHWM: 1000,  # messages; the bytes are bounded by the daemon's window
    zmq.RCVHWM: 1000,
    zmq.MAXMSGSIZE: 2**20,  # a reply is one header part
    zmq.IPV6: 1,
}
_LOST_EVENTS = zmq.Event.DISCONNECTED | zmq.Event.CLOSED
"""The first follows a connection or its handshake. The second means that no process listens."""
_MONITOR_EVENT = struct.Struct("=Hi")  # zmq_socket_monitor(3); `zmq.utils.monitor` loads asyncio
_TCP_SEND_BUFFER_BYTES = 4 * 2**20
_IS_FORK_POSSIBLE = can_fork()
_open_links: dict[int, Link] = {}  # by id


class Link:
    """A connection attempt to `endpoint`; `wait_writable` waits for the connection.

    Until `settle` it notices at once that the connection is lost: `is_lost`.

    Raises ConfigError for an endpoint that ZeroMQ does not understand, and for a local socket that another user could
    have replaced.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: str,
        waker: Waker | None = None,
        keys: CurveKeys | None = None,
    ) -> None:
        self.endpoint = endpoint
        if reason := distrust_endpoint(endpoint):
            raise ConfigError(f"endpoint {endpoint!r} is not safe: {reason}")
        self._socket = context.socket(zmq.DEALER)
        self._waker = waker
        self._monitor: zmq.Socket[bytes] | None = None
        self._is_lost = self.was_connected = False  # the second: before it was lost, perhaps
        self._descriptor: tuple[int, int, int] | None = None
        try:
            for option, value in _SOCKET_OPTIONS.items():
                self._socket.setsockopt(option, value)
            if endpoint.startswith("tcp:"):
                self._socket.setsockopt(zmq.SNDBUF, _TCP_SEND_BUFFER_BYTES)
                self._secure(keys or port_keys(endpoint))
            self._monitor = self._socket.get_monitor_socket(zmq.Event.CONNECTED | _LOST_EVENTS)
            self._socket.connect(endpoint)
        except zmq.ZMQError as error:
            self._end_monitor()
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
        _open_links.pop(id(self), None)
        self._end_monitor()
        self._socket.close(0)

    def wait(self, timeout_s: float, *, writable: bool = False) -> bool:
        """Wait for a message, for capacity to send if `writable`, or for the waker; False at the end of the time."""
        events = zmq.POLLIN | zmq.POLLOUT if writable else zmq.POLLIN
        timeout_ms = max(0, int(timeout_s * 1000 + 0.999))
        if self._waker is None:
            return bool(self._socket.poll(timeout_ms, events))
        self._poller.register(self._socket, events)
        ready = dict(self._poller.poll(timeout_ms))
        if self._waker.fileno() in ready:
            self._waker.clear()
        return bool(ready)

    def wait_writable(self, timeout_s: float) -> bool:
        """True once there is a connection; False at the end of the time, or as soon as it fails."""
        deadline = time.monotonic() + timeout_s
        while not (is_connected := bool(self._socket.poll(0, zmq.POLLOUT))) and not self.is_lost:
            if (left := deadline - time.monotonic()) <= 0:
                break
            self._wait_noticing(left, zmq.POLLOUT)
        self._read_monitor()
        return is_connected

    @property
    def is_lost(self) -> bool:
        """The connection was lost, or could not be made. Not noticed after `settle`."""
        self._read_monitor()
        return self._is_lost

    def settle(self) -> None:
        """The connection is in use from now on: its loss shows by silence."""
        self._read_monitor()
        self._end_monitor()

    def _wait_noticing(self, timeout_s: float, events: int) -> None:
        """Wait until the socket is ready, or the connection changed, at most timeout_s."""
        poller = zmq.Poller()
        poller.register(self._socket, events)
        if self._monitor is not None:
            poller.register(self._monitor, zmq.POLLIN)
        poller.poll(max(0, int(timeout_s * 1000 + 0.999)))

    def hang_up(self) -> None:
        """In a forked process: close its duplicate of the connection, which libzmq does not give out otherwise."""
        if self._descriptor is not None and _identity(self._descriptor[0]) == self._descriptor:
            os.close(self._descriptor[0])

    def _read_monitor(self) -> None:
        while self._monitor is not None and self._monitor.poll(0):
            event, value = _MONITOR_EVENT.unpack(self._monitor.recv_multipart()[0])
            if event & _LOST_EVENTS:
                self._is_lost = True
                continue
            self.was_connected = True
            if _IS_FORK_POSSIBLE:
                self._descriptor = _identity(value)
                _open_links[id(self)] = self

    def _end_monitor(self) -> None:
        if self._monitor is not None:
            self._socket.disable_monitor()
            self._monitor.close(0)
            self._monitor = None

    def send(self, header: bytes, part: bytes = b"") -> bool:
        """Queue a message without pixels; False while the queue is full or without a connection."""
        return self.send_frame(header, memoryview(part), 0, len(part)) if part else self._send(header, zmq.DONTWAIT)

    def send_frame(self, header: bytes, memory: memoryview, start: int, size: int) -> bool:
        """Queue a frame; its pixels in `memory` must not change until the daemon has them."""
        if not self._send(header, zmq.DONTWAIT | zmq.SNDMORE):
            return False
        pixels = memory[start : start + size]
        # The mark counts complete messages: the queue that took the first part takes the second too, unless the
        # connection breaks in between, which drops the first part as well.
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
        """The next message; None when `deadline` (monotonic seconds) passes without one, or the connection is lost."""
        is_lost = False
        while (reply := self.receive()) is None and not is_lost:
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                break
            if not (is_lost := self.is_lost):  # messages from before the loss are still received
                self._wait_noticing(remaining_s, zmq.POLLIN)
        return reply


def no_daemon(endpoint: str) -> DaemonUnavailable:
    """The error for an endpoint without any answer."""
    if reason := starting(endpoint):
        return DaemonUnavailable(reason)
    advice = hint(endpoint) or "; start one with: acqstream serve --data DIR"
    return DaemonUnavailable(f"no daemon answers at {endpoint}{advice}")


def distrust_endpoint(endpoint: str) -> str:
    """The reason why a stranger could own a local socket; empty for a safe one, for tcp, and for abstract names."""
    path = endpoint.removeprefix("ipc://")
    return "" if path == endpoint or path.startswith("@") else distrust(Path(path))


def _identity(descriptor: int) -> tuple[int, int, int] | None:
    """Number, device and inode of a socket, as the number alone may be that of another file now."""
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return (descriptor, status.st_dev, status.st_ino) if stat.S_ISSOCK(status.st_mode) else None


def _hang_up_all() -> None:
    """Close the connections in a forked process: otherwise the daemon would wait for it after its parent has ended."""
    for link in list(_open_links.values()):
        link.hang_up()
    _open_links.clear()


if _IS_FORK_POSSIBLE:
    os.register_at_fork(after_in_child=_hang_up_all)
