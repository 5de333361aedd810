"""WKW header and jump table: what a cube file begins with. Pure.

The header is the first 16 bytes of every cube file, and the whole of `header.wkw` in every folder of cubes. The jump
table of a compressed cube says where each block ends: entry n, u64 little-endian, is the position in the file just
after block n; block 0 begins at the header's data_offset. Blocks lie in order of their numbers, and none is empty.
Source: webknossos-wrap, format description version 1, "File header".

offset  size  type    field           value
0       3     bytes   magic           b"WKW"
3       1     u8      version         1
4       1     u8      per_dim_log2    low nibble: log2 of voxels a block side; high: log2 of blocks a cube side
5       1     u8      block_type      1 raw, 2 LZ4, 3 LZ4-HC
6       1     u8      voxel_type      see VOXEL_TYPES
7       1     u8      voxel_bytes     of one voxel, all channels
8       8     u64 LE  data_offset     of the first block; 0 in `header.wkw`
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from acqstream.errors import CorruptDataset, UnsupportedFeature

MAX_VOXELS = 2**32 - 1  # along an axis: voxel positions have 32 bits in every implementation
HEADER_NAME = "header.wkw"
HEADER_BYTES = 16
MAX_SIDE = 128  # of a block in voxels and of a cube in blocks: what the reference library's interface can say
MAX_VOXEL_BYTES = 255  # the field is one byte

_MAGIC = b"WKW"
_VERSION = 1
_STRUCT = struct.Struct("<3sBBBBBQ")
_KIND_BYTES = 8  # of the header, which are the same in all files of a folder
assert _STRUCT.size == HEADER_BYTES

VOXEL_TYPES: dict[int, np.dtype[np.generic]] = {
    code: np.dtype(name)
    for code, name in enumerate(("u1", "u2", "u4", "u8", "f4", "f8", "i1", "i2", "i4", "i8"), start=1)
}
"""By code. Those from 7 on are in all implementations, not in the published table."""

# Codes are unique per dtype, so this is their inverse.
_VOXEL_CODES = {dtype: code for code, dtype in VOXEL_TYPES.items()}


class BlockType(IntEnum):
    """Storage of the blocks of a file."""

    RAW = 1
    LZ4 = 2
    LZ4HC = 3  # decoded as LZ4


@dataclass(frozen=True, slots=True)
class Header:
    """Kind of the cubes of a folder. block_side is in voxels, cube_blocks in blocks, both powers of two."""

    block_side: int
    cube_blocks: int
    block_type: BlockType
    dtype: np.dtype[np.generic]
    channels: int = 1
    data_offset: int = 0

    def __post_init__(self) -> None:
        for name in ("block_side", "cube_blocks"):
            side = getattr(self, name)
            if not 1 <= side <= MAX_SIDE or side & (side - 1):
                raise ValueError(f"{name} {side} is not a power of two from 1 to {MAX_SIDE}")
        if self.dtype not in _VOXEL_CODES:
            raise ValueError(f"dtype {self.dtype} is none of {', '.join(map(str, _VOXEL_CODES))}")
        if not 1 <= self.voxel_bytes <= MAX_VOXEL_BYTES:
            raise ValueError(f"{self.channels} channels of {self.dtype} are not 1 to {MAX_VOXEL_BYTES} bytes a voxel")

    @property
    def voxel_bytes(self) -> int:
        """Bytes of one voxel, all channels."""
        return self.channels * self.dtype.itemsize

    @property
    def block_shape(self) -> tuple[int, ...]:
        """(z, y, x), with more than one channel (z, y, x, c)."""
        return (self.block_side,) * 3 + ((self.channels,) if self.channels > 1 else ())

    @property
    def block_bytes(self) -> int:
        """Bytes of one block, not compressed."""
        return self.block_side**3 * self.voxel_bytes

    @property
    def block_count(self) -> int:
        """Blocks in a cube."""
        return self.cube_blocks**3

    @property
    def cube_side(self) -> int:
        """Side of a cube file, in voxels."""
        return self.block_side * self.cube_blocks

    @property
    def first_block(self) -> int:
        """Offset of block 0 in the cube files that are written here, in bytes."""
        return HEADER_BYTES + (0 if self.block_type is BlockType.RAW else 8 * self.block_count)

    @property
    def raw_file_bytes(self) -> int:
        """Length of a raw cube file as written here."""
        return HEADER_BYTES + self.block_count * self.block_bytes

    def __str__(self) -> str:
        voxel = f"{self.channels} x {self.dtype}" if self.channels > 1 else str(self.dtype)
        return f"{self.block_type.name} cubes of {self.cube_side}, blocks of {self.block_side}, {voxel}"

    def encode(self, data_offset: int) -> bytes:
        """The 16 bytes; data_offset is 0 for `header.wkw`, `first_block` for a cube file."""
        per_dim_log2 = (self.block_side.bit_length() - 1) | (self.cube_blocks.bit_length() - 1) << 4
        code = _VOXEL_CODES[self.dtype]
        return _STRUCT.pack(_MAGIC, _VERSION, per_dim_log2, self.block_type, code, self.voxel_bytes, data_offset)


def decode_header(data: bytes, path: str) -> Header:
    """The header in the first bytes of the file `path`.

    Raises CorruptDataset that names file, offset and what was expected, UnsupportedFeature for lengths beyond MAX_SIDE.
    """
    if len(data) < HEADER_BYTES:
        raise CorruptDataset(f"holds {len(data)} bytes, a WKW header takes {HEADER_BYTES}", path=path, offset=len(data))
    magic, version, per_dim_log2, block_type, voxel_type, voxel_bytes, data_offset = _STRUCT.unpack_from(data)
    if magic != _MAGIC:
        raise CorruptDataset(f"begins with {magic!r}, expected {_MAGIC!r}", path=path, offset=0)
    if version != _VERSION:
        raise CorruptDataset(f"has version {version}, expected {_VERSION}", path=path, offset=3)
    if block_type not in iter(BlockType):
        raise CorruptDataset(f"has block type {block_type}, expected 1 raw, 2 LZ4 or 3 LZ4-HC", path=path, offset=5)
    dtype = VOXEL_TYPES.get(voxel_type)
    if dtype is None:
        raise CorruptDataset(f"has voxel type {voxel_type}, expected 1 to {len(VOXEL_TYPES)}", path=path, offset=6)
    if voxel_bytes == 0 or voxel_bytes % dtype.itemsize:
        text = f"has {voxel_bytes} bytes a voxel, expected a multiple of {dtype.itemsize} for {dtype}"
        raise CorruptDataset(text, path=path, offset=7)
    block_side, cube_blocks = 1 << (per_dim_log2 & 15), 1 << (per_dim_log2 >> 4)
    if max(block_side, cube_blocks) > MAX_SIDE:
        text = f"{path}: blocks of {block_side} voxels a side and cubes of {cube_blocks} blocks a side (at byte 4)"
        raise UnsupportedFeature(f"{text}; at most {MAX_SIDE} of each are read")
    channels = voxel_bytes // dtype.itemsize
    return Header(block_side, cube_blocks, BlockType(block_type), dtype, channels, data_offset)


def require_same_kind(found: Header, expected: Header, path: str) -> None:
    """Raise CorruptDataset if the header of a cube file is of another kind than `header.wkw` beside it.

    LZ4 and LZ4-HC are one kind: how hard the writer tried does not show in the blocks.
    """
    ours, theirs = _kind_bytes(found), _kind_bytes(expected)
    if ours != theirs:
        offset = next(i for i, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1])
        text = f"begins with {ours.hex(' ')}, {HEADER_NAME} of its folder with {theirs.hex(' ')}"
        raise CorruptDataset(text, path=path, offset=offset)


def _kind_bytes(header: Header) -> bytes:
    decoded_as = BlockType.LZ4 if header.block_type is BlockType.LZ4HC else header.block_type
    return replace(header, block_type=decoded_as).encode(0)[:_KIND_BYTES]


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
