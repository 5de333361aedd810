"""The entries of one index: one walk by their lengths, damaged or not, and the metadata that the entries point to.

`IndexCheck` and `MetadataCheck` are as strict as the reader is tolerant. `walk_entries` finds the entries and the
damage in an index that may be damaged anywhere. `parse_entries` reads indexes as writers leave them, complete or cut;
here a damaged entry costs no others. Reading resumes at the next one that has plausible lengths and JSON axes.
"""

from __future__ import annotations

import json
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from acqstream.errors import CorruptDataset
from acqstream.formats.check_report import CheckReport
from acqstream.formats.ndtiff.frame_table import FrameTable
from acqstream.formats.ndtiff.index_entries import (
    MAX_AXES_BYTES,
    MAX_NAME_BYTES,
    NUMBERS,
    NUMBERS_BYTES,
    EntryBatch,
    parse_entries,
)
from acqstream.formats.ndtiff.stack_header import decode_text, parse_json_object
from acqstream.storage.files.read_file import ReadFile, read_spans

MAX_METADATA_BYTES = 16 * 2**20  # of one frame; sixteen times what the daemon takes
_WINDOW_BYTES = 2**20  # bounds the Python objects alive while an index is read
_MAX_BAD_ENTRIES = 100
_MAX_GAP_BYTES = 32 * 1024  # read across rather than in two calls
_TILE_AXES = frozenset({"row", "column"})  # a lower level's metadata is a copy of a full-resolution tile's
_U32 = struct.Struct("<I")
_SIDES_AND_METADATA = struct.Struct("<4xii12xi4x")  # of the numbers: width, height, metadata length
assert _SIDES_AND_METADATA.size == NUMBERS_BYTES


class IndexCheck:
    """Takes all complete entries of an index into `table`; reports bytes that are not a complete entry.

    The end of a growing index may be unfinished.
    """

    def __init__(self, file: ReadFile, table: FrameTable, report: CheckReport, *, growing: bool) -> None:
        self._file = file
        self._table = table
        self._report = report
        self._growing = growing

    def batches(self) -> Iterator[EntryBatch]:
        """The entries that are in order. Raises UnsupportedFeature for more axes than are read."""
        size, position, bad = self._file.size(), 0, 0
        while position < size and bad <= _MAX_BAD_ENTRIES:
            data = self._file.read(position, min(_WINDOW_BYTES, size - position))
            starts = _entry_starts(data)
            if len(starts) == 1:
                break
            batch, taken = self._take(data, starts, position)
            bad += bisect_right(starts, taken - 1) - len(batch.offsets)
            position += taken
            yield batch
            self._report.on_progress("index", position, size)
        if position < size and not self._growing:
            text = _tail_text(self._file.read(position, _WINDOW_BYTES), size - position)
            self._report.add_problem(self._file.path, text, offset=position)

    def _take(self, data: bytes, starts: list[int], position: int) -> tuple[EntryBatch, int]:
        """The entries that are in order, appended to the table, and how many bytes were dealt with."""
        path = str(self._file.path)
        try:
            batch = parse_entries(data[: starts[-1]], path, position)
            self._table.append(batch)
        except CorruptDataset as error:
            at = (error.offset if error.offset is not None else position) - position
            bad = bisect_right(starts, at) - 1
            self._report.add_error(error)
            batch = parse_entries(data[: starts[bad]], path, position)
            self._table.append(batch)
            return batch, starts[bad + 1]
        kept = {offset - position for offset in batch.offsets}
        taken = bisect_right(starts, batch.consumed) - 1
        for start in starts[:taken]:
            if start not in kept:
                self._report.add_problem(path, "an index entry with impossible numbers", offset=position + start)
        if taken < len(starts) - 1:
            text = "an index entry with zeros where its bytes should be"
            self._report.add_problem(path, text, offset=position + starts[taken])
            taken += 1
        return batch, starts[taken]


def _bounds(data: bytes, start: int) -> tuple[int, int] | None:
    """Where the name begins in the entry at `start`, and where the entry ends, by lengths alone.

    None for damage, zeros of a reserved tail, or a cut entry.
    """
    if start + 4 > len(data):
        return None
    axes_bytes = _U32.unpack_from(data, start)[0]
    name_at = start + 8 + axes_bytes
    if not 0 < axes_bytes <= MAX_AXES_BYTES or name_at > len(data):
        return None
    name_bytes = _U32.unpack_from(data, name_at - 4)[0]
    end = name_at + name_bytes + NUMBERS_BYTES
    return None if name_bytes > MAX_NAME_BYTES or end > len(data) else (name_at, end)


