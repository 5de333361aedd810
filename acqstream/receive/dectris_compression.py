"""Decompresses byte strings of DECTRIS streams: LZ4 and bitshuffle with LZ4, both in the framing of their HDF5 filters.

Source: docs/streams.md, "DECTRIS Stream V2". Framing: size of the result (8 bytes), size of a block (4 bytes), then
the blocks, each after its compressed size (4 bytes); all big-endian.
"""

from __future__ import annotations

import struct

import lz4.block
import numpy as np

from acqstream.errors import ProtocolError

_FRAMING = struct.Struct(">QI")
_BLOCK_SIZE = struct.Struct(">I")
_MAX_RATIO = 256  # LZ4 reaches 255 at most, so a larger ratio is a false length


def decompressed(algorithm: object, element_bytes: object, data: object, *, expected: int) -> bytes:
    """Return the `expected` bytes of a compressed byte string. Raises ProtocolError; never allocates more than that."""
    if not isinstance(data, bytes) or len(data) < _FRAMING.size:
        raise ProtocolError("compressed pixels must be a byte string that begins with its framing of 12 bytes")
    total, block = _FRAMING.unpack_from(data)
    if total != expected:
        raise ProtocolError(f"compressed pixels of {total} bytes; the shape has {expected}", code="payload_size")
    if total > _MAX_RATIO * len(data):
        raise ProtocolError(f"{len(data)} compressed bytes cannot hold {total}", code="payload_size")
    if algorithm == "lz4":
        return _lz4(data, total, block)
    if algorithm == "bslz4":
        if element_bytes not in (1, 2):
            raise ProtocolError(f"bslz4: elements must be of 1 or 2 bytes, not {element_bytes!r:.40}")
        return _bslz4(data, total, block, int(element_bytes == 2) + 1)
    raise ProtocolError(f"compression {algorithm!r:.40} is not supported; expected 'lz4' or 'bslz4'")


def _lz4(data: bytes, total: int, block: int) -> bytes:
    if not block:
        raise ProtocolError("lz4: the size of a block is 0")
    parts = []
    offset = _FRAMING.size
    for start in range(0, total, block):
        size = min(block, total - start)
        stored, offset = _stored_block(data, offset)
        # The filter stores a block uncompressed if compression does not make it smaller.
        parts.append(stored if len(stored) == size else _block(stored, size))
    return _joined(parts, data, offset)


def _bslz4(data: bytes, total: int, block: int, element_bytes: int) -> bytes:
    """Decode blocks of shuffled bits; the last one is shorter, and up to 7 elements at the end are stored plain."""
    step = 8 * element_bytes
    if not block or block % step or total % element_bytes:
        raise ProtocolError(f"bslz4: blocks of {block} bytes; expected a multiple of {step}")
    parts = []
    offset = _FRAMING.size
    shuffled = total - total % step
    for start in range(0, shuffled, block):
        size = min(block, shuffled - start)
        stored, offset = _stored_block(data, offset)
        parts.append(_unshuffled(_block(stored, size), element_bytes))
    # Bitshuffle needs 8 elements; the filter stores the remainder uncompressed, without a length.
    remainder = data[offset : offset + total - shuffled]
    if len(remainder) != total - shuffled:
        raise ProtocolError(f"compressed pixels end at byte {len(data)}, within the last elements")
    parts.append(remainder)
    return _joined(parts, data, offset + len(remainder))


def _stored_block(data: bytes, offset: int) -> tuple[bytes, int]:
    if len(data) < offset + _BLOCK_SIZE.size:
        raise ProtocolError(f"compressed pixels end at byte {len(data)}; a block is expected there")
    (size,) = _BLOCK_SIZE.unpack_from(data, offset)
    begin = offset + _BLOCK_SIZE.size
    if not size or len(data) < begin + size:
        raise ProtocolError(f"compressed pixels: a block of {size} bytes at byte {begin} of {len(data)}")
    return data[begin : begin + size], begin + size


def _block(stored: bytes, size: int) -> bytes:
    try:
        block = lz4.block.decompress(stored, uncompressed_size=size)
    except (lz4.block.LZ4BlockError, ValueError) as error:
        raise ProtocolError(f"compressed pixels: a block is not LZ4: {error}") from error
    if len(block) != size:
        raise ProtocolError(f"compressed pixels: a block of {len(block)} bytes; expected {size}", code="payload_size")
    return bytes(block)


def _unshuffled(block: bytes, element_bytes: int) -> bytes:
    """Turn rows of bits (row j * 8 + b has bit b of byte j of every element, first element lowest) into elements."""
    # Unpack to one bit per byte, transpose so that the bits of one element are in a row, and pack again.
    rows = np.frombuffer(block, np.uint8).reshape(8 * element_bytes, -1)
    bits = np.unpackbits(rows, axis=1, bitorder="little")
    return np.packbits(bits.T, axis=1, bitorder="little").tobytes()


def _joined(parts: list[bytes], data: bytes, end: int) -> bytes:
    if end != len(data):
        raise ProtocolError(f"{len(data) - end} bytes after the compressed pixels")
    return b"".join(parts)
