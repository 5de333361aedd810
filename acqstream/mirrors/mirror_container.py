"""The container of a mirror, and the note about it in the view's own folder: made, resumed, removed only if ours.

`mirror.json` lies beside the checkpoint, and is written before the container. It keeps the planned array, so that a
resumed mirror is cut in the same way; and it shows that the container is ours to remove.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from acqstream.arrays.array_plan import ArrayPlan
from acqstream.arrays.array_spec import ArraySpec
from acqstream.errors import CannotResume, ConfigError, CorruptDataset, DatasetError, FileMissing, StorageError
from acqstream.formats.checksum_list import FOLDER
from acqstream.formats.chunk_format import ChunkFormat
from acqstream.formats.chunk_layout import Plan
from acqstream.formats.chunk_reader import ChunkReader
from acqstream.integrity.container_proof import is_ours
from acqstream.mirrors.publisher import Publisher
from acqstream.model.fields import Fields
from acqstream.model.metadata import dump_ascii
from acqstream.storage.files.atomic_file import replace_file
from acqstream.storage.files.disk import Disk
from acqstream.storage.files.folder_tree import is_link, remove_tree
from acqstream.storage.files.free_space import SpaceBound
from acqstream.storage.files.small_file import read_document
from acqstream.storage.stores.data_path import data_path_of
from acqstream.storage.stores.local_store import LocalStore
from acqstream.views.base import View, ViewSource
from acqstream.views.checkpoint import view_folder
from acqstream.views.frame_feed import Waiting

NOTE_NAME = "mirror.json"


@dataclass(frozen=True, slots=True)
class MirrorNote:
    """container is the folder of the mirror; settings are the format and its options as the user gave them; plan is
    None while the mirror is being removed: the remainder is not a mirror."""

    dataset_id: str
    container: str
    settings: Mapping[str, Any]
    plan: ArrayPlan | None

    def is_of(self, container: Path) -> bool:
        """Compare with a folder that may be given by another path."""
        return Path(self.container).resolve() == container.resolve()

    def encode(self) -> bytes:
        plan = None if self.plan is None else self.plan.to_json()
        return dump_ascii(
            {
                "format": "acqstream-mirror",
                "version": 1,
                "dataset_id": self.dataset_id,
                "container": self.container,
                "settings": self.settings,
                "plan": plan,
            }
        )


def read_note(folder: Path) -> MirrorNote | None:
    """Read the note in a view's folder; None if it has none. Raises CorruptDataset, StorageError."""
    try:
        return read_document(folder / NOTE_NAME, "acqstream-mirror", _note_in)
    except FileMissing:
        return None


def _note_in(fields: Fields) -> MirrorNote:
    """Raises FieldError for what we do not write."""
    try:
        plan = None if fields.values.get("plan") is None else ArrayPlan.from_json(fields.child("plan").values)
    except (KeyError, IndexError, TypeError, AttributeError, OverflowError) as error:
        raise fields.wrong("plan", f"the plan of an array ({error!r:.80})") from error
    if plan is not None:
        fields.child("settings").text("format")
    settings = dict(fields.child("settings").values)
    return MirrorNote(fields.text("dataset_id"), fields.text("container"), settings, plan)


def read_own_note(folder: Path, dataset_id: str, container: Path, *, is_ours: bool) -> MirrorNote | None:
    """Read the note as `read_note`; a damaged one is replaced by a note without a plan if the container is surely ours.

    is_ours: the checkpoint in `folder` belongs to this view and dataset. The folder's name must name the container too,
    because the damaged note can no longer do so. None without a note that permits to remove the container.
    """
    try:
        return read_note(folder)
    except CorruptDataset:
        is_beside = folder.with_suffix("").resolve() == container.resolve()
        return MirrorNote(dataset_id, str(container), {}, None) if is_ours and is_beside else None


def write_note(disk: Disk, folder: Path, note: MirrorNote) -> None:
    """Replace the note. Raises StorageError."""
    replace_file(disk, os.fspath(folder / NOTE_NAME), note.encode())


