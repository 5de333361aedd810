"""What producers, operators and readers are told. Used by the loop only."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import Any

import zmq

from acqstream.daemon.acquisition import Acquisition, Peer
from acqstream.daemon.endpoints import Endpoints
from acqstream.errors import AcqStreamError
from acqstream.protocol.replies import Error, Reply, Warn
from acqstream.protocol.session import Event

logger = logging.getLogger("acqstream.daemon")

MAX_TOLD_AGAIN = 100  # of the latest warnings, to a producer that is back; `status` has them too


class Announcer:
    """send answers a peer and says whether it can be reached; a producer that cannot has grace_s to come back."""

    def __init__(self, send: Callable[[Peer, Reply], bool], endpoints: Endpoints, grace_s: float) -> None:
        self.send = send
        self._endpoints = endpoints
        self._grace_s = grace_s

    def tell(self, acquisition: Acquisition, reply: Reply) -> None:
        """Send to the acquisition's producer; note if it cannot be reached."""
        if not self.send(acquisition.peer, reply) and acquisition.session.lost_at_s is None:
            logger.warning("%s: its producer is lost; waiting %g s for it", acquisition.name, self._grace_s)
            acquisition.session.on(Event.LOST, time.monotonic())

    def tell_cursors(self, acquisition: Acquisition, now_s: float, *, force: bool = False) -> None:
        """Tell producer and readers how far it is, if that is news (force: in any case)."""
        published = acquisition.told[0].published
        ack = acquisition.ack(now_s, force=force)
        if ack is None:
            return
        self.tell(acquisition, ack)
        if ack.cursors.published != published:
            self.announce(acquisition, {"t": "published", "published": ack.cursors.published})

    def tell_warnings(self, acquisition: Acquisition) -> None:
        """Pass on what the log and its views have noted since the last time."""
        for text in acquisition.views.take_warnings():
            acquisition.log.notes.warn("uncalibrated", text)
        for code, text, noted_at in acquisition.log.warnings[acquisition.warnings_told :]:
            acquisition.warnings_told += 1
            logger.warning("%s: %s: %s", acquisition.name, code, text)
            self.tell(acquisition, Warn(acquisition.dataset_id, code, text, noted_at))

    def tell_warnings_again(self, acquisition: Acquisition) -> None:
        """To a producer that is back: which of them have reached it nobody can tell. It knows them by their time."""
        for code, text, noted_at in acquisition.log.warnings[: acquisition.warnings_told][-MAX_TOLD_AGAIN:]:
            self.tell(acquisition, Warn(acquisition.dataset_id, code, text, noted_at))

    def tell_keys(self, acquisition: Acquisition) -> None:
        """A page of the axes that are stored, if its producer waits for one."""
        try:
            page = acquisition.take_keys()
        except AcqStreamError as error:
            logger.warning("%s: its stored frames cannot be told: %s", acquisition.name, error)
            self.tell(acquisition, Error("io_error", str(error), acquisition.dataset_id))
            return
        if page is not None:
            self.tell(acquisition, page)

    def tell_error(self, acquisition: Acquisition, error: AcqStreamError) -> None:
        """The log has failed: its producer learns it with the number of the first frame that is not stored."""
        acquisition.is_error_told = True
        acquisition.session.on(Event.FAILED, time.monotonic(), ("failed", str(error)))
        logger.error("%s: %s", acquisition.name, error)
        self.tell(acquisition, _error(error, acquisition.dataset_id, fatal=True))

    def answer_error(self, peer: Peer, dataset_id: str | None, error: AcqStreamError) -> None:
        """A request that was refused, to whoever sent it."""
        self.send(peer, _error(error, dataset_id, fatal=False))

    def announce(self, acquisition: Acquisition, event: dict[str, Any]) -> None:
        """Publish an event to readers."""
        topic = acquisition.dataset_id.encode()
        body = json.dumps({**event, "ds": acquisition.dataset_id}).encode()
        # XPUB drops for slow subscribers; it never blocks.
        self._endpoints.events.send_multipart([topic, body], zmq.DONTWAIT)


def _error(error: AcqStreamError, dataset_id: str | None, *, fatal: bool) -> Error:
    number = getattr(error, "number", None)
    errno = error.errno if isinstance(error, OSError) else None
    return Error(error.code, str(error), dataset_id, number, errno, fatal=fatal)
