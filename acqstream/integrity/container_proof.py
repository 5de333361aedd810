"""Proves a dataset in a chunk format by reading every stored chunk, and by the checksums that our writer kept.

The lists of checksums (docs/decisions/040-checksum-lists.md) lie in the folder of the view beside the container, or
inside it (mirrors of earlier versions). A copy of both is proved on any machine, without the log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from acqstream.errors import CorruptDataset
from acqstream.formats.check_report import CheckReport, Problem
from acqstream.formats.checksum_list import (
    DOCUMENT,
    FOLDER,
    NOTE_KEY,
    ChecksumNote,
    ChecksumPage,
    ListEnd,
    list_number,
    parse_note,
    read_pages,
)
from acqstream.formats.chunk_format import ChunkFormat
from acqstream.formats.chunk_reader import read_document
from acqstream.model.units import count_text
from acqstream.storage.files.boundary import requested_links
from acqstream.storage.files.small_file import MAX_FILE_BYTES
from acqstream.storage.stores.data_path import DataPath, data_path_of
from acqstream.storage.stores.store import Store

_NOTES = ("acqstream-volume.json", "acqstream-array.json", "acqstream-hsds.json")
_DOCUMENTS = ("attributes.json", "zarr.json", ".zattrs")  # with a note under the key `acqstream`

MAX_LIST_BYTES = 2**31  # some 30 million chunks
_PIECE_BYTES = 2**23  # of an object, at a time


@dataclass(slots=True, kw_only=True)
class ChunkVerification:
    """Counts of what was read. arrays counts all levels; missing counts absent chunks, which is not a problem: such
    formats are sparse. payload_bytes are those of the items. problems are the first ones of problem_count. proved and
    not_proved say what the checksums of the container show.
    """

    path: str
    format: str
    arrays: int
    chunks: int
    missing: int
    payload_bytes: int
    proved: list[str] = field(default_factory=list)
    not_proved: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    note_count: int = 0
    problem_count: int = 0
    problems: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Nothing is wrong with what there is."""
        return not self.problem_count


def verify_chunks(
    path: Path, found: ChunkFormat[Any], on_progress: Callable[[str, int, int], None] | None = None
) -> ChunkVerification:
    """Read all chunks of the container at `path`, all of its arrays. Raises StorageError."""
    report = CheckReport() if on_progress is None else CheckReport(on_progress)
    container = found.folder(data_path_of(path))
    counts = found.check(container, report)
    before = report.problem_count
    sums = verify_checksums(container, report, has_chunks=counts.chunks + counts.missing > 0)
    if sums is None and counts.missing and is_ours(container):
        lists = "and with them the lists of checksums that name all that was stored"
        text = f"{count_text(counts.missing, 'chunk', 'are')} missing, {lists}: they are in {container.name}.view, "
        text += "which is copied beside the container"
        report.add_problem(container, text)
    proved, not_proved = _told(sums, container, is_sound=report.problem_count == before)
    return ChunkVerification(
        path=str(container),
        format=found.name,
        arrays=counts.arrays,
        chunks=counts.chunks,
        missing=counts.missing,
        payload_bytes=counts.payload_bytes,
        proved=proved,
        not_proved=not_proved,
        notes=report.notes,
        note_count=report.note_count,
        problem_count=report.problem_count,
        problems=report.problems,
    )


def is_ours(container: DataPath) -> bool:
    """Whether a note of our writer is in the container; such a mirror keeps lists of checksums."""
    store = container.store(follows_links=requested_links() is True)
    if any(store.size(name) is not None for name in _NOTES):
        return True
    return any(b'"acqstream"' in (store.get(name, 0, MAX_FILE_BYTES) or b"") for name in _DOCUMENTS)


def _told(sums: ChecksumCounts | None, container: DataPath, *, is_sound: bool) -> tuple[list[str], list[str]]:
    """What is proved by the checksums, and what is not."""
    if sums is None:
        where = f"; a mirror has it in {container.name}.view beside it" if is_ours(container) else ""
        return [], [f"that this is what was stored: there is no list of checksums{where}"]
    text = f"{count_text(sums.chunks, 'chunk')} and {count_text(sums.documents, 'document', 'are')} "
    text += "as they were stored (XXH3-64)"
    proved = [text] if is_sound and sums.chunks + sums.documents else []
    if not sums.covers_all:
        return proved, ["that every chunk is as it was stored: the lists of checksums are not complete"]
    return proved, []


@dataclass(frozen=True, slots=True)
class ChecksumCounts:
    """Chunks and documents that were compared. covers_all: every chunk of the container has a checksum, and no writer
    is at work.
    """

    chunks: int
    documents: int
    covers_all: bool


