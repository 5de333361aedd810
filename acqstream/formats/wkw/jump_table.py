"""The jump table of a compressed cube file: where each block ends.

Source: webknossos-wrap, format description version 1. Entry n, u64 little-endian, is the position in the file just
after block n; block 0 begins at the header's data_offset. Blocks lie in order of their numbers, and none is empty.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from acqstream.errors import CorruptDataset
from acqstream.formats.wkw.header import HEADER_BYTES, Header

ENTRY_BYTES = 8
_MAX_EXPANSION = 255  # bytes that one byte of an LZ4 block can stand for


def encode_jump_table(header: Header, lengths: Sequence[int]) -> bytes:
    """The table for blocks of these lengths in bytes, one for each block of the cube."""
    if len(lengths) != header.block_count:
        raise ValueError(f"{len(lengths)} blocks for a cube of {header.block_count}")
    return (header.first_block + np.cumsum(lengths, dtype=np.int64)).astype("<u8").tobytes()


def table_position(block: int) -> int:
    """Offset in the file of the position of the start of `block`; for block 0 the data_offset of the header."""
    return HEADER_BYTES - ENTRY_BYTES + ENTRY_BYTES * block


def decode_positions(data: bytes, first: int, header: Header, file_bytes: int, path: str) -> NDArray[np.int64]:
    """Positions of the blocks from `first` on, and after the last one, out of the bytes at `table_position(first)`.

    Raises CorruptDataset where they do not rise, lie outside the file, or where a block is too short for what it
    should hold: nothing larger than 255 times the file is ever allocated for it.
    """
    positions = np.frombuffer(data, "<u8")
    floor = header.first_block
    outside = np.flatnonzero((positions > file_bytes) | (positions < floor))
    if len(outside):
        entry = int(outside[0])
        text = f"jump table: block {first + entry} at byte {int(positions[entry])}, expected {floor} to {file_bytes}"
        raise CorruptDataset(text, path=path, offset=table_position(first + entry))
    lengths = np.diff(positions.astype(np.int64))
    least = -(-header.block_bytes // _MAX_EXPANSION)
    short = np.flatnonzero(lengths < least)
    if len(short):
        entry = int(short[0])
        text = f"jump table: block {first + entry} of {int(lengths[entry])} bytes, expected at least {least}"
        raise CorruptDataset(text, path=path, offset=table_position(first + entry + 1))
    return positions.astype(np.int64)
