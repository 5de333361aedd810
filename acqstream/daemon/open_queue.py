"""Answers `open` requests one after the other, with their disk work in a thread: frames of others flow meanwhile.

An `open` that reaches a running acquisition or a kept receipt needs no disk and is answered at once. Any other waits
until those before it are answered, so two of them never choose the same name. It waits as long as the disk stalls.
"""

from __future__ import annotations

import errno
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from acqstream.daemon.acquisition import AcquisitionRegistry, ActiveAcquisition, Peer
from acqstream.daemon.announcer import Announcer
from acqstream.daemon.open_requests import TAKEOVER_EPOCHS, OpenPlan, OpenRequests, kept_settings, new_mirrors
from acqstream.daemon.resources import Resources
from acqstream.daemon.shared_memory_server import VISIT_S, SharedMemoryServer, offered_memory
from acqstream.errors import AcqStreamError, AcquisitionRefused, StorageError
from acqstream.model.acquisition_spec import AcquisitionSpec
from acqstream.model.receipt import Receipt
from acqstream.model.state import AcquisitionState
from acqstream.protocol.replies import Closed
from acqstream.protocol.requests import Open
from acqstream.protocol.session import Event

MIN_WAITING = 64  # `open` requests that may wait; as many as acquisitions may be open, if those are more
MAX_FOLLOWERS = 8  # later requests of the connection of one


@dataclass(slots=True, eq=False)
class _WaitingOpen:
    """An `open`, and what its connection sent after it. accept is called once its acquisition is open."""

    peer: Peer
    request: Open
    accept: Callable[[], None]
    followers: list[Callable[[], None]] = field(default_factory=list)


