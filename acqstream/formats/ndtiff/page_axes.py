"""The axes of a frame from its page's metadata, for frames whose index entry is lost. Pure.

Source: metadata of the known writers. Acquisition engines and our own writer put the axes under `Axes`; libraries
before 2.0 under `ImageStorageAxesPositions`. Micro-Manager Studio and plain users of ndstorage put none: there Micro-
Manager's own keys name some, or none are known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from acqstream.model.axes import Axes, AxisValue

COUNTER_AXIS = "image"
"""Axis of frames with unknown axes: the number of their page in the dataset."""

_AXES_KEYS = ("Axes", "ImageStorageAxesPositions", "ImagrStorageAxesPositions")  # the last one spelled so until 2020
_TOLD_BY = {  # axis -> Micro-Manager's keys, the first one there counts
    "time": ("FrameIndex", "TimeIndex", "Frame"),
    "z": ("SliceIndex", "ZPositionIndex", "Slice"),
    "channel": ("ChannelIndex",),
    "position": ("PositionIndex",),
    "row": ("GridRowIndex", "GridRow"),
    "column": ("GridColumnIndex", "GridColumn"),
}
_CHANNEL_NAME = "Channel"
_MAX_AXES = 32
_MAX_TEXT = 1000
_INT32 = range(-(2**31), 2**31)
_SPACED = re.compile(rb'"Axes"\s*:\s')  # how json.dumps writes it


def axes_in(metadata: Mapping[str, Any]) -> dict[str, AxisValue] | None:
    """The axes that the writer put into the metadata; None where there are none, or none that an index may have."""
    for key in _AXES_KEYS:
        value = metadata.get(key)
        if isinstance(value, dict) and 0 < len(value) <= _MAX_AXES and all(map(_is_value, value.values())):
            return value
    return None


def hints_in(metadata: Mapping[str, Any]) -> dict[str, AxisValue]:
    """Hints from Micro-Manager's keys: `channel` is the number of the channel, `Channel` its name."""
    hints: dict[str, AxisValue] = {}
    for axis, keys in _TOLD_BY.items():
        value = next((metadata[key] for key in keys if key in metadata), None)
        if type(value) is int and value in _INT32:
            hints[axis] = value
    name = metadata.get(_CHANNEL_NAME)
    if isinstance(name, str) and 0 < len(name) <= _MAX_TEXT:
        hints[_CHANNEL_NAME] = name
    return hints


def on_level(axes: Axes, level: int) -> dict[str, AxisValue]:
    """The axes of a tile of a lower level, whose metadata are a copy from one of its full-resolution tiles."""
    tile = {"row", "column"}
    return {
        name: value >> level if name in tile and isinstance(value, int) else value for name, value in axes.items()
    }  # an arithmetic shift: floor of value / 2^level, of negative ones too


def guess_axes(
    hints: Sequence[Mapping[str, AxisValue]], known: Sequence[Axes], order: Sequence[str]
) -> list[dict[str, AxisValue]] | None:
    """Distinct axes for frames with nothing but `hints`; None if the hints are not enough.

    known are the axes of the other frames of the dataset; order is the summary's `AxisOrder`, empty without one.
    """
    names = list(known[-1]) if known else [*order] or _varying(hints)
    texts = bool(known) and isinstance(known[-1].get("channel"), str)
    sources = [_CHANNEL_NAME if name == "channel" and texts else name for name in names]
    if not names or not all(source in hint for hint in hints for source in sources):
        return None
    guesses = [{name: hint[source] for name, source in zip(names, sources, strict=True)} for hint in hints]
    keys = [frozenset(axes.items()) for axes in (*known, *guesses)]
    return guesses if len(set(keys)) == len(keys) else None


def is_spaced(metadata: bytes) -> bool:
    """True if the writer of these metadata puts blanks into JSON."""
    return _SPACED.search(metadata) is not None


def axes_text(axes: Axes, *, spaced: bool) -> bytes:
    """The axes as an index entry has them: ASCII."""
    separators = (", ", ": ") if spaced else (",", ":")
    return json.dumps(axes, ensure_ascii=True, separators=separators).encode("ascii")


def _varying(hints: Sequence[Mapping[str, AxisValue]]) -> list[str]:
    """The axes on which the frames differ. Micro-Manager writes a number for each axis, used or not."""
    names = [name for name in _TOLD_BY if len({hint.get(name) for hint in hints}) > 1]
    return names or ["time"]


def _is_value(value: object) -> bool:
    return (type(value) is int and value in _INT32) or (isinstance(value, str) and len(value) <= _MAX_TEXT)
