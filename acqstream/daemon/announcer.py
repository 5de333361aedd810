"""Sends news of acquisitions to producers, operators and readers. Used by the loop only."""

from __future__ import annotations

import dataclasses
import json
import logging
import time
from typing import Any

import zmq

from acqstream.daemon.acquisition import ActiveAcquisition, Peer
from acqstream.daemon.endpoints import Endpoints
from acqstream.errors import AcqStreamError
from acqstream.protocol.encoding import encode_header
from acqstream.protocol.replies import Error, Reply, Warn
from acqstream.protocol.session import Event

logger = logging.getLogger("acqstream.daemon")

MAX_REPEATED_WARNINGS = 100  # of the latest warnings, to a producer that is back; `status` has them too


class Announcer:
    """Writes to the daemon's sockets and never waits. A lost producer has grace_s to come back."""

    def __init__(self, endpoints: Endpoints, grace_s: float) -> None:
        self._producers, self._events = endpoints.producers, endpoints.events
        self._grace_s = grace_s

    def send(self, peer: Peer, reply: Reply) -> bool:
        """Send a reply; return False if the peer is unreachable.

        A peer whose queue is full loses this reply: cursors are absolute, the next one makes up for it.
        """
        try:
            self._producers.send_multipart([peer.identity, encode_header(reply.fields(), peer.encoding)], zmq.DONTWAIT)
        except zmq.Again:
            return True
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                return False
            raise
        return True

    def notify(self, acquisition: ActiveAcquisition, reply: Reply) -> None:
        """Send to the acquisition's producer; note the loss if it is unreachable."""
        if not self.send(acquisition.peer, reply) and acquisition.session.lost_at_s is None:
            logger.warning("%s: its producer is lost; waiting %g s for it", acquisition.name, self._grace_s)
            acquisition.session.on(Event.LOST, time.monotonic())

    def notify_cursors(self, acquisition: ActiveAcquisition, now_s: float, *, force: bool = False) -> None:
        """Send refused frames, then the cursors to producer and readers if they changed (force: in any case)."""
        published = acquisition.last_ack[0].published
        ack = acquisition.ack(now_s, force=force)
        self._notify_refused(acquisition)  # before the ack, and after the cursors in it were read
        if ack is None:
            return
        self.notify(acquisition, ack)
        if ack.cursors.published != published:
            self.publish(acquisition, {"t": "published", "published": ack.cursors.published})

    def _notify_refused(self, acquisition: ActiveAcquisition) -> None:
        errors: list[Error] = []
        for refused in acquisition.log.notes.take_refusals():
            error, last = _error(refused, acquisition.dataset_id, fatal=False), errors[-1] if errors else None
            if last is not None and (last.code, (last.number or 0) + last.count) == (error.code, error.number):
                errors[-1] = dataclasses.replace(last, count=last.count + 1)
            else:
                errors.append(error)
        for error in errors:
            self.notify(acquisition, error)

    def acknowledge(self, acquisition: ActiveAcquisition) -> None:
        """Send the cursors again, whether they changed or not."""
        self.notify_cursors(acquisition, time.monotonic(), force=True)

    def notify_warnings(self, acquisition: ActiveAcquisition) -> None:
        """Send the warnings that the log and its views have noted since the last call."""
        for code, text in acquisition.views.take_warnings():
            acquisition.log.notes.warn(code, text)
        for code, text, noted_at in acquisition.log.notes.warnings[acquisition.n_warnings_sent :]:
            acquisition.n_warnings_sent += 1
            logger.warning("%s: %s: %s", acquisition.name, code, text)
            self.notify(acquisition, Warn(acquisition.dataset_id, code, text, noted_at))

    def notify_warnings_again(self, acquisition: ActiveAcquisition) -> None:
        """Send the latest warnings again to a producer that is back; it recognizes those it has by their time."""
        sent = acquisition.log.notes.warnings[: acquisition.n_warnings_sent]
        for code, text, noted_at in sent[-MAX_REPEATED_WARNINGS:]:
            self.notify(acquisition, Warn(acquisition.dataset_id, code, text, noted_at))

    def notify_unreadable_keys(self, acquisition: ActiveAcquisition, error: AcqStreamError) -> None:
        """Report that the axes of stored frames cannot be read."""
        logger.warning("%s: cannot read the axes of its stored frames: %s", acquisition.name, error)
        self.notify(acquisition, Error("io_error", str(error), acquisition.dataset_id))

    def notify_failure(self, acquisition: ActiveAcquisition, error: AcqStreamError) -> None:
        """Report a failed log to its producer, with the number of the first frame that is not stored."""
        acquisition.is_error_reported = True
        acquisition.session.on(Event.FAILED, time.monotonic(), ("failed", str(error)))
        logger.error("%s: %s", acquisition.name, error)
        self.notify(acquisition, _error(error, acquisition.dataset_id, fatal=True))

    def send_error(
        self, peer: Peer, dataset_id: str | None, error: AcqStreamError, *, note_id: str | None = None
    ) -> None:
        """Answer a refused request. note_id: of the note that it brought."""
        self.send(peer, dataclasses.replace(_error(error, dataset_id, fatal=False), note_id=note_id))

    def publish(self, acquisition: ActiveAcquisition, event: dict[str, Any]) -> None:
        """Publish an event to readers."""
        topic = acquisition.dataset_id.encode()
        body = json.dumps({**event, "ds": acquisition.dataset_id}).encode()
        # XPUB drops for slow subscribers; it never blocks.
        self._events.send_multipart([topic, body], zmq.DONTWAIT)


def _error(error: AcqStreamError, dataset_id: str | None, *, fatal: bool) -> Error:
    number = getattr(error, "number", None)
    errno = error.errno if isinstance(error, OSError) else None
    return Error(error.code, str(error), dataset_id, number, errno, fatal=fatal)
