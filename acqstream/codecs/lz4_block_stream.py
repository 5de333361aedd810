"""lz4: the block stream of lz4-java, neither a bare LZ4 block nor the LZ4 frame.

Source: the stream that Java's N5 writer makes. The data are cut into pieces of `block_size` bytes (the last may be
shorter); each becomes

offset  size  type    field
0       8     bytes   b"LZ4Block"
8       1     u8      token: 0x10 stored, 0x20 LZ4; low four bits L = max(0, ceil(log2(block_size)) - 10)
9       4     u32 LE  length of the data here
13      4     u32 LE  length of the piece, at most 2^(10+L)
17      4     u32 LE  xxHash32 of the piece, seed 0x9747b28c, without its top four bits
21                    one LZ4 block without its size, or the piece itself where that is not longer

and the end is such a header with token 0x10 | L and zeros.
"""

from __future__ import annotations

import struct

import lz4.block
import xxhash

from acqstream.codecs.sizes import Data, check_size
from acqstream.errors import CorruptDataset, UnsupportedFeature

MAGIC = b"LZ4Block"
MIN_BLOCK_SIZE, MAX_BLOCK_SIZE = 64, 1 << 25
DEFAULT_BLOCK_SIZE = 1 << 16

_HEADER = struct.Struct("<8sBIII")
_LENGTH = struct.Struct("<I")
_STORED, _LZ4 = 0x10, 0x20
_SEED, _MASK = 0x9747B28C, 0x0FFFFFFF
_MIN_BLOCK_BITS = 10


def encode(data: Data, block_size: int = DEFAULT_BLOCK_SIZE) -> bytes:
    """The stream, with its end mark. block_size is 64 to 33554432 bytes."""
    bits = max(0, (block_size - 1).bit_length() - _MIN_BLOCK_BITS)  # a piece has at most 2**(10 + bits) bytes
    view = memoryview(data).cast("B")
    parts: list[bytes | memoryview] = []
    for start in range(0, len(view), block_size):
        piece = view[start : start + block_size]
        packed: bytes | memoryview = lz4.block.compress(piece, store_size=False)
        token = _LZ4
        if len(packed) >= len(piece):  # as lz4-java does, so that noise never grows
            packed, token = piece, _STORED
        parts += (_HEADER.pack(MAGIC, token | bits, len(packed), len(piece), _checksum(piece)), packed)
    return b"".join((*parts, _HEADER.pack(MAGIC, _STORED | bits, 0, 0, 0)))


def decode(data: Data, size: int) -> bytes:
    """The decoded stream of `size` bytes. Its end mark may be missing.

    Raises CorruptDataset, UnsupportedFeature for what z5py and zarr 2 store under the same name.
    """
    view = memoryview(data).cast("B")
    if bytes(view[: len(MAGIC)]) != MAGIC:
        _refuse_dialects(view, size)
    parts: list[bytes | memoryview] = []
    decoded_bytes = offset = 0
    while offset < len(view):
        if bytes(view[offset : offset + len(MAGIC)]) != MAGIC:
            raise CorruptDataset(f"lz4: no {MAGIC.decode()} at byte {offset} of the stream")
        if offset + _HEADER.size > len(view):
            raise CorruptDataset(f"lz4: the header at byte {offset} of the stream is cut off")
        _, token, packed_length, length, checksum = _HEADER.unpack_from(view, offset)
        offset += _HEADER.size
        if not length:  # the end mark
            break
        packed = view[offset : offset + packed_length]
        if len(packed) != packed_length or length > 1 << _MIN_BLOCK_BITS + (token & 0x0F):
            raise CorruptDataset(f"lz4: {packed_length} bytes for {length} at byte {offset} do not fit the stream")
        if decoded_bytes + length > size:  # before decoding: a hostile stream must not take more memory
            check_size("lz4", decoded_bytes + length, size)
        parts.append(_piece(packed, token & 0xF0, length, checksum, offset))
        decoded_bytes += length
        offset += packed_length
    check_size("lz4", decoded_bytes, size)
    if offset < len(view):
        raise CorruptDataset(f"lz4: {len(view) - offset} bytes after the end mark")
    return b"".join(parts)


def _refuse_dialects(view: memoryview, size: int) -> None:
    """Raise UnsupportedFeature for one bare block (z5py), or one after its length (zarr 2)."""
    # zarr 2 puts the size of the data before its one block.
    lengths = _LENGTH.unpack_from(view)[0] if len(view) > _LENGTH.size else -1
    bodies = [("one bare LZ4 block, as z5py writes it", view)]
    if lengths == size:
        bodies.insert(0, ("one LZ4 block after its length, as zarr 2 writes it", view[_LENGTH.size :]))
    for what, body in bodies:
        try:
            is_dialect = len(lz4.block.decompress(body, uncompressed_size=size)) == size
        except (lz4.block.LZ4BlockError, ValueError):
            continue
        if is_dialect:
            raise UnsupportedFeature(
                f"lz4: {what}; expected the stream of lz4-java, which begins with {MAGIC.decode()}"
            )


def _piece(packed: memoryview, method: int, length: int, checksum: int, offset: int) -> bytes | memoryview:
    """The data of one piece, checked. offset is that of `packed` in the stream."""
    piece: bytes | memoryview
    if method == _LZ4:
        try:
            piece = lz4.block.decompress(packed, uncompressed_size=length)
        except lz4.block.LZ4BlockError as error:
            raise CorruptDataset(f"lz4: {error} at byte {offset} of the stream") from error
    elif method == _STORED:
        piece = packed
    else:
        raise CorruptDataset(f"lz4: unknown method {method:#x} at byte {offset} of the stream, expected 0x10 or 0x20")
    if len(piece) != length:
        raise CorruptDataset(f"lz4: {len(piece)} bytes at byte {offset} of the stream, expected {length}")
    if _checksum(piece) != checksum:
        raise CorruptDataset(f"lz4: checksum of the piece at byte {offset} of the stream does not agree")
    return piece


def _checksum(piece: bytes | memoryview) -> int:
    return xxhash.xxh32_intdigest(piece, _SEED) & _MASK  # lz4-java drops the top four bits
