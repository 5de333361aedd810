"""view.json: how far a view is, and what it has made, in one file that is replaced whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acqstream.errors import CorruptDataset, StorageError
from acqstream.model.metadata import dump_ascii

CHECKPOINT_NAME = "view.json"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Content of view.json. last is where frame cursor - 1 lies: stack file and offset; it tells another dataset, or
    another frame in that row after a power cut, from the one that was taken."""

    view: str
    dataset_id: str
    cursor: int
    last: tuple[str, int] | None
    is_complete: bool
    state: Mapping[str, Any]

    def encode(self) -> bytes:
        fields = {
            "format": "acqstream-view",
            "version": 1,
            "view": self.view,
            "dataset_id": self.dataset_id,
            "cursor": self.cursor,
            "last": self.last,
            "complete": self.is_complete,
            "state": self.state,
        }
        return dump_ascii(fields)


def view_folder(dataset: Path, name: str) -> Path:
    """Where the view `name` of the dataset in this folder lies."""
    return dataset.with_name(f"{dataset.name}.{name}")


def read_checkpoint(folder: Path) -> Checkpoint | None:
    """The checkpoint in a view's folder; None where there is none. Raises CorruptDataset."""
    path = folder / CHECKPOINT_NAME
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StorageError.wrap(error, str(path), "read") from error
    try:
        values = json.loads(content)
        if values["format"] != "acqstream-view" or values["version"] != 1:
            raise CorruptDataset("is no checkpoint of a view, version 1", path=str(path))
        last = (str(values["last"][0]), int(values["last"][1])) if values["last"] is not None else None
        return Checkpoint(
            str(values["view"]),
            str(values["dataset_id"]),
            int(values["cursor"]),
            last,
            values["complete"] is True,
            dict(values["state"]),
        )
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise CorruptDataset(f"cannot be understood: {error!r}", path=str(path)) from error
