"""Pages of the axes that are stored, read from the index: a producer that was started again asks what it may skip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from acqstream.formats.ndtiff.index import MAX_ENTRY_BYTES, parse_entries
from acqstream.model.axes import AxisValue
from acqstream.storage.files.read_file import ReadFile

MAX_KEYS = 1024  # some 5 ms of the daemon's loop
PAGE_BYTES = 2 * MAX_ENTRY_BYTES  # at least one entry, and less than a message's header may hold


@dataclass(frozen=True, slots=True)
class KeyPage:
    """keys are axes of frames in order of arrival; the page after this one begins at byte `next` of the index."""

    keys: tuple[Mapping[str, AxisValue], ...]
    next: int


def read_key_page(index_path: str, at: int) -> KeyPage:
    """The entries from byte `at` on, at most MAX_KEYS; empty at the end. Raises StorageError or CorruptDataset."""
    file = ReadFile(Path(index_path))
    try:
        data = file.read(at, PAGE_BYTES)
    finally:
        file.close()
    entries = parse_entries(data, index_path, at, limit=MAX_KEYS)
    return KeyPage(tuple(entries.axes), at + entries.consumed)
