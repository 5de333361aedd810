"""acqstream.json: what was asked for, and where the acquisition stands. Replaced whole when the state changes."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from acqstream.errors import CorruptDataset
from acqstream.formats.ndtiff.folders import FULL_RESOLUTION
from acqstream.model.acquisition_spec import AcquisitionSpec, TileSpec
from acqstream.model.metadata import dump_ascii
from acqstream.model.receipt import MissingFrames, Receipt
from acqstream.model.state import AcquisitionState
from acqstream.storage.atomic import replace_file
from acqstream.storage.disk import Disk

STATE_NAME = "acqstream.json"
RECEIPT_NAME = "receipt.json"
END_STATES: Mapping[str, AcquisitionState] = {
    "completed": AcquisitionState.COMPLETE,
    "canceled": AcquisitionState.CANCELED,
    "error": AcquisitionState.ERRORED,
    "interrupted": AcquisitionState.INTERRUPTED,
    "failed": AcquisitionState.FAILED,
}
"""The state that a receipt's status stands for."""
MAX_GAPS_NOTED = 10_000  # the journal has them all; the reasons of later ones are dropped


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

    def stack_folder(self, folder: str) -> str:
        """Where stack files and index lie: the dataset's folder; of a tiled one that of its full resolution."""
        return folder if self.tiles is None else os.path.join(folder, FULL_RESOLUTION)

    @staticmethod
    def of(spec: AcquisitionSpec, settings: Mapping[str, Any]) -> DatasetState:
        """The first state of a new dataset."""
        request = dataclasses.asdict(spec)
        return DatasetState(spec.dataset_id, spec.name, AcquisitionState.RUNNING, "", now_text(), request, settings)


def write_state(disk: Disk, folder: str, state: DatasetState) -> None:
    """Replace the dataset's acqstream.json. Raises StorageError."""
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
    replace_file(disk, os.path.join(folder, STATE_NAME), dump_ascii(content))


def read_state(folder: str) -> DatasetState:
    """The dataset's state. Raises FileNotFoundError where there is none, CorruptDataset if it is not ours."""
    path = os.path.join(folder, STATE_NAME)
    with open(path, "rb") as file:
        content = file.read()
    try:
        values = json.loads(content)
        if values["format"] != "acqstream" or values["version"] != 1:
            raise CorruptDataset(f"is not an acqstream state of version 1: {values['version']!r}", path=path)
        state = DatasetState(
            values["dataset_id"],
            values["name"],
            AcquisitionState(values["state"]),
            values["reason"],
            values["started_at"],
            values["request"],
            values["settings"],
            tuple(MissingFrames(**gap) for gap in values["gaps"]),
        )
        state.stack_folder(folder)  # its tiles can be understood
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptDataset(f"cannot be understood: {error!r}", path=path) from error
    return state


def read_receipt(folder: str) -> Receipt | None:
    """The receipt of a finished dataset, None where there is none. Raises CorruptDataset if it cannot be read."""
    path = os.path.join(folder, RECEIPT_NAME)
    try:
        with open(path, "rb") as file:
            return Receipt.from_dict(json.loads(file.read()))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptDataset(f"cannot be understood: {error!r}", path=path) from error
