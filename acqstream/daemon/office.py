"""The office: which acquisitions run, what their producers ask for, what they are told. Used by the loop only."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from acqstream import __version__
from acqstream.daemon.acquisition import Acquisition, Peer
from acqstream.daemon.announcer import Announcer
from acqstream.daemon.config import DaemonConfig
from acqstream.daemon.data_directory import DataDirectory
from acqstream.daemon.endpoints import Endpoints
from acqstream.daemon.exit_status import Outcome, outcome_of
from acqstream.daemon.machine import boot_id
from acqstream.daemon.mirror_inquiry import mirrors_reply
from acqstream.daemon.open_requests import TAKEOVER_EPOCHS, Openings
from acqstream.daemon.resources import Resources
from acqstream.daemon.shared_memory_server import memory_of
from acqstream.daemon.space import Level
from acqstream.daemon.welcome import welcome
from acqstream.errors import AcqStreamError, AcquisitionFailed, AcquisitionRefused, FrameRefused, ProtocolError
from acqstream.model.dataset_name import normal_name
from acqstream.model.frame_header import FrameHeader
from acqstream.model.receipt import Receipt, Status
from acqstream.model.state import AcquisitionState
from acqstream.protocol import requests
from acqstream.protocol.replies import Closed, Error, Opened, Reply, StatusReply
from acqstream.protocol.session import Event

logger = logging.getLogger("acqstream.daemon")

STATUS_INTERVAL_S = 1.0
HELD_ACK_POLL_MS = 20
MAX_RECEIPTS_KEPT = 100  # for producers that ask again after a lost connection


class Office:
    """send answers a peer and says whether it can be reached."""

    def __init__(
        self,
        config: DaemonConfig,
        directory: DataDirectory,
        endpoints: Endpoints,
        resources: Resources,
        send: Callable[[Peer, Reply], bool],
    ) -> None:
        self.acquisitions: dict[str, Acquisition] = {}
        self._config = config
        self._directory = directory
        self._endpoints = endpoints
        self._announcer = Announcer(send, endpoints, config.grace_s)
        self._budget, self.space, self.views = resources.budget, resources.space, resources.views
        self._openings = Openings(config, directory, resources)
        self._receipts: OrderedDict[str, Receipt] = OrderedDict()
        self._started_s = time.monotonic()
        self._status_at_s = 0.0
        self._is_stopping = False
        self.outcome = Outcome.WELL

    # Requests.

    def handle(self, peer: Peer, request: requests.Request) -> None:
        """Everything but frames."""
        try:
            match request:
                case requests.Hello():
                    self._announcer.send(peer, welcome(self._config, self._endpoints))
                case requests.Open():
                    self._open(peer, request)
                case requests.Ping():
                    self._ping(peer, request)
                case requests.Close():
                    self._close(peer, request)
                case requests.Skip():
                    self._skip(peer, request)
                case requests.Patch():
                    self._patch(peer, request)
                case requests.Stored():
                    self.find(peer, request.dataset_id).ask_keys(request.at)
                case requests.Stop():
                    self._stop(peer, request.name)
                case requests.Mirrors():
                    answer = mirrors_reply(request, self.acquisitions, self._directory, self.views)
                    self._announcer.send(peer, answer)
        except AcqStreamError as error:
            self._announcer.answer_error(peer, getattr(request, "dataset_id", None), error)

    def refuse(self, peer: Peer, fields: Mapping[str, Any], error: ProtocolError | FrameRefused) -> None:
        """A message that cannot be taken. A producer's own bad frame ends its acquisition; nobody else's does."""
        dataset_id = fields.get("ds") if isinstance(fields.get("ds"), str) else None
        acquisition = self.acquisitions.get(dataset_id or "")
        is_own = acquisition is not None and acquisition.peer.identity == peer.identity
        if is_own and acquisition is not None and fields.get("t") in ("frame", "frames", "skip"):
            self._end_refused(acquisition, error)
            return
        self._announcer.answer_error(peer, dataset_id, error)

    def _end_refused(self, acquisition: Acquisition, error: AcqStreamError) -> None:
        """The producer sent what cannot be taken. What follows it on the way is dropped; the first error was told.

        The dataset can be resumed: a mistake of a program must not be the end of a day's data.
        """
        if self._end(acquisition, Event.REFUSED, "interrupted", str(error)):
            acquisition.is_error_told = True
            number = getattr(error, "number", None)
            self._announcer.tell(acquisition, Error(error.code, str(error), acquisition.dataset_id, number, fatal=True))

    def fail(self, peer: Peer, fields: Mapping[str, Any], error: Exception) -> None:
        """A fault in the daemon met a message: it ends the sender's acquisition, and nothing else."""
        logger.error("a fault met a message of type %r", fields.get("t"), exc_info=error)
        fault = AcquisitionFailed(f"a fault in the daemon: {type(error).__name__}: {error}")
        dataset_id = fields.get("ds") if isinstance(fields.get("ds"), str) else None
        acquisition = self.acquisitions.get(dataset_id or "")
        if acquisition is not None and acquisition.peer.identity == peer.identity:
            self._end_refused(acquisition, fault)
        else:
            self._announcer.answer_error(peer, dataset_id, fault)

    def find(self, peer: Peer, dataset_id: str) -> Acquisition:
        """The peer's own running acquisition. Raises ProtocolError unknown_ds or denied."""
        acquisition = self.acquisitions.get(dataset_id)
        if acquisition is None:
            raise ProtocolError(f"no acquisition {dataset_id!r} is open here; send open first", code="unknown_ds")
        if acquisition.peer.identity != peer.identity:
            raise ProtocolError(f"acquisition {dataset_id!r} belongs to another connection", code="denied")
        return acquisition

    def has_producer(self, identity: bytes) -> bool:
        """An acquisition of this connection is open."""
        return any(one.peer.identity == identity for one in self.acquisitions.values())

    def acknowledge(self, acquisition: Acquisition) -> None:
        """Tell the producer again where it stands."""
        self._announcer.tell_cursors(acquisition, time.monotonic(), force=True)

    def note_frame(self, acquisition: Acquisition, header: FrameHeader) -> None:
        """After a frame was received: warn when the shape changes for the first time."""
        if acquisition.shape is None:
            acquisition.shape = header.shape
        elif header.shape != acquisition.shape and not acquisition.is_shape_change_told:
            acquisition.is_shape_change_told = True  # one that alternates would fill every status with warnings
            text = f"frame {header.number} has shape {header.shape}, before it was {acquisition.shape}"
            acquisition.log.notes.warn("shape_changed", f"{text}; further changes are not reported")

    def _open(self, peer: Peer, request: requests.Open) -> None:
        spec = request.spec
        known = self.acquisitions.get(spec.dataset_id)
        if known is None and spec.resume and spec.epoch == 0:
            known = next((one for one in self.acquisitions.values() if normal_name(one.name) == spec.name), None)
        if known is not None:
            self._reopen(peer, known, request)
            return
        receipt = self._receipts.get(spec.dataset_id)
        if receipt is not None and receipt.status != "interrupted":
            self._announcer.send(peer, Closed(receipt))  # it ended while the producer was away
            return
        if self._is_stopping:
            raise AcquisitionRefused("the daemon is shutting down", code="shutting_down")
        opened = self._openings.open(peer, spec, self.acquisitions.values())
        if isinstance(opened, Receipt):  # it ended before this daemon began
            self._announcer.send(peer, Closed(opened))
            return
        self._receipts.pop(opened.dataset_id, None)
        self.acquisitions[opened.dataset_id] = opened  # first: whatever fails from here on can be ended
        opened.take_memory(*memory_of(self._endpoints.desk, request.memory))

    def _reopen(self, peer: Peer, acquisition: Acquisition, request: requests.Open) -> None:
        """A producer is back after a lost connection, or was started again; the connection before is fenced off."""
        spec = request.spec
        if not spec.resume:
            raise AcquisitionRefused(f"acquisition {acquisition.dataset_id!r} is open already", code="name_taken")
        is_back = spec.dataset_id == acquisition.dataset_id
        if is_back and 0 < spec.epoch < acquisition.epoch:
            raise AcquisitionRefused(f"another producer has gone on with {acquisition.name}", code="denied")
        if not is_back:
            self.acknowledge(acquisition)  # tells whether the other one can still be reached
        if not is_back and acquisition.session.lost_at_s is None:
            text = f"{acquisition.name} is being written by another producer, which is still connected"
            raise AcquisitionRefused(text, code="denied")
        if not is_back and acquisition.session.state is AcquisitionState.CLOSING:
            raise AcquisitionRefused(f"{acquisition.name} is being closed; try again", code="shutting_down")
        acquisition.peer = peer
        acquisition.take_memory(*memory_of(self._endpoints.desk, request.memory))
        acquisition.epoch = max(spec.epoch, acquisition.epoch + (0 if is_back else TAKEOVER_EPOCHS))
        acquisition.is_resumed = True
        acquisition.session.on(Event.FOUND, time.monotonic())
        if acquisition.session.state is not AcquisitionState.OPENING:
            self._announcer.tell(acquisition, self._opened(acquisition))
            self.acknowledge(acquisition)  # the cursors that went over the old connection may be lost
            self._announcer.tell_warnings_again(acquisition)

    def _opened(self, acquisition: Acquisition) -> Opened:
        log = acquisition.log
        limit = acquisition.session.limit = log.limit()
        return Opened(
            dataset_id=acquisition.dataset_id,
            name=acquisition.name,
            path=str(Path(log.folder).absolute()),
            next=log.received,
            limit=limit,
            window_bytes=acquisition.share.length // 2,
            resumed=acquisition.is_resumed,
            received_bytes=log.received_payload_bytes,
            epoch=acquisition.epoch,
            io=log.io,
            memory=acquisition.memory.generation if acquisition.memory is not None else None,
            memory_why=acquisition.memory_why,
            stored=log.received_frames,
        )

    def _ping(self, peer: Peer, request: requests.Ping) -> None:
        if request.dataset_id is not None:
            acquisition = self.find(peer, request.dataset_id)
            self._announcer.send(peer, StatusReply(acquisition.status(self.space), acquisition.dataset_id))
            return
        values = {
            "version": __version__,
            "boot": boot_id(),
            "data": str(self._directory.path),
            "endpoints": self._endpoints.all,
            "uptime_s": round(time.monotonic() - self._started_s, 1),
            "memory_budget_bytes": self._budget.budget_bytes,
            "memory_used_bytes": self._budget.used_bytes,
            "memory_peak_bytes": self._budget.peak_bytes,
            "free_bytes": self.space.free_bytes,
            "space": str(self.space.level),
            "views": self.views.status(),
            "acquisitions": [{**one.status(self.space), "ds": one.dataset_id} for one in self.acquisitions.values()],
        }
        self._announcer.send(peer, StatusReply(values))

    def _close(self, peer: Peer, request: requests.Close) -> None:
        receipt = self._receipts.get(request.dataset_id)
        if receipt is not None:
            self._announcer.send(peer, Closed(receipt))
            return
        acquisition = self.find(peer, request.dataset_id)
        status = request.status
        if acquisition.session.on(Event.CLOSE, time.monotonic(), (status, request.reason)):
            acquisition.log.begin_close(status, request.reason, sent=request.number)
        elif status != "completed":
            acquisition.log.give_up(status, request.reason)  # it closes already, and waits for space

    def _skip(self, peer: Peer, request: requests.Skip) -> None:
        acquisition = self.find(peer, request.dataset_id)
        if acquisition.session.state is AcquisitionState.CLOSING:
            return  # too late; the receipt tells
        received = acquisition.log.received
        if request.number + request.count <= received:
            self.acknowledge(acquisition)  # known already
            return
        first = max(request.number, received) if request.number <= received else request.number
        try:
            acquisition.log.skip(first, request.number + request.count - first, request.reason)
        except FrameRefused as error:
            self._end_refused(acquisition, error)

    def _patch(self, peer: Peer, request: requests.Patch) -> None:
        acquisition = self.find(peer, request.dataset_id)
        if request.summary is not None:
            acquisition.log.patch_summary(request.summary)
        if request.display is not None:
            acquisition.log.set_display(request.display)

    def _stop(self, peer: Peer, name: str) -> None:
        """An operator ends an acquisition; who asks gets its receipt when it is finished."""
        acquisition = next((one for one in self.acquisitions.values() if normal_name(one.name) == name), None)
        if acquisition is None:
            raise ProtocolError(f"no acquisition called {name!r:.120} is running here", code="unknown_ds")
        if peer not in acquisition.stop_askers:
            acquisition.stop_askers.append(peer)
        reason = "stopped by the operator"
        if self._end(acquisition, Event.STOP, "canceled", reason):
            acquisition.is_error_told = True
            self._announcer.tell(acquisition, Error("stopped", reason, acquisition.dataset_id, fatal=True))
        else:
            acquisition.log.give_up("canceled", reason)  # it closes already; perhaps it waits for space

    # Looking after what runs.

    def abandon_all(self, why: str) -> None:
        """The daemon ends without what still runs: say which frames are not stored. Their producers still have them."""
        for acquisition in self.acquisitions.values():
            cursors, stall = acquisition.log.cursors(), acquisition.log.stall
            frames = f"frames {cursors.published} to {cursors.received - 1} were received and are not stored"
            cause = f" ({stall})" if stall else ""
            logger.error("%s: not finished, %s%s; %s", acquisition.name, why, cause, frames)
            self.outcome = max(self.outcome, Outcome.STORAGE)

    def poll_ms(self, idle_ms: int) -> int:
        """How long the loop may sleep."""
        if any(one.is_ack_pending() for one in self.acquisitions.values()):
            return HELD_ACK_POLL_MS
        return idle_ms

    def stop_all(self) -> None:
        """The daemon is ending: finish every acquisition with what has been received, so that it can be resumed."""
        self._is_stopping = True
        self.views.stop()
        for acquisition in self.acquisitions.values():
            acquisition.log.give_up("interrupted", "the daemon was stopped")
            if self._end(acquisition, Event.STOP, "interrupted", "the daemon was stopped"):
                text = "the daemon was stopped; what it acknowledged is stored"
                acquisition.is_error_told = True
                self._announcer.tell(acquisition, Error("shutting_down", text, acquisition.dataset_id))

    def look_after(self, now_s: float) -> None:
        """One turn: news for producers, once a second a sign of life, ends of acquisitions."""
        is_status_due = now_s - self._status_at_s >= STATUS_INTERVAL_S
        if is_status_due:
            self._status_at_s = now_s
        self.space.running = tuple(self.acquisitions.values())
        for acquisition in list(self.acquisitions.values()):
            self._look_after(acquisition, now_s, is_status_due=is_status_due)
        self.views.look_after(now_s, lambda: any(one.has_backlog for one in self.acquisitions.values()))

    def _look_after(self, acquisition: Acquisition, now_s: float, *, is_status_due: bool) -> None:
        session, log = acquisition.session, acquisition.log
        is_finished = log.is_finished  # asked first: what broke it at the very end is told before that it ended
        if (
            session.state is AcquisitionState.OPENING
            and log.state is not AcquisitionState.OPENING
            and log.error is None
        ):
            session.on(Event.OPENED, now_s)
            acquisition.views.begin(log.folder)
            logger.info("opened %s for acquisition %s", log.folder, acquisition.dataset_id)
            self._announcer.tell(acquisition, self._opened(acquisition))
            self._announcer.announce(acquisition, {"t": "opened", "name": acquisition.name, "path": log.folder})
        if log.error is not None and not acquisition.is_error_told:
            self._announcer.tell_error(acquisition, log.error)
        if session.state is not AcquisitionState.OPENING:
            self._announcer.tell_cursors(acquisition, now_s)
        is_pause_news = acquisition.note_space(self.space)
        if is_pause_news or (is_status_due and self.space.level is not Level.ENOUGH):
            self._announcer.announce(acquisition, {"t": "space", **acquisition.space_fields(self.space)})
        is_status_due |= is_pause_news
        if session.state is not AcquisitionState.OPENING:  # a producer that joins hears nothing before `opened`
            self._announcer.tell_warnings(acquisition)
            self._announcer.tell_keys(acquisition)
        if is_status_due:
            acquisition.measure_rate(now_s)
            self._announcer.tell(acquisition, StatusReply(acquisition.status(self.space), acquisition.dataset_id))
        if session.is_grace_over(now_s):
            reason = "the producer was lost and did not come back"
            acquisition.log.give_up("interrupted", reason)
            self._end(acquisition, Event.GRACE_OVER, "interrupted", reason)
        if is_finished:
            self._dismiss(acquisition)

    def _end(self, acquisition: Acquisition, event: Event, status: Status, reason: str) -> bool:
        if not acquisition.session.on(event, time.monotonic(), (status, reason)):
            return False
        acquisition.log.begin_close(status, reason)
        return True

    def _dismiss(self, acquisition: Acquisition) -> None:
        """The log has ended: last acknowledgement, receipt, memory back."""
        receipt = acquisition.log.receipt
        assert receipt is not None
        self.outcome = max(self.outcome, outcome_of(acquisition.log.error))
        self.acknowledge(acquisition)
        self._announcer.tell(acquisition, Closed(receipt))
        for asker in acquisition.stop_askers:
            self._announcer.send(asker, Closed(receipt))
        self._announcer.announce(acquisition, {"t": "closed", "status": receipt.status})
        logger.info(
            "closed %s: %s, %d frames stored, %d missing",
            receipt.path,
            receipt.status,
            receipt.stored,
            len(receipt.missing),
        )
        self._receipts[acquisition.dataset_id] = receipt
        while len(self._receipts) > MAX_RECEIPTS_KEPT:
            self._receipts.popitem(last=False)
        acquisition.take_memory(None)
        acquisition.views.end()
        acquisition.share.close()
        del self.acquisitions[acquisition.dataset_id]
