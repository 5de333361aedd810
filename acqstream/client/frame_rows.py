"""What each of many frames has of its own besides pixels: axes, metadata and capture time, for `put_many`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from acqstream.client.plain_values import (
    Changes,
    MicroManagerAxes,
    merged_axes,
    plain_arguments,
    plain_scalar,
)
from acqstream.errors import AcqStreamError, ProtocolError
from acqstream.model.axes import AxisValue, are_good_columns
from acqstream.model.metadata import AXES_KEY, TIME_KEY
from acqstream.protocol.frame_batch import MAX_METADATA_BYTES

FrameRow = tuple[tuple[AxisValue, ...], bytes, int | None]
"""A value for each axis, metadata as `encode_given` makes them, capture time."""


class FrameRows(NamedTuple):
    """names are those of the axes. error: why there is no row after these.

    changes: what was changed in metadata, with the position of the frame.
    """

    names: tuple[str, ...]
    rows: Sequence[FrameRow]
    changes: Sequence[tuple[int, Changes]] = ()
    error: AcqStreamError | None = None

    @property
    def largest_metadata(self) -> int:
        """Bytes."""
        return max((len(row[1]) for row in self.rows), default=0)

    @property
    def storable(self) -> int:
        """The number of rows before the first one with more metadata than a frame may have."""
        return next((at for at, row in enumerate(self.rows) if len(row[1]) > MAX_METADATA_BYTES), len(self.rows))


def frame_rows(
    count: int,
    axes: Mapping[Any, Any] | None,
    axis_values: Mapping[str, Any],
    meta: Any,
    time_ns: Any,
    *,
    micromanager: MicroManagerAxes | None = None,
) -> FrameRows:
    """The rows of `count` frames, from the arguments of `put_many`. Nothing of them changes with what was given.

    Raises ProtocolError where an argument has not one item for each frame; an error of one frame is in the result.
    """
    columns: dict[Any, list[Any]] = {
        plain_scalar(name): _column(f"axis {name!r:.60}", value, count)
        for name, value in merged_axes(axes, axis_values).items()
    }
    times = _column("time_ns", time_ns, count)
    is_one_map = isinstance(meta, Mapping)
    maps = [meta] * count if is_one_map else _column("meta", meta, count)
    is_alike = meta is None or (isinstance(meta, Mapping) and AXES_KEY not in meta and TIME_KEY not in meta)
    if is_alike and micromanager is None and are_good_columns(columns) and _are_good_times(times) and count:
        _, text, _, changes = plain_arguments(None, {}, meta, None, None)
        values = zip(*columns.values(), strict=True) if columns else [()] * count
        rows = list(zip(values, [text] * count, times, strict=True))
        return FrameRows(tuple(columns), rows, [(0, changes)])
    return _one_by_one(columns, maps, times, micromanager)


def _one_by_one(
    columns: Mapping[str, Sequence[Any]],
    maps: Sequence[Any],
    times: Sequence[Any],
    micromanager: MicroManagerAxes | None,
) -> FrameRows:
    rows: list[FrameRow] = []
    changes: list[tuple[int, Changes]] = []
    for position, (meta, time_ns) in enumerate(zip(maps, times, strict=True)):
        values = {name: column[position] for name, column in columns.items()}
        try:
            plain, text, plain_time, changed = plain_arguments(None, values, meta, time_ns, micromanager)
        except AcqStreamError as error:
            return FrameRows(tuple(columns), rows, changes, error)
        rows.append((tuple(plain.values()), text, plain_time))
        changes.append((position, changed))
    return FrameRows(tuple(columns), rows, changes)


def _column(name: str, value: object, count: int) -> list[Any]:
    """An item for each frame: those of a sequence or an array, or the same for all. Raises ProtocolError."""
    if isinstance(value, np.ndarray):
        value = value.tolist()  # of an array without axes: its value
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return [value] * count
    if len(value) != count:
        raise ProtocolError(f"{name} has {len(value)} values for {count} frames; pass one for each, or one for all")
    return list(value)


def _are_good_times(times: Sequence[object]) -> bool:
    kinds = set(map(type, times))
    return kinds == {type(None)} or (kinds == {int} and min(times) >= 0 and max(times) < 2**63)  # type: ignore[type-var,operator]
