"""A new index for one folder from what is left: its stack files, the old index, the journal. Reads only.

What counts, in this order: a journal record (place and checksum of a frame), an old entry that a page confirms, a page,
an old entry whose frame lies as the reference writers lay it. The new index has the frames in file order, as all known
writers do; where the old one had another order, that stays and what was missing is added after it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from acqstream.errors import CorruptDataset, UnknownFormat
from acqstream.formats.ndtiff.entry_walk import EntryFacts, walk_entries
from acqstream.formats.ndtiff.folders import has_ndtiff_mark, parse_stack_name, stack_paths
from acqstream.formats.ndtiff.index_entries import INDEX_NAME
from acqstream.formats.ndtiff.page_walk import DAMAGED_DIRECTORY, IntactPage, Loss, StackFacts, walk_stack
from acqstream.formats.ndtiff.pages import axes_in, is_spaced, on_level
from acqstream.formats.ndtiff.pixels import PIXEL_TYPES, RAW
from acqstream.formats.ndtiff.stack_header import parse_json_object
from acqstream.integrity.facts import entry_agrees, has_pixel_type, stored_checksum
from acqstream.integrity.index_frames import (
    LevelReport,
    RebuiltFrame,
    doubt_odd_names,
    entry_of,
    guess_missing,
    key_of,
    settle_conflicts,
    show_axes,
)
from acqstream.log.journal import RECORD_DTYPE
from acqstream.log.journal_file import JournalContent
from acqstream.model.axes import in_order
from acqstream.model.units import count_text
from acqstream.storage.files.read_file import ReadFile
from acqstream.storage.files.small_file import read_small_file

_FEW_CONFLICTS = 2
_MAX_INDEX_BYTES = 2**31  # some 15 million frames; all entries are in memory at once

_SAME_PLACE_BYTES = 8192  # from where a page was lost to the pixels that an entry places there


@dataclass(slots=True)
class StackState:
    """End of the data of a stack file, its last frame, and whether other frames are lost."""

    data_end: int
    last: IntactPage | None = None
    has_losses: bool = False


@dataclass(slots=True)
class Rebuilt:
    """old is the index as it is, None if there is none; new what it should be."""

    old: bytes | None
    new: bytes
    report: LevelReport
    stacks: dict[str, StackState] = field(default_factory=dict)


def rebuild_index(
    folder: Path,
    *,
    level: int = 0,
    journal: JournalContent | None = None,
    stored: int = 0,
    stem: str = "",
    check_pixels: bool = False,
) -> Rebuilt:
    """The new index of a folder. level counts from 0, the full resolution.

    With a journal only published frames count; check_pixels: and only those whose pixels match their checksum. stored
    is the receipt's number of frames, stem that of the names of our stack files, "" where it is not known. Raises
    UnknownFormat without any stack file or index, UnsupportedFeature for versions 0 and 1, StorageError.
    """
    return _Rebuild(folder, level, journal, stored, stem, check_pixels=check_pixels).run()


class _Rebuild:
    """One rebuild, stack file by stack file."""

    def __init__(
        self, folder: Path, level: int, journal: JournalContent | None, stored: int, stem: str, *, check_pixels: bool
    ) -> None:
        self._folder = folder
        self._level = level
        self._journal = journal
        self._records = journal.sound_frames if journal is not None else np.empty(0, RECORD_DTYPE)
        # What an intact journal does not know was never published, or is of another dataset.
        self._knows_all = journal is not None and not journal.problem and len(self._records) >= stored
        self._stem = stem
        self._check_pixels = check_pixels
        self._report = LevelReport(str(folder))
        self._old = _read_if_there(folder / INDEX_NAME)
        self._index: EntryFacts = walk_entries(self._old or b"")
        # Of axes, in the order of entries.
        self._names = dict.fromkeys(self._index.axes(0)) if self._index.names else {}
        self._frames: list[RebuiltFrame] = []
        self._losses = RebuildLosses(self._index, self._report)
        self._conflicts: list[RebuiltFrame] = []  # page and entry have different axes
        self._compared = 0
        self._summary: Mapping[str, Any] = {}

    def run(self) -> Rebuilt:
        if self._journal is not None and not self._stem:
            self._stem = next((found[0] for found in map(parse_stack_name, self._index.names) if found), "")
        numbers = set(self._records["stack"].tolist()) or {0}
        names = _stack_names(self._folder, self._index, self._stem, numbers if self._knows_all else None, self._report)
        if not names and self._old is None:
            raise UnknownFormat(f"{self._folder}: found neither {INDEX_NAME} nor an NDTiff stack file (*.tif)")
        rebuilt = Rebuilt(self._old, b"", self._report)
        rows: dict[str, list[int]] = {}
        for row, name in enumerate(self._index.names):
            rows.setdefault(name, []).append(row)
        for name in names:
            rebuilt.stacks[name] = self._take_stack(name, rows.pop(name, []))
        for name, missing in rows.items():
            self._losses.drop(missing, f"{name!r:.200} is not a stack file of this folder")
        self._note_missing_stacks(names)
        for start, end in self._index.damage:
            self._report.dropped.add(INDEX_NAME, start, f"{end - start} bytes are not a complete entry")
        # Where most entries disagree with their pages it is the writer's way: its metadata came from elsewhere.
        if len(self._conflicts) <= max(_FEW_CONFLICTS, self._compared // 2):
            settle_conflicts(self._frames, self._conflicts, self._index, self._level, self._report)
        doubt_odd_names(self._frames, self._report)
        guess_missing(self._frames, self._summary, self._level, self._report)
        self._losses.report(self._frames)
        rebuilt.new = self._join()
        self._report.changed = rebuilt.new != self._old
        return rebuilt

    def _take_stack(self, name: str, rows: list[int]) -> StackState:
        file = ReadFile(self._folder / name)
        try:
            facts = walk_stack(file)
            self._note_header(name, facts)
            if self._knows_all:
                facts.losses.clear()  # the journal knows every frame: what else is torn was never published
            state = StackState(facts.data_end, has_losses=bool(facts.losses))
            self._losses.torn[name] = facts.losses
            pages = {found.page.pixels: found for found in facts.pages}
            # Pages, entries and journal records of one frame have the offset of its pixels in common.
            entries = self._choose_entries(rows, pages)
            records = self._records_of(_stack_order(name)[1])
            # In file order, as every known writer appends its entries.
            for offset in sorted(pages.keys() | entries.keys() | records.keys()):
                found, row = pages.get(offset), entries.get(offset, -1)
                if offset in records:
                    is_taken = self._take_recorded(file, records[offset], found, row)
                elif self._journal is not None and not self._was_published(facts, found, row):
                    self._losses.drop([row], "the journal does not know this frame")
                    continue
                else:
                    is_taken = self._take_unrecorded(file, facts, found, row)
                state.has_losses |= not is_taken
                if is_taken:
                    state.last = found
            return state
        finally:
            file.close()

    def _records_of(self, stack: int) -> dict[int, np.void]:
        """The journal's records of the frames of one stack file, by pixel offset."""
        return {int(record["offset"]): record for record in self._records[self._records["stack"] == stack]}

    def _choose_entries(self, rows: list[int], pages: Mapping[int, IntactPage]) -> dict[int, int]:
        """One row for every pixel offset: of several entries the one that agrees with the page."""
        chosen: dict[int, int] = {}
        for row, offset in zip(rows, self._index.numbers["pixel_offset"][rows].tolist(), strict=True):
            other = chosen.setdefault(offset, row)
            if other != row:
                found = pages.get(offset)
                is_better = found is not None and self._agrees(row, found) and not self._agrees(other, found)
                chosen[offset], dropped = (row, other) if is_better else (other, row)
                self._losses.drop([dropped], "another entry names the same pixels")
        return chosen

    def _note_header(self, name: str, facts: StackFacts) -> None:
        self._summary = self._summary or facts.summary
        if facts.header_problem:
            text = f"{name}: {facts.header_problem}"
            if not facts.pages:
                text += "; other readers refuse a folder with such a file: move it elsewhere"
            self._report.notes.append(text)
        elif not facts.is_finished:
            self._report.notes.append(f"{name}: its writer did not finish it")

    def _was_published(self, facts: StackFacts, found: IntactPage | None, row: int) -> bool:
        """A frame without a record; it was published if the journal lost its record."""
        if self._knows_all or found is None:
            return False
        return facts.is_finished or (row >= 0 and self._agrees(row, found))

    def _take_recorded(self, file: ReadFile, record: np.void, found: IntactPage | None, row: int) -> bool:
        """A frame of the journal; False if it is lost."""
        name, offset, length = file.path.name, int(record["offset"]), int(record["length"])
        # A record may be on the disk before its pixels, if the power failed.
        if offset + length > file.size():
            text = f"pixels end at byte {offset + length}, after the end of the file at {file.size()}"
            return self._losses.add(name, offset, text, row)
        if self._check_pixels and stored_checksum(file, offset, length) != int(record["checksum"]):
            return self._losses.add(name, offset, "pixels differ from their checksum in the journal", row)
        kind = int(record["pixel_type"])
        is_same_kind = row >= 0 and int(self._index.numbers["pixel_type"][row]) == kind
        # The entry first: its bytes are kept, so that a sound index stays the same bit for bit.
        if (
            found is not None
            and is_same_kind
            and self._agrees(row, found)
            and not _is_of_another(file, record, found, self._index.axes(row))
        ):
            self._frames.append(self._confirmed(name, row, found))
            return True
        if found is not None and found.axes is not None and has_pixel_type(found.page, kind, length):
            self._losses.drop([row], "does not agree with the journal and the page at its place")
            entry = entry_of(found, in_order(found.axes, self._names), name, kind, spaced=False)
            self._frames.append(RebuiltFrame(name, offset, entry))
            return True
        if is_same_kind and _is_readable(self._index, self._level, file, row):
            return self._keep_entry(name, row, "the axes are those of the old index")
        return self._losses.add(name, offset, f"{DAMAGED_DIRECTORY}, and no entry tells its axes", row)

    def _take_unrecorded(self, file: ReadFile, facts: StackFacts, found: IntactPage | None, row: int) -> bool:
        """A frame known from pages and old entries alone; False if it is lost."""
        name = file.path.name
        if found is None:
            return self._take_entry(file, row)
        offset = found.page.pixels
        doubt = found.doubt
        if self._journal is not None:
            doubt = doubt or "the journal's record of it is lost, and with it its checksum"
        if row >= 0 and self._agrees(row, found):
            frame = self._confirmed(name, row, found)
        else:
            self._losses.drop([row], "does not agree with the page at its place")
            # In a file of a known layout the directory is wrong then, and so is the offset of the pixels.
            if facts.is_regular and not found.is_regular:
                text = f"{DAMAGED_DIRECTORY}: it places the frame unlike the other pages"
                self._losses.torn[name].append(Loss(found.page.directory, text))  # an old entry may tell where it is
                return False
            if found.pixel_type is None:
                page = found.page
                text = f"{page.pixel_bytes} bytes for {page.width} x {page.height} pixels: compressed, or"
                self._losses.torn[name].append(Loss(page.directory, f"{text} {DAMAGED_DIRECTORY}"))
                return False
            if not found.is_regular:
                doubt = doubt or "written by an unknown program: places are as the page's directory says"
            frame = RebuiltFrame(name, offset, b"", found=found)
            if found.axes is not None:
                spaced = is_spaced(file.read(found.page.metadata, found.metadata_bytes))
                axes = in_order(on_level(found.axes, self._level), self._names)
                frame.entry = entry_of(found, axes, name, found.pixel_type, spaced=spaced)
                frame.found = None
        if doubt:
            self._report.guessed.add(name, offset, doubt)
        self._frames.append(frame)
        return True

    def _confirmed(self, name: str, row: int, found: IntactPage) -> RebuiltFrame:
        """The frame of an old entry that agrees with its page."""
        frame = RebuiltFrame(name, found.page.pixels, self._index.entry(row), row)
        if found.axes is not None:
            self._compared += 1
            if on_level(found.axes, self._level) != self._index.axes(row):
                frame.found = found
                self._conflicts.append(frame)
        return frame

    def _take_entry(self, file: ReadFile, row: int) -> bool:
        """An old entry without a page; its directory may be damaged and its frame intact."""
        numbers = self._index.numbers[row]
        name, offset = file.path.name, int(numbers["pixel_offset"])
        kind = PIXEL_TYPES.get(int(numbers["pixel_type"]))
        length = int(numbers["width"]) * int(numbers["height"]) * (kind.pixel_bytes if kind is not None else 0)
        # Known writers put metadata right after raw pixels. Without a page, an entry with other offsets is not trusted.
        is_between = int(numbers["metadata_offset"]) == offset + length and int(numbers["pixel_compression"]) in RAW
        if kind is not None and is_between and _is_readable(self._index, self._level, file, row):
            return self._keep_entry(name, row, "the place is that of the old index")
        self._losses.drop([row], "no complete frame lies at its place")
        return False

    def _keep_entry(self, name: str, row: int, why: str) -> bool:
        """Take a frame by its old entry; always True."""
        offset = int(self._index.numbers["pixel_offset"][row])
        self._report.guessed.add(name, offset, f"{DAMAGED_DIRECTORY}: {why}")
        self._losses.placed_by_entry.append((name, offset))
        self._frames.append(RebuiltFrame(name, offset, self._index.entry(row), row))
        return True

    def _agrees(self, row: int, found: IntactPage) -> bool:
        """Return True if an old entry describes the frame of its page."""
        numbers, page = self._index.numbers[row], found.page
        is_compressed = int(numbers["pixel_compression"]) not in RAW
        if int(numbers["metadata_compression"]) not in RAW or is_compressed != (found.pixel_type is None):
            return False
        # TIFF counts the zero byte that ends a text; the index need not.
        without_nul = page.metadata_bytes - (self._journal is not None)  # as our writer counts
        lengths = (found.metadata_bytes, page.metadata_bytes, without_nul)
        return entry_agrees(numbers, page, lengths, is_compressed=is_compressed)

    def _note_missing_stacks(self, names: list[str]) -> None:
        if self._journal is None:
            self._report.notes.extend(_gaps_between(names))
            return
        by_number = {_stack_order(name)[1] for name in names}
        for number in np.unique(self._records["stack"]).tolist():
            if number not in by_number:
                name = f"{self._stem}_{number}.tif" if number else f"{self._stem}.tif"
                for offset in self._records_of(number):
                    self._losses.add(name, offset, "the stack file is missing")

    def _join(self) -> bytes:
        frames = self._frames
        rows = [frame.row for frame in frames if frame.row >= 0]
        # Frames of an old index keep its order, also where that is not file order; new ones come after them.
        if rows != sorted(rows):
            frames = sorted(frames, key=lambda frame: (frame.row < 0, frame.row))
        is_kept = [frame.row >= 0 and frame.entry == self._index.entry(frame.row) for frame in frames]
        self._report.kept, self._report.recovered = is_kept.count(True), is_kept.count(False)
        if self._journal is None and self._report.recovered:
            hidden = len(frames) - len({key_of(frame.axes()) for frame in frames})
            if hidden:
                text = f"{count_text(hidden, 'frame', 'have')} the axes of a later one, which readers show instead"
                self._report.notes.append(text)
        return b"".join([frame.entry for frame in frames])


