"""Checks a container: every chunk and every document is read once, and what breaks the format is reported."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from acqstream.arrays.array_spec import Position
from acqstream.errors import CorruptDataset, DatasetError, UnsupportedFeature
from acqstream.formats.check_report import CheckReport
from acqstream.formats.chunk_format import ChunkCounts
from acqstream.formats.chunk_layout import ChunkLayout
from acqstream.formats.chunk_reader import ChunkReader, ReadLayout, open_layout, requested_store
from acqstream.storage.stores.data_path import DataPath
from acqstream.storage.stores.store import Store

CheckChunk = Callable[[ChunkReader, Position, CheckReport], int]
"""Reads a chunk and reports what is wrong with it. Returns the bytes of its items."""


def outside_text(reader: ChunkReader, position: Position) -> str:
    """The note on a chunk outside the grid."""
    return f"{reader.place(position)} lies outside the array"


def check_chunk(reader: ChunkReader, position: Position, report: CheckReport) -> int:
    """See CheckChunk."""
    try:
        chunk = reader.read_chunk(position)
    except (CorruptDataset, UnsupportedFeature) as error:
        report.add_error(error, reader.place(position))
        return 0
    return 0 if chunk is None else chunk.nbytes


def check_levels(
    readers: Iterable[ChunkReader],
    report: CheckReport,
    outside: Callable[[ChunkReader, Position], str] | None = outside_text,
    check: CheckChunk = check_chunk,
    items: str = "chunks",
) -> ChunkCounts:
    """Read all stored chunks of these levels. outside: the note on a chunk outside the grid; None: none is made.

    items: what the format calls its chunks, for progress. Raises StorageError.
    """
    arrays = chunks = missing = payload_bytes = 0
    for reader in readers:
        arrays += 1
        count = 0
        for position in reader.stored_anywhere(report.add_error):
            report.on_progress(f"reading {items}", payload_bytes, 0)
            if reader.has(position):
                count += 1
                payload_bytes += check(reader, position, report)
            elif outside is not None:
                report.add_note(outside(reader, position))
        chunks += count
        missing += math.prod(reader.spec.grid_shape) - count
    return ChunkCounts(arrays, chunks, missing, payload_bytes)


def open_checked(
    open_readers: Callable[[DataPath], Sequence[ChunkReader]],
    path: DataPath,
    report: CheckReport,
    caught: type[DatasetError] | tuple[type[DatasetError], ...] = CorruptDataset,
) -> Sequence[ChunkReader]:
    """The readers at a path; () if their metadata are wrong in a way that is `caught`, which is reported."""
    try:
        return open_readers(path)
    except caught as error:
        report.add_error(error, path)
    return ()


def check_documents(
    store: Store, documents: Mapping[str, bytes], report: CheckReport, missing: str, other: str
) -> None:
    """Compare documents with those in a store. missing, other: the problem of one that is missing, or that differs."""
    for key, expected in documents.items():
        found = store.get(key, 0, len(expected) + 1)
        if found != expected:
            report.add_problem(f"{store.url}/{key}", missing if found is None else other)


def check_layout(
    path: DataPath,
    read_layout: ReadLayout,
    report: CheckReport,
    documents: Callable[[ChunkLayout], Iterable[Mapping[str, bytes]]] = lambda _layout: (),
    texts: tuple[str, str] = ("is missing", "differs from what the layout states"),
) -> ChunkCounts:
    """Read every chunk of a container of ours, and the documents of a complete one; chunks outside the grid are noted.

    texts: the problem of a document that is missing, and of one that differs.
    """
    counts = check_levels(open_checked(lambda place: open_layout(place, read_layout), path, report), report)
    if not counts.arrays:
        return counts  # the note is damaged
    store = requested_store(path)
    layout, complete = read_layout(store)
    for some in documents(layout) if complete else ():  # before the end, our note is ahead of the documents
        check_documents(store, some, report, *texts)
    return counts