def resume_settings(folder: Path, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of an existing mirror, if `asked` has the same ones or its format only; else `asked`.

    Raises ConfigError if `asked` has others than the existing mirror, which would have to be rebuilt; StorageError.
    """
    try:
        note = read_note(folder)
    except CorruptDataset:
        note = None  # the view reports it and starts from the beginning
    if note is None or note.plan is None or not is_nonempty(Path(note.container)):
        return dict(asked)
    made = {name: value for name, value in note.settings.items() if name != "name"}
    if asked != made and asked != {"format": made["format"]}:
        raise ConfigError(f"{note.container} exists, made with {json.dumps(made)}; --rebuild replaces it")
    return dict(note.settings)


def remove_container(disk: Disk, folder: Path, note: MirrorNote | None, container: Path) -> None:
    """Remove a mirror that is ours by its note, and the note. Raises DatasetError for any other folder."""
    if note is not None and note.is_of(container):
        if container.exists():
            write_note(disk, folder, replace(note, plan=None))  # a killed process leaves a part of it
        remove_tree(disk, os.fspath(container))
        remove_tree(disk, os.fspath(folder / FOLDER))
        try:
            disk.unlink(os.fspath(folder / NOTE_NAME))
        except OSError as error:
            raise StorageError.wrap(error, str(folder / NOTE_NAME), "cannot remove") from error
    elif container.exists():
        raise DatasetError(
            f"{container} already exists and is not a mirror made by acqstream: remove it, or choose another name"
        )


def check_place(container: Path, dataset: Path) -> None:
    """Raises DatasetError for a mirror inside the folder of its dataset, whose files are those of the log."""
    if dataset.resolve() in container.resolve().parents:
        raise DatasetError(f"{container} is inside the dataset {dataset}: choose a folder beside it")


def is_nonempty(folder: Path) -> bool:
    """Return whether the place has anything but an empty folder."""
    return folder.exists() and (not folder.is_dir() or any(folder.iterdir()))


@contextmanager
def opened(found: ChunkFormat[Any], path: Path) -> Iterator[Sequence[ChunkReader]]:
    """The readers of all levels. Raises as `ChunkFormat.open`."""
    readers = found.open(data_path_of(path))
    try:
        yield readers
    finally:
        for reader in readers:
            reader.close()


def existing_shapes(found: ChunkFormat[Any], container: Path, levels: Sequence[ArraySpec]) -> list[tuple[int, ...]]:
    """Return the announced shapes of all levels: an earlier process may have announced more than its checkpoint has."""
    with opened(found, container) as readers:
        shapes = [reader.spec.shape for reader in readers]
    return shapes if len(shapes) == len(levels) else [level.shape for level in levels]


class Filler(Protocol):
    """Fills the container of a view, once a frame is there. Methods raise StorageError."""

    @property
    def space_bound(self) -> SpaceBound: ...
    @property
    def warning(self) -> str: ...
    @property
    def bytes_per_frame(self) -> float: ...
    @property
    def waiting(self) -> int: ...
    def settle(self) -> Waiting | None: ...
    def finish(self) -> Waiting | None: ...
    def summary(self) -> dict[str, Any]: ...
    def close(self) -> None: ...


_FillerT = TypeVar("_FillerT", bound=Filler)


class ContainerView(View, Generic[_FillerT]):
    """A view that keeps the frames in a container of a chunk format, and a note about it in its own folder.

    settings: the format and its options, as the user gave them. container: the folder; None for one beside the dataset.
    is_remade: an existing container is removed first.
    """

    marks_first = True

    def __init__(self, settings: Mapping[str, Any], container: Path | None, *, is_remade: bool) -> None:
        self._settings: dict[str, Any] = json.loads(json.dumps(dict(settings)))
        self._given = None if container is None else container.absolute()
        self._is_remade = is_remade
        self._note: MirrorNote | None = None
        self._mirror: _FillerT | None = None
        self._summary: dict[str, Any] = {}
        self._warnings = "", ""

    @property
    def _container(self) -> Path:
        """The folder. `open` must have been called, or a path given."""
        assert self._given is not None
        return self._given

    @property
    def made(self) -> Path | None:
        return self._given if self._note is not None and self._note.plan is not None else None

    def open(self, source: ViewSource) -> None:
        """Raises DatasetError for a place with something else, CorruptDataset, StorageError."""
        self._source = source
        if self._given is None:
            # named by the folder of the checkpoint: a second mirror in the same format has a name of its own
            self._given = source.folder.with_suffix("").absolute()
        check_place(self._given, source.dataset)
        if is_link(str(self._given)) and not is_ours(data_path_of(self._given)):
            text = f"{self._given} is a link, and what it leads to is no mirror; it stays as it is: remove the link"
            raise DatasetError(text)
        self._note = note = read_own_note(source.folder, source.dataset_id, self._given, is_ours=source.is_ours)
        if note is not None and note.dataset_id != source.dataset_id and not self._is_remade:
            raise DatasetError(f"{self._given} is a mirror of another dataset; --rebuild replaces it")
        if note is None and is_nonempty(self._given):
            raise DatasetError(f"{self._given} already exists and is not a mirror of {source.dataset.name}")

    def clear(self) -> None:
        """Raises DatasetError for a folder that is not ours, StorageError."""
        remove_container(self._source.disk, self._source.folder, self._note, self._container)
        self._note = None

    @property
    def warning(self) -> str:
        return self._warnings[0] if self._mirror is None else self._mirror.warning

    @property
    def space_warning(self) -> str:
        return self._warnings[1] if self._mirror is None else self._mirror.space_bound.warning

    @property
    def bytes_per_frame(self) -> float:
        return 0.0 if self._mirror is None else self._mirror.bytes_per_frame

    @property
    def waiting(self) -> int:
        return 0 if self._mirror is None else self._mirror.waiting

    def settle(self) -> Waiting | None:
        return None if self._mirror is None else self._mirror.settle()

    def finish(self) -> Waiting | None:
        if self._mirror is None or not self._source.reader.complete:
            return self.settle()
        return self._mirror.finish()

    def summary(self) -> dict[str, Any]:
        if self._mirror is not None:
            self._summary = {"container": str(self._container), **self._mirror.summary()}
        return self._summary

    def close(self) -> None:
        if self._mirror is not None:
            self._mirror.close()
            self.summary()
            self._warnings = self.warning, self.space_warning
        self._mirror = None

    def _planned(self, cursor: int) -> ArrayPlan | None:
        """The plan of the existing container; None if none was begun. Raises CannotResume."""
        if self._is_remade:
            raise CannotResume("the mirror is being rebuilt")
        note = self._note
        if note is None:
            if cursor:
                raise CannotResume("mirror.json is missing")
            return None
        if note.plan is None:
            raise CannotResume("its mirror.json is damaged, or its removal was interrupted")
        if note.settings != self._settings or not note.is_of(self._container):
            raise CannotResume("it was made with other settings or in another folder")
        if cursor and not is_nonempty(self._container):
            raise CannotResume("its files are missing")
        return note.plan

    def _write_note(self, plan: ArrayPlan) -> None:
        """Write the note about a new container, before the container. Raises StorageError."""
        self._note = MirrorNote(self._source.dataset_id, str(self._container), self._settings, plan)
        write_note(self._source.disk, self._source.folder, self._note)


def open_publisher(
    found: ChunkFormat[Any],
    container: Path,
    plan: Plan,
    options: Any,
    disk: Disk,
    *,
    announced: Sequence[ArraySpec] = (),
    name: str = "",
    bound: SpaceBound | None = None,
) -> Publisher:
    """Create or resume a container. plan is that of the format.

    announced are the levels that a new container states; empty: those of the plan. name: the dataset's; "": as in the
    container's name.
    Writing the first file raises ConfigError on a disk without holes that has no space for all planned ones.
    Raises DatasetExists if the folder holds something else, CorruptDataset if its documents are damaged, StorageError.
    """
    plan = replace(plan, name=name or container.name.removesuffix(found.suffix))
    layout = found.layout(plan, options)
    known = bound or SpaceBound(disk, str(container.parent), f"mirror {container.name}", 0)
    on_full = partial(known.require_full, *plan.sizes())
    store = LocalStore(container, disk, temporary_folder=layout.temporary_folder, on_full=on_full)
    layout = layout.with_levels(announced) if announced else layout
    lists = LocalStore(view_folder(container, "view"), disk)
    beside = LocalStore(container.parent, disk, makes_root=False)
    publisher = Publisher(layout, store, beside, container.name, lists)
    publisher.begin()
    return publisher
