"""How far the levels of a dataset are stored along the depth: what may be read while more is being written.

A row is all chunks of a layer, at one magnification, at one place along the depth. Raw cubes are written in place, so
chunks of a row that is begun and not whole may be half old, half new. Rows that were never begun are zeros: where
planes come in another order than theirs, they do not hold up the ones behind them.

`acqstream-stored.json` in the folder of a dataset that is being written tells it, by "level/layer" (numbers), in voxels
of that level. It is gone when the array is complete.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from acqstream.errors import FileMissing
from acqstream.formats.wkw.axis_roles import Place
from acqstream.formats.wkw.header import MAX_VOXELS
from acqstream.storage.json_file import read_fields

STORED_NAME = "acqstream-stored.json"

_MOST_DATASETS = 1000  # that are kept in memory, if nothing of them is begun
_KEY = re.compile("([0-9]{1,9})/([0-9]{1,9})")

Dataset = tuple[int, ...]
"""Positions along the axes whose items are datasets."""

Rows = dict[tuple[int, int], int]
"""By (level, layer): how many rows, from the first on, are whole or were never begun."""


def encode_rows(rows: Rows, row_depths: Sequence[int]) -> bytes:
    """The content of the file; row_depths: of a row of each level, in its voxels."""
    return json.dumps(
        {f"{level}/{layer}": count * row_depths[level] for (level, layer), count in sorted(rows.items())}
    ).encode()


def read_depths(path: Path) -> dict[tuple[int, int], int] | None:
    """Voxels by (level, layer), as the file says; None if it is not there. Raises CorruptDataset, StorageError."""
    try:
        fields = read_fields(path, max_integer=MAX_VOXELS)
    except FileMissing:
        return None
    depths = {}
    for name in fields.values:
        key = _KEY.fullmatch(name)
        if key is None:
            raise fields.wrong(name, "absent: fields are named level/layer")
        depths[int(key[1]), int(key[2])] = fields.integer(name)
    return depths


@dataclass(slots=True)
class _Progress:
    """Of the rows of one layer and magnification. top: behind the last whole one; begun: the chunks that are there."""

    announced: int
    top: int
    begun: dict[int, set[tuple[int, int]]] = field(default_factory=dict)

    def raise_mark(self) -> bool:
        before = self.announced
        self.announced = max(before, min([self.top, *self.begun]))
        return self.announced > before


class Watermarks:
    """Of all datasets that are being written; from any thread.

    row_chunks: how many chunks a row has, by level. known: what an earlier process has announced of a dataset.
    """

    def __init__(self, row_chunks: Sequence[int], known: Callable[[Dataset], Rows]) -> None:
        self._row_chunks = row_chunks
        self._known = known
        self._lock = threading.Lock()
        self._datasets: dict[Dataset, dict[tuple[int, int], _Progress]] = {}
        self._raised: set[Dataset] = set()
        self._most = _MOST_DATASETS

    def begin(self, level: int, place: Place) -> None:
        """A chunk is about to be written; place counts in chunks."""
        row, y, x = place.voxel
        with self._lock:
            found = self._progress(level, place)
            if row >= found.announced:
                found.begun.setdefault(row, set()).discard((y, x))

    def end(self, level: int, place: Place) -> None:
        """It is written, though not forced."""
        row, y, x = place.voxel
        with self._lock:
            found = self._progress(level, place)
            chunks = found.begun.get(row)
            if chunks is None:
                return
            chunks.add((y, x))
            if len(chunks) >= self._row_chunks[level]:
                del found.begun[row]
                found.top = max(found.top, row + 1)
                if found.raise_mark():
                    self._raised.add(place.dataset)

    def take_raised(self) -> dict[Dataset, Rows]:
        """Those with more rows than when they were last taken."""
        with self._lock:
            raised, self._raised = self._raised, set()
            return {dataset: self._rows(dataset) for dataset in raised}

    def put_back(self, datasets: Mapping[Dataset, Rows]) -> None:
        """They could not be announced."""
        with self._lock:
            self._raised |= datasets.keys()

    def all(self) -> dict[Dataset, Rows]:
        """Of every dataset that something was written to, as far as they are kept."""
        with self._lock:
            return {dataset: self._rows(dataset) for dataset in self._datasets}

    def _rows(self, dataset: Dataset) -> Rows:
        return {key: progress.announced for key, progress in self._datasets[dataset].items()}

    def _progress(self, level: int, place: Place) -> _Progress:
        found = self._datasets.get(place.dataset)
        if found is None:
            if len(self._datasets) >= self._most:
                self._forget()
            known = self._known(place.dataset)
            found = {key: _Progress(rows, rows) for key, rows in known.items()}
            self._datasets[place.dataset] = found
        return found.setdefault((level, place.layer), _Progress(0, 0))

    def _forget(self) -> None:
        """Drop those that nothing is begun of: what they had is in their files, and is read from there again."""
        for dataset, found in list(self._datasets.items()):
            if dataset not in self._raised and not any(progress.begun for progress in found.values()):
                del self._datasets[dataset]
        self._most = max(_MOST_DATASETS, 2 * len(self._datasets))
