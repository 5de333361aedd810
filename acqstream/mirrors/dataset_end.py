"""Waiting for the end of a dataset: of its acquisition, and of all its mirrors and levels.

Only files are looked at: the state and the receipt in the dataset's folder, the records and checkpoints of its mirrors,
and the locks of those who write. So the daemon may be dead, or be restarted meanwhile.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from acqstream.errors import DatasetError, StorageError
from acqstream.formats.ndtiff.folders import container_of
from acqstream.integrity.record_check import read_receipt
from acqstream.log.journal import JOURNAL_NAME
from acqstream.log.state_file import RECEIPT_NAME, STATE_NAME, DatasetState, read_state
from acqstream.mirrors.mirror_results import is_held, mirror_results, starting_text
from acqstream.model.receipt import Receipt
from acqstream.model.state import AcquisitionState
from acqstream.model.view_spec import MirrorResult
from acqstream.storage.files.directory_lock import is_locked

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
        """All has ended, and nothing is missing."""
        return self.outcome == "ended" and self.complete and all(mirror.complete for mirror in self.mirrors)

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
        now = watched.look()
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

    def look(self) -> DatasetEnd:
        """Return the state now; its outcome is never "timeout"."""
        state = self._read_state()
        is_over = state.state.final
        mirrors = mirror_results(self.folder, state)
        receipt = self._receipt() if is_over else None
        is_active = any(mirror.state == "running" for mirror in mirrors) or (state.state.writing and self._has_writer())
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

    def _has_writer(self) -> bool:
        """Return whether a daemon, or a program that records without one, has it open."""
        if is_held(self.folder.parent):
            return True
        try:
            return is_locked(str(self.folder / JOURNAL_NAME))
        except FileNotFoundError:
            return False
        except OSError:
            return True  # unknown: as if it had one


def _sentence(folder: Path, state: DatasetState, receipt: Receipt | None) -> str:
    if receipt is not None:
        return receipt.sentence
    return starting_text(folder) if state.state.writing else ""


def _undeclared(receipt: Receipt) -> int:
    return max(0, sum(gap.count for gap in receipt.missing) - receipt.skipped)
