"""One view requested of the view worker, with the progress that the worker reports."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from acqstream.daemon.shared_memory_server import ProducerMemory
from acqstream.errors import AcqStreamError, ConfigError, DatasetLocked
from acqstream.log.recent_frames import GroupTable
from acqstream.mirrors.mirror_plan import folder_of
from acqstream.model.status import UnfinishedViewStatus, ViewStatus
from acqstream.model.units import count_text
from acqstream.model.view_spec import MAX_REASON_CHARACTERS, MirrorResult, MirrorState, ViewSpec
from acqstream.storage.files.directory_lock import DirectoryLock
from acqstream.storage.files.disk import LocalDisk
from acqstream.storage.page_memory import PageMemory
from acqstream.views.checkpoint import mark_failed, view_folder
from acqstream.views.view_folder import record_result
from acqstream.views.view_run import ViewProgress, ViewState

logger = logging.getLogger("acqstream.daemon")

_ENDED = frozenset({ViewState.COMPLETE, ViewState.INTERRUPTED, ViewState.FAILED})
_RESULT_STATES: Mapping[ViewState, MirrorState] = {
    ViewState.COMPLETE: "complete",
    ViewState.INTERRUPTED: "interrupted",
    ViewState.FAILED: "failed",
}
_REPORTED = tuple(entry.name for entry in fields(ViewProgress))
_BLAMELESS = frozenset({ViewState.WAITING, ViewState.HELD, ViewState.LOCKED})


@dataclass(slots=True, eq=False)
class ViewJob:
    """A view of the dataset in folder `path`.

    table lists the acquisition's groups, memory is the daemon's of that acquisition, lent is the producer's memory: the
    worker reads frames there. progress has the counts of all processes that worked on this view.
    """

    number: int
    path: str
    spec: ViewSpec
    table: GroupTable | None
    memory: PageMemory | None
    progress: ViewProgress = field(default_factory=ViewProgress)
    reason: str = ""
    restarts: int = 0
    deaths: int = 0  # of the process since the last progress of the view
    lent: ProducerMemory | None = None
    is_live: bool = field(init=False)  # it was requested while frames were arriving
    _max_cursor: int = -1
    _best_saved: tuple[int, int] = (-1, 0)  # cursor and, negative, the pieces not written, in a checkpoint
    _before: ViewProgress = field(default_factory=ViewProgress)  # at the end of earlier processes

    def __post_init__(self) -> None:
        self.is_live = self.memory is not None

    def forget_memory(self) -> None:
        """The acquisition has ended, or the view: the system has the memory again when no process maps it."""
        self.table = self.memory = self.lent = None

    @property
    def is_ended(self) -> bool:
        return self.progress.state in _ENDED

    @property
    def is_failed(self) -> bool:
        return self.progress.state is ViewState.FAILED

    def begin(self) -> None:
        """A worker was started and has not reported yet."""
        self._before = self.progress = replace(self.progress, state=ViewState.STARTING)

    def note(self, report: dict[str, Any]) -> bool:
        """Take a report. Returns whether the view made progress. Raises KeyError, ValueError or TypeError.

        Progress is a new frame, or a checkpoint with more in it than any before: the next process begins there.
        """
        values = {name: report[name] for name in _REPORTED}
        values["state"] = ViewState(values["state"])
        for name in ("warning", "space_warning", "restart_warning"):
            values[name] = getattr(self.progress, name) or values[name]
        for name in ("from_memory", "from_stack", "overtaken"):
            values[name] += getattr(self._before, name)
        self.progress, self.reason = ViewProgress(**values), report["reason"]
        saved = (self.progress.saved, -self.progress.saved_waiting)
        if self.progress.cursor <= self._max_cursor and saved <= self._best_saved:
            return False
        self._max_cursor = max(self._max_cursor, self.progress.cursor)
        self._best_saved = max(self._best_saved, saved)
        self.deaths = 0
        return True

    def note_death(self) -> None:
        """Count a death of the process, unless the view had nothing to do at that time."""
        self.restarts += 1
        if self.progress.state not in _BLAMELESS:
            self.deaths += 1

    def disk_need(self, stored: int) -> tuple[float, float]:
        """Bytes of disk for each further frame, and for those that are stored in the log and not taken yet."""
        progress = self.progress
        if self.is_ended:
            return 0.0, 0.0
        return progress.bytes_per_frame, progress.bytes_per_frame * max(0, stored - progress.cursor)

    def fail(self, reason: str) -> None:
        self.progress, self.reason = replace(self.progress, state=ViewState.FAILED), reason

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
        """Return the view's state for the record in the dataset's folder."""
        cursor, published = self.progress.cursor, max(self.progress.count, self.progress.cursor)
        return MirrorResult(
            name=self.spec.name,
            state=_RESULT_STATES.get(self.progress.state, "running"),
            frames=cursor,
            published=published,
            reason=self.reason,
            warning=self.progress.warning[:MAX_REASON_CHARACTERS],
        )

    def status(self, stored: int = 0) -> ViewStatus:
        """stored: frames that the log has published, if it runs."""
        return ViewStatus(**self._status_fields(stored))

    def unfinished_status(self) -> UnfinishedViewStatus:
        return UnfinishedViewStatus(path=self.path, mirror=self.spec.name, **self._status_fields())

    def _status_fields(self, stored: int = 0) -> dict[str, Any]:
        values = {**asdict(self.progress), "state": str(self.progress.state)}
        # warnings: once, with the acquisition's
        for name in ("warning", "space_warning", "restart_warning", "bytes_per_frame", "saved", "saved_waiting"):
            del values[name]
        behind = max(values.pop("count"), stored) - self.progress.cursor
        return {**values, "behind": behind, "restarts": self.restarts, "reason": self.reason}

    def text(self, stored: int = 0) -> str:
        """Return the progress for the receipt."""
        progress = self.progress
        if self.is_failed:
            return f"failed {self.reason}"
        count = max(progress.count, stored)
        has_all = progress.state is ViewState.WAITING and progress.cursor == count
        if progress.state is ViewState.COMPLETE or (has_all and not progress.waiting):
            return "complete"
        kind = "tile" if self.spec.is_pyramid else "piece"
        tiles = f", {count_text(progress.waiting, kind)} to be written" if progress.waiting else ""
        why = f"; {self.reason}" if progress.state is ViewState.HELD and self.reason else ""
        return f"under way: {progress.cursor:,} of {count_text(count, 'frame')}{tiles}{why}"
