"""Voxels as the bytes of a cube file, and the order of its blocks. Pure.

Source: webknossos-wrap, format description version 1. Blocks follow the Morton curve; a block is a C-order array (z,
y, x) or (z, y, x, c). A raw cube is written a box of blocks at a time, in place; a compressed one complete.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import lz4.block
import numpy as np
from numpy.typing import ArrayLike, NDArray

from acqstream.errors import CorruptDataset
from acqstream.formats.wkw.header import (
    ENTRY_BYTES,
    HEADER_BYTES,
    BlockType,
    Header,
    decode_header,
    decode_positions,
    encode_jump_table,
    require_same_kind,
    table_position,
)

_HC_LEVEL = 9  # as the reference library
_MOST_PIECES = 512  # of memory, written by one call

# Blocks come as an array (z, y, x, ...) of the grid of blocks in a box; what follows is a block, whole in memory.


def encode_raw(blocks: NDArray[np.generic]) -> memoryview:
    """The blocks in little-endian, one after the other: no copy if they are so. `raw_runs` puts them into order."""
    return np.ascontiguousarray(blocks, blocks.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data


def raw_runs(
    encoded: bytes | memoryview, counts: Sequence[int], header: Header, order: BlockOrder
) -> Iterator[tuple[int, list[memoryview]]]:
    """Pieces of a raw cube file, as (offset, bytes in pieces), without a copy.

    encoded: what `encode_raw` gave of counts (z, y, x) blocks; order is of that box, or of its first blocks each way.
    """
    _, rows, columns = counts
    numbers = ((order.z * rows + order.y) * columns + order.x).tolist()
    data, size = memoryview(encoded), header.block_bytes
    offset, taken = header.first_block, 0
    for first, count in order.runs:
        run, taken = numbers[taken : taken + count], taken + count
        pieces: list[memoryview] = []
        at = first
        for start, end in _neighbours(run):
            pieces.append(data[start * size : end * size])
            if len(pieces) == _MOST_PIECES:
                yield offset + at * size, pieces
                at, pieces = at + sum(map(len, pieces)) // size, []
        if pieces:
            yield offset + at * size, pieces


def encode_compressed(blocks: NDArray[np.generic], header: Header) -> list[bytes]:
    """A whole cube file: header, jump table and blocks, those of a whole cube in any byte order."""
    sides = (header.cube_blocks,) * 3
    order = block_order((0, 0, 0), sides)
    data, size = encode_raw(blocks), header.block_bytes
    numbers = np.ravel_multi_index((order.z, order.y, order.x), sides).tolist()
    payloads = [_compress(data[number * size : (number + 1) * size], header.block_type) for number in numbers]
    table = encode_jump_table(header, [len(payload) for payload in payloads])
    return [header.encode(header.first_block), table, *payloads]


def decode_raw(data: bytes, header: Header, where: str) -> NDArray[np.generic]:
    """The blocks of `encode_raw`, as one new array of items. Raises CorruptDataset."""
    if not data or len(data) % header.block_bytes:
        raise CorruptDataset(f"{len(data)} bytes, expected blocks of {header.block_bytes}", path=where)
    # A copy: an array over the given bytes could not be written to.
    return np.frombuffer(bytearray(data), header.dtype.newbyteorder("<"))


def decode_compressed(data: bytes, header: Header, where: str) -> NDArray[np.generic]:
    """The blocks that `encode_compressed` took, as one new array of items. Raises CorruptDataset."""
    found = decode_header(data[:HEADER_BYTES], where)
    require_same_kind(found, header, where)
    start = table_position(0)
    table = data[start : start + ENTRY_BYTES * (header.block_count + 1)]
    if len(table) < ENTRY_BYTES * (header.block_count + 1):
        raise CorruptDataset(f"{len(data)} bytes, expected at least {header.first_block}", path=where, offset=len(data))
    # It checks every length against the file, so damage decides about no memory.
    bounds = decode_positions(table, 0, header, len(data), where).tolist()
    order = block_order((0, 0, 0), (header.cube_blocks,) * 3)
    numbers = np.ravel_multi_index((order.z, order.y, order.x), (header.cube_blocks,) * 3)
    blocks = np.empty((header.block_count, header.block_bytes), np.uint8)
    for number, (first, end) in zip(numbers.tolist(), itertools.pairwise(bounds), strict=True):
        blocks[number] = np.frombuffer(decompress(memoryview(data)[first:end], header, where, first), np.uint8)
    return blocks.reshape(-1).view(header.dtype.newbyteorder("<"))


def decompress(stored: memoryview, header: Header, path: str, offset: int) -> bytes:
    """One LZ4 block of the file `path`, which lies at byte `offset`. Raises CorruptDataset."""
    try:
        block: bytes = lz4.block.decompress(stored, uncompressed_size=header.block_bytes)
    except (lz4.block.LZ4BlockError, ValueError) as error:
        raise CorruptDataset(f"an LZ4 block cannot be decoded: {error}", path=path, offset=offset) from error
    if len(block) != header.block_bytes:
        text = f"an LZ4 block of {len(block)} bytes, expected {header.block_bytes}"
        raise CorruptDataset(text, path=path, offset=offset)
    return block


def largest_compressed_bytes(header: Header) -> int:
    """The most that a compressed cube file can take."""
    block = header.block_bytes
    return header.first_block + header.block_count * (block + block // 255 + 16)


def _compress(block: memoryview, block_type: BlockType) -> bytes:
    if block_type is BlockType.LZ4HC:
        packed: bytes = lz4.block.compress(block, mode="high_compression", compression=_HC_LEVEL, store_size=False)
    else:
        packed = lz4.block.compress(block, store_size=False)
    return packed


def _neighbours(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Numbers as runs (first, end) that count up."""
    first = end = numbers[0]
    for number in numbers:
        if number != end:
            yield first, end
            first = number
        end = number + 1
    yield first, end