def _entry_starts(data: bytes) -> list[int]:
    """Starts of the complete entries at the beginning of `data`, and the end of the last one."""
    starts = [0]  # by lengths alone: a chain of them is cheap to follow, and JSON is parsed later in blocks
    while (bounds := _bounds(data, starts[-1])) is not None:
        starts.append(bounds[1])
    return starts


def _tail_text(head: bytes, length: int) -> str:
    if not head.rstrip(b"\0"):
        return f"{length} bytes of zeros after the last entry: its writer died, or is still writing"
    # A length that no writer produces shows damage. A plausible one shows an entry whose writer died in it.
    axes_bytes = _U32.unpack_from(head)[0] if len(head) >= 4 else 0
    if axes_bytes > MAX_AXES_BYTES or axes_bytes == 0 < len(head) - 4:
        return f"the last {length} bytes are not an index entry"
    name_at = 8 + axes_bytes
    if name_at <= len(head) and _U32.unpack_from(head, name_at - 4)[0] > MAX_NAME_BYTES:
        return f"the last {length} bytes are not an index entry"
    return f"the last entry is cut: only {length} bytes of it exist"


FRAMES = np.dtype(
    [
        ("row", "<u4"),
        *NUMBERS.descr,
        ("length", "<i8"),
        ("has_axes", "?"),
        ("has_nul", "?"),
        ("checksum", "<u8"),
        ("directory", "<i8"),
        ("strip_bytes", "<i8"),
        ("text_bytes", "<i8"),
    ]
)
"""Entries with what metadata and pages showed of their frames, and the row of each.

length: of raw pixels, bytes; -1 where they are compressed. has_axes, has_nul and checksum: whether the metadata holds
`Axes`, whether a NUL stands after it, and its XXH3-64 (0 where it could not be read). directory, strip_bytes and
text_bytes: offset of the page, and the bytes of pixels and metadata by it; -1 without a page.
"""


class MetadataCheck:
    """The metadata of frames, as complete JSON with the axes of the index entry."""

    def __init__(self, find_stack: Callable[[str], ReadFile | None], report: CheckReport, *, is_lower: bool) -> None:
        self._find_stack = find_stack
        self._report = report
        self._skipped = _TILE_AXES if is_lower else frozenset()

    def check(self, batch: EntryBatch, names: list[str], first: int) -> NDArray[np.void]:
        """The next rows (dtype FRAMES), from number `first` on; names are those of their stack files."""
        found = np.zeros(len(names), FRAMES)  # filled in by file, as rows of several may alternate
        found["row"], found["has_axes"] = np.arange(first, first + len(names)), True
        for name in NUMBERS.names or ():
            found[name] = batch.numbers[name]
        for name in ("directory", "strip_bytes", "text_bytes"):
            found[name] = -1
        rows_of: dict[str, list[int]] = {}
        for position, name in enumerate(names):
            rows_of.setdefault(name, []).append(position)
        for name, positions in rows_of.items():
            file = self._find_stack(name)
            if file is not None:
                self._check_stack(file, batch, found, np.array(positions))
        return found

    def _check_stack(
        self, file: ReadFile, batch: EntryBatch, found: NDArray[np.void], positions: NDArray[np.int64]
    ) -> None:
        starts = found["metadata_offset"][positions].astype(np.int64)
        lengths = found["metadata_length"][positions].astype(np.int64)
        beyond = starts + lengths > file.size()
        large = (lengths > MAX_METADATA_BYTES) & ~beyond

        def place(text: str) -> Callable[[int], tuple[str, int]]:
            return lambda i: (text.format(int(lengths[i])), int(starts[i]))

        rows = found["row"][positions]
        self._report.add_problems(file.path, beyond, rows, place("metadata of {} bytes end beyond the end of the file"))
        self._report.add_problems(file.path, large, rows, place(f"metadata of {{}} bytes, above {MAX_METADATA_BYTES}"))
        order = np.flatnonzero(~beyond & ~large)
        order = order[np.argsort(starts[order], kind="stable")]
        ends = starts + lengths
        apart = np.ones(len(order), np.bool_)
        if len(order):
            apart[1:] = starts[order[1:]] >= np.maximum.accumulate(ends[order])[:-1]  # others are told with the pages
        order = order[apart]
        for low, high in read_spans(starts[order], ends[order] + 1, _WINDOW_BYTES, _MAX_GAP_BYTES):
            base = int(starts[order[low]])
            data = file.read(base, int(ends[order[high - 1]]) + 1 - base)
            for i in order[low:high].tolist():
                start, end, position = int(starts[i]) - base, int(ends[i]) - base, positions[i]
                found["has_nul"][position] = data[end : end + 1] == b"\0"
                found["checksum"][position] = xxhash.xxh3_64_intdigest(data[start:end])
                found["has_axes"][position] = self._check_text(
                    file, data[start:end], base + start, batch.axes[position], int(rows[i])
                )

    def _check_text(self, file: ReadFile, text: bytes, offset: int, axes: dict[str, Any], row: int) -> bool:
        """Return False where the text holds no axes."""
        try:
            metadata = parse_json_object(text, str(file.path), offset)
        except CorruptDataset as error:
            self._report.add_error(error, row=row)
            return True
        if text and not metadata and b"{" not in text:
            self._report.add_problem(file.path, "metadata is blank", offset=offset, row=row)
        found = metadata.get("Axes")
        if found is None:
            return False
        if self._skipped and isinstance(found, dict):
            found = {name: value for name, value in found.items() if name not in self._skipped}
            axes = {name: value for name, value in axes.items() if name not in self._skipped}
        if found != axes:
            told = f"metadata says axes {found!r:.200}, the index {axes!r:.200}"
            self._report.add_problem(file.path, told, offset=offset, row=row)
        return True


