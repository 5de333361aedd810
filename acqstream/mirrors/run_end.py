"""Waiting for the end of a dataset: of its acquisition, and of all its mirrors and levels, whose states it reads.

Only files are looked at: the state and the receipt in the dataset's folder, the records and checkpoints of its mirrors,
and the locks of those who write. So the daemon may be dead, or be restarted meanwhile.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from acqstream.errors import ConfigError, CorruptDataset, DatasetError, StorageError
from acqstream.formats.ndtiff.folders import VIEW_SUFFIX, container_of, read_record, read_records, record_key
from acqstream.integrity.record_check import read_receipt
from acqstream.log.journal import JOURNAL_NAME
from acqstream.log.state_file import RECEIPT_NAME, STATE_NAME, DatasetState, read_state
from acqstream.mirrors.mirror_plan import folder_of
from acqstream.model.daemon_note import STARTING, parse_daemon_note
from acqstream.model.dataset_name import MAX_FOLDERS
from acqstream.model.receipt import Receipt
from acqstream.model.state import AcquisitionState
from acqstream.model.view_spec import PYRAMID_KIND, MirrorResult, ViewSpec
from acqstream.storage.files.directory_lock import LOCK_NAME, holder_of, is_locked
from acqstream.views.checkpoint import read_checkpoint, view_folder
from acqstream.views.level_files import level_folders
from acqstream.views.view_folder import recorded_path

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
        found.append(_checked(result, folder, has_daemon=lambda: data_directory_of(dataset) is not None))
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


def data_directory_of(dataset: Path) -> Path | None:
    """The folder with this dataset in it, or in folders of it, that a daemon has; None without one."""
    return next((one for one in dataset.absolute().parents[: MAX_FOLDERS + 1] if is_held(one)), None)


def is_recorded(dataset: Path) -> bool:
    """Return whether a daemon, or a program that records without one, has an unfinished dataset open."""
    if data_directory_of(dataset) is not None:
        return True
    try:
        return is_locked(str(dataset / JOURNAL_NAME))
    except FileNotFoundError:
        return False
    except OSError:
        return True  # unknown: as if it had one


def starting_text(dataset: Path) -> str:
    """The state of an unfinished run whose daemon is checking its datasets; empty once it records, or without one."""
    try:
        folder = data_directory_of(dataset)
        holder = None if folder is None else holder_of(os.fspath(folder))
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
    if saved.is_complete and is_held(folder):
        return result  # its record, with what is said of it, comes after its checkpoint
    if saved.is_complete:
        recorded = replace(read_record(dataset, record_key(dataset, folder)) or recorded, name=recorded.name)
        whole = replace(result, state="complete", published=saved.cursor, reason=saved.restarted)
        return recorded if recorded.ended else whole
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


POLL_S, MAX_POLL_S = 0.05, 1.0
DEFAULT_PATIENCE_S = 10.0

Outcome = Literal["running", "ended", "interrupted", "abandoned", "timeout"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetEnd:
    """The state of a dataset and of its mirrors, or their end.

    outcome: "running" while it is being written or mirrored; "ended" when acquisition and mirrors have;
    "interrupted" when the acquisition was interrupted and not resumed; "abandoned" when something has not ended and no
    process continues it; "timeout" when the time was over before. state and reason are those of the acquisition.
    complete: it was closed in order, and every frame is stored or was declared as skipped. stored counts frames,
    missing counts undeclared frames without pixels. sentence: that of the receipt, or `starting_text`.
    """

    path: str
    outcome: Outcome
    state: AcquisitionState
    reason: str
    complete: bool
    stored: int
    missing: int
    sentence: str
    mirrors: tuple[MirrorResult, ...]

    @property
    def ok(self) -> bool:
        """All has ended, and nothing is missing; a mirror that was removed after its end does not count."""
        is_good = all(mirror.complete or mirror.state == "removed" for mirror in self.mirrors)
        return self.outcome == "ended" and self.complete and is_good

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as for JSON."""
        return asdict(self)


