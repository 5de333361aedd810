"""Identity of the dataset of a view: its state, its id, and the places of its frames."""

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
    """Return stack file and offset of a frame, None before the first."""
    if row < 0:
        return None
    name, frame = reader.stored_frame(row)
    return name, frame.pixels


def id_of_summary(summary: Mapping[str, Any]) -> str:
    """Return an id for a dataset without one: most programs put the starting time into the summary."""
    return hashlib.sha256(json.dumps(summary, sort_keys=True).encode()).hexdigest()[:32]


def state_of(container: Path) -> DatasetState | None:
    """Return the state of a dataset, None if another program wrote it."""
    try:
        return read_state(os.fspath(container))
    except (FileMissing, CorruptDataset):
        return None
