"""The daemon's loop: sockets, sessions and logs meet here, in one thread, and nothing heavy is done.

A message is received in two steps: the header first; then the payload straight into the place that the log gives.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from types import FrameType
from typing import Any

import zmq

from acqstream.daemon.acquisition import Peer
from acqstream.daemon.config import DaemonConfig
from acqstream.daemon.connection_guard import ConnectionGuard
from acqstream.daemon.crashed_datasets import recover_all
from acqstream.daemon.data_directory import DataDirectory
from acqstream.daemon.descriptors import raise_descriptor_limit
from acqstream.daemon.endpoints import Endpoints
from acqstream.daemon.exit_status import Outcome
from acqstream.daemon.memory_limit import memory_limit_bytes
from acqstream.daemon.office import Office
from acqstream.daemon.reception import Reception
from acqstream.daemon.resources import Resources
from acqstream.daemon.service import Service
from acqstream.daemon.unfinished_views import go_on_with_views
from acqstream.daemon.waker import Wakeup
from acqstream.errors import FrameRefused, ProtocolError
from acqstream.protocol.encoding import MAX_HEADER_BYTES, Encoding, decode_header, encode_header
from acqstream.protocol.frame_batch import Frames
from acqstream.protocol.replies import Reply
from acqstream.protocol.requests import Frame, Open, parse_request
from acqstream.storage.allocator import keep_large_blocks
from acqstream.storage.disk import Disk, LocalDisk

logger = logging.getLogger("acqstream.daemon")

TURN_S = 0.02  # how long one turn of the loop takes messages before it looks after the acquisitions
SUBSCRIPTIONS_BYTES = 2**16  # of one reader of events, in all
IDLE_POLL_MS = 250
KEPT_HEAP_BYTES = 256 * 2**20  # frames that the sockets hold between the kernel and the log
QUIET_MS = 50  # how long nothing comes in before the daemon ends
FAREWELL_MS = 1000  # for last replies to leave when the daemon ends


class Server:
    """One daemon. `run` until `stop` (any thread, or a signal handler)."""

    def __init__(
        self, config: DaemonConfig, disk: Disk | None = None, *, on_recovered: Callable[[], None] = lambda: None
    ) -> None:
        with ExitStack() as undo:
            self.directory = DataDirectory(config.data)
            undo.callback(self.directory.close)
            self._service = Service()
            undo.callback(self._service.close)
            recover_all(self._service.starting(self.directory.folders()))
            on_recovered()
            self.endpoints = Endpoints(config)
            undo.callback(self.endpoints.close)
            self._prepare(config, disk or LocalDisk(), undo)
            undo.pop_all()  # from here on `close` does it

    def _prepare(self, config: DaemonConfig, disk: Disk, undo: ExitStack) -> None:
        """What serves those who come to the endpoints."""
        self._wakeup = Wakeup()
        self._socket = self.endpoints.producers
        self._guard = ConnectionGuard(
            self._socket,
            max_connections=config.max_connections,
            max_message_bytes=config.max_payload_mb * 2**20 + MAX_HEADER_BYTES,
        )
        # Readers send subscriptions only. None of these is noted, so the limit holds for the life of a connection.
        self._events_guard = ConnectionGuard(
            self.endpoints.events,
            max_connections=config.max_connections,
            max_message_bytes=0,
            unopened_bytes=SUBSCRIPTIONS_BYTES,
            measures=False,
        )
        resources = Resources(config, disk, self._wakeup.wake)
        self._budget = resources.budget
        undo.callback(resources.space.close, is_disk_well=True)
        resources.space.start()
        go_on_with_views(resources.views, self.directory.folders())
        self._office = Office(config, self.directory, self.endpoints, resources, self._send)
        self._reception = Reception(self._socket, self._office, max_payload_bytes=config.max_payload_mb * 2**20)
        self._stop_timeout_s = config.stop_timeout_s
        self._is_stopping = False
        self._stop_by_s = float("inf")

    def stop(self) -> None:
        """Finish all acquisitions, then leave `run`; asked for a second time, leave it at once."""
        self._stop_by_s = time.monotonic() + (0.0 if self._is_stopping else self._stop_timeout_s)
        self._is_stopping = True
        self._wakeup.wake()

    def note_fault(self) -> None:
        """An unexpected error ended a thread: what runs goes on as far as it can, the daemon will not end well."""
        self._office.outcome = Outcome.FAULT

    def run(self) -> Outcome:
        """Serve until stopped; how it went."""
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self.endpoints.events, zmq.POLLIN)
        poller.register(self._wakeup.fileno(), zmq.POLLIN)
        desk = self.endpoints.desk
        if desk is not None:
            poller.register(desk.fileno(), zmq.POLLIN)
        for guard in (self._guard, self._events_guard):
            if guard.monitor is not None:
                poller.register(guard.monitor, zmq.POLLIN)  # a new connection is watched from its first byte
        office = self._office
        try:
            while True:
                ready = dict(poller.poll(self._events_guard.poll_ms(self._guard.poll_ms(office.poll_ms(IDLE_POLL_MS)))))
                if self._wakeup.fileno() in ready:
                    self._wakeup.clear()
                if desk is not None:
                    desk.serve(time.monotonic())  # before messages: an `open` may name what has just come
                is_drained = self._socket not in ready or self._receive_turn()
                self._guard.check(time.monotonic(), is_drained=is_drained, lent_bytes=self._budget.used_bytes)
                self._events_guard.check(time.monotonic(), is_drained=True)
                if self.endpoints.events in ready:
                    self.endpoints.events.recv()  # a subscription
                if self._is_stopping:
                    office.stop_all()
                office.look_after(time.monotonic())
                self._service.look_after(
                    office.acquisitions.values(),
                    time.monotonic(),
                    is_stopping=self._is_stopping,
                    free_bytes=office.space.free_bytes,
                )
                if self._is_stopping and not office.acquisitions:
                    self._hear_out(poller)
                    return office.outcome
                if time.monotonic() >= self._stop_by_s:
                    office.abandon_all("the time to stop is over")
                    return office.outcome
        finally:
            self.close()

    def close(self) -> None:
        """Close sockets and lock; acquisitions must have ended."""
        self._guard.close()
        self._events_guard.close()
        self._office.views.close()
        self._office.space.close(is_disk_well=not self._office.acquisitions)
        self.endpoints.close(FAREWELL_MS)
        self._wakeup.close()
        self._service.close()
        self.directory.close()

    def _hear_out(self, poller: zmq.Poller) -> None:
        """Take what still comes in: a tcp connection that is closed with unread input loses the last replies."""
        until_s = time.monotonic() + FAREWELL_MS / 1000
        while time.monotonic() < until_s and self._socket in dict(poller.poll(QUIET_MS)):
            self._receive_turn()

    def _receive_turn(self) -> bool:
        """Take messages for a while; True if none is left."""
        until = time.monotonic() + TURN_S
        while time.monotonic() < until:
            if self._reception.is_draining and not self._reception.drain():
                continue
            try:
                identity = self._socket.recv(zmq.DONTWAIT)
            except zmq.Again:
                return True
            self._receive(identity)
        return False

    def _receive(self, identity: bytes) -> None:
        """One message of one peer. Its parts are there already: a multipart message arrives whole."""
        part = self._socket.recv(copy=False)
        self._guard.note(part)
        encoding = Encoding.JSON
        fields: dict[str, Any] = {}
        try:
            fields, encoding = decode_header(part.bytes)
            request = parse_request(fields)
            if isinstance(request, Frame | Frames):
                self._reception.receive(Peer(identity, encoding), request, has_payload=part.more)
                return
            if part.more:
                raise ProtocolError(f"{fields['t']!r} is one part; more came")
            self._office.handle(Peer(identity, encoding), request)
            if isinstance(request, Open) and self._office.has_producer(identity):
                self._guard.note_opened(part)
        except (ProtocolError, FrameRefused) as error:
            self._reception.drain()
            self._office.refuse(Peer(identity, encoding), fields, error)
        except zmq.ZMQError:
            raise
        except Exception as error:  # noqa: BLE001 - one message must not end everybody's acquisitions
            self._reception.drain()
            self._office.fail(Peer(identity, encoding), fields, error)

    def _send(self, peer: Peer, reply: Reply) -> bool:
        """Send without waiting; False if the peer cannot be reached.

        A peer whose queue is full loses this reply: cursors are absolute, the next one makes up for it.
        """
        try:
            self._socket.send_multipart([peer.identity, encode_header(reply.fields(), peer.encoding)], zmq.DONTWAIT)
        except zmq.Again:
            return True
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                return False
            raise
        return True


def serve(config: DaemonConfig) -> Outcome:
    """Run a daemon until SIGTERM or SIGINT; how it went. Raises ConfigError or DatasetLocked before it starts."""
    keep_large_blocks(KEPT_HEAP_BYTES)
    raise_descriptor_limit()
    start = _Start()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, start.give_up)
    server = Server(config, on_recovered=start.end_of_recovery)
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda _number, _frame: server.stop())
    if start.is_given_up:
        server.stop()
    threading.excepthook = partial(_note_thread_error, server)
    limit_bytes = memory_limit_bytes()
    if limit_bytes is not None and limit_bytes < config.most_memory_mb * 2**20:
        text = "this service may take %d MiB of memory (MemoryMax); with its configuration it should be %d at least"
        logger.warning(text, limit_bytes // 2**20, config.most_memory_mb)
    logger.info("listening on %s, data in %s", ", ".join(server.endpoints.all), server.directory.path)
    return server.run()


class _Start:
    """SIGTERM or SIGINT before the daemon is ready: recovery can be cut short anywhere, making sockets cannot."""

    def __init__(self) -> None:
        self.is_given_up = self._is_recovered = False

    def end_of_recovery(self) -> None:
        self._is_recovered = True

    def give_up(self, _number: int, _frame: FrameType | None) -> None:
        if not self._is_recovered:
            sys.exit()
        self.is_given_up = True


def _note_thread_error(server: Server, fault: threading.ExceptHookArgs) -> None:
    """The edge of every thread: what got so far was not expected."""
    name = fault.thread.name if fault.thread is not None else "a thread"
    details = (fault.exc_type, fault.exc_value or fault.exc_type(), fault.exc_traceback)
    logger.error("thread %s ended with an unexpected error", name, exc_info=details)
    server.note_fault()
