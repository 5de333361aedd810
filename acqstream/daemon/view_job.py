"""One view requested of the view worker, with the progress that the worker reports."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acqstream.daemon.shared_memory_server import ProducerMemory
from acqstream.errors import AcqStreamError, ConfigError, DatasetLocked
from acqstream.log.recent_groups import GroupTable
from acqstream.mirrors.view_kinds import folder_of
from acqstream.model.mirror_result import MirrorResult, MirrorState
from acqstream.model.status import UnfinishedViewStatus, ViewStatus
from acqstream.model.view_spec import ViewSpec
from acqstream.storage.disk import LocalDisk
from acqstream.storage.lock import DirectoryLock
from acqstream.views.checkpoint import mark_failed, view_folder
from acqstream.views.result_record import record_result
from acqstream.views.view_progress import ViewState

logger = logging.getLogger("acqstream.daemon")

_ENDED = frozenset({ViewState.COMPLETE, ViewState.INTERRUPTED, ViewState.FAILED})
_RESULT_STATES: Mapping[ViewState, MirrorState] = {
    ViewState.COMPLETE: "complete",
    ViewState.INTERRUPTED: "interrupted",
    ViewState.FAILED: "failed",
}
_BLAMELESS = frozenset({ViewState.WAITING, ViewState.HELD, ViewState.LOCKED})


@dataclass(slots=True, eq=False)
class ViewJob:
    """A view of the dataset in folder `path`.

    table lists the acquisition's groups, start and length (bytes) are its share of the daemon's memory, lent is the
    producer's memory: the worker reads frames there. length is 0 without them.
    """

    number: int
    path: str
    spec: ViewSpec
    table: GroupTable | None
    start: int
    length: int
    state: ViewState = ViewState.STARTING
    cursor: int = 0
    count: int = 0
    from_memory: int = 0
    from_stack: int = 0
    overtaken: int = 0
    waiting: int = 0
    restarts: int = 0
    reason: str = ""
    warning: str = ""  # about the result, for the operator
    deaths: int = 0  # of the process since the last progress of the view
    lent: ProducerMemory | None = None
    _best: int = -1  # the farthest cursor so far
    _before: tuple[int, int, int] = (0, 0, 0)  # from_memory, from_stack, overtaken of earlier processes

    @property
    def is_live(self) -> bool:
        """It was requested while frames were arriving."""
        return self.length > 0

    @property
    def is_ended(self) -> bool:
        return self.state in _ENDED

    @property
    def is_failed(self) -> bool:
        return self.state is ViewState.FAILED

    def begin(self) -> None:
        """A worker was started and has not reported yet."""
        self.state = ViewState.STARTING
        self._before = (self.from_memory, self.from_stack, self.overtaken)

    def note(self, report: dict[str, Any]) -> bool:
        """Take a report. Returns whether the view made progress. Raises KeyError, ValueError or TypeError."""
        self.state = ViewState(report["state"])
        self.cursor, self.count, self.reason = report["cursor"], report["count"], report["reason"]
        self.waiting = report["waiting"]
        self.warning = self.warning or report["warning"]
        self.from_memory = self._before[0] + report["from_memory"]
        self.from_stack = self._before[1] + report["from_stack"]
        self.overtaken = self._before[2] + report["overtaken"]
        if self.cursor <= self._best:
            return False
        self._best = self.cursor
        self.deaths = 0
        return True

    def note_death(self) -> None:
        """Count a death of the process, unless the view had nothing to do at that time."""
        self.restarts += 1
        if self.state not in _BLAMELESS:
            self.deaths += 1

    def fail(self, reason: str) -> None:
        self.state, self.reason = ViewState.FAILED, reason

    def abandon(self, reason: str) -> None:
        """`fail` because the worker cannot continue it; view.json records this, too, without waiting for the disk."""
        self.fail(reason)
        self.record_failure()

    def record_failure(self) -> None:
        """Record the reason in the folders of the mirror and of the dataset, without waiting for the disk."""
        threading.Thread(target=self._record_failure, name=f"failed-view-{self.number}", daemon=True).start()

    def _record_failure(self) -> None:
        dataset, disk = Path(self.path), LocalDisk()
        try:
            folder = folder_of(dataset, self.spec)
        except ConfigError:
            folder = view_folder(dataset, self.spec.name)
        try:
            with contextlib.ExitStack() as locks:
                if folder.is_dir():
                    locks.enter_context(DirectoryLock(str(folder)))
                    mark_failed(disk, folder, self.reason, is_unsure=False)
        except DatasetLocked:
            return  # another program makes it
        except AcqStreamError as error:
            logger.warning("cannot mark view %s of %s as failed: %s", self.spec.name, dataset, error)
        try:
            record_result(disk, dataset, folder, self.result())
        except AcqStreamError as error:
            logger.warning("cannot record that view %s of %s has failed: %s", self.spec.name, dataset, error)

    def result(self) -> MirrorResult:
        """The view's state, as the dataset's folder records it."""
        state = _RESULT_STATES.get(self.state, "running")
        count = max(self.count, self.cursor)
        return MirrorResult(name=self.spec.name, state=state, frames=self.cursor, published=count, reason=self.reason)

    def status(self, stored: int = 0) -> ViewStatus:
        """stored: frames that the log has published, if it runs."""
        return ViewStatus(**self._status_fields(stored))

    def unfinished_status(self) -> UnfinishedViewStatus:
        return UnfinishedViewStatus(path=self.path, mirror=self.spec.name, **self._status_fields())

    def _status_fields(self, stored: int = 0) -> dict[str, Any]:
        return {
            "cursor": self.cursor,
            "behind": max(self.count, stored) - self.cursor,
            "state": str(self.state),
            "from_memory": self.from_memory,
            "from_stack": self.from_stack,
            "overtaken": self.overtaken,
            "waiting": self.waiting,
            "restarts": self.restarts,
            "reason": self.reason,
        }

    def text(self, stored: int = 0) -> str:
        """For the receipt."""
        if self.state is ViewState.FAILED:
            return f"failed {self.reason}"
        count = max(self.count, stored)
        has_all = self.state is ViewState.WAITING and self.cursor == count
        if self.state is ViewState.COMPLETE or (has_all and not self.waiting):
            return "complete"
        kind = "tiles" if self.spec.is_pyramid else "pieces"
        tiles = f", {self.waiting} {kind} to be written" if self.waiting else ""
        return f"under way: {self.cursor} of {count} frames{tiles}"
