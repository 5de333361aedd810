"""acqstream.json: the request and the state of an acquisition. Replaced atomically when the state changes."""

from __future__ import annotations

import dataclasses
import functools
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from acqstream import __version__
from acqstream.errors import StorageError
from acqstream.formats.ndtiff import folders
from acqstream.model.acquisition_spec import AcquisitionSpec, TileSpec
from acqstream.model.fields import Fields
from acqstream.model.metadata import dump_ascii
from acqstream.model.receipt import MissingFrames
from acqstream.model.state import AcquisitionState
from acqstream.model.view_spec import ViewSpec, requested_views
from acqstream.storage.files.atomic_file import replace_file
from acqstream.storage.files.disk import Disk
from acqstream.storage.files.small_file import read_document

STATE_NAME = "acqstream.json"
RECEIPT_NAME, read_receipt = folders.RECEIPT_NAME, folders.read_receipt  # readers of datasets have them, too
_NOT_IN_NAMES = frozenset("\\\0")
MAX_GAPS_NOTED = 10_000  # the journal has them all; the reasons of later ones are dropped
MAX_REASON_CHARACTERS_NOTED = 1_000_000  # of all gaps: what is written must stay below what readers take


def now_text() -> str:
    """The time now, ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True, slots=True)
class DatasetState:
    """Content of acqstream.json."""

    dataset_id: str
    name: str
    state: AcquisitionState
    reason: str
    started_at: str
    request: Mapping[str, Any]
    settings: Mapping[str, Any]
    gaps: tuple[MissingFrames, ...] = ()

    @property
    def tiles(self) -> TileSpec | None:
        """None for a flat dataset. Raises ValueError where the request was damaged: not after `read_state`."""
        values = self.request.get("tiles")
        return None if values is None else TileSpec.of(values)

    @property
    def views(self) -> tuple[ViewSpec, ...]:
        """The requested views. Raises ValueError if the request is damaged."""
        return requested_views(self.request)

    def stack_folder(self, folder: str) -> str:
        """The folder of stack files and index: the dataset's own, or that of full resolution in a tiled one."""
        return folder if self.tiles is None else os.path.join(folder, folders.FULL_RESOLUTION)

    @staticmethod
    def of(spec: AcquisitionSpec) -> DatasetState:
        """The first state of a new dataset."""
        request, running = spec.as_request(), AcquisitionState.RUNNING
        return DatasetState(spec.dataset_id, spec.name, running, "", now_text(), request, {})


def state_bytes(state: DatasetState) -> bytes:
    """The content of acqstream.json, changed now."""
    content = {
        "format": "acqstream",
        "version": 1,
        "dataset_id": state.dataset_id,
        "name": state.name,
        "state": str(state.state),
        "reason": state.reason,
        "started_at": state.started_at,
        "changed_at": now_text(),
        "request": state.request,
        "settings": state.settings,
        "gaps": [dataclasses.asdict(gap) for gap in state.gaps],
    }
    return dump_ascii(content)


def write_state(disk: Disk, folder: str, state: DatasetState) -> None:
    """Replace the dataset's acqstream.json. Raises StorageError."""
    replace_file(disk, os.path.join(folder, STATE_NAME), state_bytes(state))


def remove_file(disk: Disk, path: str) -> None:
    """Remove a file that may be missing. Raises StorageError."""
    try:
        disk.unlink(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError.wrap(error, path, "cannot remove") from error


def read_state(folder: str) -> DatasetState:
    """The dataset's state. Raises FileMissing, CorruptDataset if it is not ours, StorageError."""
    return read_document(Path(folder, STATE_NAME), "acqstream", _state_in)


def _state_in(fields: Fields) -> DatasetState:
    """Raises ValueError or FieldError for what our writer does not write."""
    name = fields.text("name")
    if not {"", ".", ".."}.isdisjoint(name.split("/")) or not _NOT_IN_NAMES.isdisjoint(name):
        # The stack files are called after it.
        raise ValueError(f"name {name!r:.60} is not a plain name, or plain names with / between")
    state = DatasetState(
        fields.text("dataset_id"),
        name,
        AcquisitionState(fields.choice("state", tuple(AcquisitionState))),
        fields.text("reason"),
        fields.text("started_at"),
        fields.child("request").values,
        fields.child("settings").values,
        tuple(map(MissingFrames.of, fields.children("gaps"))),
    )
    state.stack_folder("")  # its tiles can be understood
    return state


@functools.cache
def writer_versions() -> Mapping[str, str]:
    """Names and versions of the software that decides what is on disk."""
    return {
        "acqstream": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "xxhash": xxhash.VERSION,
        "system": platform.platform(),
    }
