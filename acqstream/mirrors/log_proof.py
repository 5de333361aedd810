"""Proves that a mirror has the pixels of its dataset, where that lies beside it, also after both were moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from acqstream.errors import ConfigError, DatasetError, StorageError
from acqstream.formats.ndtiff.reader import open_readers
from acqstream.mirrors.comparison import Comparison, compare
from acqstream.mirrors.container import MirrorNote, read_note
from acqstream.model.units import count_text
from acqstream.views.checkpoint import read_checkpoint, view_folder
from acqstream.views.mirrored_dataset import id_of_summary, state_of

_CLAIM = "that its pixels are those of the dataset"


@dataclass(frozen=True, slots=True)
class LogProof:
    """What the frames of a dataset show of its mirror. dataset: None if it is not there; reason: why nothing was
    compared, or not all; failure: why the mirror failed, "" if it did not."""

    dataset: Path | None = None
    compared: Comparison = field(default_factory=Comparison)
    reason: str = ""
    failure: str = ""

    @property
    def proved(self) -> list[str]:
        """Sentences for the report."""
        if self.dataset is None or not self.compared.frames or self.compared.different:
            return []
        return [f"{count_text(self.compared.frames, 'frame')} {self.compared.claim} {self.dataset}"]

    @property
    def not_proved(self) -> list[str]:
        """Sentences for the report."""
        return [f"{_CLAIM}: {self.reason}"] if self.reason else []


def prove_by_log(container: Path, on_progress: Callable[[int, int], None] = lambda _done, _total: None) -> LogProof:
    """Compare the mirror in this folder with its dataset, if both are complete and lie in one folder.

    A dataset is recognised by its id; nothing is claimed of what is no mirror. What cannot be read, or is missing, is
    the `reason`; nothing is raised for it.
    """
    try:
        return _prove(container, on_progress)
    except (ConfigError, DatasetError, StorageError) as error:
        return LogProof(reason=f"it cannot be read: {error}")


def _prove(container: Path, on_progress: Callable[[int, int], None]) -> LogProof:
    folder = view_folder(container, "view")
    note, saved = read_note(folder), read_checkpoint(folder)
    if note is None or note.plan is None or saved is None:
        return LogProof()  # no mirror of a dataset, or a copy without the folder of its making
    if saved.failed:
        return LogProof(reason="the mirror is not complete", failure=saved.failed)
    dataset = _dataset_of(container, note)
    if dataset is None:
        return LogProof(reason="the dataset is not beside its mirror")
    if not saved.is_complete:
        return LogProof(dataset, reason="the mirror is not complete")
    more = _frames(dataset) - saved.cursor
    if more < 0:
        return LogProof(dataset, reason=f"{dataset} has fewer frames than the {saved.cursor:,} that were mirrored")
    compared = compare(dataset, folder, saved.cursor, on_progress, container=container)
    return LogProof(dataset, compared, compared.reason or (f"{dataset} has {more:,} more" if more else ""))


def _dataset_of(container: Path, note: MirrorNote) -> Path | None:
    """The dataset beside its mirror: `cells` for `cells.n5` or `cells.second.n5`, if its id is the one of the note."""
    for candidate in _candidates(container.absolute()):
        if not candidate.is_dir():
            continue
        state = state_of(candidate)
        if state is not None:
            if state.dataset_id == note.dataset_id:
                return candidate
            continue
        try:
            levels = open_readers(candidate)
        except DatasetError:
            continue  # no dataset
        found = id_of_summary(levels[0].summary_metadata)
        for level in levels:
            level.close()
        if found == note.dataset_id:
            return candidate
    return None


def _candidates(container: Path) -> Iterator[Path]:
    name = container.name
    while "." in name:
        name = name.rpartition(".")[0]
        if name:
            yield container.with_name(name)


def _frames(dataset: Path) -> int:
    levels = open_readers(dataset)
    count = len(levels[0])
    for level in levels:
        level.close()
    return count
