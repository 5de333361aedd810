"""Handles the requests of producers and operators, except frames (`reception`). Used by the loop only.

A `hello` is answered with what this daemon is, what it takes, and where its sockets are.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from acqstream import __version__
from acqstream.daemon.acquisition import AcquisitionRegistry, ActiveAcquisition, Peer
from acqstream.daemon.announcer import Announcer
from acqstream.daemon.config import DaemonConfig
from acqstream.daemon.data_directory import DataDirectory, boot_id, check_name
from acqstream.daemon.endpoints import Endpoints
from acqstream.daemon.open_queue import OpenQueue
from acqstream.daemon.open_requests import OpenRequests, kept_entries, kept_summary, state_of
from acqstream.daemon.resources import Resources, unexpected
from acqstream.daemon.runtime_folder import ShutdownFile
from acqstream.daemon.view_process import ViewProcess
from acqstream.description.space import not_understood
from acqstream.errors import (
    AcqStreamError,
    AcquisitionRefused,
    FrameRefused,
    ProtocolError,
    StorageError,
)
from acqstream.mirrors.run_end import mirror_results
from acqstream.model.frame_header import MAX_NUMBER
from acqstream.model.state import AcquisitionState
from acqstream.model.status import DaemonStatus
from acqstream.model.view_spec import MirrorResult
from acqstream.protocol import requests
from acqstream.protocol.encoding import MAX_HEADER_BYTES, MAX_PART_BYTES
from acqstream.protocol.replies import Closed, Error, MirrorsReply, Noted, ShutdownReply, StatusReply, Welcome
from acqstream.protocol.requests import PROTOCOL_VERSION, Mirrors
from acqstream.protocol.session import Event

logger = logging.getLogger("acqstream.daemon")

MAX_ID_CHARACTERS = 64
MAX_REASON_CHARACTERS = 1000  # in a message, which has to hold all of them


class RequestHandler:
    """Answers one request at a time. daemon_status returns the status of the daemon; stop makes it end."""

    def __init__(
        self,
        config: DaemonConfig,
        directory: DataDirectory,
        endpoints: Endpoints,
        resources: Resources,
        registry: AcquisitionRegistry,
        *,
        announcer: Announcer,
        shutdown_file: ShutdownFile,
        stop: Callable[[], None],
        daemon_status: Callable[[], DaemonStatus],
    ) -> None:
        self._config = config
        self._directory = directory
        self._endpoints = endpoints
        self._space, self._views, self._reads = resources.space, resources.views, resources.reads
        self._registry = registry
        self._announcer = announcer
        self._shutdown_file = shutdown_file
        self._stop_daemon = stop
        self._daemon_status = daemon_status
        self._opens = OpenQueue(
            OpenRequests(config, directory, resources),
            registry,
            announcer,
            resources,
            endpoints.memory_server,
            fail=lambda peer, dataset_id, error: self.fail(peer, {"t": "open", "ds": dataset_id}, error),
        )

    def stop(self) -> None:
        """Open no acquisition any more. For any thread, or a signal handler."""
        self._opens.is_stopping = True

    def tick(self, now_s: float) -> None:
        """Answer `open` requests whose work on the disk is done; called in each turn of the loop."""
        self._opens.tick(now_s)

    def open(self, peer: Peer, request: requests.Open, accept: Callable[[], None]) -> None:
        """Handle an `open`, now or once the disk has answered; accept is called when it is accepted."""
        try:
            self._opens.open(peer, request, accept)
        except AcqStreamError as error:
            self._announcer.send_error(peer, None, error)

    def handle(self, peer: Peer, request: requests.Request) -> None:
        """Handle any other request that is not a frame, after an `open` of its connection that waits.

        `hello` and `shutdown` ask nothing of an acquisition, and are answered at once.
        """
        dataset_id = getattr(request, "dataset_id", None)
        try:
            is_urgent = isinstance(request, requests.Hello | requests.Shutdown)
            if not is_urgent and self._opens.defer(peer, dataset_id, partial(self._handle, peer, request)):
                return
        except AcqStreamError as error:
            self._announcer.send_error(peer, dataset_id, error)
        else:
            self._handle(peer, request)

    def _handle(self, peer: Peer, request: requests.Request) -> None:
        try:
            match request:
                case requests.Hello():
                    self._announcer.send(peer, welcome(self._config, self._endpoints, self._shutdown_file))
                case requests.Ping():
                    self._ping(peer, request)
                case requests.Close():
                    self._close(peer, request)
                case requests.Skip():
                    self._skip(peer, request)
                case requests.Patch():
                    self._patch(peer, request)
                case requests.Stored():
                    self._registry.of_producer(peer, request.dataset_id).request_keys(request.at)
                case requests.Stop():
                    self._stop(peer, request.name)
                case requests.Shutdown():
                    self._shutdown(peer, request)
                case requests.Mirrors():
                    self._mirrors(peer, request)
                case requests.AddNote():
                    self._note(peer, request)
        except AcqStreamError as error:
            note_id = request.note.id if isinstance(request, requests.AddNote) else None
            self._announcer.send_error(peer, getattr(request, "dataset_id", None), error, note_id=note_id)

    def refuse(
        self, peer: Peer, fields: Mapping[str, Any], error: ProtocolError | FrameRefused, payload_bytes: int
    ) -> None:
        """Refuse a message; payload_bytes is the length of its payload.

        A bad frame of a producer costs that frame; one that breaks the protocol ends the acquisition.
        """
        dataset_id, _ = self._sender(peer, fields)
        try:
            if self._opens.defer(peer, dataset_id, partial(self._refuse, peer, fields, error, payload_bytes)):
                return
        except AcqStreamError as busy:
            self._announcer.send_error(peer, dataset_id, busy)
        else:
            self._refuse(peer, fields, error, payload_bytes)

    def _refuse(
        self, peer: Peer, fields: Mapping[str, Any], error: ProtocolError | FrameRefused, payload_bytes: int
    ) -> None:
        dataset_id, acquisition = self._sender(peer, fields)
        if acquisition is not None and fields.get("t") in ("frame", "frames", "skip"):
            if error.code == "unknown_ds":  # the `open` was not answered when the frame came
                number = fields["n"]
                text = f"frame {number} came before the acquisition was opened"
                error = FrameRefused(text, code="limit_exceeded", number=number)
            try:
                if not isinstance(error, FrameRefused):
                    raise error
                count = fields["count"] if fields["t"] == "frames" else 1
                acquisition.refuse(error, count, payload_bytes // count)
            except AcqStreamError as fault:
                if acquisition.log.error is None:  # else the supervisor reports that one
                    self._end_refused(acquisition, fault)
        else:
            note_id = fields.get("id") if fields.get("t") == "note" else None
            if not (isinstance(note_id, str) and len(note_id) <= MAX_ID_CHARACTERS and note_id.isprintable()):
                note_id = None  # it may have half a surrogate, which no message can have
            self._announcer.send_error(peer, dataset_id, error, note_id=note_id)

    def fail(self, peer: Peer, fields: Mapping[str, Any], error: Exception) -> None:
        """Report a bug in the daemon that a message triggered. It ends the sender's acquisition and no other."""
        logger.error("unexpected error while handling a message of type %r", fields.get("t"), exc_info=error)
        fault = unexpected(error)
        dataset_id, acquisition = self._sender(peer, fields)
        if acquisition is not None:
            self._end_refused(acquisition, fault)
        else:
            self._announcer.send_error(peer, dataset_id, fault)

    def _sender(self, peer: Peer, fields: Mapping[str, Any]) -> tuple[str | None, ActiveAcquisition | None]:
        """Return the dataset id that an unchecked message names, and its acquisition if that is the peer's own."""
        dataset_id = fields.get("ds")
        if not isinstance(dataset_id, str):
            return None, None
        acquisition = self._registry.by_id(dataset_id)
        is_own = acquisition is not None and acquisition.peer.identity == peer.identity
        return dataset_id, acquisition if is_own else None

    def _end_refused(self, acquisition: ActiveAcquisition, error: AcqStreamError) -> None:
        """End an acquisition whose producer sent a bad message; drop what follows, report the first error.

        The dataset can be resumed: a mistake of a program must not be the end of a day's data.
        """
        if acquisition.end(Event.REFUSED, "interrupted", str(error)):
            acquisition.is_error_reported = True
            number = getattr(error, "number", None)
            self._announcer.notify(
                acquisition, Error(error.code, str(error), acquisition.dataset_id, number, fatal=True)
            )

    def _ping(self, peer: Peer, request: requests.Ping) -> None:
        if request.dataset_id is None:
            self._announcer.send(peer, StatusReply(self._daemon_status()))
            return
        acquisition = self._registry.of_producer(peer, request.dataset_id)
        if request.number is not None:
            acquisition.progress.sent = request.number
        self._announcer.send(peer, StatusReply(acquisition.status(self._space)))

    def _close(self, peer: Peer, request: requests.Close) -> None:
        receipt = self._registry.receipt(request.dataset_id)
        if receipt is not None:
            self._announcer.send(peer, Closed(receipt))
            return
        acquisition = self._registry.of_producer(peer, request.dataset_id)
        status = request.status
        if acquisition.session.on(Event.CLOSE, time.monotonic(), (status, request.reason)):
            acquisition.log.begin_close(status, request.reason, sent=request.number)
        elif status != "completed":
            acquisition.log.abandon(status, request.reason)  # it closes already, and waits for space

    def _skip(self, peer: Peer, request: requests.Skip) -> None:
        acquisition = self._registry.of_producer(peer, request.dataset_id)
        if acquisition.session.state is AcquisitionState.CLOSING:
            return  # too late; the receipt reports it
        received = acquisition.log.received
        if request.number + request.count <= received:
            self._announcer.acknowledge(acquisition)  # a repeated request
            return
        first = max(request.number, received) if request.number <= received else request.number
        try:
            acquisition.log.skip(first, request.number + request.count - first, request.reason)
        except FrameRefused as error:
            self._end_refused(acquisition, error)

    def _patch(self, peer: Peer, request: requests.Patch) -> None:
        acquisition = self._registry.of_producer(peer, request.dataset_id)
        if request.summary is not None:
            log = acquisition.log
            merged = log.patch_summary(
                request.summary, keeps=acquisition.is_resumed
            )  # it may be the rest of a large one
            for text in kept_summary(kept_entries(request.summary, merged)):
                log.notes.warn("resume_keeps", f"resume keeps the first {text}")
            if odd := not_understood(request.summary):
                log.notes.warn("not_understood", odd)
        if request.display is not None:
            acquisition.log.set_display(request.display)

    def _mirrors(self, peer: Peer, request: requests.Mirrors) -> None:
        acquisition = self._registry.by_id(request.dataset_id)
        if acquisition is not None:
            self._announcer.send(peer, mirrors_of_running(acquisition, self._views))
            return
        check_name(request.name)

        def answer(found: tuple[str, MirrorsReply]) -> None:
            folder, stored = found
            self._announcer.send(peer, with_recent(stored, self._views.results(folder)))

        self._reads.submit(
            peer.identity,
            partial(read_stored_mirrors, request, self._directory),
            answer,
            partial(self._announcer.send_error, peer, request.dataset_id),
        )

    def _note(self, peer: Peer, request: requests.AddNote) -> None:
        """Store a note in a thread: frames do not wait for it, and a full disk refuses the note alone."""
        acquisition = (
            self._named(request.name)
            if request.dataset_id is None
            else self._registry.of_producer(peer, request.dataset_id)
        )
        note, dataset_id, log = request.note, acquisition.dataset_id, acquisition.log
        note = replace(
            note,
            time_ns=time.time_ns() if request.time_ns is None else request.time_ns,
            frame=log.received if note.frame is None else note.frame,
        )
        self._reads.submit(
            peer.identity,
            partial(log.add_note, note),
            lambda one: self._announcer.send(peer, Noted(one.id, dataset_id, log.folder, one.frame)),
            partial(self._refuse_note, peer, dataset_id, note.id),
        )

    def _refuse_note(self, peer: Peer, dataset_id: str, note_id: str, error: AcqStreamError) -> None:
        if isinstance(error, StorageError) and error.errno == errno.ETIMEDOUT:  # the thread may store it yet
            text = "the disk has not answered; the note may be stored: look before you send it again"
            error = AcquisitionRefused(text, code="io_error")
        self._announcer.send_error(peer, dataset_id, error, note_id=note_id)

    def _named(self, name: str) -> ActiveAcquisition:
        acquisition = self._registry.by_name(name)
        if acquisition is None:
            raise ProtocolError(f"no running acquisition has the name {name!r:.120}", code="unknown_ds")
        return acquisition

    def _stop(self, peer: Peer, name: str) -> None:
        """End an acquisition for an operator, who gets its receipt when it is finished."""
        acquisition = self._named(name)
        if peer not in acquisition.stop_requesters:
            acquisition.stop_requesters.append(peer)
        reason = "stopped by the operator"
        if acquisition.end(Event.STOP, "canceled", reason):
            acquisition.is_error_reported = True
            self._announcer.notify(acquisition, Error("stopped", reason, acquisition.dataset_id, fatal=True))
        else:
            acquisition.log.abandon("canceled", reason)  # it closes already; perhaps it waits for space

    def _shutdown(self, peer: Peer, request: requests.Shutdown) -> None:
        """End the daemon for whoever could read its key. Asking again does not hurry it, unlike a second signal."""
        if not self._shutdown_file.has_key(request.key):
            text = f"the key is not the one in {self._shutdown_file.path} on the daemon's machine"
            raise AcquisitionRefused(text, code="denied")
        self._announcer.send(peer, ShutdownReply(len(self._registry)))
        if not self._opens.is_stopping:
            logger.info("a shutdown request came: %d acquisitions are finished first", len(self._registry))
            self._stop_daemon()


