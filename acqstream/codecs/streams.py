"""Codecs of one stream without a header of their own: raw (bytes as they are), bzip2, xz and zstd."""

from __future__ import annotations

import bz2
import lzma

from acqstream.codecs.sizes import Data, check_end, check_size
from acqstream.errors import CorruptDataset

_XZ_MEMORY_BYTES = 256 * 1024 * 1024  # preset 9 needs 65 MiB to be read; a header may ask for 4 GiB
_MAGIC = b"\x28\xb5\x2f\xfd"
_DESCRIPTOR = 4  # its offset: right after the magic
_SIZE_FLAG_FOUR_BYTES = 2 << 6
_SIZE_BYTES = (0, 2, 4, 8)  # of the content's size, by the descriptor's top two bits
_SINGLE_SEGMENT = 1 << 5  # no window descriptor; the size has at least one byte
_DICTIONARY_BYTES = (0, 1, 2, 4)  # by its lowest two bits


def encode_raw(data: Data) -> Data:
    """The same bytes."""
    return data


def decode_raw(data: Data, size: int) -> Data:
    """The same bytes, `size` of them. Raises CorruptDataset."""
    check_size("raw", len(data), size)
    return data


def encode_bzip2(data: Data, block_size: int = 9) -> bytes:
    """One stream; block_size is in units of 100,000 bytes, 1 to 9."""
    return bz2.compress(data, block_size)


def decode_bzip2(data: Data, size: int) -> bytes:
    """The decoded stream of `size` bytes. Raises CorruptDataset."""
    stream = bz2.BZ2Decompressor()
    try:
        decoded = stream.decompress(data, size + 1)
    except OSError as error:
        raise CorruptDataset(f"bzip2: {error}") from error
    check_end("bzip2", stream, len(decoded), size)
    return decoded


def encode_xz(data: Data, preset: int = 6) -> bytes:
    """One .xz stream with LZMA2 and CRC64; preset 0 to 9."""
    return lzma.compress(data, lzma.FORMAT_XZ, lzma.CHECK_CRC64, preset)


def decode_xz(data: Data, size: int) -> bytes:
    """The decoded stream of `size` bytes. Raises CorruptDataset."""
    stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, _XZ_MEMORY_BYTES)
    try:
        decoded = stream.decompress(data, size + 1)
    except lzma.LZMAError as error:
        raise CorruptDataset(f"xz: {error}") from error
    check_end("xz", stream, len(decoded), size)
    return decoded


def encode_zstd(data: Data, level: int = 3) -> bytes:
    """One frame of RFC 8878 without a dictionary, with the content's size in its header."""
    from numcodecs import zstd as libzstd  # as heavy as numpy: loaded when the first such frame comes

    frame: bytes = libzstd.compress(data, level)
    return frame


def decode_zstd(data: Data, size: int) -> bytearray:
    """The decoded frame of `size` bytes. Its header need not state the size. Raises CorruptDataset."""
    from numcodecs import zstd as libzstd

    frame = _with_size(data, size)
    decoded = bytearray(size)
    try:
        libzstd.decompress(frame, decoded)
    except (RuntimeError, ValueError) as error:
        raise CorruptDataset(f"zstd: {error}") from error
    return decoded


def _with_size(data: Data, size: int) -> Data:
    """The frame with the content's size in its header (RFC 8878, 3.1.1.1): the library decodes no other.

    It also makes the library check that the frame holds exactly so much. Raises CorruptDataset if it tells another.
    """
    if bytes(data[: len(_MAGIC)]) != _MAGIC or len(data) <= _DESCRIPTOR:
        raise CorruptDataset(f"zstd: starts with {bytes(data[:5]).hex(' ') or 'nothing'}, not with a frame")
    descriptor = data[_DESCRIPTOR]
    single = bool(descriptor & _SINGLE_SEGMENT)
    at = _DESCRIPTOR + 1 + (not single) + _DICTIONARY_BYTES[descriptor & 3]
    length = _SIZE_BYTES[descriptor >> 6] or int(single)
    if not length:
        descriptor_byte = bytes([descriptor | _SIZE_FLAG_FOUR_BYTES])
        return b"".join((_MAGIC, descriptor_byte, data[_DESCRIPTOR + 1 : at], size.to_bytes(4, "little"), data[at:]))
    stated_bytes = int.from_bytes(data[at : at + length], "little") + (256 if length == 2 else 0)
    check_size("zstd", stated_bytes, size)
    return data
