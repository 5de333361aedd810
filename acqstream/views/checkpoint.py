"""view.json: cursor and state of a view, in one file that is replaced atomically; its fields are checked one by one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from acqstream.errors import CannotResume, CorruptDataset, FileMissing, StorageError
from acqstream.model.fields import Fields, check_integer, check_text
from acqstream.model.metadata import dump_ascii
from acqstream.storage.files.atomic_file import replace_file
from acqstream.storage.files.directory_lock import DirectoryLock
from acqstream.storage.files.disk import Disk
from acqstream.storage.files.folder_tree import refuse_link
from acqstream.storage.files.small_file import read_document

CHECKPOINT_NAME = "view.json"
RESTARTED = "restarted: "
_MAX_ITEMS = 16_000_000  # a mirror notes each stack that may still grow: a million of them are an honest run


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Content of view.json.

    last is the place of frame cursor - 1: stack file and offset. It differs in another dataset, and if a power cut
    replaced that frame. state is empty until the view has started. failed is the reason of a failed view, else "".
    is_unsure: a disk error left the view's files in an unknown state, and it has to be rebuilt.
    """

    view: str
    dataset_id: str
    cursor: int
    last: tuple[str, int] | None
    is_complete: bool
    state: Mapping[str, Any]
    failed: str = ""
    is_unsure: bool = False

    @property
    def restarted(self) -> str:
        """The report of a restart that frames made necessary, "" without one."""
        text = self.state.get("restarted")
        return text if isinstance(text, str) and text.startswith(RESTARTED) else ""

    def encode(self) -> bytes:
        fields = {
            "format": "acqstream-view",
            "version": 1,
            "view": self.view,
            "dataset_id": self.dataset_id,
            "cursor": self.cursor,
            "last": self.last,
            "complete": self.is_complete,
            **({"failed": self.failed, "unsure": self.is_unsure} if self.failed else {}),
            "state": self.state,
        }
        return dump_ascii(fields)


def view_folder(dataset: Path, name: str) -> Path:
    """Return the folder of the view `name` of the dataset in this folder."""
    return dataset.with_name(f"{dataset.name}.{name}")


def read_checkpoint(folder: Path) -> Checkpoint | None:
    """Return the checkpoint in a view's folder, None without one. Raises CorruptDataset, StorageError."""
    try:
        return read_document(folder / CHECKPOINT_NAME, "acqstream-view", _checkpoint_in, max_items=_MAX_ITEMS)
    except FileMissing:
        return None


def _checkpoint_in(fields: Fields) -> Checkpoint:
    """Raises FieldError for values that no version of this program writes."""
    last = fields.items("last", 2) if fields.values.get("last") is not None else None
    return Checkpoint(
        fields.text("view"),
        fields.text("dataset_id"),
        fields.integer("cursor"),
        None if last is None else (check_text(last[0], "last[0]"), check_integer(last[1], "last[1]")),
        fields.flag("complete"),
        fields.child("state").values,
        fields.text("failed", ""),
        fields.flag("unsure", default=False),
    )


def is_complete(folder: Path, dataset_id: str = "") -> bool:
    """Return whether the view in this folder has all frames. dataset_id: of its dataset, "" if unknown."""
    try:
        saved = read_checkpoint(folder)
    except (CorruptDataset, StorageError):
        return False  # it restarts, or reports what is wrong
    return saved is not None and saved.is_complete and dataset_id in ("", saved.dataset_id)


def write_checkpoint(disk: Disk, folder: Path, checkpoint: Checkpoint) -> None:
    """Replace the checkpoint in a view's folder. Raises StorageError."""
    replace_file(disk, os.fspath(folder / CHECKPOINT_NAME), checkpoint.encode())


def mark_begun(disk: Disk, dataset: Path, name: str, dataset_id: str) -> None:
    """Record that a view will be made, before its process starts, so that readers wait for its result.

    An existing folder stays as it is, unless its view is of an earlier dataset of that name. Raises StorageError,
    DatasetLocked, CorruptDataset.
    """
    folder = view_folder(dataset, name)
    try:
        disk.mkdir(os.fspath(folder))
    except FileExistsError as error:
        refuse_link(os.fspath(folder), error)
        saved = read_checkpoint(folder)
        if saved is None or saved.dataset_id == dataset_id:
            return
    except OSError as error:
        raise StorageError.wrap(error, str(folder), "cannot create the view's folder") from error
    with DirectoryLock(os.fspath(folder)):
        write_checkpoint(disk, folder, Checkpoint(name, dataset_id, 0, None, False, {}))


def mark_failed(disk: Disk, folder: Path, reason: str, *, is_unsure: bool) -> None:
    """Record the failure of a view that has started and is not complete, so that readers do not wait for it.

    folder is the view's own, locked by the caller. Raises StorageError, CorruptDataset.
    """
    saved = read_checkpoint(folder)
    if saved is not None and not saved.is_complete:
        write_checkpoint(disk, folder, replace(saved, failed=reason, is_unsure=is_unsure or saved.is_unsure))


_T = TypeVar("_T")


def field(state: Mapping[str, Any], name: str, kind: type[_T]) -> _T:
    """Return the value of a field, of exactly this type: True is not an int. Raises CannotResume."""
    return of_kind(state.get(name), kind, f"state field {name!r}")


def of_kind(value: object, kind: type[_T], what: str) -> _T:
    """Return the value if it has exactly this type. Raises CannotResume, with `what` as its name."""
    if type(value) is not kind:
        raise CannotResume(f"{what} is {value!r:.60}, expected {kind.__name__}")
    return value


def integers(value: object, what: str) -> tuple[int, ...]:
    """Return a list of integers as a tuple. Raises CannotResume, with `what` as its name."""
    return tuple(of_kind(item, int, f"an item of {what}") for item in items(value, what))


def items(value: object, what: str, count: int | None = None) -> Sequence[Any]:
    """Return a list or tuple, of `count` items unless that is None. Raises CannotResume, with `what` as its name."""
    if not isinstance(value, list | tuple) or count not in (None, len(value)):
        expected = "a list" if count is None else f"a list of {count} items"
        raise CannotResume(f"{what} is {value!r:.60}, expected {expected}")
    return value
