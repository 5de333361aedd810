"""The folder of one view: its lock, its checkpoints, the identity of its dataset, and the record of its end there."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from acqstream.errors import (
    AcqStreamError,
    CannotResume,
    CorruptDataset,
    DatasetError,
    DiskFull,
    FileMissing,
    StorageError,
)
from acqstream.formats.ndtiff.folders import (
    VIEW_SUFFIX,
    encode_record,
    read_record,
    record_key,
    record_path,
)
from acqstream.formats.ndtiff.reader import NDTiffReader, open_readers
from acqstream.log.state_file import STATE_NAME, DatasetState, now_text, read_state
from acqstream.model.metadata import dump_ascii
from acqstream.model.view_spec import MAX_REASON_CHARACTERS, PYRAMID_KIND, MirrorResult
from acqstream.storage.files.atomic_file import TEMPORARY_SUFFIX, replace_file
from acqstream.storage.files.directory_lock import LOCK_NAME, DirectoryLock
from acqstream.storage.files.disk import Disk
from acqstream.storage.files.folder_tree import refuse_link
from acqstream.views import checkpoint
from acqstream.views.base import View, ViewSource
from acqstream.views.checkpoint import (
    CHECKPOINT_NAME,
    RESTARTED,
    Checkpoint,
    is_complete,
    mark_failed,
    read_checkpoint,
    write_checkpoint,
)

logger = logging.getLogger("acqstream.views")


def record_result(disk: Disk, dataset: Path, view_folder: Path, result: MirrorResult) -> None:
    """Replace the record of the view with this folder; on return the new one survives a power cut.

    Only for the holder of the view's lock, or if no process can have it. Nothing is written if the record is the same
    already, or another program wrote the dataset. Raises DiskFull; other errors are logged, as the view itself does not
    need the record.
    """
    if not (dataset / STATE_NAME).is_file():
        return
    key = record_key(dataset, view_folder)
    path = recorded_path(dataset, view_folder)
    reason = _storable(result.reason[:MAX_REASON_CHARACTERS])
    result = replace(result, path=_storable(path), reason=reason, changed_at="")
    recorded = read_record(dataset, key)
    if recorded is not None and replace(recorded, changed_at="") == result:
        return
    content = dump_ascii(encode_record(replace(result, changed_at=now_text())))
    try:
        replace_file(disk, os.fspath(record_path(dataset, key)), content)
    except DiskFull:
        raise
    except StorageError as error:
        logger.warning("cannot record that mirror %s of %s is %s: %s", result.name, dataset, result.state, error)


def remove_record(disk: Disk, dataset: Path, view_folder: Path) -> None:
    """Remove the record of a view whose dataset grows again. Raises StorageError."""
    path = os.fspath(record_path(dataset, record_key(dataset, view_folder)))
    if not os.path.lexists(path):
        return
    try:
        disk.unlink(path)
    except OSError as error:
        raise StorageError.wrap(error, path, "cannot remove") from error


def recorded_path(dataset: Path, view_folder: Path) -> str:
    """Return the folder of the view's result relative to the dataset, "." for levels, which lie in it."""
    if view_folder == checkpoint.view_folder(dataset, PYRAMID_KIND):
        return "."
    container = view_folder.with_name(view_folder.name.removesuffix(VIEW_SUFFIX))
    try:
        return Path(os.path.relpath(container, dataset)).as_posix()
    except ValueError:  # on another drive
        return str(container.absolute())


def _storable(text: str) -> str:
    """Replace half surrogates: file names in error texts may have them, and JSON cannot."""
    return text.encode("utf-8", "replace").decode()


def place(reader: NDTiffReader, row: int) -> tuple[str, int] | None:
    """Return stack file and offset of a frame, None before the first."""
    if row < 0:
        return None
    name, frame = reader.stored_frame(row)
    return name, frame.pixels


def id_of_summary(summary: Mapping[str, Any]) -> str:
    """Return an id for a dataset without one: most programs put the starting time into the summary."""
    return hashlib.sha256(json.dumps(summary, sort_keys=True).encode()).hexdigest()[:32]


def open_full(dataset: Path) -> NDTiffReader:
    """Open the full resolution of a dataset. Raises DatasetError, StorageError."""
    reader, *lower_levels = open_readers(dataset)
    for lower in lower_levels:
        lower.close()
    return reader


def state_of(container: Path) -> DatasetState | None:
    """Return the state of a dataset, None if another program wrote it."""
    try:
        return read_state(os.fspath(container))
    except (FileMissing, CorruptDataset):
        return None


