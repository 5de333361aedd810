"""Continues what an earlier daemon left: recovers datasets before the first request, and resumes unfinished views."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from acqstream.errors import AcqStreamError, ConfigError, CorruptDataset, FileMissing, StorageError
from acqstream.formats.ndtiff.folders import FULL_RESOLUTION, read_records, record_key
from acqstream.formats.ndtiff.index_entries import INDEX_NAME
from acqstream.integrity.recover import RecoveryReport, recover
from acqstream.log import journal
from acqstream.log.state_file import STATE_NAME, DatasetState, read_state
from acqstream.mirrors.mirror_plan import folder_of
from acqstream.model.view_spec import MirrorResult, ViewSpec
from acqstream.storage.files.atomic_file import TEMPORARY_SUFFIX
from acqstream.storage.files.directory_lock import DirectoryLock
from acqstream.storage.files.disk import LocalDisk
from acqstream.storage.platform import FILES
from acqstream.views.checkpoint import is_complete, read_checkpoint
from acqstream.views.level_files import level_folders
from acqstream.views.view_folder import record_result, recorded_path

logger = logging.getLogger("acqstream.recovery")

GROWTH_WATCH_S = 1.5  # longer than the interval of commits on a slow disk


class EarlierRuns(NamedTuple):
    """What earlier daemons left in a data directory.

    crashed: in writing, half created, or unreadable; viewed: whose request has views, complete or not.
    """

    crashed: list[Path]
    viewed: list[Path]


def earlier_runs(folders: Iterable[Path]) -> EarlierRuns:
    """Read the state of each dataset among `folders` once. Raises nothing: `recover_all` reports what is wrong."""
    found = EarlierRuns([], [])
    for folder in folders:
        try:
            state = read_state(str(folder))
        except FileMissing:
            if os.path.lexists(folder / journal.JOURNAL_NAME):  # else a mirror, or a folder of another program
                found.crashed.append(folder)
        except Exception:  # noqa: BLE001 - one dataset must not keep the daemon from starting
            found.crashed.append(folder)
        else:
            if state.state.writing:
                found.crashed.append(folder)
            if state.request.get("mirrors"):
                found.viewed.append(folder)
    return found


def recover_all(folders: Iterable[Path]) -> list[RecoveryReport]:
    """Recover every dataset among `folders` that was being written when its writer died.

    A dataset that cannot be recovered is left unchanged and logged as an error; the others are still recovered.
    """
    reports = []
    for folder in folders:
        try:
            if not os.path.lexists(folder / STATE_NAME):
                _remove_unstarted(folder)
                continue
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


def unfinished_views(folders: Iterable[Path]) -> Iterator[tuple[Path, ViewSpec]]:
    """Yield every requested view that is to be made, with its dataset, of the datasets in these folders.

    A view that had ended and was removed stays removed. Levels without a checkpoint are left alone: most likely the
    dataset is a copy, and they are complete. Records views whose daemon died before it could.
    """
    for folder in folders:
        try:
            state = read_state(str(folder))
            specs = state.views
            records = read_records(folder)
        except FileMissing:
            continue
        except (CorruptDataset, StorageError) as error:
            logger.warning("cannot resume views of %s: %s", folder, error)
            continue
        except ValueError as error:
            logger.warning("cannot resume views of %s: invalid request: %s", folder, error)
            continue
        for spec in specs:
            try:
                is_unfinished = _is_unfinished(folder, state, spec, records)
            except (ConfigError, OSError) as error:
                logger.warning("cannot resume view %s of %s: %s", spec.name, folder, error)
                continue
            if is_unfinished:
                logger.info("resuming view %s of %s", spec.name, folder)
                yield folder, spec


def _is_unfinished(folder: Path, state: DatasetState, spec: ViewSpec, records: Mapping[str, MirrorResult]) -> bool:
    """Return whether a requested view is to be made. Raises ConfigError, OSError."""
    own_folder = folder_of(folder, spec)
    recorded = records.get(record_key(folder, own_folder))
    if recorded is not None and _is_removed(folder, own_folder, recorded):
        return False
    if spec.is_pyramid and level_folders(folder) and not own_folder.exists():
        logger.warning("%s was renamed or copied without %s.pyramid: its levels are left as they are", folder, folder)
        return False
    if not is_complete(own_folder, state.dataset_id):
        return True
    if recorded is None or not recorded.complete:
        _record_complete(folder, spec.name, own_folder)
    return False


def _is_removed(folder: Path, own_folder: Path, recorded: MirrorResult) -> bool:
    """Return whether a view ended, and its files or its notes are gone since."""
    if recorded.state in ("running", "unfinished", "removed"):  # unfinished: its record is damaged
        return recorded.state == "removed"
    is_made = recorded.frames == 0 or os.path.lexists(folder / recorded_path(folder, own_folder))
    return not (is_made and os.path.lexists(own_folder))


def _record_complete(folder: Path, name: str, own_folder: Path) -> None:
    """Record a view whose daemon died between its last checkpoint and the record in the dataset's folder."""
    try:
        with DirectoryLock(str(own_folder)):
            saved = read_checkpoint(own_folder)
            if saved is not None and saved.is_complete:
                count = saved.cursor
                result = MirrorResult(name=name, state="complete", frames=count, published=count)
                record_result(LocalDisk(), folder, own_folder, result)
    except AcqStreamError as error:
        logger.warning("cannot record that view %s of %s is complete: %s", name, folder, error)