class OpenQueue:
    """Used by the loop only. fail reports an unexpected error to a peer, with the dataset id of its request."""

    def __init__(
        self,
        open_requests: OpenRequests,
        registry: AcquisitionRegistry,
        announcer: Announcer,
        resources: Resources,
        memory_server: SharedMemoryServer | None,
        *,
        fail: Callable[[Peer, str, Exception], None],
    ) -> None:
        self.is_stopping = False  # no acquisition is opened any more
        self._open_requests = open_requests
        self._registry = registry
        self._announcer = announcer
        self._max_waiting = max(MIN_WAITING, open_requests.max_acquisitions)
        self._preparations = resources.preparations
        self._memory_server = memory_server
        self._fail = fail
        self._waiting: deque[_WaitingOpen] = deque()
        self._is_preparing = False  # the first one, in the thread

    def __len__(self) -> int:
        return len(self._waiting)

    def open(self, peer: Peer, request: Open, accept: Callable[[], None]) -> None:
        """Answer an `open`, now or later. accept: see `_WaitingOpen`.

        Raises AcquisitionRefused or ProtocolError if it is refused now, also because too many wait.
        """
        one = _WaitingOpen(peer, request, accept)
        if self._last_of(peer) is None and self._answer_without_disk(one):
            return
        if len(self._waiting) >= self._max_waiting:
            text = f"{len(self._waiting)} other requests to open an acquisition wait for the disk"
            raise AcquisitionRefused(text, code="denied")
        self._waiting.append(one)
        self._keep_memory(one, math.inf)
        self._advance()

    def defer(self, peer: Peer, dataset_id: str | None, handle: Callable[[], None]) -> bool:
        """Call `handle` after the last waiting `open` of this connection is answered; return False if none waits.

        Requests of a running acquisition are not deferred: its frames are not either, and their order counts. Raises
        StorageError (EBUSY) if too many wait.
        """
        last = self._last_of(peer)
        if last is None or (dataset_id is not None and self._registry.by_id(dataset_id) is not None):
            return False
        if len(last.followers) >= MAX_FOLLOWERS:
            text = f"{len(last.followers)} requests of this connection wait for its 'open'"
            raise StorageError(OSError(errno.EBUSY, text), "the data directory", "cannot read")
        last.followers.append(handle)
        return True

    def tick(self, now_s: float) -> None:
        """Answer the request that the thread is done with, and begin the next. When stopping, refuse all."""
        self._preparations.tick(now_s)
        if self.is_stopping and self._is_preparing:  # without waiting for a stalled disk; the result is dropped
            self._refuse(self._waiting[0], _shutting_down())
        self._advance()

    def _last_of(self, peer: Peer) -> _WaitingOpen | None:
        return next((one for one in reversed(self._waiting) if one.peer.identity == peer.identity), None)

    def _advance(self) -> None:
        """Answer the first requests as long as they need no disk; have the thread prepare the one that does."""
        while self._waiting and not self._is_preparing:
            first = self._waiting[0]
            try:
                if self._answer_without_disk(first):
                    self._remove_first()
                    continue
                self._is_preparing = True
                names = frozenset(one.name for one in self._registry)
                prepare = partial(self._open_requests.prepare, first.request.spec, names)
                self._preparations.submit(
                    first.peer.identity, prepare, partial(self._finish, first), partial(self._refuse, first)
                )
            except Exception as error:  # noqa: BLE001 - one request must not end everybody's acquisitions
                self._refuse(first, error)

    def _finish(self, one: _WaitingOpen, plan: OpenPlan | Receipt) -> None:
        """Take the result of the thread."""
        if not self._is_first(one):
            return  # refused meanwhile, as the daemon stops
        try:
            if isinstance(plan, Receipt):  # it ended before this daemon began
                self._announcer.send(one.peer, Closed(plan))
            else:
                opened = self._open_requests.start(one.peer, plan)
                self._registry.add(opened)  # first: whatever fails from here on can be ended
                opened.take_memory(*offered_memory(self._memory_server, one.request.memory))
                one.accept()
        except Exception as error:  # noqa: BLE001 - one request must not end everybody's acquisitions
            self._refuse(one, error)
        else:
            self._remove_first()

    def _refuse(self, one: _WaitingOpen, error: Exception) -> None:
        if not self._is_first(one):
            return
        if isinstance(error, AcqStreamError):
            self._announcer.send_error(one.peer, None, error)
        else:
            self._fail(one.peer, one.request.spec.dataset_id, error)
        self._remove_first()

    def _is_first(self, one: _WaitingOpen) -> bool:
        return bool(self._waiting) and self._waiting[0] is one

    def _remove_first(self) -> None:
        """Remove the first request, which is answered, and handle what its connection sent after it."""
        one = self._waiting.popleft()
        self._is_preparing = False
        self._keep_memory(one, time.monotonic() + VISIT_S)  # if it was refused: a changed request may name it again
        for handle in one.followers:
            try:
                handle()
            except Exception as error:  # noqa: BLE001 - as above
                self._fail(one.peer, one.request.spec.dataset_id, error)

    def _keep_memory(self, one: _WaitingOpen, until_s: float) -> None:
        """Memory waits as long as the `open` that names it."""
        if self._memory_server is not None and one.request.memory.token:
            self._memory_server.keep(one.request.memory.token, until_s)

    def _answer_without_disk(self, one: _WaitingOpen) -> bool:
        """Return a producer to its running acquisition, or send its receipt; False if the disk must be read.

        Raises AcquisitionRefused.
        """
        spec = one.request.spec
        running = self._registry.by_id(spec.dataset_id)
        if running is None and spec.resume and spec.epoch == 0:
            running = self._registry.by_name(spec.name)
        if running is not None:
            self._reopen(one.peer, running, one.request)
            one.accept()
            return True
        receipt = self._registry.receipt(spec.dataset_id)
        if receipt is not None and receipt.status != "interrupted":
            self._announcer.send(one.peer, Closed(receipt))  # it ended while the producer was away
            return True
        if self.is_stopping:
            raise _shutting_down()
        return False

    def _reopen(self, peer: Peer, acquisition: ActiveAcquisition, request: Open) -> None:
        """Give a running acquisition to a producer that lost its connection or was restarted; fence the old one."""
        spec = request.spec
        if not spec.resume and spec.epoch <= acquisition.epoch:  # not a repetition, or one that comes late
            raise AcquisitionRefused(f"acquisition {acquisition.dataset_id!r} is already open", code="name_taken")
        is_same_producer = spec.dataset_id == acquisition.dataset_id
        if is_same_producer and 0 < spec.epoch < acquisition.epoch:
            raise AcquisitionRefused(f"{acquisition.name} was resumed by another producer", code="denied")
        if not is_same_producer:
            self._check_takeover(acquisition, spec)
        acquisition.peer = peer
        acquisition.take_memory(*offered_memory(self._memory_server, request.memory))
        takeover = 0 if is_same_producer else TAKEOVER_EPOCHS
        acquisition.epoch = max(spec.epoch, acquisition.epoch + takeover)
        acquisition.is_resumed = True
        acquisition.session.on(Event.FOUND, time.monotonic())
        first = acquisition.log.spec
        if not is_same_producer and (kept := kept_settings(spec, first.as_request(), first.views, is_running=True)):
            acquisition.log.notes.warn("resume_keeps", kept)
        if acquisition.session.state is not AcquisitionState.OPENING:
            self._announcer.notify(acquisition, acquisition.opened())
            acquisition.log.notes.repeat_refusals()
            self._announcer.acknowledge(acquisition)  # the cursors that went over the old connection may be lost
            self._announcer.notify_warnings_again(acquisition)

    def _check_takeover(self, acquisition: ActiveAcquisition, spec: AcquisitionSpec) -> None:
        """Raise AcquisitionRefused unless a new producer may take the acquisition over.

        One that wants further mirrors gets it in a moment: it is interrupted first, as mirrors begin with a run.
        """
        self._announcer.acknowledge(acquisition)  # notes the loss if the other producer is unreachable
        if acquisition.session.lost_at_s is None:
            text = f"{acquisition.name} is being written by another producer, which is still connected"
            raise AcquisitionRefused(text, code="denied")
        if new_mirrors(spec, acquisition.log.spec.views):
            acquisition.end(Event.STOP, "interrupted", "its producer was lost, and another one wants further mirrors")
        if acquisition.session.state is AcquisitionState.CLOSING:
            raise AcquisitionRefused(f"{acquisition.name} is being closed; try again", code="shutting_down")


def _shutting_down() -> AcquisitionRefused:
    return AcquisitionRefused("the daemon is shutting down", code="shutting_down")
