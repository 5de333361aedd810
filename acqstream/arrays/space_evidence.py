"""Frames of a dataset that show the physical space of all of them: few, however long it is.

Which frames they are follows from the dataset alone, so a mirror that was killed comes to the same space.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from acqstream.arrays.frame_space import TIME, SpaceEvidence, StageReading, Z, stage_reading
from acqstream.errors import DatasetError
from acqstream.model.axes import Axes, AxisValue

POSITION = "position"
MAX_STACKS = 8
MAX_PLANES = 256  # of a stack
MAX_TIMES = 64
MAX_POSITIONS = 100_000
_MAX_SCANNED_ROWS = 4096  # in which the first stacks begin


class MetadataReader(Protocol):
    """The calls of a reader of frames by which their space is found. Rows count frames in order of arrival."""

    def __len__(self) -> int: ...
    def key(self, row: int) -> dict[str, AxisValue]: ...
    def find(self, axes: Axes) -> int | None: ...
    def axis_values(self) -> dict[str, list[AxisValue]]: ...
    def read_metadata(self, row: int) -> dict[str, Any]: ...


class SpaceWitnesses:
    """Reads metadata of frames of a reader, each once. `look` may be called again as the dataset grows.

    Integers lie at their own values along an axis; names lie nowhere.
    """

    def __init__(self, reader: MetadataReader) -> None:
        self._reader = reader
        self._first: dict[str, Any] | None = None
        self._stacks: dict[tuple[tuple[str, AxisValue], ...], Axes] = {}  # axes but z of the first stacks
        self._stack_rows = self._position_rows = 0  # rows in which stacks and positions were looked for
        self._rows: dict[tuple[object, ...], int] = {}  # of frames that were found
        self._positions: dict[AxisValue | None, tuple[int, StageReading]] = {}
        self._readings: dict[int, StageReading] = {}

    def look(self, *, has_places: bool = True) -> SpaceEvidence:
        """The evidence in the frames published now. has_places: the place of every position, not of the first alone.

        Raises StorageError.
        """
        count = len(self._reader)
        if not count:
            return SpaceEvidence()
        if self._first is None:
            self._first = self._metadata(0)
        key, values = self._reader.key(0), self._reader.axis_values()
        self._find_stacks(count)
        stacks = [[*self._along(Z, values[Z][:MAX_PLANES], stack)] for stack in self._stacks.values()]
        times = [*self._along(TIME, values[TIME][:MAX_TIMES], key)] if TIME in key else []
        self._find_positions(key, values.get(POSITION, [])[:MAX_POSITIONS] if has_places else [], count)
        return SpaceEvidence(self._first, stacks, times, self._positions)

    def _find_stacks(self, count: int) -> None:
        for row in range(self._stack_rows, min(count, _MAX_SCANNED_ROWS)):
            if len(self._stacks) == MAX_STACKS:
                break
            key = self._reader.key(row)
            if key.pop(Z, None) is not None:
                self._stacks.setdefault(tuple(sorted(key.items())), key)
        self._stack_rows = count

    def _along(self, axis: str, values: Sequence[AxisValue], key: Axes) -> Iterator[tuple[int, StageReading]]:
        """Frames that differ from `key` in one axis."""
        others = tuple(sorted((name, value) for name, value in key.items() if name != axis))
        for value in values:
            known = (axis, value, others)
            row = self._rows.get(known)
            if row is None:
                row = self._reader.find({**key, axis: value})
            if row is not None and isinstance(value, int):
                self._rows[known] = row
                yield value, self._reading(row)

    def _find_positions(self, first: Axes, values: Sequence[AxisValue], count: int) -> None:
        """A frame of each position: the one with the other axes of the first frame, else its first one."""
        if not self._positions:
            self._note_position(first.get(POSITION), self._reader.find(first) or 0)
        missing: set[AxisValue | None] = set()
        for value in values:
            if value not in self._positions:
                row = self._reader.find({**first, POSITION: value})
                if row is None:
                    missing.add(value)
                else:
                    self._note_position(value, row)
        if not missing:
            return
        for row in range(self._position_rows, count):
            found = self._reader.key(row).get(POSITION)
            if found in missing:
                missing.discard(found)
                self._note_position(found, row)
        self._position_rows = count

    def _note_position(self, value: AxisValue | None, row: int) -> None:
        z = self._reader.key(row).get(Z, 0)
        self._positions[value] = (z if isinstance(z, int) else 0, stage_reading(self._metadata(row)))

    def _reading(self, row: int) -> StageReading:
        if row not in self._readings:
            self._readings[row] = stage_reading(self._metadata(row))
        return self._readings[row]

    def _metadata(self, row: int) -> dict[str, Any]:
        """Empty where they are damaged: such a frame shows nothing, and reading it raises."""
        try:
            return self._reader.read_metadata(row)
        except DatasetError:
            return {}