@dataclass(frozen=True, slots=True)
class EntryFacts:
    """Framed entries in the order of the file: bytes [starts[i], ends[i]) of content, names, numbers (dtype NUMBERS).

    damage are the byte ranges [start, end) between them that are not entries; zeros at the end are not damage. axes_at:
    the first row of each axis.
    """

    content: bytes
    starts: list[int]
    ends: list[int]
    names: list[str]
    numbers: NDArray[np.void]
    damage: list[tuple[int, int]]
    axes_at: dict[str, int]

    def __len__(self) -> int:
        return len(self.starts)

    def entry(self, row: int) -> bytes:
        """The bytes of an entry."""
        return self.content[self.starts[row] : self.ends[row]]

    def axes(self, row: int) -> dict[str, Any]:
        """The axes of an entry."""
        return axes_of_entry(self.entry(row))

    @property
    def unbroken(self) -> int:
        """The number of entries before the first damage."""
        return bisect_left(self.starts, self.damage[0][0]) if self.damage else len(self)

    def after(self, count: int) -> EntryFacts:
        """The entries after the first `count`."""
        columns = {name: getattr(self, name)[count:] for name in ("starts", "ends", "names", "numbers")}
        return replace(self, **columns)


def axes_of_entry(entry: bytes) -> dict[str, Any]:
    """The axes of one framed entry."""
    axes: dict[str, Any] = json.loads(decode_text(entry[4 : 4 + _U32.unpack_from(entry)[0]]))
    return axes


def walk_entries(content: bytes) -> EntryFacts:
    """All that can be read as entries."""
    starts: list[int] = []
    ends: list[int] = []
    names: list[str] = []
    numbers: list[bytes] = []
    known: dict[bytes, str] = {}  # an index has few names: one string for each
    damage: list[tuple[int, int]] = []
    axes_at: dict[str, int] = {}
    position = 0
    for start, name_at, end, axes in _framed(content):
        if start > position:
            damage.append((position, start))
        raw = content[name_at : end - NUMBERS_BYTES]
        for name in axes:  # here, as JSON is parsed once: an index may have millions of entries
            axes_at.setdefault(name, len(starts))
        starts.append(start)
        ends.append(end)
        names.append(known.setdefault(raw, decode_text(raw)))
        numbers.append(content[end - NUMBERS_BYTES : end])
        position = end
    # Zeros at the end are space that was reserved.
    tail = len(content.rstrip(b"\0"))
    if tail > position:
        damage.append((position, tail))
    return EntryFacts(content, starts, ends, names, np.frombuffer(b"".join(numbers), NUMBERS), damage, axes_at)


def _framed(content: bytes) -> Iterator[tuple[int, int, int, dict[str, Any]]]:
    """Start of every entry, of its name, its end, and its axes; after damage, from the next one on."""
    position = 0
    while position < len(content):
        bounds = _bounds(content, position)
        axes = _axes_of(content, position, *bounds) if bounds is not None else None
        if bounds is not None and axes is not None:
            yield position, *bounds, axes
            position = bounds[1]
            continue
        brace = content.find(b"{", position + 5)  # where the axes of the next entry may begin
        if brace < 0:
            return
        position = brace - 4


def _axes_of(content: bytes, start: int, name_at: int, end: int) -> dict[str, Any] | None:
    """The axes, if bytes of plausible lengths are an entry: JSON axes, a name, possible numbers."""
    name = content[name_at : end - NUMBERS_BYTES]
    width, height, metadata_bytes = _SIDES_AND_METADATA.unpack_from(content, end - NUMBERS_BYTES)
    if content[start + 4] != ord("{") or not name or b"\0" in name:
        return None
    if width <= 0 or height <= 0 or metadata_bytes < 0:
        return None
    try:
        axes = json.loads(decode_text(content[start + 4 : name_at - 4]))
    except (ValueError, RecursionError):
        return None
    return axes if type(axes) is dict else None
