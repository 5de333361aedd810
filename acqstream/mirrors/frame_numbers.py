"""Numbers in the metadata of frames, as columns.

Only the top level of the metadata counts, and only JSON numbers. Before these come time, exposure and stage place, in
the same words for every producer. The names are chosen once, from the first frames, so that the columns of a run do not
depend on how it was interrupted. The metadata stay in the stack.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.description.stage import StageReading, stage_reading
from acqstream.errors import CorruptDataset, UnsupportedFeature
from acqstream.formats.hsds.reference_layout import COLUMN_UNITS
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
    first = stage_reading(_metadata(reader, 0) if count else {})
    found = [_metadata(reader, row) for row in range(min(count, FIRST_FRAMES))]
    for metadata in (*(_said(one, first) for one in found), *found):
        for name, value in metadata.items():
            if name != TIME_KEY and _is_number(value) and 0 < len(name) <= _MAX_NAME_CHARACTERS and name.isprintable():
                names.setdefault(name)
    return tuple(names)[:MAX_COLUMNS]


def read_numbers(reader: NDTiffReader, rows: NDArray[np.int32], names: Sequence[str]) -> NDArray[np.float64]:
    """The numbers of these rows, of shape (names, *rows.shape); NaN where a frame has none, or where no frame is.

    Metadata that cannot be read count as empty: `acqstream verify` reports them. Raises StorageError.
    """
    found = np.full((len(names), rows.size), np.nan)
    first = stage_reading(_metadata(reader, 0) if names and len(reader) else {})
    for at, row in enumerate(rows.reshape(-1).tolist() if names else ()):
        if row < 0:
            continue
        metadata = _metadata(reader, row)
        metadata = {**metadata, **_said(metadata, first)}
        for column, name in enumerate(names):
            value = metadata.get(name)
            if _is_number(value):
                found[column, at] = _as_float(value)
    return found.reshape(len(names), *rows.shape)


def _said(metadata: Mapping[str, Any], first: StageReading) -> dict[str, float]:
    """What a frame says of time, exposure and stage. first: of the first frame, whose clock is that of all."""
    seen = stage_reading(metadata)
    time_s = seen.time_s
    if first.time_s is None:
        has_both = seen.capture_s is not None and first.capture_s is not None
        time_s = round(seen.capture_s - first.capture_s, 9) if has_both else None  # type: ignore[operator]
    found = zip(COLUMN_UNITS, (time_s, seen.exposure_ms, seen.x_um, seen.y_um, seen.z_um), strict=True)
    return {name: value for name, value in found if value is not None}


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
