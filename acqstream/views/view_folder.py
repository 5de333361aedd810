"""The folder of one view: its lock, its checkpoint, and the record of its end in the dataset's folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from acqstream.errors import AcqStreamError, CannotResume, CorruptDataset, DatasetError, StorageError
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.model.view_spec import MirrorResult
from acqstream.storage.files.atomic_file import TEMPORARY_SUFFIX
from acqstream.storage.files.directory_lock import LOCK_NAME, DirectoryLock
from acqstream.storage.files.disk import Disk
from acqstream.storage.files.folder_tree import refuse_link
from acqstream.views.base import ViewSource
from acqstream.views.checkpoint import (
    CHECKPOINT_NAME,
    Checkpoint,
    is_complete,
    mark_failed,
    read_checkpoint,
    write_checkpoint,
)
from acqstream.views.mirrored_dataset import id_of_summary, place, state_of
from acqstream.views.result_record import record_result, reopen_record

_RESTARTED = "restarted: "
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
                self._note_restart(saved)
        except (CorruptDataset, CannotResume) as error:
            fault = str(error)
        self._is_ours = saved is not None and self._is_of_dataset(saved, reader)
        return saved, self.fault or fault

    def mark_restart(self, reason: str) -> None:
        """Have the view begin at frame 0 when it is opened next. The next checkpoint has the reason."""
        self.fault, self.restarted = reason, f"{_RESTARTED}{reason}"

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
        """`reopen_record` of this view. Raises DiskFull."""
        reopen_record(self._disk, self._dataset, self.path, result)

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

    def _note_restart(self, saved: Checkpoint) -> None:
        """Take over the report of a restart from an earlier process."""
        text = saved.state.get("restarted")
        if isinstance(text, str) and text.startswith(_RESTARTED):
            self.restarted = text

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