def _is_readable(index: EntryFacts, level: int, file: ReadFile, row: int) -> bool:
    """Return True if an entry's metadata are intact, and tell the entry's axes if they tell any."""
    numbers = index.numbers[row]
    offset, length = int(numbers["metadata_offset"]), int(numbers["metadata_length"])
    content = file.read(offset, length)
    # JSON has no zero bytes: here is a hole, or the writer died before it wrote this.
    if len(content) < length or not content.startswith(b"{") or b"\0" in content:
        return False
    try:
        axes = axes_in(parse_json_object(content, file.path.name, offset))
    except CorruptDataset:
        return False
    return axes is None or on_level(axes, level) == index.axes(row)


def _is_of_another(file: ReadFile, record: np.void, found: IntactPage, axes: Mapping[str, Any]) -> bool:
    """Return True if the metadata, which are as they were stored, tell other axes than an entry."""
    if found.axes is None or found.axes == axes:
        return False
    metadata = file.read(found.page.metadata, found.metadata_bytes)
    return xxhash.xxh3_64_intdigest(metadata) == int(record["metadata_checksum"])


def _stack_names(
    folder: Path, index: EntryFacts, stem: str, numbers: Set[int] | None, report: LevelReport
) -> list[str]:
    """The stack files of this dataset in order of their numbers; all other TIFF files are noted and left alone.

    stem is that of our writer's names, "" for another writer; numbers are those that an intact journal knows.
    """
    indexed = dict.fromkeys(index.names)
    stems = {stem} if stem else {found[0] for found in map(parse_stack_name, indexed) if found}
    names = []
    for path in stack_paths(folder):
        found = parse_stack_name(path.name)
        is_known = found is not None and found[0] in stems and (numbers is None or found[1] in numbers)
        if not stem:
            is_known |= path.name in indexed or (not indexed and (found is not None or has_ndtiff_mark(path)))
        if is_known:
            names.append(path.name)
        else:
            text = "neither journal nor index knows it" if has_ndtiff_mark(path) else "it is not a stack file"
            report.notes.append(f"{path.name} does not belong to the dataset and is left alone: {text}")
    return sorted(names, key=_stack_order)