def welcome(config: DaemonConfig, endpoints: Endpoints, shutdown_file: ShutdownFile) -> Welcome:
    return Welcome(
        version=PROTOCOL_VERSION,
        server=f"acqstream {__version__}",
        formats=("ndtiff",),
        dtypes=("|u1", "<u2"),
        max_header=MAX_HEADER_BYTES,
        max_payload=config.max_payload_mb * 2**20,
        boot=boot_id(),
        ipc=endpoints.ipc,
        events=endpoints.events_endpoint,
        memory=endpoints.memory_server.address if endpoints.memory_server is not None else "",
        sockets=endpoints.identities(),
        max_skip=MAX_NUMBER,
        max_patch=MAX_PART_BYTES,
        shutdown=str(shutdown_file.path),
    )


def mirrors_of_running(acquisition: ActiveAcquisition, views: ViewProcess) -> MirrorsReply:
    """Return the mirrors of a running acquisition, as the view process reports them."""
    in_progress = _short(views.results(acquisition.log.folder).values())
    return MirrorsReply(acquisition.dataset_id, acquisition.session.state, in_progress)


def read_stored_mirrors(request: Mirrors, directory: DataDirectory) -> tuple[str, MirrorsReply]:
    """Read the mirrors that are recorded in a dataset's folder, and return the folder too. Reads the disk: in a thread.

    request.name: checked. Raises ProtocolError (unknown_ds) if the data directory has no such dataset.
    """
    folder = directory.find(request.name)
    state = state_of(folder)
    if state is None or state.dataset_id != request.dataset_id:
        missing = f"dataset {request.dataset_id!r} is not in this data directory as {request.name!r:.120}"
        text = f"{missing}: its folder was renamed, moved or deleted"
        raise ProtocolError(text, code="unknown_ds")
    return os.fspath(folder), MirrorsReply(request.dataset_id, state.state, tuple(mirror_results(folder, state)))


def with_recent(stored: MirrorsReply, recent: Mapping[str, MirrorResult]) -> MirrorsReply:
    """Return stored results, replaced by the recent ones that the view process has reported since."""
    return replace(stored, mirrors=_short(_newer(one, recent) for one in stored.mirrors))


def _newer(stored: MirrorResult, recent: Mapping[str, MirrorResult]) -> MirrorResult:
    """Prefer what the daemon knows: the disk may have refused the record."""
    known = recent.get(stored.name)
    if known is None or known.state == stored.state or stored.complete:
        return stored
    return replace(known, path=stored.path)


def _short(mirrors: Iterable[MirrorResult]) -> tuple[MirrorResult, ...]:
    return tuple(replace(one, reason=one.reason[:MAX_REASON_CHARACTERS]) for one in mirrors)
