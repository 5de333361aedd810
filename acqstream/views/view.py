"""Views: functions of the log and a cursor, moved on in small steps.

The cursor counts frames in order of publication (entries of the index). What a view has made of them lies beside the
dataset, for `cells` and the view `null` in `cells.null/`; `view.json` there keeps cursor and state together, replaced
atomically, so that a killed view goes on where it was, and takes no frame twice.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from acqstream.errors import (
    AcqStreamError,
    CannotResume,
    CorruptDataset,
    DatasetError,
    DatasetLocked,
    DiskFull,
    StorageError,
)
from acqstream.formats.ndtiff.folders import container_of
from acqstream.formats.ndtiff.reader import NDTiffReader, open_readers
from acqstream.log.recent_groups import RecentGroups
from acqstream.model.mirror_result import MirrorResult, MirrorState
from acqstream.storage.atomic import TEMPORARY_SUFFIX
from acqstream.storage.disk import Disk, LocalDisk
from acqstream.storage.lock import LOCK_NAME, DirectoryLock
from acqstream.views.base import View, ViewSource
from acqstream.views.checkpoint import (
    CHECKPOINT_NAME,
    Checkpoint,
    is_complete,
    mark_failed,
    read_checkpoint,
    view_folder,
    write_checkpoint,
)
from acqstream.views.disk_allowance import DiskAllowance
from acqstream.views.feed import FrameFeed
from acqstream.views.mirrored_dataset import id_of_summary, place, state_of
from acqstream.views.result_record import record_result, reopen_record
from acqstream.views.view_progress import ViewProgress, ViewState

STEP_BYTES = 16 * 2**20  # of pixels, in one step
CHECKPOINT_INTERVAL_S = 1.0
POLL_S = 0.02  # how soon a frame is seen
LIVE_POLL_S, QUIET_LIVE_POLL_S = 0.004, 0.01  # ... where memory tells of it: it may be there for little longer
QUIET_POLL_S = 0.1  # ... after QUIET_AFTER_S without one
QUIET_AFTER_S = 2.0
HELD_POLL_S = 0.005
LOCKED_POLL_S = 0.5
FULL_POLL_S = 1.0
_CHECKPOINTS = {CHECKPOINT_NAME, CHECKPOINT_NAME + TEMPORARY_SUFFIX}


class ViewRun:
    """One view of one dataset on its way. Used by one thread at a time.

    path is the dataset; make makes an empty view; folder is its own one where it is not the usual. recent tells what is
    in memory, may_read whether the disk may be used now, allowance how much of it while it may not: by default nothing.
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
    ) -> None:
        self.path = container_of(path)
        self.name = name
        self.folder = folder or view_folder(self.path, name)
        self.view = make()
        self.reason = ""  # why it waits, or why it restarted
        self._make = make
        self._recent = recent
        self._may_read = may_read
        self._allowance = allowance or DiskAllowance(lambda: not may_read(), burst_s=0.0)
        self._disk = disk or LocalDisk()
        self._lock: DirectoryLock | None = None
        self._feed: FrameFeed | None = None
        self._dataset_id = ""
        self._is_foreign = False
        self._request: Mapping[str, Any] = {}
        self._is_held = self._is_waiting = self._was_full = False
        self._is_ours = False  # view.json is of this view of this dataset
        self._cursor = self._count = 0
        self._saved: tuple[int, int, bool] | None = None  # cursor, frames behind it, completeness in view.json
        self._saved_at_s = time.monotonic()
        self._news_at_s = self._look_at_s = 0.0
        self._live_poll_s = LIVE_POLL_S
        self._state = ViewState.STARTING
        self._from_memory = self._from_stack = self._overtaken = 0

    def lend(self, address: int, memory: memoryview) -> None:
        """Memory of the log's producer, and where the daemon has it. From any thread."""
        if self._recent is not None:
            self._recent.lend(address, memory)

    def progress(self) -> ViewProgress:
        if self._feed is not None:
            self._count = len(self._feed.reader)
        return ViewProgress(
            self._state,
            self._cursor,
            self._count,
            self._from_memory,
            self._from_stack,
            self._overtaken,
            self.view.waiting,
            self.view.warning,
        )

    def step(self) -> float | None:
        """Take some frames; in how many seconds to come again, None when there is nothing more to do.

        Raises what the view raises, DatasetError or StorageError; nothing is saved then, but that it has failed.
        """
        try:
            if self._feed is None:
                self._feed = self._open()
            return self._step(self._feed)
        except DatasetLocked as error:
            self._state, self.reason = ViewState.LOCKED, str(error)
            return LOCKED_POLL_S
        except DiskFull as error:
            self._state, self.reason, self._was_full = ViewState.HELD, str(error), True
            return FULL_POLL_S
        except Exception as error:
            self._fail(error)
            raise

    def failure_text(self, error: Exception) -> str:
        """Why the view is given up."""
        kind = "" if isinstance(error, AcqStreamError) else f"{type(error).__name__}: "
        return f"after {self._cursor} frames: {kind}{error}"

    def _fail(self, error: Exception) -> None:
        """Tell readers that they need not wait."""
        self._state = ViewState.FAILED
        try:
            if not is_complete(self.folder, self._dataset_id):  # else it stays as it is
                record_result(self._disk, self.path, self.folder, self._result("failed", self.failure_text(error)))
        except (AcqStreamError, OSError) as again:
            error.add_note(f"and that could not be recorded in {self.path}: {again}")
        if self._lock is None or not self._is_ours:
            return
        try:
            is_unsure = isinstance(error, StorageError)
            mark_failed(self._disk, self.folder, self.failure_text(error), is_unsure=is_unsure)
        except (AcqStreamError, OSError) as again:
            error.add_note(f"and {self.folder / CHECKPOINT_NAME} could not be marked: {again}")

    def _step(self, feed: FrameFeed) -> float | None:
        now_s = time.monotonic()
        if now_s < self._look_at_s and not feed.has_news:
            return min(self._live_poll_s, self._look_at_s - now_s)
        self._is_held = self._is_waiting = False
        was_busy = self._take(feed)
        if self._may_read():
            self.view.work(now_s, is_idle=not (was_busy or self._is_held or self._is_waiting))
        if self._was_full:
            self.reason, self._was_full = "", False
        if was_busy or self._is_waiting:
            self._news_at_s = now_s
            self._go_on_running(now_s)
            return 0.0 if was_busy else HELD_POLL_S
        if self._is_held:
            self._state = ViewState.HELD
            return HELD_POLL_S
        if feed.reader.writing or not self._may_read():
            self._state = ViewState.WAITING
            is_quiet = now_s - self._news_at_s >= QUIET_AFTER_S
            wait_s = QUIET_POLL_S if is_quiet else POLL_S
            if self._recent is None:
                return wait_s
            self._look_at_s = now_s + wait_s
            self._live_poll_s = QUIET_LIVE_POLL_S if is_quiet else LIVE_POLL_S
            return self._live_poll_s
        if not self.view.finish():
            self._go_on_running(now_s)
            return HELD_POLL_S
        self._state = ViewState.COMPLETE if feed.reader.complete else ViewState.INTERRUPTED
        self.save()
        is_whole = self._state is ViewState.COMPLETE
        record_result(self._disk, self.path, self.folder, self._result("complete" if is_whole else "interrupted"))
        return None

    def _result(self, state: MirrorState, reason: str = "") -> MirrorResult:
        count = self.progress().count
        return MirrorResult(name=self.name, state=state, frames=self._cursor, published=count, reason=reason)

    def _go_on_running(self, now_s: float) -> None:
        self._state = ViewState.RUNNING
        if now_s - self._saved_at_s >= CHECKPOINT_INTERVAL_S and self._may_read():
            self.save()

    def settle(self) -> None:
        """Have in the files what was taken so far, where no more is waited for. Raises as `step`."""
        while self._feed is not None and not self.view.settle():
            time.sleep(HELD_POLL_S)
        self.save()

    def save(self) -> None:
        """Save cursor and state, if they are news. Raises StorageError."""
        self._saved_at_s = time.monotonic()
        now = (self._cursor, self.view.taken_ahead, self._state is ViewState.COMPLETE)
        if self._feed is not None and self._saved != now:
            self._save(self._feed)

    def _save(self, feed: FrameFeed) -> None:
        is_whole = self._state is ViewState.COMPLETE
        last = place(feed.reader, self._cursor - 1)
        checkpoint = Checkpoint(self.name, self._dataset_id, self._cursor, last, is_whole, self.view.save())
        write_checkpoint(self._disk, self.folder, checkpoint)
        self._is_ours = True
        self._saved = (self._cursor, self.view.taken_ahead, is_whole)

    def close(self) -> None:
        """Close all files, whatever fails; what was not saved is lost. `progress` stays. Raises OSError."""
        self.progress()
        with contextlib.ExitStack() as files:
            if self._lock is not None:
                files.callback(self._lock.close)
            if self._feed is not None:
                files.callback(self._feed.close)
            files.callback(self.view.close)
            self._feed = self._lock = None

    def _take(self, feed: FrameFeed) -> bool:
        """Take what there is, up to STEP_BYTES; False if there was nothing."""
        if self._allowance.is_free():
            cursor = self.view.take_together(self._cursor, len(feed.reader))
            if cursor is not None:
                self._from_stack, self._cursor = self._from_stack + cursor - self._cursor, cursor
                self._is_waiting = cursor < len(feed.reader)
                return False
        is_ready = feed.has(self._cursor) and self._make_ready(self._cursor)
        has_digested = feed.look_ahead(self.view.digest, self.view.most_digests, STEP_BYTES)
        return (is_ready and self._take_published(feed)) or has_digested

    def _take_published(self, feed: FrameFeed) -> bool:
        leases = feed.take(self._cursor, STEP_BYTES)
        self._is_held, self._is_waiting = feed.is_held, feed.is_reading
        for lease in leases:
            if lease is not leases[0] and not self._make_ready(lease.row):
                self._is_held = self._is_waiting = False
                break
            taken = self.view.take(lease)
            if not lease.is_intact():
                self._overtaken += 1  # the log was there first; the next step reads the stack
                break
            self.view.keep(taken)
            self._cursor += 1
            if lease.is_from_memory:
                self._from_memory += 1
            else:
                self._from_stack += 1
        return bool(leases)

    def _make_ready(self, row: int) -> bool:
        """Whether the view can take this frame; if not, why it waits."""
        if self.view.is_ready(row):
            return True
        is_near = self.view.is_nearly_ready(row) and self._allowance.has_some()
        if not (is_near or self._may_read()):
            self._is_held = True
            return False
        with self._allowance.using():
            is_ready = self.view.make_ready(row)
        self._is_waiting = not is_ready
        return is_ready

    def _open(self) -> FrameFeed:
        """The feed, with cursor and view as they were saved last."""
        self._make_folder()
        self.reason = ""
        self._lock = DirectoryLock(os.fspath(self.folder))
        try:
            return self._open_feed()
        except BaseException as error:
            if isinstance(error, Exception) and not isinstance(error, (DiskFull, DatasetLocked)):
                self._fail(error)
            self.view.close()
            self.view = self._make()
            self._lock.close()
            self._lock = None
            raise

    def _open_feed(self) -> FrameFeed:
        state = state_of(self.path)
        self._is_foreign = state is None
        self._request = state.request if state is not None else {}
        levels = open_readers(self.path)
        for lower in levels[1:]:
            lower.close()
        reader, self._count = levels[0], len(levels[0])
        self._dataset_id = state.dataset_id if state is not None else id_of_summary(reader.summary_metadata)
        feed = FrameFeed(reader, self._recent, allowance=self._allowance)
        try:
            had_failed = self._go_on(reader)
            if had_failed or (self.view.marks_first and self._saved is None):
                self._save(feed)
            if self._saved is None or not self._saved[2]:
                reopen_record(self._disk, self.path, self.folder, self._result("running"))
        except BaseException:
            reader.close()
            raise
        return feed

    def _make_folder(self) -> None:
        try:
            self._disk.mkdir(os.fspath(self.folder))
        except FileExistsError as error:
            found = set(os.listdir(self.folder)) if self.folder.is_dir() else None
            if found is None or (found - {LOCK_NAME} and not found & _CHECKPOINTS):
                raise DatasetError(f"{self.folder} is there already and is no view of {self.path.name}") from error
        except OSError as error:
            raise StorageError.wrap(error, str(self.folder), "cannot create the view's folder") from error

    def _go_on(self, reader: NDTiffReader) -> bool:
        """Open the view, with the checkpoint of an earlier run if it has one. Returns whether that run had failed."""
        why_not = ""
        saved: Checkpoint | None = None
        try:
            saved = read_checkpoint(self.folder)
            if saved is not None:
                self._check_saved(saved, reader)
        except (CorruptDataset, CannotResume) as error:
            why_not = str(error)
        self._is_ours = saved is not None and self._is_of_dataset(saved, reader)
        source = ViewSource(
            self.path,
            self.folder,
            reader,
            self._disk,
            self._request,
            is_ours=self._is_ours,
            dataset_id=self._dataset_id,
            may_use_disk=self._may_read,
        )
        self.view.open(source)
        had_failed = saved is not None and bool(saved.failed)
        if saved is not None and not saved.state and not why_not:
            saved = None  # asked for, and not begun
            self.view.clear()
        if saved is not None and not why_not:
            try:
                self.view.restore(saved.state, saved.cursor)
                self._cursor = saved.cursor
                self._saved = (saved.cursor, 0, saved.is_complete)
            except CannotResume as error:
                why_not = str(error)
                self.view.close()
                self.view = self._make()
                self.view.open(source)
        if why_not:
            self.reason = f"restarted: {why_not}"
            self.view.clear()
        return had_failed

    def _is_of_dataset(self, saved: Checkpoint, reader: NDTiffReader) -> bool:
        """Whether what the checkpoint tells of was made from this dataset; of other writers' the place tells, too."""
        if (saved.view, saved.dataset_id) != (self.name, self._dataset_id):
            return False
        is_same = saved.cursor <= len(reader) and saved.last == place(reader, saved.cursor - 1)
        return is_same or not self._is_foreign

    def _check_saved(self, saved: Checkpoint, reader: NDTiffReader) -> None:
        """Raises CannotResume for a checkpoint of another dataset, or of frames that are no longer published."""
        if (saved.view, saved.dataset_id) != (self.name, self._dataset_id):
            raise CannotResume("its checkpoint belongs to another dataset")
        if saved.cursor > len(reader):
            text = f"it had {saved.cursor} frames, {len(reader)} are published: a power cut removed the others"
            raise CannotResume(text)
        if saved.last != place(reader, saved.cursor - 1):
            raise CannotResume(f"frame {saved.cursor - 1} was replaced")
        if saved.is_unsure:
            raise CannotResume(f"it had failed {saved.failed}")
