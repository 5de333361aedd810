"""Voxels as the bytes of a cube file. Pure.

Source: fact sheet sections 4 and 5. A raw cube is written a box of blocks at a time, in place; a compressed one whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import lz4.block
import numpy as np
from numpy.typing import NDArray

from acqstream.formats.wkw.block_order import BlockOrder, block_order
from acqstream.formats.wkw.header import BlockType, Header
from acqstream.formats.wkw.jump_table import encode_jump_table

_HC_LEVEL = 9  # as the reference library
_MOST_PIECES = 512  # of memory, written by one call

# Blocks come as an array (z, y, x, ...) of the grid of blocks in a box; what follows is a block, whole in memory.


def encode_raw(blocks: NDArray[np.generic]) -> memoryview:
    """The blocks in little-endian, one behind the other: no copy if they are so. `raw_runs` puts them into order."""
    return np.ascontiguousarray(blocks, blocks.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data


def raw_runs(
    encoded: bytes | memoryview, counts: Sequence[int], header: Header, order: BlockOrder
) -> Iterator[tuple[int, list[memoryview]]]:
    """What goes where in a raw cube file, as (offset, bytes in pieces): no copy.

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
