"""The container that a view makes, with the note about it: created, resumed, or removed only if it is ours."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from acqstream.arrays.array_plan import ArrayPlan
from acqstream.errors import CannotResume, DatasetError
from acqstream.integrity.container_proof import is_ours
from acqstream.mirrors.container import (
    MirrorNote,
    check_place,
    is_nonempty,
    read_own_note,
    remove_container,
    write_note,
)
from acqstream.storage.files.folder_tree import is_link
from acqstream.storage.stores.data_path import place_of
from acqstream.views.base import ViewSource


class OwnContainer:
    """settings: the format and its options, as the user gave them. path: the folder; None for one beside the dataset.
    is_remade: an existing container is removed first.
    """

    def __init__(self, settings: Mapping[str, Any], path: Path | None, *, is_remade: bool) -> None:
        self.settings: dict[str, Any] = json.loads(json.dumps(dict(settings)))
        self.given = None if path is None else path.absolute()
        self._is_remade = is_remade
        self._note: MirrorNote | None = None

    @property
    def path(self) -> Path:
        """The folder. `open` must have been called, or a path given."""
        assert self.given is not None
        return self.given

    @property
    def made(self) -> Path | None:
        """The folder, once the container was begun."""
        return self.given if self._note is not None and self._note.plan is not None else None

    def open(self, source: ViewSource) -> None:
        """Read the note. Raises DatasetError for a place with something else, CorruptDataset, StorageError."""
        self._source = source
        if self.given is None:
            # named by the folder of the checkpoint: a second mirror in the same format has a name of its own
            self.given = source.folder.with_suffix("").absolute()
        check_place(self.given, source.dataset)
        if is_link(str(self.given)) and not is_ours(place_of(self.given)):
            text = f"{self.given} is a link, and what it leads to is no mirror; it stays as it is: remove the link"
            raise DatasetError(text)
        self._note = note = read_own_note(source.folder, source.dataset_id, self.given, is_ours=source.is_ours)
        if note is not None and note.dataset_id != source.dataset_id and not self._is_remade:
            raise DatasetError(f"{self.given} is a mirror of another dataset; --rebuild replaces it")
        if note is None and is_nonempty(self.given):
            raise DatasetError(f"{self.given} already exists and is not a mirror of {source.dataset.name}")

    def resume(self, cursor: int) -> ArrayPlan | None:
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
        if note.settings != self.settings or not note.is_of(self.path):
            raise CannotResume("it was made with other settings or in another folder")
        if cursor and not is_nonempty(self.path):
            raise CannotResume("its files are missing")
        return note.plan

    def begin(self, plan: ArrayPlan) -> None:
        """Write the note about a new container, before the container. Raises StorageError."""
        self._note = MirrorNote(self._source.dataset_id, str(self.path), self.settings, plan)
        write_note(self._source.disk, self._source.folder, self._note)

    def clear(self) -> None:
        """Remove the container and its note. Raises DatasetError for a folder that is not ours, StorageError."""
        remove_container(self._source.disk, self._source.folder, self._note, self.path)
        self._note = None
