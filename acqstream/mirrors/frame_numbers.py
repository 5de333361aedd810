"""Numbers in the metadata of frames, as columns.

Only the top level of the metadata counts, and only JSON numbers. The names are chosen once, from the first frames, so
that the columns of a run do not depend on how it was interrupted. The metadata stay in the stack.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.errors import CorruptDataset, UnsupportedFeature
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.model.metadata import TIME_KEY

FIRST_FRAMES = 64  # frames that names are chosen from
MAX_COLUMNS = 32
_MAX_NAME_CHARACTERS = 80


def choose_numbers(reader: NDTiffReader, count: int) -> tuple[str, ...]:
    """Names of the numbers in the first frames, in order of appearance, at most MAX_COLUMNS.

    Without capture times: the columns are doubles, which would change them.

    count: frames that may be read. Raises StorageError.
    """
    names: dict[str, None] = {}
    for row in range(min(count, FIRST_FRAMES)):
        for name, value in _metadata(reader, row).items():
            if name != TIME_KEY and _is_number(value) and 0 < len(name) <= _MAX_NAME_CHARACTERS and name.isprintable():
                names.setdefault(name)
    return tuple(names)[:MAX_COLUMNS]


def read_numbers(reader: NDTiffReader, rows: NDArray[np.int32], names: Sequence[str]) -> NDArray[np.float64]:
    """The numbers of these rows, of shape (names, *rows.shape); NaN where a frame has none, or where no frame is.

    Metadata that cannot be read count as empty: `acqstream verify` reports them. Raises StorageError.
    """
    found = np.full((len(names), rows.size), np.nan)
    for at, row in enumerate(rows.reshape(-1).tolist() if names else ()):
        if row < 0:
            continue
        metadata = _metadata(reader, row)
        for column, name in enumerate(names):
            value = metadata.get(name)
            if _is_number(value):
                found[column, at] = _as_float(value)
    return found.reshape(len(names), *rows.shape)


def _metadata(reader: NDTiffReader, row: int) -> Mapping[str, Any]:
    try:
        found = json.loads(reader.metadata_bytes(row))
    except (CorruptDataset, UnsupportedFeature, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_number(value: object) -> bool:
    return type(value) in (int, float)  # True and False are no numbers here


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer beyond 1.8e308
        return float("nan")
