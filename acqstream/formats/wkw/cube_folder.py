"""A folder of cubes read: `header.wkw`, and boxes of blocks out of the cube files.

Source: webknossos-wrap, format description version 1. Every file is held against `header.wkw`; only a missing one
counts as empty.
"""

from __future__ import annotations

import errno
import itertools
import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from acqstream.errors import CorruptDataset, FileMissing
from acqstream.formats.chunk_reader import RecentlyUsed
from acqstream.formats.wkw.codec import BlockOrder, block_order, decompress, scatter_blocks
from acqstream.formats.wkw.header import (
    ENTRY_BYTES,
    HEADER_BYTES,
    HEADER_NAME,
    BlockType,
    Header,
    decode_header,
    decode_positions,
    require_same_kind,
    table_position,
)
from acqstream.formats.wkw.layout import X_NAME, Y_NAME, Z_NAME, Cube, cube_path
from acqstream.storage.files.read_file import ReadFile
from acqstream.storage.stores.data_path import DataPath

_MOST_FOLDERS = 1024  # of which the headers are kept
_PIECE_BYTES = 2**22  # of a piece that is read at once; at least one block


class CubeFolder:
    """The cubes of one magnification of one layer. Holds no file open; usable from any thread.

    It is read in pieces of one layer of blocks by a square of them, which lie in one cube each: piece_shape voxels
    (z, y, x). Raises CorruptDataset with file, offset and what was expected, UnsupportedFeature, StorageError.
    """

    def __init__(self, path: DataPath) -> None:
        self.path = path
        file = path / HEADER_NAME
        try:
            self.header = decode_header(file.open().read(0, HEADER_BYTES), str(file))
        except FileMissing as error:
            raise CorruptDataset("is missing", path=str(file)) from error
        self.piece_shape = piece_shape_of(self.header)

    def cubes(self) -> Iterator[Cube]:
        """Positions of all stored cube files, in any order."""
        return find_cubes(self.path)

    def pieces_of(self, cube: Cube) -> Iterator[tuple[int, int, int]]:
        """Positions (z, y, x) of the pieces in a cube."""
        steps = [self.header.cube_side // size for size in self.piece_shape]
        for step in np.ndindex(*steps):
            z, y, x = (int(at * count + inner) for at, count, inner in zip(cube, steps, step, strict=True))
            yield z, y, x

    def read_piece(self, position: tuple[int, int, int]) -> NDArray[np.generic] | None:
        """The piece at `position` (z, y, x), counted in pieces, as a new array (z, y, x[, c]); None without a file."""
        header = self.header
        blocks = self.piece_shape[1] // header.block_side
        z, y, x = position
        (cube_z, first_z), (cube_y, first_y), (cube_x, first_x) = (
            divmod(place, header.cube_blocks) for place in (z, y * blocks, x * blocks)
        )
        path = self.path / cube_path((cube_z, cube_y, cube_x))
        try:
            file = path.open()
        except FileMissing:
            return None
        found = self._header_of(file)
        order = block_order((first_z, first_y, first_x), (1, blocks, blocks))
        read = _read_raw if header.block_type is BlockType.RAW else _read_compressed
        stored = read(file, found, order)  # first: it checks what the file may make us allocate
        voxels = np.empty((*self.piece_shape, *header.block_shape[3:]), stored.dtype)
        scatter_blocks(stored, order, voxels)
        return voxels.astype(header.dtype, copy=False)

    def read_header(self, cube: Cube) -> Header:
        """The header of a cube file, held against `header.wkw`."""
        return self._header_of((self.path / cube_path(cube)).open())

    def _header_of(self, file: ReadFile) -> Header:
        found = decode_header(file.read(0, HEADER_BYTES), str(file.path))
        require_same_kind(found, self.header, str(file.path))
        # After the jump table of a compressed cube; a smaller offset would make blocks overlap it.
        if found.data_offset < found.first_block:
            text = f"the first block lies at byte {found.data_offset}, expected {found.first_block}"
            raise CorruptDataset(text, path=str(file.path), offset=8)
        return found


class CubeFolders:
    """The folders of cubes that were read, kept while the metadata are read again; from any thread."""

    def __init__(self) -> None:
        self._kept = RecentlyUsed[DataPath, CubeFolder](_MOST_FOLDERS)

    def __reduce__(self) -> tuple[object, ...]:
        return CubeFolders, ()

    def kept(self, path: DataPath) -> CubeFolder | None:
        """A folder that was read before."""
        return self._kept.get(path)

    def get(self, path: DataPath, expected: Header) -> CubeFolder:
        """A folder whose header is of the expected kind. Raises CorruptDataset."""
        folder = self.kept(path)
        if folder is None:
            folder = CubeFolder(path)
            if replace(folder.header, data_offset=0) != replace(expected, data_offset=0):
                text = f"tells of {folder.header}, the rest of the array is of {expected}"
                raise CorruptDataset(text, path=str(path / HEADER_NAME))
            self._kept.put(path, folder, 1)
        return folder


def piece_shape_of(header: Header) -> tuple[int, int, int]:
    """(z, y, x) in voxels of the pieces that cubes of this kind are read in."""
    blocks = 1
    # Sides grow by powers of two, so that blocks of a piece lie in runs of the file's Morton order.
    while blocks < header.cube_blocks and 4 * blocks**2 * header.block_bytes <= _PIECE_BYTES:
        blocks *= 2
    return header.block_side, blocks * header.block_side, blocks * header.block_side


def _read_raw(file: ReadFile, header: Header, order: BlockOrder) -> NDArray[np.generic]:
    """Blocks (block, z, y, x[, c]) in the order of the file."""
    needed = header.data_offset + header.block_count * header.block_bytes
    if (size := file.size()) < needed:  # also a block that is there: the length is final from the start
        text = f"a raw cube of {size} bytes, expected {needed}"
        raise CorruptDataset(text, path=str(file.path), offset=size)
    memory = bytearray(len(order) * header.block_bytes)
    view, taken = memoryview(memory), 0
    for first, count in order.runs:
        length = count * header.block_bytes
        offset = header.data_offset + first * header.block_bytes
        if file.read_into(offset, view[taken : taken + length]) < length:
            raise CorruptDataset("ends while it is read", path=str(file.path), offset=offset)
        taken += length
    return _as_blocks(memory, header)


def _read_compressed(file: ReadFile, header: Header, order: BlockOrder) -> NDArray[np.generic]:
    """Blocks (block, z, y, x[, c]) in the order of the file."""
    path, size = str(file.path), file.size()
    lowest, highest = int(order.codes[0]), int(order.codes[-1])
    table_bytes = (highest - lowest + 2) * ENTRY_BYTES  # with the end of the last block
    table = file.read(table_position(lowest), table_bytes)
    if len(table) < table_bytes:
        text = f"{size} bytes, which is less than the jump table takes: expected at least {header.first_block}"
        raise CorruptDataset(text, path=path, offset=size)
    positions = decode_positions(table, lowest, header, size, path)
    memory = bytearray(len(order) * header.block_bytes)
    view, taken = memoryview(memory), 0
    for first, count in order.runs:
        bounds = positions[first - lowest : first - lowest + count + 1].tolist()
        stored = memoryview(file.read(bounds[0], bounds[-1] - bounds[0]))
        for start, stop in itertools.pairwise(bounds):
            block = decompress(stored[start - bounds[0] : stop - bounds[0]], header, path, start)
            view[taken : taken + len(block)] = block
            taken += len(block)
    return _as_blocks(memory, header)


def _as_blocks(memory: bytearray, header: Header) -> NDArray[np.generic]:
    return np.frombuffer(memory, header.dtype.newbyteorder("<")).reshape(-1, *header.block_shape)


def find_cubes(folder: DataPath) -> Iterator[Cube]:
    """The cube files of a folder; temporary files and whatever else lies there are passed over. In any order."""
    for z, z_folder in _numbered(folder, Z_NAME):
        for y, y_folder in _numbered(z_folder, Y_NAME):
            for x, _ in _numbered(y_folder, X_NAME):
                yield z, y, x


def _numbered(folder: DataPath, pattern: re.Pattern[str]) -> Iterator[tuple[int, DataPath]]:
    try:
        names = folder.names()
    except FileMissing as error:
        if error.errno != errno.ENOTDIR:
            raise
        return  # a file with the name of a folder
    for name in names:
        if found := pattern.fullmatch(name):
            yield int(found[1]), folder / name


def cube_problems(file: ReadFile, header: Header) -> Iterator[tuple[str, int]]:
    """What is wrong with the length and the jump table of a cube file: texts and offsets. Raises CorruptDataset."""
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
    # Reading takes a longer file, and webKNOSSOS does not.
    end = int(decode_positions(table, 0, header, size, str(file.path))[-1])
    if end != size:
        yield f"the last block ends at byte {end}, the file has {size}", table_position(header.block_count)
