"""What identifies the dataset of a view: its state, its id, and where a frame lies in it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from acqstream.errors import CorruptDataset, FileMissing
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.log.state_file import DatasetState, read_state


def place(reader: NDTiffReader, row: int) -> tuple[str, int] | None:
    if row < 0:
        return None
    name, frame = reader.stored_frame(row)
    return name, frame.pixels


def id_of_summary(summary: Mapping[str, Any]) -> str:
    """For a dataset that has no id: most programs note in the summary when it was begun."""
    return hashlib.sha256(json.dumps(summary, sort_keys=True).encode()).hexdigest()[:32]


def state_of(container: Path) -> DatasetState | None:
    """Of a dataset of ours; None for those of other writers."""
    try:
        return read_state(os.fspath(container))
    except (FileMissing, CorruptDataset):
        return None
