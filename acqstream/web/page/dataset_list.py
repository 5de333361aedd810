"""The datasets of a data directory as the page lists them: name, state and result, without opening them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acqstream.errors import AcqStreamError, CorruptDataset
from acqstream.formats.ndtiff.completion import StateFile
from acqstream.formats.registry import find_format
from acqstream.monitor.daemon_watch import receipt_in
from acqstream.web.page.page_texts import receipt_texts

MAX_LISTED = 200
DAMAGED = "state unknown: acqstream.json is damaged"
_OWN_NOTES = ".view"  # folders with the progress of mirrors


@dataclass(frozen=True, slots=True)
class DatasetEntry:
    """One dataset. format "" : no format is known, or there is no frame yet. changed_s: seconds since 1970.

    state is "" for datasets of other writers, DAMAGED if it cannot be read; receipt has texts of the page, None without
    a receipt.
    """

    name: str
    format: str
    state: str
    changed_s: float
    receipt: Mapping[str, Any] | None

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "format": self.format,
            "state": self.state,
            "changed_s": self.changed_s,
            "receipt": self.receipt,
        }


def list_datasets(folders: Mapping[str, Path], limit: int = MAX_LISTED) -> list[DatasetEntry]:
    """The latest `limit` datasets, the last changed one first. Reads small files only."""
    latest = sorted(_with_times(folders.items()), reverse=True)
    entries: list[DatasetEntry] = []
    for changed_s, name in latest:
        entry = _entry(name, folders[name], changed_s)
        if entry is not None:
            entries.append(entry)
        if len(entries) == limit:
            break
    return entries


def _with_times(folders: Iterable[tuple[str, Path]]) -> list[tuple[float, str]]:
    """The time of the last change of each folder that is not one of notes. A folder that vanishes is left out."""
    times = []
    for name, path in folders:
        if name.endswith(_OWN_NOTES) or name.startswith("."):
            continue
        try:
            times.append((os.stat(path).st_mtime, name))
        except OSError:
            continue
    return times


def _entry(name: str, folder: Path, changed_s: float) -> DatasetEntry | None:
    try:
        format_name = find_format(folder).name
        state = _state_of(folder) if format_name == "ndtiff" else ""
    except (AcqStreamError, OSError):
        return None
    receipt = receipt_in(folder) if format_name == "ndtiff" else None
    texts = receipt_texts(receipt) if receipt is not None else None
    return DatasetEntry(name, format_name, state, changed_s, texts)


def _state_of(folder: Path) -> str:
    file = StateFile(folder)
    file.refresh()
    try:
        return str(file.state or "")
    except CorruptDataset:  # its frames can be read
        return DAMAGED
