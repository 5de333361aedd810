"""zstd: one frame of RFC 8878, without a dictionary."""

from __future__ import annotations

from acqstream.codecs.sizes import Data, check_size
from acqstream.errors import CorruptDataset

_MAGIC = b"\x28\xb5\x2f\xfd"
_DESCRIPTOR = 4  # its place: right after the magic
_SIZE_FLAG_FOUR_BYTES = 2 << 6
_SIZE_BYTES = (0, 2, 4, 8)  # of the content's size, by the descriptor's top two bits
_SINGLE_SEGMENT = 1 << 5  # no window descriptor; the size has at least one byte
_DICTIONARY_BYTES = (0, 1, 2, 4)  # by its lowest two bits


def encode(data: Data, level: int = 3) -> bytes:
    """One frame, with the content's size in its header."""
    from numcodecs import zstd as libzstd  # as heavy as numpy: loaded when the first such frame comes

    frame: bytes = libzstd.compress(data, level)
    return frame


def decode(data: Data, size: int) -> bytearray:
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
