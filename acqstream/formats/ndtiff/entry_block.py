"""Many entries of an index at once, as columns: no Python object per frame.

`parse_index` gives what `parse_entries` gives. It reads regular entries with array operations: axes as `axes_texts`
reads them, names of stack files that stay the same for a while, numbers that are plausible and not zero. All other
entries, and the end of the bytes, are left to `parse_entries`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from acqstream.formats.ndtiff.axes_texts import MAX_TEXT_BYTES, AxesTexts, AxisCodes, Rows, equal_to, gather
from acqstream.formats.ndtiff.index import NUMBERS, NUMBERS_BYTES, EntryBatch, are_possible, parse_entries

_MAX_NAME_BYTES = 255
_MIN_AT_ONCE, _MAX_AT_ONCE = 256, 2**15  # entries of a block: bounds the memory that reading takes
_MIN_BYTES = 4096  # fewer are not worth the array operations
_FIRST_REACH, _LONGEST_REACH = 2**13, 2**19  # bytes in which a name is looked for at once
_MIN_BY_ONE, _MAX_BY_ONE = 4, 4096
_U32 = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class EntryBlock:
    """Regular entries that followed one another in the index, at least one.

    names are those of their stack files, each with the number of entries that follow one another with it, and the
    offset of the first in the index file. numbers (dtype NUMBERS) and the codes of every axis have an item per entry.
    """

    names: list[tuple[bytes, int, int]]
    numbers: NDArray[np.void]
    axes: dict[str, AxisCodes]
    consumed: int
    at_zeros: ClassVar[bool] = False

    def __len__(self) -> int:
        return len(self.numbers)


def parse_index(data: bytes, path: str = "", start: int = 0) -> Iterator[EntryBlock | EntryBatch]:
    """The complete entries at the beginning of `data`, in parts; the last part has `at_zeros`.

    Arguments and errors as `parse_entries`.
    """
    position, at_once, by_one = 0, _MAX_AT_ONCE, _MIN_BY_ONE
    while True:
        block = _parse_block(data, position, start, at_once)
        if block is not None:
            yield block
            position += block.consumed
        if block is not None and 2 * len(block) >= at_once:
            at_once, by_one = min(2 * at_once, _MAX_AT_ONCE), _MIN_BY_ONE
        else:  # where irregular entries are frequent, little is tried in vain
            at_once, by_one = _MIN_AT_ONCE, min(2 * by_one, _MAX_BY_ONE)
        if len(data) - position < _MIN_BYTES:
            by_one = len(data)
        batch = parse_entries(data, path, start, begin=position, limit=by_one)
        position += batch.consumed
        yield batch
        if not batch.is_limited:
            return


@dataclass(frozen=True, slots=True)
class _Frames:
    """Byte offsets of the entries of a block. names as in EntryBlock; starts, lengths of axes and of names by row."""

    names: list[tuple[bytes, int, int]]
    starts: Rows
    text_bytes: Rows
    name_bytes: Rows


def _parse_block(data: bytes, position: int, start: int, most: int) -> EntryBlock | None:
    frames = _find_frames(data, position, start, most)
    if frames is None:
        return None
    texts = AxesTexts(data, frames.starts + 4, frames.text_bytes)
    numbers_at = frames.starts + frames.text_bytes + frames.name_bytes + 8
    numbers = gather(data, numbers_at, NUMBERS_BYTES // 8).view(NUMBERS).reshape(-1)
    texts.count = _first_false(are_possible(numbers) & (numbers["metadata_offset"] != 0))
    axes = texts.read()
    if not texts.count:
        return None
    end = int(numbers_at[texts.count - 1]) + NUMBERS_BYTES
    return EntryBlock(_first_names(frames.names, texts.count), numbers[: texts.count], axes, end - position)


def _find_frames(data: bytes, position: int, start: int, most: int) -> _Frames | None:
    """Entries from `position` on, for as long as their lengths are regular; about `most`."""
    names: list[tuple[bytes, int, int]] = []
    parts: list[Rows] = []
    count = 0
    while count < most and len(data) - position >= _MIN_BYTES:
        field = _name_field(data, position)
        found, following = _with_same_name(data, position, field, most - count) if field else ([], position)
        if not found:
            break
        parts += found
        entries = sum(map(len, found))
        names.append((field[4:], entries, start + position))
        position, count = following, count + entries
    if not parts:
        return None
    starts = np.concatenate(parts)
    name_bytes = np.repeat([len(name) for name, _, _ in names], [entries for _, entries, _ in names])
    return _Frames(names, starts, np.frombuffer(data, np.uint8)[starts].astype(np.int64), name_bytes)


def _name_field(data: bytes, position: int) -> bytes:
    """Length and name of the stack file in the entry at `position`, empty if they are not regular."""
    text_bytes = _U32.unpack_from(data, position)[0]
    at = position + 4 + text_bytes
    if not 0 < text_bytes <= MAX_TEXT_BYTES or at + 4 > len(data):
        return b""
    name_bytes = _U32.unpack_from(data, at)[0]
    field = data[at : at + 4 + name_bytes]
    is_regular = 0 < name_bytes <= _MAX_NAME_BYTES and len(field) == 4 + name_bytes and b"\0" not in field[4:]
    return field if is_regular else b""


def _with_same_name(data: bytes, position: int, field: bytes, most: int) -> tuple[list[Rows], int]:
    """The starts of the entries from `position` on that name the same stack file, and where the next one starts."""
    found: list[Rows] = []
    count, reach = 0, _FIRST_REACH
    # A search for the rarest byte of the name compares the fewest places in vain.
    rarest = _rarest_byte(data[position : position + _FIRST_REACH], field)
    while count < most:
        names_at = _find_all(data, position, position + reach, field, rarest)
        # The numbers follow the name, and the next entry follows the numbers.
        starts = np.concatenate((np.full(1, position), names_at + len(field) + NUMBERS_BYTES))
        lengths = gather(data, starts[:-1], 1)[:, 0] & np.uint64(2**32 - 1)
        # The stored length of the axes must reach exactly to the name; else the name occurs inside other text.
        good = (lengths == (names_at - starts[:-1] - 4).view(np.uint64)) & (lengths > 0) & (lengths <= MAX_TEXT_BYTES)
        regular = _first_false(good)
        if regular:
            found.append(starts[:regular])
        position, count = int(starts[regular]), count + regular
        if regular < len(good) or not len(good):
            break
        reach = min(2 * reach, _LONGEST_REACH)
    return found, position


def _rarest_byte(sample: bytes, field: bytes) -> int:
    """Index in `field` of the byte that is rarest in the sample."""
    counts = np.bincount(np.frombuffer(sample, np.uint8), minlength=256)
    return int(np.argmin(counts[np.frombuffer(field, np.uint8)]))


def _find_all(data: bytes, begin: int, end: int, field: bytes, mark: int) -> Rows:
    """Offsets of `field` in data[begin:end] that the numbers and 8 more bytes follow."""
    end = min(end, len(data) - NUMBERS_BYTES - 8)
    octets = np.frombuffer(data, np.uint8)[begin + mark : max(begin, end - len(field)) + mark]
    at = np.flatnonzero(octets == field[mark]) + begin
    return at[equal_to(gather(data, at, -(-len(field) // 8)), field, np.ones(len(field), np.bool_))]


def _first_false(values: NDArray[np.bool_]) -> int:
    return len(values) if values.all() else int(np.argmin(values))


def _first_names(names: list[tuple[bytes, int, int]], count: int) -> list[tuple[bytes, int, int]]:
    """The names of the first `count` entries."""
    kept: list[tuple[bytes, int, int]] = []
    for name, entries, offset in names:
        if count > 0:
            kept.append((name, min(entries, count), offset))
        count -= entries
    return kept
