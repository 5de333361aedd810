"""Reads the states of all mirrors and levels of a dataset: the records in its folder, joined with checkpoints."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from acqstream.errors import ConfigError, CorruptDataset, StorageError
from acqstream.formats.ndtiff.folders import VIEW_SUFFIX, read_records, record_key
from acqstream.log.state_file import DatasetState, read_state
from acqstream.mirrors.view_kinds import folder_of
from acqstream.model.daemon_note import STARTING, parse_daemon_note
from acqstream.model.state import AcquisitionState
from acqstream.model.view_spec import PYRAMID_KIND, MirrorResult, ViewSpec
from acqstream.storage.files.directory_lock import LOCK_NAME, holder_of, is_locked
from acqstream.views.checkpoint import read_checkpoint, view_folder
from acqstream.views.pyramid_levels import level_folders
from acqstream.views.result_record import recorded_path

_ABANDONED = "no process makes it: start the daemon on this data directory, or run `acqstream mirror`"


def mirror_results(dataset: Path, state: DatasetState | None = None) -> tuple[MirrorResult, ...]:
    """Return the results of the requested mirrors, in that order, then of others that exist.

    state is that of the dataset, if the caller has it. A mirror that has not ended is "running" while its lock is held,
    or while a daemon has the data directory; else "unfinished". Raises StorageError, CorruptDataset.
    """
    dataset = Path(os.path.realpath(dataset))  # mirrors and locks lie beside the folder, not beside a link to it
    if state is None:
        try:
            state = read_state(os.fspath(dataset))
        except (FileNotFoundError, NotADirectoryError):
            return ()  # of another writer: nothing is recorded in its folder
    records = read_records(dataset)
    found = []
    for spec in _requested(state):
        try:
            folder = folder_of(dataset, spec)
        except ConfigError as error:
            found.append(MirrorResult(name=spec.name, state="failed", reason=f"cannot be made: {error}"))
            continue
        if spec.is_pyramid and _is_copied_without(dataset, folder, records):
            continue
        recorded = records.pop(record_key(dataset, folder), None)
        result = _joined(recorded or MirrorResult(name=spec.name, state="running"), dataset, folder, state)
        found.append(_checked(result, folder, has_daemon=lambda: is_held(dataset.parent)))
    for recorded in records.values():
        folder = _view_folder(dataset, recorded)
        found.append(_checked(_joined(recorded, dataset, folder, state), folder, has_daemon=lambda: False))
    return tuple(found)


def is_held(folder: Path) -> bool:
    """Return whether a process has the lock of this folder; True if that is unknown."""
    try:
        return is_locked(os.fspath(folder / LOCK_NAME))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def starting_text(dataset: Path) -> str:
    """The state of an unfinished run whose daemon is checking its datasets; empty once it records, or without one."""
    try:
        holder = holder_of(os.fspath(dataset.parent))
    except StorageError:
        return ""
    is_starting = holder is not None and holder.process and parse_daemon_note(holder.note) is None
    return f"{STARTING}: it checks this run" if is_starting else ""


def _requested(state: DatasetState) -> tuple[ViewSpec, ...]:
    """Return the requested views; none if the request is damaged, as the records have those that were made."""
    try:
        return state.views
    except ValueError:
        return ()


def _is_copied_without(dataset: Path, folder: Path, records: Mapping[str, MirrorResult]) -> bool:
    """Return whether the levels have no record and no checkpoint: they count as complete (docs/views.md)."""
    return not folder.exists() and bool(level_folders(dataset)) and record_key(dataset, folder) not in records


def _joined(recorded: MirrorResult, dataset: Path, folder: Path, state: DatasetState) -> MirrorResult:
    """Return a record that is "running" or may be out of date, updated from the view's own checkpoint."""
    is_past = recorded.state == "interrupted" and state.state is not AcquisitionState.INTERRUPTED
    if recorded.ended and not is_past:
        return recorded
    result = replace(recorded, state="running", path=recorded.path or recorded_path(dataset, folder))
    try:
        saved = read_checkpoint(folder)
    except (CorruptDataset, StorageError) as error:
        return replace(result, reason=str(error))
    if saved is None or saved.dataset_id not in ("", state.dataset_id):
        return result
    published = max(result.published, saved.cursor)
    result = replace(result, frames=saved.cursor, published=published)
    if saved.is_complete:
        return replace(result, state="complete", published=saved.cursor)
    if saved.failed:
        return replace(result, state="failed", reason=saved.failed)
    return result


def _checked(result: MirrorResult, folder: Path, *, has_daemon: Callable[[], bool]) -> MirrorResult:
    """Return the result, as "unfinished" if no process continues it."""
    if result.ended or is_held(folder) or has_daemon():
        return result
    return replace(result, state="unfinished", reason=result.reason or _ABANDONED)


def _view_folder(dataset: Path, recorded: MirrorResult) -> Path:
    """Return the view's folder of a mirror that was not requested, from the path in its record."""
    container = Path(os.path.normpath(dataset / recorded.path))
    beside = container.with_name(container.name + VIEW_SUFFIX) if container.name else container
    if recorded.path == ".":
        return view_folder(dataset, PYRAMID_KIND)
    return beside if beside.exists() else container
