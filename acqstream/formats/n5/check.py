"""Reads every block of a container and reports whatever breaks the format."""

from __future__ import annotations

import math

from acqstream.arrays.array_spec import Position
from acqstream.errors import CorruptDataset, DatasetError, UnsupportedFeature
from acqstream.formats.check_report import CheckReport
from acqstream.formats.chunk_format import ChunkCounts
from acqstream.formats.n5.array import N5Array, open_levels
from acqstream.formats.n5.folders import find_datasets
from acqstream.storage.stores.data_path import ReadPlace

MAX_DATASETS = 1_000_000


def check(container: ReadPlace, report: CheckReport) -> ChunkCounts:
    """All datasets of a container: attributes, headers and payloads.

    What a reader may take but no writer should write is a problem, too: an inner block that is smaller than the others.
    Blocks outside the grid are noted.
    """
    folders = find_datasets(container, MAX_DATASETS)
    arrays = chunks = missing = payload_bytes = 0
    for folder in folders:
        try:
            (array,) = open_levels(folder, {})
        except CorruptDataset as error:
            report.add_error(error)
            continue
        except DatasetError as error:
            report.add_problem(folder, str(error).removeprefix(f"{folder}: "))
            continue
        arrays += 1
        there = 0
        for position in array.block_files():
            report.on_progress("reading blocks", payload_bytes, 0)
            if not all(at < size for at, size in zip(position, array.spec.grid_shape, strict=True)):
                report.add_note(f"{folder}: block {_text(position)} lies outside the array")
                continue
            there += 1
            payload_bytes += _check_block(array, position, report)
        chunks += there
        missing += math.prod(array.spec.grid_shape) - there
    if not folders:
        report.add_problem(container, "holds no array")
    return ChunkCounts(arrays, chunks, missing, payload_bytes)


def _check_block(array: N5Array, position: Position, report: CheckReport) -> int:
    """Bytes of elements that were read."""
    path = array.block_path(position)
    try:
        chunk = array.read_chunk(position)
        if chunk is None or path is None:
            return 0  # removed meanwhile
        found = array.read_header(path).shape
    except CorruptDataset as error:
        report.add_error(error)
        return 0
    except UnsupportedFeature as error:
        report.add_problem(path or array.path, str(error).removeprefix(f"{path}: "))
        return 0
    if any(size < needed for size, needed in zip(found, chunk.shape, strict=True)):
        text = f"a block of {found[::-1]} (x first), expected at least {chunk.shape[::-1]}"
        report.add_problem(path, text, offset=4)
    return int(chunk.nbytes)


def _text(position: Position) -> str:
    """As in its path: x first."""
    return "/".join(map(str, reversed(position)))
