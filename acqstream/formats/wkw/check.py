"""Looks for whatever breaks the format in a dataset, and reads all of its cubes.

Stricter than reading: lengths of files, ends of jump tables and the place of the first block are to be exact, which the
reference library tolerates and webKNOSSOS does not. Source: webknossos-wrap, format description version 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from acqstream.errors import CorruptDataset, UnsupportedFeature
from acqstream.formats.check_report import CheckReport
from acqstream.formats.chunk_format import ChunkCounts
from acqstream.formats.wkw.axes import Place
from acqstream.formats.wkw.cube_folder import CubeFolder
from acqstream.formats.wkw.cube_paths import Cube, cube_path
from acqstream.formats.wkw.header import HEADER_NAME, BlockType, Header
from acqstream.formats.wkw.jump_table import ENTRY_BYTES, decode_positions, table_position
from acqstream.formats.wkw.opening import find_layers
from acqstream.formats.wkw.reader import WkwReader, boundary_of, open_readers
from acqstream.storage.files.read_file import ReadFile
from acqstream.storage.stores.data_path import ReadPlace


def check_container(container: ReadPlace, report: CheckReport) -> ChunkCounts:
    """Check all arrays at `container`; what is wrong goes to `report`. Raises StorageError."""
    try:
        with boundary_of(container).inside():
            layers: Sequence[str | None] = find_layers(container) or [None]
        readers = [reader for layer in layers for reader in open_readers(container, layer)]
    except CorruptDataset as error:
        report.add_error(error)
        return ChunkCounts(0, 0, 0, 0)
    except UnsupportedFeature as error:
        report.add_problem(container, str(error).removeprefix(f"{container}: "))
        return ChunkCounts(0, 0, 0, 0)
    counts = [0, 0]  # chunks that were there, bytes they held
    for reader in readers:
        try:
            for place, folder in reader.folders():
                _check_folder(reader, place, folder, report, counts)
        except CorruptDataset as error:
            report.add_error(error)
        except UnsupportedFeature as error:
            report.add_problem(container, str(error).removeprefix(f"{container}: "))
    expected = sum(math.prod(reader.spec.grid_shape) for reader in readers)
    return ChunkCounts(len(readers), counts[0], expected - counts[0], counts[1])


def _check_folder(reader: WkwReader, place: Place, folder: CubeFolder, report: CheckReport, counts: list[int]) -> None:
    """One layer at one magnification; adds to counts."""
    path = folder.path / HEADER_NAME
    if folder.header.data_offset:
        text = f"{HEADER_NAME} says that blocks begin at byte {folder.header.data_offset}, expected 0"
        if folder.header.block_type is BlockType.RAW:
            report.add_note(f"{path}: {text}")
        else:
            report.add_problem(path, text, offset=8)
    for cube in folder.cubes():
        positions = list(reader.positions_in(place, folder, cube))
        counts[0] += len(positions)
        report.own_files.add((folder.path / cube_path(cube)).path)
        if not positions:
            report.add_note(f"{folder.path / cube_path(cube)}: lies beyond the array")
        with reader.boundary.inside():
            is_sound = _cube_is_sound(folder, cube, report)
        if not is_sound:
            continue
        for position in positions:
            try:
                chunk = reader.read_chunk(position)
            except CorruptDataset as error:
                report.add_error(error)
            else:
                counts[1] += 0 if chunk is None else chunk.nbytes
            report.on_progress("reading", counts[1], 0)


def _cube_is_sound(folder: CubeFolder, cube: Cube, report: CheckReport) -> bool:
    """Return True if reading blocks of a cube file can tell more than its header, length and jump table do."""
    path = folder.path / cube_path(cube)
    try:
        file = path.open()
        header = folder.read_header(cube)
        problems = list(_problems(file, header))
    except CorruptDataset as error:
        report.add_error(error)
        return False
    except UnsupportedFeature as error:
        report.add_problem(path, str(error).removeprefix(f"{path}: "))
        return False
    for text, offset in problems:
        report.add_problem(file.path, text, offset=offset)
    return not problems


def _problems(file: ReadFile, header: Header) -> Iterator[tuple[str, int]]:
    size = file.size()
    if header.data_offset != header.first_block:
        yield f"the first block lies at byte {header.data_offset}, expected {header.first_block}", 8
    if header.block_type is BlockType.RAW:
        if size != header.raw_file_bytes:
            yield f"a raw cube of {size} bytes, expected {header.raw_file_bytes}", min(size, header.raw_file_bytes)
        return
    table = file.read(table_position(0), (header.block_count + 1) * ENTRY_BYTES)
    if len(table) < (header.block_count + 1) * ENTRY_BYTES:
        yield f"{size} bytes, which is less than the jump table takes: expected at least {header.first_block}", size
        return
    end = int(decode_positions(table, 0, header, size, str(file.path))[-1])
    if end != size:
        yield f"the last block ends at byte {end}, the file has {size}", table_position(header.block_count)
