"""Voxels as the bytes of a cube file. Pure.

Source: fact sheet sections 4 and 5. A raw cube is written a box of blocks at a time, in place; a compressed one whole.
"""

from __future__ import annotations

from collections.abc import Iterator

import lz4.block
import numpy as np
from numpy.typing import NDArray

from acqstream.formats.wkw.block_order import BlockOrder, block_order, gather_blocks
from acqstream.formats.wkw.header import BlockType, Header
from acqstream.formats.wkw.jump_table import encode_jump_table

_HC_LEVEL = 9  # as the reference library


def encode_raw(
    voxels: NDArray[np.generic], header: Header, order: BlockOrder, memory: NDArray[np.uint8] | None = None
) -> memoryview:
    """The blocks of `order` one behind the other, in `memory`. voxels: (z, y, x[, c]), whole blocks, any byte order."""
    return _bytes_of(gather_blocks(voxels, header.block_side, order, memory))


def runs_in_file(header: Header, order: BlockOrder) -> Iterator[tuple[int, slice]]:
    """Where in a raw cube file each run of `order` goes, as (offset, the part of what `encode_raw` gave)."""
    taken = 0
    for first, count in order.runs:
        length = count * header.block_bytes
        yield header.first_block + first * header.block_bytes, slice(taken, taken + length)
        taken += length


def encode_compressed(
    voxels: NDArray[np.generic], header: Header, memory: NDArray[np.uint8] | None = None
) -> list[bytes]:
    """A whole cube file: header, jump table and blocks. voxels: (z, y, x[, c]) of the whole cube, any byte order.

    memory, of as many bytes, is used on the way.
    """
    order = block_order((0, 0, 0), (header.cube_blocks,) * 3)
    blocks = gather_blocks(voxels, header.block_side, order, memory)
    payloads = [_compress(_bytes_of(block), header.block_type) for block in blocks]
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


def _bytes_of(blocks: NDArray[np.generic]) -> memoryview:
    return blocks.reshape(-1).view(np.uint8).data