_CHECKPOINTS = {CHECKPOINT_NAME, CHECKPOINT_NAME + TEMPORARY_SUFFIX}


class ViewFolder:
    """path: the folder; dataset: the container of the dataset; name: the view's.

    fault: why this process cannot use the checkpoint, besides its content. restarted: the report of a restart that
    frames made necessary, which the checkpoint keeps.

    Files are written between `lock` and `unlock` only, except for the record of a failure.
    """

    def __init__(self, path: Path, dataset: Path, name: str, disk: Disk) -> None:
        self.path = path
        self._dataset = dataset
        self._name = name
        self._disk = disk
        self._lock: DirectoryLock | None = None
        self._dataset_id = ""
        self._request: Mapping[str, Any] = {}
        self._is_foreign = False  # the dataset was written by another program
        self._is_ours = False  # view.json is of this view of this dataset
        self.fault = self.restarted = ""

    def create(self) -> None:
        """Create the folder. Raises DatasetError if another folder has its name, StorageError."""
        try:
            self._disk.mkdir(os.fspath(self.path))
        except FileExistsError as error:
            refuse_link(os.fspath(self.path), error)
            names = set(os.listdir(self.path)) if self.path.is_dir() else None
            if names is None or (names - {LOCK_NAME} and not names & _CHECKPOINTS):
                text = (
                    f"{self.path} already exists and is not a view of {self._dataset.name}: it has no {CHECKPOINT_NAME}"
                )
                raise DatasetError(text) from error
        except OSError as error:
            raise StorageError.wrap(error, str(self.path), "cannot create the view's folder") from error

    def lock(self) -> None:
        """Lock the folder. Raises DatasetLocked while another process makes this view."""
        self._lock = DirectoryLock(os.fspath(self.path))

    def unlock(self) -> None:
        """Unlock the folder. Repeating it changes nothing."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close()

    def read(self, reader: NDTiffReader) -> tuple[Checkpoint | None, str]:
        """Return the checkpoint of an earlier run, None without one, and why it cannot be used, "" if it can."""
        state = state_of(self._dataset)
        self._is_foreign = state is None
        self._request = state.request if state is not None else {}
        self._dataset_id = state.dataset_id if state is not None else id_of_summary(reader.summary_metadata)
        fault = ""
        saved: Checkpoint | None = None
        try:
            saved = read_checkpoint(self.path)
            if saved is not None:
                self._check(saved, reader)
                self.restarted = saved.restarted or self.restarted
        except (CorruptDataset, CannotResume) as error:
            fault = str(error)
        self._is_ours = saved is not None and self._is_of_dataset(saved, reader)
        return saved, self.fault or fault

    def mark_restart(self, reason: str) -> None:
        """Have the view begin at frame 0 when it is opened next. The next checkpoint has the reason."""
        self.fault, self.restarted = reason, f"{RESTARTED}{reason}"

    def source(self, reader: NDTiffReader) -> ViewSource:
        """Return the source of the view. `read` must have been called."""
        return ViewSource(
            self._dataset,
            self.path,
            reader,
            self._disk,
            self._request,
            is_ours=self._is_ours,
            dataset_id=self._dataset_id,
        )

    def checkpoint(
        self, reader: NDTiffReader, cursor: int, state: Mapping[str, Any], *, is_complete: bool
    ) -> Checkpoint:
        """Return a checkpoint for `write`."""
        last = place(reader, cursor - 1)
        if self.restarted:
            state = {**state, "restarted": self.restarted}
        return Checkpoint(self._name, self._dataset_id, cursor, last, is_complete, state)

    def write(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint; from any thread. Raises StorageError."""
        write_checkpoint(self._disk, self.path, checkpoint)
        self._is_ours = True

    def record(self, result: MirrorResult) -> None:
        """`record_result` of this view. Raises DiskFull."""
        record_result(self._disk, self._dataset, self.path, result)

    def reopen_record(self, result: MirrorResult) -> None:
        """Replace the record of a view that resumes, if it is recorded as ended. Raises DiskFull."""
        recorded = read_record(self._dataset, record_key(self._dataset, self.path))
        if recorded is not None and recorded.ended:
            self.record(result)

    def record_failure(self, error: Exception, result: MirrorResult) -> None:
        """Record in both folders that the view has failed, so that readers do not wait for it.

        A complete view stays complete. If the disk fails as well, `error` gets a note.
        """
        try:
            if not is_complete(self.path, self._dataset_id):
                self.record(result)
        except (AcqStreamError, OSError) as again:
            error.add_note(f"and that could not be recorded in {self._dataset}: {again}")
        if self._lock is None or not self._is_ours:
            return
        try:
            mark_failed(self._disk, self.path, result.reason, is_unsure=isinstance(error, StorageError))
        except (AcqStreamError, OSError) as again:
            error.add_note(f"and {self.path / CHECKPOINT_NAME} could not be marked: {again}")

    def note_cleared(self, saved: Checkpoint | None) -> None:
        """Note that the files of the view are removed. A complete view is removed by request, and has no report."""
        self.fault = ""
        if saved is not None and saved.is_complete:
            self.restarted = ""

    def _is_of_dataset(self, saved: Checkpoint, reader: NDTiffReader) -> bool:
        if (saved.view, saved.dataset_id) != (self._name, self._dataset_id):
            return False
        # two datasets of another program may have equal summaries: the place of the last frame differs
        is_same = saved.cursor <= len(reader) and saved.last == place(reader, saved.cursor - 1)
        return is_same or not self._is_foreign

    def _check(self, saved: Checkpoint, reader: NDTiffReader) -> None:
        """Raises CannotResume for a checkpoint of another dataset, or of frames that are no longer published."""
        if (saved.view, saved.dataset_id) != (self._name, self._dataset_id):
            raise CannotResume("its checkpoint belongs to another dataset")
        if saved.cursor > len(reader):
            text = f"it had {saved.cursor} frames, {len(reader)} are published: a power cut removed the others"
            raise CannotResume(text)
        if saved.last != place(reader, saved.cursor - 1):
            raise CannotResume(f"frame {saved.cursor - 1} was replaced")
        if saved.is_unsure:
            raise CannotResume(f"it had failed {saved.failed}")


