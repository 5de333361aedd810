"""Reads every chunk of a container and reports whatever breaks the format."""

from __future__ import annotations

import math

from acqstream.errors import CorruptDataset, UnsupportedFeature
from acqstream.formats.check_report import CheckReport
from acqstream.formats.chunk_format import ChunkCounts
from acqstream.formats.ome_zarr.container import ContainerLevel
from acqstream.formats.ome_zarr.image import ZarrLevel
from acqstream.formats.ome_zarr.opening import open_readers
from acqstream.storage.stores.data_path import ReadPlace


def check(container: ReadPlace, report: CheckReport) -> ChunkCounts:
    """All levels: documents, indices of shards and chunks. Chunks beyond the grid in a shard are no problem."""
    try:
        readers = open_readers(container)
    except CorruptDataset as error:
        report.add_error(error)
        return ChunkCounts(0, 0, 0, 0)
    chunks = missing = payload_bytes = 0
    for reader in readers:
        count = 0
        for position in reader.stored():
            report.on_progress("reading chunks", payload_bytes, 0)
            count += 1
            payload_bytes += _check_chunk(reader, position, report)
        chunks += count
        missing += math.prod(reader.spec.grid_shape) - count
    return ChunkCounts(len(readers), chunks, missing, payload_bytes)


def _check_chunk(reader: ContainerLevel | ZarrLevel, position: tuple[int, ...], report: CheckReport) -> int:
    """Bytes of items that were read."""
    try:
        chunk = reader.read_chunk(position)
    except CorruptDataset as error:
        report.add_error(error)
        return 0
    except UnsupportedFeature as error:
        report.add_problem(reader.place(position), str(error))
        return 0
    return 0 if chunk is None else int(chunk.nbytes)
