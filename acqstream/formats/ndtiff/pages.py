"""The chain of page directories in a stack file, and the axes in the metadata of a page.

Source: NDTiff specification, "Image File Directories".

offset     size  value
0          2     number of entries n, 13 from known writers
2          12 n  entries: tag u16, type u16, count u32, value or offset u32
2 + 12 n   4     offset of the next directory: 0 in the last one of a finished file

Axes, for frames whose index entry is lost (source: metadata of the known writers): acquisition engines and our own
writer put the axes under `Axes`; libraries before 2.0 under `ImageStorageAxesPositions`. Micro-Manager Studio and plain
users of ndstorage put none: there Micro-Manager's own keys name some, or none are known.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from acqstream.formats.ndtiff.stack_header import ByteOrder, ReadAt
from acqstream.model.axes import Axes, AxisValue

IMAGE_WIDTH = 256
IMAGE_LENGTH = 257
BITS_PER_SAMPLE = 258
STRIP_OFFSETS = 273
SAMPLES_PER_PIXEL = 277
STRIP_BYTE_COUNTS = 279
MICRO_MANAGER_METADATA = 51123
TAGS = (256, 257, 258, 259, 262, 273, 277, 278, 279, 282, 283, 296, 51123)
"""The entries of a directory, in order, as all known writers make them."""
DIRECTORY_BYTES = 2 + 12 * len(TAGS) + 4

_REQUIRED = frozenset({IMAGE_WIDTH, IMAGE_LENGTH, BITS_PER_SAMPLE, STRIP_OFFSETS, STRIP_BYTE_COUNTS})
_MAX_ENTRIES = 64
_SHORT, _LONG = 3, 4
EARLY_3_0_SHIFT = 4  # one Java build of August 2022 wrote first-directory offsets that are 4 too small

_Tags = dict[int, tuple[int, int]]  # tag -> (count, value or offset)

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


@dataclass(frozen=True, slots=True)
class StackPage:
    """One directory, with the place of its frame. All offsets are bytes from the start of the file.

    samples is 1, or 3 for RGB; pixel_bytes is StripByteCounts; metadata_bytes is the tag's count, which includes a
    closing NUL where the writer put one (0 if the page has no metadata). next is the next directory as stored, next_at
    where that pointer lies. Pixels or metadata may lie outside of the file.
    """

    directory: int
    pixels: int
    width: int
    height: int
    bits: int
    samples: int
    pixel_bytes: int
    metadata: int
    metadata_bytes: int
    next: int
    next_at: int


def directory_dtype(byte_order: ByteOrder = "<", *more: tuple[Any, ...]) -> np.dtype[np.void]:
    """Directories with the entries TAGS as columns; `more` fields follow each directory."""
    tag = np.dtype([("tag", "u2"), ("type", "u2"), ("count", "u4"), ("value", "u4")])
    return np.dtype([("entries", "u2"), ("tags", tag, len(TAGS)), ("next", "u4"), *more]).newbyteorder(byte_order)


def read_page(read: ReadAt, size: int, directory: int, byte_order: ByteOrder = "<") -> StackPage | None:
    """The page with its directory at `directory`, or None without a plausible one."""
    if not 8 <= directory <= size - 2:
        return None
    head = read(directory, 2)
    count = struct.unpack(byte_order + "H", head)[0] if len(head) == 2 else 0
    next_at = directory + 2 + 12 * count
    if not 1 <= count <= _MAX_ENTRIES or next_at + 4 > size:
        return None
    body = read(directory + 2, 12 * count + 4)
    if len(body) != 12 * count + 4:
        return None
    tags = _parse_tags(body, count, byte_order)
    if not tags.keys() >= _REQUIRED:
        return None
    following = struct.unpack_from(byte_order + "I", body, 12 * count)[0]
    return page_of(read, byte_order, directory, tags, (following, next_at))


def page_of(read: ReadAt, byte_order: ByteOrder, directory: int, tags: _Tags, pointers: tuple[int, int]) -> StackPage:
    """The page of these tags. pointers: the next directory, and where that pointer lies."""
    metadata_bytes, metadata = tags.get(MICRO_MANAGER_METADATA, (0, 0))
    return StackPage(
        directory=directory,
        pixels=tags[STRIP_OFFSETS][1],
        width=tags[IMAGE_WIDTH][1],
        height=tags[IMAGE_LENGTH][1],
        bits=_bits_per_sample(read, tags, byte_order),
        samples=tags.get(SAMPLES_PER_PIXEL, (1, 1))[1],
        pixel_bytes=tags[STRIP_BYTE_COUNTS][1],
        metadata=metadata,
        metadata_bytes=metadata_bytes,
        next=pointers[0],
        next_at=pointers[1],
    )


def _parse_tags(body: bytes, count: int, byte_order: ByteOrder) -> _Tags:
    tags: _Tags = {}
    for position in range(0, 12 * count, 12):
        tag, kind, values, value = struct.unpack_from(byte_order + "HHII", body, position)
        if kind == _SHORT and values <= 2:  # left-justified in the field: matters in big endian files
            value = struct.unpack_from(byte_order + "H", body, position + 8)[0]
        tags.setdefault(tag, (values, value))
    return tags


def _bits_per_sample(read: ReadAt, tags: _Tags, byte_order: ByteOrder) -> int:
    count, value = tags[BITS_PER_SAMPLE]
    if count <= 2:
        return value
    first = read(value, 2)  # RGB: the field holds the offset of three u16
    bits: int = struct.unpack(byte_order + "H", first)[0] if len(first) == 2 else 0
    return bits


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
