"""Frames of an index as columns, for views that take frames without their pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.axis_index import KeyColumn
from acqstream.formats.ndtiff.columns import FrameTable
from acqstream.formats.ndtiff.pixels import is_raw, payload_bytes


@dataclass(frozen=True, slots=True)
class EntryColumns:
    """Entries of an index: numbers (dtype index.NUMBERS), and the position in stack_names of each frame's file."""

    numbers: NDArray[np.void]
    stacks: NDArray[np.int32]
    stack_names: Sequence[str]

    @property
    def is_plain(self) -> NDArray[np.bool_]:
        """Entries whose pixels are stored uncompressed."""
        return is_raw(self.numbers["pixel_compression"])

    @property
    def payload_bytes(self) -> NDArray[np.int64]:
        """Bytes of the pixels of each frame; -1 for an unknown pixel type."""
        return payload_bytes(self.numbers)


def entry_columns(table: FrameTable, rows: range | NDArray[np.int64]) -> EntryColumns:
    """Copy the entries of these rows."""
    chosen = slice(rows.start, rows.stop) if isinstance(rows, range) else rows
    numbers: NDArray[Any] = table.all_numbers[chosen].copy()
    return EntryColumns(numbers, table.all_stacks[chosen].copy(), tuple(table.stack_names))


def key_columns(table: FrameTable, rows: range) -> dict[str, KeyColumn]:
    """The values of consecutive rows along each axis seen so far."""
    return {name: KeyColumn(*column.numbered(rows.start, rows.stop)) for name, column in table.axes.items()}
