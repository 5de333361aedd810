"""Reads every chunk and every document, and reports whatever breaks the format."""

from __future__ import annotations

import math

from acqstream.errors import CorruptDataset, UnsupportedFeature
from acqstream.formats.check_report import CheckReport
from acqstream.formats.chunk_format import ChunkCounts
from acqstream.formats.container_check import check_layout
from acqstream.formats.hsds.dataset_reader import DatasetReader
from acqstream.formats.hsds.notes import NOTE_NAME
from acqstream.formats.hsds.opening import container_of, is_by_reference, open_dataset, read_layout
from acqstream.formats.hsds.reference_check import check_references
from acqstream.storage.read_place import ReadPlace


def check(path: ReadPlace, report: CheckReport) -> ChunkCounts:
    """All levels of a container of ours with the documents for the server, or the one dataset that a path means."""
    container = container_of(path)
    if container is not None and is_by_reference(container):
        return check_references(container, report)
    if container is not None:
        counts = check_layout(container, read_layout, report)
        if counts.arrays:
            _check_documents(container, report)
        return counts
    try:
        reader = open_dataset(path)
        return _check_dataset(reader, report)
    except CorruptDataset as error:
        report.add_error(error)
        return ChunkCounts(0, 0, 0, 0)


def _check_documents(container: ReadPlace, report: CheckReport) -> None:
    """Compare the documents of a complete container with those that its note means."""
    store = container.store(follows_links=False)
    layout, complete = read_layout(store)
    if not complete:
        return  # our note comes before them
    for key, content in layout.documents(complete=True).items():
        stored = store.get(key, 0, len(content) + 1)
        if stored is None:
            report.add_problem(f"{store.url}/{key}", "is missing; HSDS servers need it")
        elif stored != content:
            report.add_problem(f"{store.url}/{key}", f"differs from what {NOTE_NAME} states")


def _check_dataset(reader: DatasetReader, report: CheckReport) -> ChunkCounts:
    if reader.only_shuffles:
        report.add_note(f"{reader.path} declares shuffle without compression: HSDS 1.0.2 returns other values")
    chunks = payload_bytes = 0
    grid = reader.spec.grid_shape
    for position in reader.stored_anywhere():
        report.on_progress("reading chunks", payload_bytes, 0)
        is_inside = len(position) == len(grid) and all(at < size for at, size in zip(position, grid, strict=True))
        if not is_inside:
            report.add_note(f"{reader.path}: the chunk {position} lies outside the array")
            continue
        chunks += 1
        try:
            chunk = reader.read_chunk(position)
        except CorruptDataset as error:
            report.add_error(error)
        except UnsupportedFeature as error:
            report.add_problem(reader.place(position), str(error))
        else:
            payload_bytes += 0 if chunk is None else int(chunk.nbytes)
    return ChunkCounts(1, chunks, math.prod(grid) - chunks, payload_bytes)
