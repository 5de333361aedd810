"""lz4 of Zarr v2: the length of the data as u32 little-endian, then one LZ4 block. Source: numcodecs, codec `lz4`."""

from __future__ import annotations

import struct

import lz4.block

from acqstream.codecs.sizes import Data, check_size
from acqstream.errors import CorruptDataset

_LENGTH = struct.Struct("<I")


def decode(data: Data, size: int) -> bytes:
    """The decoded block of `size` bytes. Raises CorruptDataset."""
    if len(data) < _LENGTH.size:
        raise CorruptDataset(f"lz4: {len(data)} bytes, expected a length of {_LENGTH.size} bytes and a block")
    check_size("lz4", _LENGTH.unpack_from(data)[0], size)  # before decoding: no more memory than that
    try:
        decoded = lz4.block.decompress(memoryview(data)[_LENGTH.size :], uncompressed_size=size)
    except (lz4.block.LZ4BlockError, ValueError) as error:
        raise CorruptDataset(f"lz4: {error}") from error
    check_size("lz4", len(decoded), size)
    return bytes(decoded)
