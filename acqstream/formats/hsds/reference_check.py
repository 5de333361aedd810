"""Checks a container whose pixels stay in the stacks: its documents, its chunk table, and the stacks that it names."""

from __future__ import annotations

import math

import numpy as np

from acqstream.arrays.array_spec import Position
from acqstream.errors import CorruptDataset, DatasetError
from acqstream.formats.check_report import CheckReport
from acqstream.formats.chunk_format import ChunkCounts
from acqstream.formats.hsds.reference_reader import Records, ReferenceReader
from acqstream.storage.stores.data_path import ReadPlace

_NO_COUNTS = ChunkCounts(0, 0, 0, 0)


def check_references(container: ReadPlace, report: CheckReport) -> ChunkCounts:
    """Check every entry of the table: its stack exists, and has the bytes. Pixels are not read.

    payload_bytes are those of the frames that it refers to.
    """
    try:
        reader = ReferenceReader(container, follows_links=False)
        reader.stacks.check()
    except CorruptDataset as error:
        report.add_error(error)
        return _NO_COUNTS
    except DatasetError as error:
        report.add_problem(str(container), str(error))
        return _NO_COUNTS
    note, frames = reader.layout.note, 0
    sizes: dict[str, int | None] = {}  # of stacks
    chunks = list(reader.table_chunks())
    for done, chunk in enumerate(chunks):
        report.on_progress("checking the chunk table", done, len(chunks))
        try:
            records = reader.records(chunk)
        except CorruptDataset as error:
            report.add_error(error)
            continue
        if records is None:
            continue  # no frame of it has come
        frames += int(np.count_nonzero(records["size"]))
        _check_entries(reader, chunk, records, sizes, report)
    if note.complete:
        _check_documents(reader, report)
    places = math.prod(note.spec.shape[: len(note.steps)])
    return ChunkCounts(1, frames, places - frames, frames * note.spec.chunk_bytes)


def _check_entries(
    reader: ReferenceReader, chunk: Position, records: Records, sizes: dict[str, int | None], report: CheckReport
) -> None:
    note = reader.layout.note
    where = reader.table_where(tuple(n * step for n, step in zip(chunk, note.steps, strict=True)))
    present = records[records["size"] != 0]
    if (present["size"] != note.spec.chunk_bytes).any() or (present["offset"] < 0).any():
        report.add_problem(where, f"has frames of another size, expected {note.spec.chunk_bytes} bytes")
        return
    for uri in np.unique(present["file_uri"]):
        ends = present["offset"][present["file_uri"] == uri] + note.spec.chunk_bytes
        try:
            stack = reader.stack_of(present[present["file_uri"] == uri][0], where)
        except CorruptDataset as error:
            report.add_error(error)
            continue
        if stack not in sizes:
            sizes[stack] = reader.stacks.size(stack)
            if sizes[stack] is None:
                report.add_problem(f"{reader.stacks.place}/{note.stack_path(stack)}", "this stack is missing")
        size = sizes[stack]
        if size is not None and int(ends.max()) > size:
            text = f"has a frame that ends at {int(ends.max())} in {stack}, which has {size} bytes"
            report.add_problem(where, text)


def _check_documents(reader: ReferenceReader, report: CheckReport) -> None:
    """Compare the documents for a server with those that the note of a complete container means."""
    store = reader.path.store(follows_links=False)
    for key, content in reader.layout.documents():
        stored = store.get(key, 0, len(content) + 1)
        if stored is None:
            report.add_problem(f"{store.url}/{key}", "is missing; HSDS servers need it")
        elif stored != content:
            report.add_problem(f"{store.url}/{key}", "differs from what our note states")
