"""Views that an earlier daemon did not complete, gone on with."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from acqstream.daemon.view_process import ViewProcess
from acqstream.errors import CorruptDataset, StorageError
from acqstream.pipeline.state_file import read_state
from acqstream.pipeline.views.checkpoint import read_checkpoint, view_folder
from acqstream.pipeline.views.pyramid_levels import level_folders
from acqstream.pipeline.views.registry import VIEWS

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
        except (FileNotFoundError, NotADirectoryError, CorruptDataset):
            continue
        for name in state.request.get("mirrors") or ():
            if name == "pyramid" and level_folders(folder) and not view_folder(folder, name).exists():
                logger.warning(
                    "%s was renamed or copied without %s.pyramid: its levels are left as they are", folder, folder
                )
            elif name in VIEWS and not _is_complete(view_folder(folder, name), state.dataset_id):
                logger.info("going on with view %s of %s", name, folder)
                process.add(str(folder), name)


def _is_complete(folder: Path, dataset_id: str) -> bool:
    try:
        saved = read_checkpoint(folder)
    except (CorruptDataset, StorageError):
        return False  # it begins anew, or says what is wrong
    return saved is not None and saved.is_complete and saved.dataset_id == dataset_id
