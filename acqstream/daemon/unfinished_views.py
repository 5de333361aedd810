"""Views that an earlier daemon did not complete, gone on with."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from acqstream.daemon.view_process import ViewProcess
from acqstream.errors import ConfigError, CorruptDataset, FileMissing, StorageError
from acqstream.pipeline.state_file import DatasetState, read_state
from acqstream.pipeline.views.checkpoint import read_checkpoint
from acqstream.pipeline.views.pyramid_levels import level_folders
from acqstream.pipeline.views.registry import folder_of

logger = logging.getLogger("acqstream.daemon")


def go_on_with_views(process: ViewProcess, folders: Iterable[Path]) -> None:
    """Have every view made that was asked for and is not complete.

    Levels of which nobody says how far they are, are left alone: most likely they are a copy of whole ones.
    """
    if process.unavailable_reason:
        return
    for folder in folders:
        try:
            state = read_state(str(folder))
        except FileMissing:
            continue
        except (CorruptDataset, StorageError) as error:
            logger.warning("views of %s are not gone on with: %s", folder, error)
            continue
        try:
            _go_on(process, folder, state)
        except (AttributeError, TypeError, ValueError) as error:  # a damaged request: the daemon starts all the same
            logger.warning("views of %s are not gone on with: its request cannot be understood: %r", folder, error)


def _go_on(process: ViewProcess, folder: Path, state: DatasetState) -> None:
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
        elif not _is_complete(own_folder, state.dataset_id):
            logger.info("going on with view %s of %s", name, folder)
            process.add(str(folder), name, settings=settings)


def _is_complete(folder: Path, dataset_id: str) -> bool:
    try:
        saved = read_checkpoint(folder)
    except (CorruptDataset, StorageError):
        return False  # it begins anew, or says what is wrong
    return saved is not None and saved.is_complete and saved.dataset_id == dataset_id
