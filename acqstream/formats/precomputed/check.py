"""Reads every chunk of a volume and reports whatever breaks the format."""

from __future__ import annotations

import math

from acqstream.errors import CorruptDataset, DatasetError, UnsupportedFeature
from acqstream.formats.check_report import CheckReport
from acqstream.formats.chunk_format import ChunkCounts
from acqstream.formats.container_check import check_layout
from acqstream.formats.precomputed.notes import NOTE_NAME
from acqstream.formats.precomputed.opening import is_container, read_layout
from acqstream.formats.precomputed.volume import VolumeReader, open_volume
from acqstream.storage.boundary import requested_links
from acqstream.storage.read_place import ReadPlace


def check(container: ReadPlace, report: CheckReport) -> ChunkCounts:
    """Check a container of ours, or a volume of any writer; what is wrong goes to `report`. Raises StorageError."""
    if not is_container(container):
        return check_volume(container, report)
    counts = check_layout(container, read_layout, report)
    if not counts.arrays:
        return counts  # the note is damaged
    store = container.store(follows_links=requested_links() is True)
    layout, complete = read_layout(store)
    for member in layout.plan.members() if complete else ():
        for key, expected in layout.member_documents(member).items():
            found = store.get(key, 0, len(expected) + 1)
            if found is None:
                report.add_problem(f"{store.url}/{key}", "is missing")
            elif found != expected:
                report.add_problem(f"{store.url}/{key}", f"does not describe the array of {NOTE_NAME}")
    return counts


def check_volume(volume: ReadPlace, report: CheckReport) -> ChunkCounts:
    """Check all scales of a volume of any writer; what is wrong goes to `report`. Raises StorageError."""
    try:
        readers = open_volume(volume)
    except CorruptDataset as error:
        report.add_error(error)
        return ChunkCounts(0, 0, 0, 0)
    except DatasetError as error:
        report.add_problem(volume, str(error).removeprefix(f"{volume}: "))
        return ChunkCounts(0, 0, 0, 0)
    chunks = missing = payload_bytes = 0
    for reader in readers:
        count = 0
        for place in reader.chunks.strangers():
            report.add_note(f"{place} belongs to no chunk")
        for position in reader.stored_with(report.add_error):
            report.on_progress("reading chunks", payload_bytes, 0)
            count += 1
            payload_bytes += _check_chunk(reader, position, report)
        chunks += count
        missing += math.prod(reader.spec.grid_shape) - count
    return ChunkCounts(len(readers), chunks, missing, payload_bytes)


def _check_chunk(reader: VolumeReader, position: tuple[int, ...], report: CheckReport) -> int:
    """Bytes of items that were read."""
    try:
        chunk = reader.read_chunk(position)
    except CorruptDataset as error:
        report.add_error(error)
        return 0
    except UnsupportedFeature as error:
        report.add_problem(reader.path, str(error).removeprefix(f"{reader.path}: "))
        return 0
    return 0 if chunk is None else chunk.nbytes