class SavedPoint(NamedTuple):
    """What view.json has. waiting: pieces that were not written then; a later process writes them."""

    cursor: int
    frames_ahead: int
    is_complete: bool
    waiting: int


class Checkpoints:
    """last: the last checkpoint on the disk, None before the first; took_s: to write it. Used by one thread at a time.

    A thread of its own writes them, one at a time. `point` returns where the view is; it is asked after the view has
    written, as pieces written meanwhile count.
    """

    def __init__(self, files: ViewFolder) -> None:
        self.last: SavedPoint | None = None
        self.took_s = 0.0
        self._files = files
        self._running: tuple[Future[None], SavedPoint] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")

    def save(self, reader: NDTiffReader, view: View, point: Callable[[], SavedPoint]) -> None:
        """Have one on the disk of where the view is. Raises StorageError."""
        self.note(waits=True)
        if self.last != point():
            self.write(reader, view, point)

    def write(self, reader: NDTiffReader, view: View, point: Callable[[], SavedPoint]) -> None:
        """As `save`, also where nothing has changed."""
        self.note(waits=True)
        self._begin(reader, view, point)
        self.note(waits=True)

    def begin(self, reader: NDTiffReader, view: View, point: Callable[[], SavedPoint]) -> None:
        """As `save`, without a wait; `note` raises its error. Does nothing while one is being written."""
        if self._running is None and self.last != point():
            self._begin(reader, view, point)

    def note(self, *, waits: bool = False) -> None:
        """Note a checkpoint that was written. Raises its StorageError, once."""
        if self._running is not None and (waits or self._running[0].done()):
            (future, point), self._running = self._running, None
            future.result()
            self.last = point

    def settle(self, error: Exception) -> None:
        """Wait for one that is being written: it could replace what tells of `error`, which gets a note of its own."""
        try:
            self.note(waits=True)
        except (AcqStreamError, OSError) as other:
            error.add_note(f"and its checkpoint could not be written: {other}")

    def close(self) -> None:
        """Wait for a checkpoint that is being written; its outcome is dropped. The next one has another thread."""
        self._running = None
        self._thread.shutdown()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")

    def _begin(self, reader: NDTiffReader, view: View, point: Callable[[], SavedPoint]) -> None:
        began_s = time.monotonic()
        state, force = view.save()
        current = point()
        checkpoint = self._files.checkpoint(reader, current.cursor, state, is_complete=current.is_complete)

        def write() -> None:
            force()
            self._files.write(checkpoint)
            self.took_s = time.monotonic() - began_s

        self._running = self._thread.submit(write), current