@dataclass(frozen=True, slots=True)
class BlockOrder:
    """The blocks of a box in a cube, in the order of the file.

    codes are their numbers in the cube file; z, y, x their places in the box, in blocks. runs are those that lie one
    after the other in the file, as (first code, count).
    """

    codes: NDArray[np.int64]
    z: NDArray[np.int64]
    y: NDArray[np.int64]
    x: NDArray[np.int64]
    runs: tuple[tuple[int, int], ...]

    def __len__(self) -> int:
        return len(self.codes)


@lru_cache(maxsize=1024)
def block_order(first: tuple[int, int, int], counts: tuple[int, int, int]) -> BlockOrder:
    """The order of the box of `counts` (z, y, x) blocks that begins at block `first` (z, y, x) of the cube."""
    places = np.indices(counts).reshape(3, -1)
    z, y, x = (places[axis] + first[axis] for axis in range(3))
    codes = morton_code(x, y, z)
    order = np.argsort(codes)
    codes, places = codes[order], places[:, order]
    # A run begins where a code does not follow the one before; -2 makes the first code such a place.
    starts = np.flatnonzero(np.diff(codes, prepend=-2) != 1)
    lengths = np.diff(starts, append=len(codes))
    runs = tuple(zip(codes[starts].tolist(), lengths.tolist(), strict=True))
    return BlockOrder(codes, places[0], places[1], places[2], runs)


def scatter_blocks(blocks: NDArray[np.generic], order: BlockOrder, voxels: NDArray[np.generic]) -> None:
    """Put blocks (block, z, y, x[, c]), in the order of the file, to their places in `voxels` (z, y, x[, c]).

    Both are in C order and of the same dtype.
    """
    rows = _rows(voxels, blocks.shape[1])
    for block, place in zip(_rows_of_blocks(blocks), _places(order), strict=True):
        rows[place] = block


def _places(order: BlockOrder) -> list[tuple[int, int, int]]:
    return list(zip(order.z.tolist(), order.y.tolist(), order.x.tolist(), strict=True))


# A row of a block as one item: numpy copies 64 bytes at a time so, in less than half the time that 32 items take.


def _rows(voxels: NDArray[np.generic], side: int) -> NDArray[np.void]:
    """A view (block z, block y, block x, z, y) of an array (z, y, x[, c]) of whole blocks."""
    z, y, x = voxels.shape[:3]
    rows = _as_rows(voxels, side * math.prod(voxels.shape[3:])).reshape(z // side, side, y // side, side, x // side)
    return rows.transpose(0, 2, 4, 1, 3)


def _rows_of_blocks(blocks: NDArray[np.generic]) -> NDArray[np.void]:
    """A view (block, z, y) of blocks (block, z, y, x[, c])."""
    return _as_rows(blocks, math.prod(blocks.shape[3:])).reshape(blocks.shape[:3])


def _as_rows(array: NDArray[np.generic], items: int) -> NDArray[np.void]:
    if not array.flags.c_contiguous:
        raise AssertionError("voxels must be in C order: the rows would be those of a copy")
    return array.reshape(-1).view(np.dtype((np.void, items * array.itemsize)))


COORDINATE_BITS = 21  # three of them fill 63 bits

# Each step moves the upper half of every group of bits to its place; the mask is applied after the OR.
_STEPS = (
    (32, 0x001F00000000FFFF),
    (16, 0x001F0000FF0000FF),
    (8, 0x100F00F00F00F00F),
    (4, 0x10C30C30C30C30C3),
    (2, 0x1249249249249249),
)


def morton_code(x: ArrayLike, y: ArrayLike, z: ArrayLike) -> NDArray[np.int64]:
    """Morton codes: the bits of x, y and z in turn, x lowest (x0 y0 z0 x1 ...).

    Coordinates are integers of 0 to 2^21 - 1; arrays broadcast against each other.
    """
    return np.asarray(_spread(x) | _spread(y) << np.uint64(1) | _spread(z) << np.uint64(2)).astype(np.int64)


def _spread(coordinate: ArrayLike) -> NDArray[np.uint64]:
    bits = np.asarray(coordinate, np.uint64)
    if bits.size and int(bits.max()) >> COORDINATE_BITS:
        raise ValueError(f"coordinate {int(bits.max())} has more than {COORDINATE_BITS} bits")
    for shift, mask in _STEPS:
        bits = (bits | bits << np.uint64(shift)) & np.uint64(mask)
    return bits
