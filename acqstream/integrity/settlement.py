"""The frames after those on which journal and index agree, each settled by itself. Reads only.

A record counts if its pixels match its checksum, wherever it stands in the journal; its entry comes from its page, or
from an old entry whose metadata match. A page between two such frames is that of a damaged record. After the last
record an index entry counts as far as a page confirms it. So no tail and no repeated, moved or foreign entry costs a
frame that the journal proves, and none adds one.

"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from acqstream.errors import CorruptDataset, ProtocolError, StorageError
from acqstream.formats.ndtiff.entry_walk import EntryFacts
from acqstream.formats.ndtiff.folders import parse_stack_name
from acqstream.formats.ndtiff.index_entries import encode_entry
from acqstream.formats.ndtiff.layout import NDTiffLayout
from acqstream.formats.ndtiff.pages import read_page
from acqstream.formats.ndtiff.pixels import payload_bytes
from acqstream.integrity.facts import OpenStacks, has_pixel_type, own_entry_agrees, stored_checksum
from acqstream.log import journal
from acqstream.log.journal_file import JournalContent
from acqstream.model.axes import axes_json, check_axes, in_order
from acqstream.model.metadata import time_in_text
from acqstream.storage.files.read_file import ReadFile

_MAX_HOLES = 2**16  # numbers that are given up at once
_NOT_OURS = (ValueError, KeyError, TypeError, RecursionError, ProtocolError, struct.error)  # last: a damaged page

Place = tuple[int, int]
"""Number of a stack file, offset of the pixels in it. Frames have ascending places."""


class Settlement:
    """Call `run`; then records and entries follow those that were kept.

    content is the journal, of which the first `kept` records stay; old are the entries of the index behind those that
    agree. names: of axes, in the order that entries have. lost are numbers whose record is intact and whose pixels or
    metadata are not.
    """

    def __init__(
        self, content: JournalContent, kept: int, old: EntryFacts, stacks: OpenStacks, layout: NDTiffLayout
    ) -> None:
        self.names: dict[str, None] = {}
        self._content = content
        self._kept = kept
        self._old = old
        self._stacks = stacks
        self._layout = layout
        own = {name: number for name in set(old.names) if (number := own_number(layout, name)) is not None}
        self._rows: dict[Place, list[int]] = {}  # of the old entries
        for row, (name, offset) in enumerate(zip(old.names, old.numbers["pixel_offset"].tolist(), strict=True)):
            if name in own:
                self._rows.setdefault((own[name], offset), []).append(row)
        self._next = journal.next_number(content.records[:kept])
        frames = content.records[:kept][content.records["flags"][:kept] == journal.FRAME]
        self._place: Place = _place_of(frames[-1]) if len(frames) else (-1, 0)
        self._gaps: list[np.void] = []  # records since the last frame that are none, or whose frame is lost
        self.records: list[bytes] = []
        self.entries: list[bytes] = []
        self.lost: list[int] = []
        self.rolled_forward = self.records_added = 0

    def run(self) -> None:
        content, end = self._content, self._kept
        usable = content.intact & content.known
        for position in range(self._kept, len(content.records)):
            record = content.records[position]
            if not usable[position] or int(record["number"]) < self._next:
                continue  # damaged, or one that stands there twice
            if record["flags"] != journal.FRAME:
                self._gaps.append(record)
            elif self._take(record):
                end = position + 1
        if self._take_ending(usable, end):
            for place, row in self._entries_behind():
                if not self._add_unrecorded(place, row):
                    return  # frames are published in order: after the first one in doubt none counts

    def _take(self, record: np.void) -> bool:
        """A record with its number and place after those before, if the stack has its frame."""
        number, place = int(record["number"]), _place_of(record)
        # Only a journal of version 2 has many numbers in one record.
        is_near = number - self._next <= _MAX_HOLES or self._content.checked_header().version > 1
        entry = self._entry_for(record) if place > self._place and is_near else None
        if entry is None:
            self.lost.append(number)
            self._gaps.append(record)
            return False
        self._fill(number, place)
        self._add(number, place, record.tobytes(), entry)
        self.rolled_forward += not any(entry == self._old.entry(row) for row in self._rows.get(place, ()))
        return True

    def _add(self, number: int, place: Place, record: bytes, entry: bytes) -> None:
        self.records.append(record)
        self.entries.append(entry)
        self._next, self._place = number + 1, place
        self._gaps.clear()

    def _fill(self, stop: int, place: Place) -> None:
        """Records of the numbers up to `stop`, that of the next frame, which lies at `place`."""
        lost = {_place_of(gap) for gap in self._gaps if gap["flags"] in (journal.FRAME, journal.HOLE)}
        pages = (found for found in self._places_before(place) if found not in lost)
        for gap in [*self._gaps, None]:
            end = min(stop, int(gap["number"])) if gap is not None else stop
            while self._next < end and (found := next(pages, None)) is not None:
                self._add_unrecorded(found)
            if self._next < end:
                # A journal proves numbers and places, an index only axes: what both lost stays lost.
                self.records.append(_holes(self._next, end - self._next))
                self._next = end
            if gap is not None and self._next == int(gap["number"]) and _end_of(gap) <= stop:
                self.records.append(_holes(self._next, 1) if gap["flags"] == journal.FRAME else gap.tobytes())
                self._next = _end_of(gap)

    def _take_ending(self, usable: NDArray[np.bool_], start: int) -> bool:
        """The records after the last frame that counts; False if what comes after them does not count either."""
        for position in range(start, len(usable)):
            record = self._content.records[position]
            if not usable[position]:
                found = next(self._entries_behind(), None)
                if found is None or not self._add_unrecorded(*found):
                    return False
            elif record["flags"] != journal.FRAME and int(record["number"]) == self._next:
                self.records.append(record.tobytes())
                self._next = _end_of(record)
            elif int(record["number"]) >= self._next:
                return False  # a lost frame, or numbers of which nothing is known
        return True

    def _entries_behind(self) -> Iterator[tuple[Place, int]]:
        """Old entries with a place after that of the last frame, in order of the index."""
        behind = [(rows[0], place) for place, rows in self._rows.items() if place > self._place]
        for row, place in sorted(behind):
            if place > self._place:
                yield place, row

    def _places_before(self, end: Place) -> Iterator[Place]:
        """Pages between the last frame and `end`, in order."""
        start = self._place
        for stack in range(max(0, start[0]), end[0] + 1):
            for offset in sorted(self._stacks.pages(self._layout.stack_name(stack))):
                if start < (stack, offset) < end:
                    yield stack, offset

    def _add_unrecorded(self, place: Place, row: int = -1) -> bool:
        """A frame of a page without a record, and of an old entry that must agree with it; False if it is in doubt."""
        name, offset = self._layout.stack_name(place[0]), place[1]
        rows = self._rows.get(place, ())
        page = self._stacks.pages(name).get(offset)
        if page is None or (row >= 0 and not own_entry_agrees(self._old.numbers[row], page)):
            return False
        file = self._stacks.get(name)
        frames = self._content.sound_frames
        kind = int(self._old.numbers["pixel_type"][rows[0]] if rows else frames["pixel_type"][0] if len(frames) else -1)
        metadata = file.read(page.metadata, page.metadata_bytes - 1)
        axes = axes_in(metadata)
        checksum = stored_checksum(file, offset, page.pixel_bytes)
        if axes is None or checksum is None or not has_pixel_type(page, kind, page.pixel_bytes):
            return False
        if row >= 0 and axes != self._old.axes(row):
            return False
        record = journal.encode_frame(
            self._next,
            stack=place[0],
            offset=offset,
            length=page.pixel_bytes,
            checksum=checksum,
            directory=page.directory,
            pixel_type=kind,
            metadata_checksum=xxhash.xxh3_64_intdigest(metadata),
            time_ns=time_in_text(metadata),
        )
        entry = encode_entry(self._text(axes), name, page, kind, page.metadata_bytes - 1)
        self._add(self._next, place, record, self._old.entry(row) if row >= 0 else entry)
        self.records_added += 1
        return True

    def _entry_for(self, record: np.void) -> bytes | None:
        """The entry of a frame with a record; None if its pixels or metadata do not match."""
        place, name = _place_of(record), self._layout.stack_name(int(record["stack"]))
        try:
            file = self._stacks.get(name)
            checksum = stored_checksum(file, place[1], int(record["length"]))
            page = read_page(file.read, file.size(), int(record["directory"]))
        except (OSError, StorageError, CorruptDataset):
            return None  # the stack does not reach that far: the frame was never published
        if checksum != int(record["checksum"]):
            return None
        if page is not None and page.pixels == place[1]:
            metadata = file.read(page.metadata, page.metadata_bytes - 1)  # without the zero byte that ends a TIFF text
            axes = _proved_axes(metadata, record)
            if axes is not None:
                try:
                    kind = int(record["pixel_type"])
                    return encode_entry(self._text(axes), name, page, kind, page.metadata_bytes - 1)
                except _NOT_OURS:
                    return None
        return next(
            (self._old.entry(row) for row in self._rows.get(place, ()) if self._is_proved(file, row, record)), None
        )

    def _text(self, axes: dict[str, Any]) -> bytes:
        """The axes as the log puts them into an entry: in one order."""
        return axes_json(in_order(check_axes(axes), self.names))

    def _is_proved(self, file: ReadFile, row: int, record: np.void) -> bool:
        """Return True if an old entry has the kind, the metadata and the axes of a record; its page is damaged."""
        numbers = self._old.numbers[row]
        metadata = file.read(int(numbers["metadata_offset"]), int(numbers["metadata_length"]))
        is_same = int(numbers["pixel_type"]) == int(record["pixel_type"])
        is_same &= int(payload_bytes(self._old.numbers[row : row + 1])[0]) == int(record["length"])
        return is_same and _proved_axes(metadata, record) == self._old.axes(row)


def own_number(layout: NDTiffLayout, name: str) -> int | None:
    """The number of a stack file of this dataset; None for other files."""
    parsed = parse_stack_name(name)
    return parsed[1] if parsed is not None and layout.stack_name(parsed[1]) == name else None


def _place_of(record: np.void) -> Place:
    return int(record["stack"]), int(record["offset"])


def _end_of(gap: np.void) -> int:
    return int(gap["number"]) + int(journal.counts_of(np.array([gap]))[0])


def _holes(first: int, count: int) -> bytes:
    """Records of numbers whose frames are lost; very many are one record, as skipped ones are."""
    if count > _MAX_HOLES:
        return journal.encode_skip(first, count)
    return b"".join(map(journal.encode_hole, range(first, first + count)))


def _proved_axes(metadata: bytes, record: np.void) -> dict[str, Any] | None:
    """The axes in the metadata of a record; None if these are not as they were stored."""
    is_same = xxhash.xxh3_64_intdigest(metadata) == int(record["metadata_checksum"])
    return axes_in(metadata) if is_same else None


def axes_in(metadata: bytes) -> dict[str, Any] | None:
    """The axes in the metadata of a frame; None where these are damaged."""
    try:
        axes = json.loads(metadata)["Axes"]
        check_axes(axes)
    except _NOT_OURS:
        return None
    return axes if isinstance(axes, dict) else None
