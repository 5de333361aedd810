"""Resumes the views that an earlier daemon did not complete, and records those that it completed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from pathlib import Path

from acqstream.daemon.view_process import ViewProcess
from acqstream.errors import AcqStreamError, ConfigError, CorruptDataset, FileMissing, StorageError
from acqstream.formats.ndtiff.folders import read_record, record_key
from acqstream.log.state_file import DatasetState, read_state
from acqstream.mirrors.view_kinds import folder_of
from acqstream.model.mirror_result import MirrorResult
from acqstream.model.view_spec import ViewSpec
from acqstream.storage.disk import LocalDisk
from acqstream.storage.lock import DirectoryLock
from acqstream.views.checkpoint import is_complete, read_checkpoint
from acqstream.views.pyramid_levels import level_folders
from acqstream.views.result_record import record_result

_View = tuple[Path, str, Path]
"""The dataset's folder, the view's name, and its own folder."""

logger = logging.getLogger("acqstream.daemon")


def resume_views(process: ViewProcess, folders: Iterable[Path]) -> None:
    """Have every requested view made that is not complete, of the datasets in these folders.

    Levels without a checkpoint are left alone: most likely the dataset is a copy, and they are complete.
    """
    if process.unavailable_reason:
        return
    complete: list[_View] = []
    for folder in folders:
        try:
            state = read_state(str(folder))
        except FileMissing:
            continue
        except (CorruptDataset, StorageError) as error:
            logger.warning("cannot resume views of %s: %s", folder, error)
            continue
        try:
            specs = state.views
        except ValueError as error:
            logger.warning("cannot resume views of %s: invalid request: %s", folder, error)
            continue
        for spec in specs:
            _resume(process, folder, state, spec, complete)
    if complete:  # in a thread: there may be thousands, and each is forced to the disk
        threading.Thread(target=_record_complete, args=(complete,), name="record-views", daemon=True).start()


def _resume(process: ViewProcess, folder: Path, state: DatasetState, spec: ViewSpec, complete: list[_View]) -> None:
    """Resume one view, or add it to those that are complete."""
    try:
        own_folder = folder_of(folder, spec)
    except ConfigError as error:
        logger.warning("cannot resume view %s of %s: %s", spec.name, folder, error)
        return
    if spec.is_pyramid and level_folders(folder) and not own_folder.exists():
        logger.warning("%s was renamed or copied without %s.pyramid: its levels are left as they are", folder, folder)
    elif not is_complete(own_folder, state.dataset_id):
        logger.info("resuming view %s of %s", spec.name, folder)
        process.add(str(folder), spec)
    else:
        complete.append((folder, spec.name, own_folder))


def _record_complete(views: Iterable[_View]) -> None:
    """Record views whose daemon died between their last checkpoint and the record in the dataset's folder."""
    for folder, name, own_folder in views:
        recorded = read_record(folder, record_key(folder, own_folder))
        if recorded is not None and recorded.complete:
            continue
        try:
            with DirectoryLock(str(own_folder)):
                saved = read_checkpoint(own_folder)
                if saved is not None and saved.is_complete:
                    count = saved.cursor
                    result = MirrorResult(name=name, state="complete", frames=count, published=count)
                    record_result(LocalDisk(), folder, own_folder, result)
        except AcqStreamError as error:
            logger.warning("cannot record that view %s of %s is complete: %s", name, folder, error)
