"""Moves a view: frames from the feed into it, in small steps; saves and reports its progress.

The cursor counts frames in order of publication (entries of the index). The result lies beside the dataset, for `cells`
and the view `null` in `cells.null/`. `view.json` there has cursor and state together and is replaced atomically, so
that a killed view resumes at its cursor and takes no frame twice.
"""

from __future__ import annotations

import contextlib
import errno
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from acqstream.errors import (
    AcqStreamError,
    CannotResume,
    DatasetError,
    DatasetLocked,
    DiskFull,
    DiskFullAtSync,
    UnknownFormat,
)
from acqstream.formats.ndtiff.folders import container_of
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.log.recent_frames import RecentGroups
from acqstream.model.units import count_text
from acqstream.model.view_spec import MAX_REASON_CHARACTERS, MirrorResult, MirrorState
from acqstream.storage.files.disk import Disk, LocalDisk
from acqstream.views.base import View
from acqstream.views.checkpoint import RESTARTED, view_folder
from acqstream.views.frame_feed import DiskAllowance, FrameFeed, Waiting
from acqstream.views.view_folder import Checkpoints, SavedPoint, ViewFolder, open_full


class ViewState(StrEnum):
    """State of a view."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"  # it has all frames so far, and more may come
    HELD = "held"  # the log has a backlog: no disk reads; or the disk is full
    LOCKED = "locked"  # another process makes this view
    INTERRUPTED = "interrupted"  # it has all frames of a dataset that may be resumed
    COMPLETE = "complete"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ViewProgress:
    """cursor of count frames are taken; waiting is the number of pieces of the result that are not written yet.

    from_memory, from_stack and overtaken count frames of this process: taken from memory, from stack files, and
    overwritten in memory while they were used. warning is for the operator, about the result, space_warning about a
    disk on which it stores nothing more, restart_warning about a frame for which it is rebuilt when the run ends.
    bytes_per_frame is what the view needs of the disk for each further frame. saved is the cursor in the last
    checkpoint, saved_waiting the pieces that were not written then: what the next process has not to do again.
    """

    state: ViewState = ViewState.STARTING
    cursor: int = 0
    count: int = 0
    from_memory: int = 0
    from_stack: int = 0
    overtaken: int = 0
    waiting: int = 0
    warning: str = ""
    space_warning: str = ""
    restart_warning: str = ""
    bytes_per_frame: float = 0.0
    saved: int = -1
    saved_waiting: int = 0


STEP_BYTES = 16 * 2**20  # of pixels, in one step
CHECKPOINT_INTERVAL_S = 1.0
SOONER = 4  # so many times sooner is a checkpoint made, for each death of the process without progress
POLL_S = 0.02  # between two looks at the index
LIVE_POLL_S, QUIET_LIVE_POLL_S = 0.008, 0.02  # ... at shared memory, where a frame may be overwritten soon
LIVE_INDEX_POLL_S = 0.04  # ... at the index meanwhile: it gets frames of memory every 50 ms
QUIET_POLL_S = 0.1  # ... at the index after QUIET_AFTER_S without a frame
QUIET_AFTER_S = 2.0
HELD_POLL_S = 0.005
LOCKED_POLL_S = 0.5
FULL_POLL_S = 1.0


class _Polling:
    """Times of a view that waits for frames. is_live: memory reports new frames before the index has them."""

    def __init__(self, *, is_live: bool) -> None:
        self._is_live = is_live
        self._news_at_s = self._look_at_s = 0.0
        self._live_poll_s = LIVE_POLL_S

    def note_news(self, now_s: float) -> None:
        self._news_at_s = now_s

    def early_s(self, now_s: float) -> float | None:
        """Return the wait until the index is due; None if it is due. Memory is asked meanwhile."""
        return min(self._live_poll_s, self._look_at_s - now_s) if now_s < self._look_at_s else None

    def wait_s(self, now_s: float) -> float:
        """Return the wait after a step that found no frame."""
        is_quiet = now_s - self._news_at_s >= QUIET_AFTER_S
        if not self._is_live:
            return QUIET_POLL_S if is_quiet else POLL_S
        self._look_at_s = now_s + (QUIET_POLL_S if is_quiet else LIVE_INDEX_POLL_S)
        self._live_poll_s = QUIET_LIVE_POLL_S if is_quiet else LIVE_POLL_S
        return self._live_poll_s


class _CheckpointClock:
    """deaths: of earlier processes, without progress."""

    def __init__(self, deaths: int) -> None:
        self.saved_at_s = time.monotonic()
        self._sooner: int = SOONER**deaths

    def is_due(self, now_s: float, took_s: float) -> bool:
        """took_s: of the last checkpoint. On a slow disk they are rarer, and take a quarter of the time at most."""
        return now_s - self.saved_at_s >= CHECKPOINT_INTERVAL_S / self._sooner * max(1.0, 4 * took_s)


class ViewRun:
    """One view of one dataset while it is made. Used by one thread at a time.

    path is the dataset; make makes an empty view; folder is the view's own one, by default beside the dataset. recent
    lists frames in memory. may_read returns whether the disk may be used now, allowance how much of it while it may
    not, by default nothing. deaths: of earlier processes, without progress: checkpoints come sooner then.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        make: Callable[[], View],
        *,
        folder: Path | None = None,
        recent: RecentGroups | None = None,
        may_read: Callable[[], bool] = lambda: True,
        allowance: DiskAllowance | None = None,
        disk: Disk | None = None,
        deaths: int = 0,
    ) -> None:
        self.path = container_of(path)
        self.name = name
        self.folder = folder or view_folder(self.path, name)
        self.view = make()
        self.reason = ""  # why it waits, or why it restarted
        self._make = make
        self.recent = recent
        self._allowance = allowance or DiskAllowance(lambda: not may_read(), burst_s=0.0)
        self._cursor = 0
        self._counts: Counter[str] = Counter()  # of frames: from "memory", from the "stack", and "overtaken" ones
        self._files = ViewFolder(self.folder, self.path, name, disk or LocalDisk())
        self._feed: FrameFeed | None = None
        self._polling = _Polling(is_live=recent is not None)
        self._full_disk: DiskFull | None = None  # while it waits for space
        self._count = 0
        self._checkpoints = Checkpoints(self._files)
        self._clock = _CheckpointClock(deaths)
        self.state = ViewState.STARTING

    @property
    def frames_ahead(self) -> int:
        """Number of frames that the view has processed beyond its cursor."""
        return self.view.frames_ahead

    def progress(self) -> ViewProgress:
        if self._feed is not None:
            self._count = len(self._feed.reader)
        saved = self._checkpoints.last
        return ViewProgress(
            self.state,
            self._cursor,
            self._count,
            self._counts["memory"],
            self._counts["stack"],
            self._counts["overtaken"],
            self.view.waiting,
            self.view.warning,
            self.view.space_warning,
            self.view.restart_warning,
            self.view.bytes_per_frame,
            *((saved.cursor, saved.waiting) if saved is not None else ()),
        )

    def step(self) -> float | None:
        """Take some frames. Returns the seconds until the next step is due, None when nothing is left to do.

        Raises the errors of the view, DatasetError or StorageError; then only the failure is saved.
        """
        if self.recent is not None:
            self.recent.forget_if_ended()  # in each step: a view that waits for space or a lock reads no frames
        try:
            if self._files.fault or isinstance(self._full_disk, DiskFullAtSync):
                self._return_to_checkpoint()
            if self._feed is None:
                self._feed = self._open()
            return self._step(self._feed)
        except DatasetLocked as error:
            self.state, self.reason = ViewState.LOCKED, str(error)
            return LOCKED_POLL_S
        except DiskFull as error:
            self.state, self.reason, self._full_disk = ViewState.HELD, str(error), error
            return FULL_POLL_S
        except CannotResume as error:  # of a frame: the restart follows, in a step that may fail as any other
            self._files.mark_restart(str(error))
            return 0.0
        except Exception as error:
            self._fail(error)
            raise

    def _return_to_checkpoint(self) -> None:
        """Let the view open as saved last (a second sync could succeed without the lost bytes), or restart."""
        if self._feed is not None and not isinstance(self._full_disk, DiskFullAtSync):
            # With the reason of the restart, for a later process.
            self._checkpoints.write(self._feed.reader, self.view, self._point)
        self._full_disk = None
        self.close()
        self.view = self._make()
        self._cursor = 0
        self._checkpoints.last = None

    def _await_end(self, feed: FrameFeed, reason: str) -> float:
        """The view takes no frame until the log is no longer written. Returns the seconds until the next step."""
        self.state = ViewState.HELD
        if self.reason != reason and self._allowance.is_free():
            self._files.record(self._result("running", reason))
            self.reason = reason
        return QUIET_POLL_S

    def failure_text(self, error: Exception) -> str:
        """Return the reason of a failed view."""
        kind = "" if isinstance(error, AcqStreamError) else f"{type(error).__name__}: "
        is_gone = getattr(error, "errno", 0) == errno.ENOENT or isinstance(error, UnknownFormat)
        is_gone |= not self.path.exists()
        if isinstance(error, DatasetError) and (made := self.view.made) is not None:  # its own files are missing
            is_gone |= not made.exists()
        gone = "; the folder of the dataset or of the mirror was renamed, moved or deleted" if is_gone else ""
        taken = f"after {count_text(self._cursor, 'frame')}: " if self._cursor else ""
        return f"{taken}{kind}{error}{gone}"

    def _fail(self, error: Exception) -> None:
        self.state = ViewState.FAILED
        self._checkpoints.settle(error)
        self._files.record_failure(error, self._result("failed", self.failure_text(error)))

    def _step(self, feed: FrameFeed) -> float | None:
        now_s = time.monotonic()
        early_s = self._polling.early_s(now_s)
        if early_s is not None and not feed.has_news:
            return early_s
        self._checkpoints.note()
        waiting = self._take(feed)
        if self._allowance.is_free():
            self.view.work(now_s, is_idle=waiting is Waiting.FRAMES)
        if self._full_disk is not None:
            self.reason, self._full_disk = "", None
        if self.view.restart_reason:
            return self._await_end(feed, self.view.restart_reason)
        if waiting is Waiting.LOG:
            self.state = ViewState.HELD
            return HELD_POLL_S
        if waiting is not Waiting.FRAMES:
            self._polling.note_news(now_s)
            self._go_on(ViewState.RUNNING, now_s)
            return 0.0 if waiting is None else HELD_POLL_S
        if feed.reader.writing or not self._allowance.is_free():
            self._go_on(ViewState.WAITING, now_s)
            return self._polling.wait_s(now_s)
        self._checkpoints.note(waits=True)  # else its error could come after the end was announced
        if self.view.finish() is not None:
            self._go_on(ViewState.RUNNING, now_s)
            return HELD_POLL_S
        is_complete = feed.reader.complete
        self.state = ViewState.COMPLETE if is_complete else ViewState.INTERRUPTED
        self.save()
        self._files.record(self._result("complete" if is_complete else "interrupted", self._files.restarted))
        return None

    def _take(self, feed: FrameFeed) -> Waiting | None:
        """Take published frames, about STEP_BYTES of pixels. Returns why nothing was done; None if something was."""
        view = self.view
        if self._allowance.is_free():
            cursor = view.take_range(self._cursor, len(feed.reader))
            if isinstance(cursor, Waiting):
                return cursor
            if cursor is not None:
                self._counts["stack"] += cursor - self._cursor
                self._cursor = cursor
                return Waiting.FRAMES
        waiting = self._make_ready(self._cursor) if feed.has(self._cursor) else Waiting.FRAMES
        # Also without digests: the feed notes the frames in memory, and has_news then reports later ones only.
        has_digested = feed.look_ahead(view.digest, view.max_digests, STEP_BYTES)
        if waiting is None:
            rows = view.take_rows(self._cursor, len(feed.reader))
            if rows is None:
                waiting = self._take_published(feed)
            else:
                self._cursor = rows
        return None if has_digested else waiting

    def _take_published(self, feed: FrameFeed) -> Waiting | None:
        leases = feed.take(self._cursor, STEP_BYTES)
        if isinstance(leases, Waiting):
            return leases
        for lease in leases:
            if lease is not leases[0] and self._make_ready(lease.row) is not None:
                break
            contribution = self.view.take(lease)
            if not lease.is_intact():
                self._counts["overtaken"] += 1  # the log has overwritten the pixels; the next step reads the stack
                break
            self.view.keep(contribution)
            self._cursor += 1
            self._counts["memory" if lease.is_from_memory else "stack"] += 1
        return None

    def _make_ready(self, row: int) -> Waiting | None:
        """Prepare the view for this frame."""
        if self.view.is_ready(row):
            return None
        is_near = self.view.is_nearly_ready(row) and self._allowance.has_some()
        if not (is_near or self._allowance.is_free()):
            return Waiting.LOG
        with self._allowance.using():
            return self.view.make_ready(row)

    def _result(self, state: MirrorState, reason: str = "") -> MirrorResult:
        cursor, count = self._cursor, self.progress().count
        warning = self.view.warning[:MAX_REASON_CHARACTERS]
        return MirrorResult(name=self.name, state=state, frames=cursor, published=count, reason=reason, warning=warning)

    def _go_on(self, state: ViewState, now_s: float) -> None:
        """Be in this state until the next step, and save what is due."""
        self.state = state
        if self._clock.is_due(now_s, self._checkpoints.took_s) and self._allowance.is_free() and self._feed is not None:
            self._clock.saved_at_s = now_s
            save = self._checkpoints.save if self.recent is None else self._checkpoints.begin  # frames may pass by
            save(self._feed.reader, self.view, self._point)

    def settle(self) -> None:
        """Write all frames taken so far, for a caller that waits for no more. Raises as `step`."""
        while self._feed is not None and self.view.settle() is not None:
            time.sleep(HELD_POLL_S)
        self.save()

    def save(self) -> None:
        """Save cursor and state if they have changed; pieces written meanwhile count. Raises StorageError."""
        self._clock.saved_at_s = time.monotonic()
        if self._feed is not None:
            self._checkpoints.save(self._feed.reader, self.view, self._point)

    def _point(self) -> SavedPoint:
        return SavedPoint(self._cursor, self.frames_ahead, self.state is ViewState.COMPLETE, self.view.waiting)

    def close(self) -> None:
        """Close all files, whatever fails; what was not saved is lost. `progress` stays. Raises OSError."""
        self.progress()
        with contextlib.ExitStack() as files:
            files.callback(self._files.unlock)
            if self._feed is not None:
                files.callback(self._feed.close)
            files.callback(self.view.close)
            files.callback(self._checkpoints.close)
            self._feed = None

    def _open(self) -> FrameFeed:
        """Return the feed, with cursor and view as they were last saved."""
        self._files.create()
        self.reason = ""
        self._files.lock()
        try:
            return self._open_feed()
        except BaseException as error:
            if isinstance(error, Exception) and not isinstance(error, (DiskFull, DatasetLocked)):
                self._fail(error)
            self.view.close()
            self.view = self._make()
            self._files.unlock()
            raise

    def _open_feed(self) -> FrameFeed:
        reader = open_full(self.path)
        self._count = len(reader)
        feed = FrameFeed(reader, self.recent, allowance=self._allowance)
        try:
            had_failed = self._resume(reader)
            if had_failed or (self.view.marks_first and self._checkpoints.last is None):
                self._checkpoints.write(reader, self.view, self._point)
            if self._checkpoints.last is None or not self._checkpoints.last.is_complete:
                self._files.reopen_record(self._result("running"))
        except BaseException:
            reader.close()
            raise
        return feed

    def _resume(self, reader: NDTiffReader) -> bool:
        """Open the view, with the checkpoint of an earlier run if it has one. Returns whether that run had failed."""
        saved, fault = self._files.read(reader)
        source = replace(self._files.source(reader), may_use_disk=self._allowance.is_free)
        self.view.open(source)
        if saved is not None and not fault and not saved.state:
            self.view.clear()  # the view was requested and has not started
        elif saved is not None and not fault:
            try:
                self.view.restore(saved.state, saved.cursor)
                self._cursor = saved.cursor
                self._checkpoints.last = SavedPoint(saved.cursor, 0, saved.is_complete, self.view.waiting)
            except CannotResume as error:
                fault = str(error)
                self.view.close()
                self.view = self._make()
                self.view.open(source)
        if fault:
            self.view.clear()
            self._files.note_cleared(saved)
        self.reason = f"{RESTARTED}{fault}" if fault else self._files.restarted
        return saved is not None and bool(saved.failed)
