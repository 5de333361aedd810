"""Passes messages from the socket to the recorder until it is stopped."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import zmq

from acqstream.errors import ConfigError
from acqstream.model.receipt import Receipt
from acqstream.model.units import count_text
from acqstream.receive.dectris_recorder import DectrisRecorder
from acqstream.receive.dectris_stream import require_cbor
from acqstream.receive.recorder import Recorder, StreamSettings, StreamTally

_POLL_MS = 100
_REORDER_S = 1.0  # of silence, after which messages that wait for others are stored
_MAX_PART_BYTES = 2**30  # a peer that sends more is disconnected
_LOOPBACK = {"127.0.0.1", "localhost", "::1"}
_LOG = logging.getLogger(__name__)


def receive_stream(
    settings: StreamSettings, stop: threading.Event, closed: Callable[[Receipt], None] | None = None
) -> StreamTally:
    """Record until `stop` is set or settings.frames were sent. Messages that wait in the socket are still recorded.

    closed is called with the receipt of every dataset that ended. Raises ConfigError for an endpoint that cannot be
    used, and the error of a run that fails, after closing its dataset if that is possible.
    """
    if settings.format == "dectris":
        require_cbor()
    recorder = (DectrisRecorder if settings.format == "dectris" else Recorder)(settings, closed)
    with zmq.Context() as context, _socket(context, settings) as socket:
        try:
            _record(socket, recorder, settings, stop)
            recorder.end("stopped" if stop.is_set() else f"{count_text(settings.frames or 0, 'frame', 'were')} sent")
        except BaseException as error:
            recorder.fail(error)
            raise
    return recorder.tally


def _socket(context: zmq.Context[zmq.Socket[bytes]], settings: StreamSettings) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.SUB if settings.pattern == "sub" else zmq.PULL)
    socket.linger = 0
    socket.rcvhwm = settings.queue
    socket.setsockopt(zmq.MAXMSGSIZE, _MAX_PART_BYTES)
    if settings.pattern == "sub":
        socket.subscribe(b"")  # all messages: the first part is the header, not a topic
    try:
        if settings.bind:
            socket.bind(settings.stream)
        else:
            socket.connect(settings.stream)
    except zmq.ZMQError as error:
        socket.close()
        verb = "bind" if settings.bind else "connect to"
        raise ConfigError(f"cannot {verb} the stream {settings.stream}: {error.strerror}") from error
    if settings.bind and settings.stream.startswith("tcp:") and urlsplit(settings.stream).hostname not in _LOOPBACK:
        _LOG.warning("%s: every program that reaches this address can send frames", settings.stream)
    return socket


def _record(socket: zmq.Socket[bytes], recorder: Recorder, settings: StreamSettings, stop: threading.Event) -> None:
    received_s = time.monotonic()  # of the last message
    left = settings.queue  # messages still taken after the stop: what may be waiting
    while settings.frames is None or recorder.tally.sent < settings.frames:
        stopping = stop.is_set()
        if not socket.poll(0 if stopping else _POLL_MS):
            if stopping:
                return
            if recorder.waits and time.monotonic() - received_s >= _REORDER_S:
                recorder.settle()
            if recorder.silence_ends and recorder.recording and time.monotonic() - received_s >= settings.idle_s:
                recorder.end(f"no message for {settings.idle_s:g} s")
            continue
        received_s = time.monotonic()
        recorder.take([part.buffer for part in socket.recv_multipart(copy=False)])
        left -= stopping
        if left <= 0:
            return