def wait_for_end(
    path: Path,
    *,
    timeout_s: float | None = None,
    patience_s: float = DEFAULT_PATIENCE_S,
    on_look: Callable[[DatasetEnd], None] = lambda _: None,
) -> DatasetEnd:
    """Wait until acquisition and mirrors of the dataset at `path` have ended, and return their end.

    Returns early after timeout_s (None: never), or when no process was working on unfinished ones for patience_s: the
    daemon may be restarting meanwhile. on_look gets every state that was seen.

    Raises DatasetError if acqstream has not written the dataset, CorruptDataset or StorageError if its files cannot be
    read.
    """
    watched = _DatasetWatch(path)
    began_s = time.monotonic()
    idle_since_s: float | None = None
    pause_s = POLL_S
    while True:
        now = watched.poll()
        on_look(now)
        if now.outcome == "ended":
            return now
        now_s = time.monotonic()
        idle_since_s = None if now.outcome == "running" else now_s if idle_since_s is None else idle_since_s
        if idle_since_s is not None and now_s - idle_since_s >= patience_s:
            return now
        left_s = float("inf") if timeout_s is None else began_s + timeout_s - now_s
        if left_s <= 0:
            return replace(now, outcome="timeout")
        time.sleep(min(pause_s, left_s, patience_s if idle_since_s is None else idle_since_s + patience_s - now_s))
        pause_s = min(MAX_POLL_S, 1.2 * pause_s)


class _DatasetWatch:
    """Looks at one dataset repeatedly; rereads its files when they have changed."""

    def __init__(self, path: Path) -> None:
        # The daemon's lock and the mirrors lie beside the folder itself, not beside a link to it.
        self.folder = Path(os.path.realpath(container_of(path)))
        self._signature: tuple[int, int, int] | None = None
        self._state: DatasetState | None = None

    def poll(self) -> DatasetEnd:
        """Return the state now; its outcome is never "timeout"."""
        state = self._read_state()
        is_over = state.state.final
        mirrors = mirror_results(self.folder, state)
        receipt = self._receipt() if is_over else None
        is_active = any(mirror.state == "running" for mirror in mirrors) or (
            state.state.writing and is_recorded(self.folder)
        )
        outcome: Outcome = "running"
        if not is_active:
            is_left = state.state.writing or any(mirror.state == "unfinished" for mirror in mirrors)
            outcome = "abandoned" if is_left else "ended" if is_over else "interrupted"
        return DatasetEnd(
            path=str(self.folder),
            outcome=outcome,
            state=state.state,
            reason=state.reason,
            complete=state.state is AcquisitionState.COMPLETE and (receipt is None or receipt.complete),
            stored=receipt.stored if receipt is not None else 0,
            missing=_undeclared(receipt) if receipt is not None else 0,
            sentence=_sentence(self.folder, state, receipt),
            mirrors=mirrors,
        )

    def _read_state(self) -> DatasetState:
        path = self.folder / STATE_NAME
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError) as error:
            text = f"{self.folder} was not written by acqstream: it has no {STATE_NAME}, so its end is unknown"
            raise DatasetError(text) from error
        except OSError as error:
            raise StorageError.wrap(error, str(path), "look at") from error
        signature = (status.st_mtime_ns, status.st_size, status.st_ino)
        if self._state is None or signature != self._signature:
            self._state = read_state(str(self.folder))
            self._signature = signature
        return self._state

    def _receipt(self) -> Receipt | None:
        path = self.folder / RECEIPT_NAME
        return read_receipt(path) if path.exists() else None


def _sentence(folder: Path, state: DatasetState, receipt: Receipt | None) -> str:
    if receipt is not None:
        return receipt.sentence
    return starting_text(folder) if state.state.writing else ""


def _undeclared(receipt: Receipt) -> int:
    return max(0, sum(gap.count for gap in receipt.missing) - receipt.skipped)