def _stack_order(name: str) -> tuple[str, int]:
    return parse_stack_name(name) or (name, 0)


def _gaps_between(names: list[str]) -> Iterator[str]:
    """Texts on numbers that no stack file has; those after the last one are unknown."""
    for (stem, number), (next_stem, next_number) in itertools.pairwise([("", -1), *map(_stack_order, names)]):
        first = number + 1 if stem == next_stem else 0
        if first < next_number:
            yield f"stack files {first} to {next_number - 1} of {next_stem} are not there"


def _read_if_there(path: Path) -> bytes | None:
    if not path.exists():
        return None
    return read_small_file(path, _MAX_INDEX_BYTES)


class RebuildLosses:
    """Losses of one rebuild. `report` puts each lost frame into the level's report once, however often it was met.

    torn are the losses that the walks through the pages met, by stack file: places, not yet frames. placed_by_entry
    are stack file and pixel offset of frames that only their old entry places: what is torn there is not lost.
    """

    def __init__(self, index: EntryFacts, report: LevelReport) -> None:
        self._index = index
        self._report = report
        self.torn: dict[str, list[Loss]] = {}
        self.placed_by_entry: list[tuple[str, int]] = []
        self._frames: dict[str, list[Loss]] = {}  # by stack file
        self._dropped: list[int] = []  # rows of old entries

    def drop(self, rows: list[int], why: str) -> None:
        """Leave out old entries; row -1 stands for a frame without one."""
        for row in rows:
            if row >= 0:
                self._dropped.append(row)
                self._report.dropped.add(INDEX_NAME, self._index.starts[row], why)

    def add(self, name: str, offset: int, why: str, row: int = -1) -> bool:
        """Count a frame as lost, and drop its old entry. Always False: the frame is not taken."""
        self._forget_torn(name, offset)
        self._frames.setdefault(name, []).append(Loss(offset, why))
        self.drop([row], "its frame is lost")
        return False

    def report(self, frames: Sequence[RebuiltFrame]) -> None:
        """Report frames that are lost by the pages or the journal, and those known from a dropped entry only.

        frames are those of the new index.
        """
        for name, offset in self.placed_by_entry:
            self._forget_torn(name, offset)
        self._add_dropped(frames)
        for name in dict.fromkeys([*self.torn, *self._frames]):
            losses = [*self.torn.get(name, []), *self._frames.get(name, [])]
            for loss in sorted(losses, key=lambda loss: loss.offset):
                self._report.lost.add(name, loss.offset, loss.reason)

    def _add_dropped(self, frames: Sequence[RebuiltFrame]) -> None:
        """Dropped entries whose frame is neither in the new index under its axes nor counted as lost already."""
        if not self._dropped:
            return  # a clean rebuild need not compare the axes of all frames
        keys = {key_of(frame.axes()) for frame in frames}
        places = {(frame.stack, frame.offset) for frame in frames}
        places |= {(name, loss.offset) for name, losses in self._frames.items() for loss in losses}
        for row in self._dropped:
            name, offset = self._index.names[row], int(self._index.numbers["pixel_offset"][row])
            axes = self._index.axes(row)
            if key_of(axes) not in keys and (name, offset) not in places:
                places.add((name, offset))
                reason = self._forget_torn(name, offset) or "it is not in the file"
                text = f"the frame at {show_axes(axes)} of the old index: {reason}"
                self._frames.setdefault(name, []).append(Loss(offset, text))

    def _forget_torn(self, name: str, offset: int) -> str:
        """Replace the loss of a page at the place of a frame by the frame itself. The page's reason, or ""."""
        torn = self.torn.get(name, [])
        near = [loss for loss in torn if 0 <= offset - loss.offset <= _SAME_PLACE_BYTES]
        if not near:
            return ""
        last = max(near, key=lambda loss: loss.offset)  # the page nearest before the pixels
        torn.remove(last)
        return last.reason
