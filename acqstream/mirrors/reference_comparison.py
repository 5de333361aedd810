"""Compares the chunk table of a mirror by reference with the index of its dataset, entry by entry. No pixel is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_plan import ArrayPlan
from acqstream.errors import DatasetError
from acqstream.formats.hsds.reference_reader import ReferenceLevel
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.mirrors.log_frames import LogFrames
from acqstream.mirrors.place_table import NO_ROW, PlaceTable
from acqstream.mirrors.table_grid import table_grid
from acqstream.storage.stores.data_path import place_of

_MAX_ROWS = 65_536


def compared_entries(
    reader: NDTiffReader, container: Path, plan: ArrayPlan, count: int, on_progress: Callable[[int], None]
) -> Iterator[int]:
    """Compare the latest frame of each place among the first `count` ones; yield the rows whose entries differ.

    on_progress gets the number of frames compared. Raises DatasetError, CorruptDataset, StorageError.
    """
    mirror = ReferenceLevel(place_of(container), follows_links=False)
    note = mirror.layout.note
    frames = LogFrames(reader, plan, note.spec)
    frames.taken = count
    grid = table_grid(note.spec, steps=note.steps)
    if grid.axes != tuple(axis.name for axis in plan.axes):
        planned = ", ".join(axis.name for axis in plan.axes)
        raise DatasetError(f"{container} has the axes {', '.join(grid.axes)}, the note about it {planned}")
    table = PlaceTable(grid, frames.row)
    for start in range(0, count, _MAX_ROWS):
        rows = range(start, min(start + _MAX_ROWS, count))
        table.add(frames.places.take_columns(reader.key_columns(rows), len(rows)), start)
    compared = 0
    for chunk in list(table.changed):
        flat = table.chunk(chunk).reshape(-1)
        here = flat[flat != NO_ROW]
        found = mirror.records(chunk)
        is_equal = np.zeros(len(here), np.bool_)
        if found is not None:
            is_equal = _equal(reader, mirror, here, found.reshape(-1)[flat != NO_ROW])
        yield from here[~is_equal].tolist()
        compared += len(here)
        on_progress(compared)


def _equal(
    reader: NDTiffReader, mirror: ReferenceLevel, rows: NDArray[np.int32], found: NDArray[np.void]
) -> NDArray[np.bool_]:
    entries = reader.entry_columns(rows.astype(np.int64))
    uris = np.array([mirror.layout.note.uri(name).encode() for name in entries.stack_names])
    is_equal = (found["offset"] == entries.numbers["pixel_offset"]) & (found["size"] == entries.payload_bytes)
    is_equal &= found["file_uri"] == uris[entries.stacks]
    same: NDArray[np.bool_] = is_equal
    return same
