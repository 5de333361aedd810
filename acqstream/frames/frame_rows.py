"""Which frame lies at each position of an array, and when each was taken."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.frame_array import FrameArray
from acqstream.arrays.level_layout import LevelLayout
from acqstream.description.stage import stage_reading
from acqstream.errors import DatasetError
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.model.axes import AxisValue

MAX_TIMES = 2**16  # frames whose metadata are read for their times
_MAX_EMPTY = 8  # places for each frame; a sparser run has its times in columns only


def frame_rows(reader: NDTiffReader, array: FrameArray, layout: LevelLayout) -> dict[tuple[int, ...], int]:
    """Rows by position. Where frames of several keys share a place, the last one that arrived counts, as in reading."""
    rows: dict[tuple[int, ...], int] = {}
    for at, row, _ in stored_frames(reader, array, layout):
        rows[at] = max(row, rows.get(at, -1))
    return rows


def stored_frames(
    reader: NDTiffReader, array: FrameArray, layout: LevelLayout
) -> Iterator[tuple[tuple[int, ...], int, dict[str, AxisValue]]]:
    """Position, row and axes of each frame of a layout, in order of arrival; one that was written again: its last."""
    places = [{value: at for at, value in enumerate(axis.values)} for axis in layout.outer]
    keys = reader.keys()
    for key in keys:
        place = array.place(key)
        row = reader.find(key)
        if place is None or row is None:
            continue
        values = [values[at] for values, at in zip(array.values.values(), place, strict=True)]
        at = tuple(known.get(value, -1) for known, value in zip(places, values, strict=True))
        if -1 not in at:
            yield at, row, key


def measured_times(
    reader: NDTiffReader, rows: Mapping[tuple[int, ...], int], layout: LevelLayout
) -> tuple[tuple[str, ...], NDArray[np.float64]] | None:
    """The axes that the times of frames depend on, and a time in s for each place along them; NaN without a frame.

    Times are those of the acquisition program, else of capture since the first frame: two clocks are never mixed. None
    where a frame has none, or where there are too many frames or places.
    """
    shape = tuple(len(axis.values) for axis in layout.outer)
    if not rows or not shape or len(rows) > MAX_TIMES or math.prod(shape) > _MAX_EMPTY * len(rows):
        return None
    try:
        readings = {at: stage_reading(reader.read_metadata(row)) for at, row in rows.items()}
    except DatasetError:  # the frame itself says what is wrong when it is read
        return None
    elapsed = {at: seen.time_s for at, seen in readings.items() if seen.time_s is not None}
    captured = {at: seen.capture_s for at, seen in readings.items() if seen.capture_s is not None}
    is_program = len(elapsed) == len(rows)
    known = elapsed if is_program else captured
    if len(known) < len(rows):
        return None
    start = 0.0 if is_program else min(known.values())
    times = np.full(shape, np.nan)
    for at, time_s in known.items():
        times[at] = round(time_s - start, 9)
    return _reduced(times, tuple(axis.name for axis in layout.outer))


def _reduced(times: NDArray[np.float64], axes: tuple[str, ...]) -> tuple[tuple[str, ...], NDArray[np.float64]]:
    """Without the axes along which times are the same."""
    for at in reversed(range(len(axes))):
        low, high = np.fmin.reduce(times, axis=at), np.fmax.reduce(times, axis=at)
        if times.ndim > 1 and np.array_equal(low, high, equal_nan=True):
            times, axes = low, axes[:at] + axes[at + 1 :]
    return axes, times
