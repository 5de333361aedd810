"""Views that an earlier daemon did not complete, gone on with; and what it did not come to record of others."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from pathlib import Path

from acqstream.daemon.view_process import ViewProcess
from acqstream.errors import AcqStreamError, ConfigError, CorruptDataset, FileMissing, StorageError
from acqstream.formats.ndtiff.mirror_records import read_record, record_key
from acqstream.log.state_file import DatasetState, read_state
from acqstream.mirrors.registry import folder_of
from acqstream.model.mirror_result import MirrorResult
from acqstream.storage.disk import LocalDisk
from acqstream.storage.lock import DirectoryLock
from acqstream.views.checkpoint import is_complete, read_checkpoint
from acqstream.views.pyramid_levels import level_folders
from acqstream.views.result_record import record_result

_View = tuple[Path, str, Path]
"""The dataset's folder, the view's name, and its own folder."""

logger = logging.getLogger("acqstream.daemon")


def go_on_with_views(process: ViewProcess, folders: Iterable[Path]) -> None:
    """Have every view made that was asked for and is not complete.

    Levels of which nobody says how far they are, are left alone: most likely they are a copy of whole ones.
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
            logger.warning("views of %s are not gone on with: %s", folder, error)
            continue
        try:
            _go_on(process, folder, state, complete)
        except (AttributeError, TypeError, ValueError) as error:  # a damaged request: the daemon starts all the same
            logger.warning("views of %s are not gone on with: its request cannot be understood: %r", folder, error)
    if complete:  # not here: there may be thousands, and forcing each to the disk takes a while
        threading.Thread(target=_record_complete, args=(complete,), name="record-views", daemon=True).start()


def _go_on(process: ViewProcess, folder: Path, state: DatasetState, complete: list[_View]) -> None:
    """Raises AttributeError, TypeError or ValueError for a request that says nonsense."""
    all_settings = state.request.get("mirror_settings") or {}
    for name in state.request.get("mirrors") or ():
        settings = all_settings.get(name)
        try:
            own_folder = folder_of(folder, name, settings)
        except ConfigError as error:
            logger.warning("view %s of %s cannot be made: %s", name, folder, error)
            continue
        if name == "pyramid" and level_folders(folder) and not own_folder.exists():
            logger.warning(
                "%s was renamed or copied without %s.pyramid: its levels are left as they are", folder, folder
            )
        elif not is_complete(own_folder, state.dataset_id):
            logger.info("going on with view %s of %s", name, folder)
            process.add(str(folder), name, settings=settings)
        else:
            complete.append((folder, name, own_folder))


def _record_complete(views: Iterable[_View]) -> None:
    """Of views whose daemon died between their last checkpoint and the record in the dataset's folder."""
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
