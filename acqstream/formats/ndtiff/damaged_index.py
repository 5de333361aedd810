"""The entries of an index that may be damaged anywhere: what is framed like an entry, and where the damage lies.

`parse_entries` reads what a writer leaves, whole or cut. Here a damaged entry costs no others: reading goes on at the
next one that has plausible lengths and JSON axes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.formats.ndtiff.index_entries import MAX_AXES_BYTES, MAX_NAME_BYTES, NUMBERS, NUMBERS_BYTES
from acqstream.formats.ndtiff.stack_header import decode_text

_U32 = struct.Struct("<I")
_SIDES_AND_METADATA = struct.Struct("<4xii12xi4x")  # of the numbers: width, height, metadata length
assert _SIDES_AND_METADATA.size == NUMBERS_BYTES


@dataclass(frozen=True, slots=True)
class DamagedIndex:
    """Framed entries in the order of the file: bytes [starts[i], ends[i]) of content, names, numbers (dtype NUMBERS).

    damage are the byte ranges [start, end) between them that are not entries; zeros at the end are not damage.
    """

    content: bytes
    starts: list[int]
    ends: list[int]
    names: list[str]
    numbers: NDArray[np.void]
    damage: list[tuple[int, int]]

    def __len__(self) -> int:
        return len(self.starts)

    def entry(self, row: int) -> bytes:
        """The bytes of an entry."""
        return self.content[self.starts[row] : self.ends[row]]

    def axes(self, row: int) -> dict[str, Any]:
        """The axes of an entry."""
        start = self.starts[row] + 4
        axes: dict[str, Any] = json.loads(decode_text(self.content[start : start + _u32(self.content, start - 4)]))
        return axes


def read_damaged_index(content: bytes) -> DamagedIndex:
    """All that can be read as entries."""
    starts: list[int] = []
    ends: list[int] = []
    names: list[str] = []
    numbers: list[bytes] = []
    known: dict[bytes, str] = {}
    damage: list[tuple[int, int]] = []
    position = 0
    for start, end in _framed(content):
        if start > position:
            damage.append((position, start))
        name_at = start + 8 + _u32(content, start)
        raw = content[name_at : end - NUMBERS_BYTES]
        starts.append(start)
        ends.append(end)
        names.append(known.setdefault(raw, decode_text(raw)))
        numbers.append(content[end - NUMBERS_BYTES : end])
        position = end
    tail = len(content.rstrip(b"\0"))
    if tail > position:
        damage.append((position, tail))
    return DamagedIndex(content, starts, ends, names, np.frombuffer(b"".join(numbers), NUMBERS), damage)


def _framed(content: bytes) -> Iterator[tuple[int, int]]:
    """Start and end of every entry; after damage, from the next one on."""
    position = 0
    while position < len(content):
        end = _end_of_entry(content, position)
        if end:
            yield position, end
            position = end
            continue
        brace = content.find(b"{", position + 5)  # where the axes of the next entry may begin
        if brace < 0:
            return
        position = brace - 4


def _end_of_entry(content: bytes, start: int) -> int:
    """End of the entry that begins at `start`; 0 without one."""
    if start + 8 > len(content):
        return 0
    axes_bytes = _u32(content, start)
    name_at = start + 8 + axes_bytes
    if not 2 <= axes_bytes <= MAX_AXES_BYTES or content[start + 4] != ord("{") or name_at > len(content):
        return 0
    name_bytes = _u32(content, name_at - 4)
    end = name_at + name_bytes + NUMBERS_BYTES
    if not 1 <= name_bytes <= MAX_NAME_BYTES or end > len(content):
        return 0
    width, height, metadata_bytes = _SIDES_AND_METADATA.unpack_from(content, end - NUMBERS_BYTES)
    if width <= 0 or height <= 0 or metadata_bytes < 0 or b"\0" in content[name_at : end - NUMBERS_BYTES]:
        return 0
    try:
        axes = json.loads(decode_text(content[start + 4 : name_at - 4]))
    except (ValueError, RecursionError):
        return 0
    return end if type(axes) is dict else 0


def _u32(content: bytes, at: int) -> int:
    value: int = _U32.unpack_from(content, at)[0]
    return value
