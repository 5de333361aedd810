"""Voxels as the bytes of a cube file. Pure.

Source: fact sheet sections 4 and 5. A raw cube is written a box of blocks at a time, in place; a compressed one whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import lz4.block
import numpy as np
from numpy.typing import NDArray

from acqstream.formats.wkw.block_order import BlockOrder, block_order, gathered_runs
from acqstream.formats.wkw.header import BlockType, Header
from acqstream.formats.wkw.jump_table import encode_jump_table

_HC_LEVEL = 9  # as the reference library
_RUN_BYTES = 2 * 2**20  # of blocks that are written at once; most runs have a quarter of a MiB


def encode_raw(voxels: NDArray[np.generic]) -> memoryview:
    """The voxels (z, y, x[, c]) in little-endian: no copy if they are so. `raw_runs` cuts them into blocks."""
    return _bytes_of(_little_endian(voxels))


def raw_runs(
    encoded: bytes | memoryview, shape: Sequence[int], header: Header, order: BlockOrder, memory: NDArray[np.uint8]
) -> Iterator[tuple[int, memoryview]]:
    """What goes where in a raw cube file, as (offset, bytes). encoded: what `encode_raw` gave of voxels of this shape.

    The bytes lie in `memory`, of raw_memory_bytes or more, until the next ones are asked for: so they are written while
    they are in the processor's cache.
    """
    voxels = np.frombuffer(encoded, header.dtype.newbyteorder("<")).reshape(shape)
    for block, data in gathered_runs(voxels, header.block_side, order, memory):
        yield header.first_block + block * header.block_bytes, data.data


def raw_memory_bytes(header: Header) -> int:
    """The memory that `raw_runs` is given."""
    return max(_RUN_BYTES, header.block_bytes)


def encode_compressed(voxels: NDArray[np.generic], header: Header) -> list[bytes]:
    """A whole cube file: header, jump table and blocks. voxels: (z, y, x[, c]) of the whole cube, any byte order."""
    order = block_order((0, 0, 0), (header.cube_blocks,) * 3)
    memory = np.empty(header.block_bytes, np.uint8)  # for one block: it is compressed out of the processor's cache
    runs = gathered_runs(_little_endian(voxels), header.block_side, order, memory)
    payloads = [_compress(block.data, header.block_type) for _, block in runs]
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


def _little_endian(voxels: NDArray[np.generic]) -> NDArray[np.generic]:
    return np.ascontiguousarray(voxels, voxels.dtype.newbyteorder("<"))


def _bytes_of(voxels: NDArray[np.generic]) -> memoryview:
    return voxels.reshape(-1).view(np.uint8).data
