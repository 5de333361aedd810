"""Recovers datasets that a crashed writer left, before the first request."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable
from pathlib import Path

from acqstream.errors import AcqStreamError
from acqstream.formats.ndtiff.folders import FULL_RESOLUTION
from acqstream.formats.ndtiff.index_entries import INDEX_NAME
from acqstream.integrity.recover import RecoveryReport, recover
from acqstream.log import journal
from acqstream.log.state_file import STATE_NAME, read_state
from acqstream.storage.atomic import TEMPORARY_SUFFIX
from acqstream.storage.platform import FILES

logger = logging.getLogger("acqstream.recovery")

GROWTH_WATCH_S = 1.5  # longer than the interval of commits on a slow disk


def recover_all(folders: Iterable[Path]) -> list[RecoveryReport]:
    """Recover every dataset among `folders` that was being written when its writer died.

    A dataset that cannot be recovered is left unchanged and logged as an error; the others are still recovered.
    """
    reports = []
    for folder in folders:
        if not (folder / STATE_NAME).is_file():
            _remove_unstarted(folder)
            continue
        try:
            report = recover(folder)
        except (AcqStreamError, OSError) as error:
            logger.error("cannot recover %s: %s", folder, error)  # noqa: TRY400 - expected: no stack
            continue
        except Exception:  # one dataset must not keep the daemon from starting
            logger.exception("cannot recover %s: unexpected error, please report it", folder)
            continue
        if report is not None:
            logger.warning("recovered %s", report)
            reports.append(report)
    return reports


def growing_datasets(folders: Iterable[Path]) -> set[Path]:
    """Return the datasets in writing whose files change within GROWTH_WATCH_S: their writer lives on another mount."""
    before = {}
    for folder in folders:
        with contextlib.suppress(AcqStreamError, OSError):  # it is logged when it is to be recovered
            if read_state(str(folder)).state.writing:
                before[folder] = _status_of_files(folder)
    if before:
        time.sleep(GROWTH_WATCH_S)
    growing = {folder for folder, status in before.items() if _status_of_files(folder) != status}
    for folder in growing:
        logger.error("%s is not recovered: another program still writes it; stop that program", folder)
    return growing


def _status_of_files(folder: Path) -> dict[Path, tuple[int, int]]:
    found = {}
    for path in (*folder.iterdir(), *folder.glob(f"{FULL_RESOLUTION}/*")):
        with contextlib.suppress(FileNotFoundError):  # it was renamed meanwhile
            found[path] = (path.stat().st_size, path.stat().st_mtime_ns)
    return found


def _remove_unstarted(folder: Path) -> None:
    """Remove a folder that has only the first files of a dataset: its writer died before it accepted a frame."""
    stack_folder = folder / FULL_RESOLUTION  # of a tiled dataset
    is_tiled = stack_folder.is_dir()
    files = [path for path in folder.iterdir() if path != stack_folder or not is_tiled]
    first_files = {journal.JOURNAL_NAME, INDEX_NAME, STATE_NAME + TEMPORARY_SUFFIX}
    if journal.JOURNAL_NAME not in {file.name for file in files} or not {file.name for file in files} <= first_files:
        return
    if is_tiled and [file.name for file in stack_folder.iterdir()] not in ([], [INDEX_NAME]):
        return
    if (folder / journal.JOURNAL_NAME).stat().st_size > journal.HEADER_BYTES:
        return
    try:
        if is_tiled:
            with contextlib.suppress(FileNotFoundError):
                FILES.unlink(str(stack_folder / INDEX_NAME))
            FILES.rmdir(str(stack_folder))
        for file in files:
            FILES.unlink(str(file))
        FILES.rmdir(str(folder))
    except OSError as error:
        logger.warning("cannot remove %s, which has no frames: %s", folder, error)
        return
    logger.warning("removed %s: its writer died while creating it, it had no frames", folder)