class _Records:
    """The records of all lists in the order in which they were written, as columns."""

    def __init__(self, axes: int) -> None:
        self.keys: list[str] = []
        self._numbers: dict[str, int] = {}
        self._parts: list[NDArray[np.uint64]] = []
        self._axes = axes

    def add(self, page: ChecksumPage) -> None:
        """Append a page. Raises ValueError if it is about another array."""
        records = page.records
        if records["position"].shape[1] != self._axes:
            raise ValueError(f"records with {records['position'].shape[1]} axes, expected {self._axes}")
        columns = np.zeros((len(records), 5 + self._axes), np.uint64)
        places = np.stack([records["key_offset"], records["key_length"]], axis=1)
        own, which = np.unique(places, axis=0, return_inverse=True)
        numbers = [self._number(page.text[first : first + size]) for first, size in own.tolist()]
        columns[:, 0] = np.array(numbers, np.uint64)[which.reshape(-1)] if len(records) else 0
        for column, name in enumerate(("offset", "length", "checksum", "level"), 1):
            columns[:, column] = records[name]
        columns[:, 5:] = records["position"]
        self._parts.append(columns)

    def latest(self, *, has_fixed_places: bool) -> NDArray[np.uint64]:
        """Rows (key, offset, length, checksum, level, position...) that no later one supersedes, by key and offset."""
        rows = np.concatenate(self._parts) if self._parts else np.zeros((0, 5 + self._axes), np.uint64)
        rows = rows[::-1]  # the first of equal ones is found
        is_document = rows[:, 4] == DOCUMENT
        same = rows[:, 4:].copy()
        # A document is known by its key, a chunk by its position; it has several places only if these are fixed.
        place = np.where(is_document, rows[:, 0], rows[:, 1] if has_fixed_places else np.uint64(0))
        _, first = np.unique(np.column_stack([same, place]), axis=0, return_index=True)
        kept = rows[first]
        return kept[np.lexsort((kept[:, 1], kept[:, 0]))]

    def _number(self, key: bytes) -> int:
        text = key.decode(errors="replace")  # no object has such a key
        if text not in self._numbers:
            self._numbers[text] = len(self.keys)
            self.keys.append(text)
        return self._numbers[text]


def verify_checksums(container: DataPath, report: CheckReport, *, has_chunks: bool) -> ChecksumCounts | None:
    """Compare every object with its checksum; what differs goes to `report`. None: the container has no lists.

    has_chunks: the arrays have places for chunks. Raises StorageError.
    """
    store = container.store(follows_links=requested_links() is True)
    place = container.absolute()
    beside = (place.parent / f"{place.name}.view").store(follows_links=requested_links() is True)
    lists = store if beside.size(NOTE_KEY) is None else beside
    try:
        content = read_document(lists, NOTE_KEY)
        note = None if content is None else parse_note(content, f"{lists.url}/{NOTE_KEY}")
    except CorruptDataset as error:
        report.add_error(error)
        return ChecksumCounts(0, 0, covers_all=False)  # without the note nothing says what the lists are about
    if note is None:
        return None
    records, is_closed = _Records(len(note.axes)), False
    found = [(list_number(name), name) for name in lists.children(FOLDER)]
    names = sorted((number, name) for number, name in found if number is not None)
    numbers = {number for number, _ in names}
    for number in sorted(set(range(1, max([1, *numbers]) + 1)) - numbers):
        if has_chunks:  # the first list comes before the first chunk, and each further number follows the one before
            report.add_problem(f"{lists.url}/{FOLDER}", f"list {number} of checksums is missing")
    for _, name in names:
        is_closed = _load(lists, f"{FOLDER}/{name}", records, report)
    rows = records.latest(has_fixed_places=note.has_fixed_places)
    # Of an unfinished mirror the last chunks may be newer than their list.
    hint = "" if is_closed else "; its writer has not finished: `acqstream mirror` stores it again"
    read, total = 0, int(rows[:, 2].sum())
    for row in rows:
        key = records.keys[int(row[0])]
        report.on_progress("comparing checksums", read, total)
        wrong = _difference(store, key, row.tolist())
        if wrong:
            report.add_problem(f"{store.url}/{key}", f"{_name(note, row.tolist())} {wrong}{hint}", offset=int(row[1]))
        read += int(row[2])
    documents = int((rows[:, 4] == DOCUMENT).sum())
    return ChecksumCounts(len(rows) - documents, documents, covers_all=note.covers_all and is_closed)


def _load(store: Store, key: str, records: _Records, report: CheckReport) -> bool:
    """Add the records of a list; True if it is closed."""
    where = f"{store.url}/{key}"
    content = store.get(key, 0, MAX_LIST_BYTES + 1) or b""
    if len(content) > MAX_LIST_BYTES:
        report.add_problem(where, f"has more than {MAX_LIST_BYTES} bytes: its checksums are not compared")
        return False
    for found in read_pages(content):
        if isinstance(found, ListEnd):
            if found.state == "damaged":
                report.add_problem(where, "is damaged: its checksums from here on are not compared", offset=found.end)
            return found.state == "closed"
        try:
            records.add(found)
        except ValueError as error:
            report.add_problem(where, str(error))
            return False
    return False


def _difference(store: Store, key: str, row: list[int]) -> str:
    """What is wrong with the bytes of a record; "" if nothing is."""
    _, offset, length, checksum, level, *_ = row
    try:
        size = store.size(key)
    except ValueError:  # a key that no store accepts
        return "is listed under a name that no file has"
    if size is None:
        return "is missing"
    if offset + length > size:
        return f"has been cut: the file has {size} bytes, expected at least {offset + length}"
    if level == DOCUMENT and size != length:
        return f"is not as it was stored: the file has {size} bytes, expected {length}"
    # In pieces: a hostile list may claim that one chunk is as large as the largest file of the container.
    digest, end = xxhash.xxh3_64(), offset + length
    for at in range(offset, end, _PIECE_BYTES):
        digest.update(store.get(key, at, min(_PIECE_BYTES, end - at)) or b"")
    return "" if digest.intdigest() == checksum else "is not as it was stored: its checksum differs"


def _name(note: ChecksumNote, row: list[int]) -> str:
    _, _, _, _, level, *position = row
    if level == DOCUMENT:
        return "this document"
    frames = note.frames_text(level, position)
    return f"chunk {', '.join(map(str, position))} of level {level} ({frames})"
