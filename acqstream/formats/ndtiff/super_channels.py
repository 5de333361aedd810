"""Super channels: all axes of a frame but z, time and position, as one number in an index map. Pure.

Source: files of the Java writer. Their names, like `Axis_exposure_0Axis_channel_1`, stand in the file `Axes_metedata`
(spelled so) of libraries 1.4 and 1.5, and in the metadata of every frame.

`Axes_metedata` is records of: i32 number, or -1; then, after -1, i32 channel number, i32 length, name of the channel;
after a number i32 length, name of the super channel. Names are Latin-1. A length of 0 ends it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from typing import Any

from acqstream.formats.ndtiff.page_axes import axes_in, hints_in, on_level
from acqstream.model.axes import Axes, AxisValue

AXES_METADATA_NAME = "Axes_metedata"
MAX_AXES_METADATA_BYTES = 32 * 2**20  # 25 MiB are reserved by its writer
_NAME_KEY = "StorageSuperChannelName"
_OWN_AXES = ("z", "time", "position")  # of an entry
_AXIS = re.compile(r"Axis_(.+?)_(-?[0-9]{1,9})(?=Axis_|$)")
_MAX_CHANNELS = 2**20


class SuperChannels:
    """Meaning of the numbers. `level` is the resolution level of the frames."""

    def __init__(self, axes_metadata: bytes, *, is_tiled: bool, level: int) -> None:
        self._names = parse_axes_metadata(axes_metadata)
        self._axes: dict[int, Axes] = {}
        self._is_tiled = is_tiled
        self._level = level

    def needs_metadata(self, number: int) -> bool:
        """True if this frame's metadata must be read: the first frame of its super channel, and every tile."""
        return self._is_tiled or number not in self._axes

    def axes(self, number: int, entry: Mapping[str, int], metadata: Mapping[str, Any]) -> dict[str, AxisValue]:
        """The axes of a frame; entry has its z, time and position. metadata may be empty if they are not needed."""
        if number not in self._axes:
            if len(self._axes) >= _MAX_CHANNELS:
                self._axes.clear()
            self._axes[number] = self._first_axes(number, entry, metadata)
        axes = {name: entry.get(name, value) for name, value in self._axes[number].items()}
        if self._is_tiled:
            place = {name: value for name, value in hints_in(metadata).items() if name in ("row", "column")}
            if len(place) == 2:
                axes.pop("position", None)
                axes |= on_level(place, self._level)
        return axes

    def _first_axes(self, number: int, entry: Mapping[str, int], metadata: Mapping[str, Any]) -> Axes:
        """The axes of the first frame of a super channel."""
        told = axes_in(metadata)
        if told is not None:
            return {name: value for name, value in told.items() if name not in ("row", "column") or not self._is_tiled}
        name = self._names.get(number) or metadata.get(_NAME_KEY)
        axes: dict[str, AxisValue] = dict(parse_name(name)) if isinstance(name, str) else {}
        if not axes and number:
            axes["channel"] = number
        return axes | {name: entry[name] for name in _OWN_AXES}


def parse_name(name: str) -> dict[str, int]:
    """The axes in the name of a super channel."""
    return {axis: int(value) for axis, value in _AXIS.findall(name)}


def parse_axes_metadata(data: bytes) -> dict[int, str]:
    """Names of super channels by number, up to the first incomplete record."""
    names: dict[int, str] = {}
    position = 0
    while position + 8 <= len(data):
        (flag,) = struct.unpack_from("<i", data, position)
        position += 8 if flag == -1 else 4
        if position + 4 > len(data):
            break
        (length,) = struct.unpack_from("<i", data, position)
        position += 4
        if length <= 0 or position + length > len(data):
            break
        if flag >= 0:
            names[flag] = data[position : position + length].decode("latin-1")
        position += length
    return names
