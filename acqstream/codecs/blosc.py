"""blosc: one c-blosc1 chunk."""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from types import ModuleType
from typing import cast

import numpy as np

from acqstream.codecs.sizes import Data, check_size
from acqstream.errors import CorruptDataset

COMPRESSORS = ("blosclz", "lz4", "lz4hc", "zlib", "zstd")
NO_SHUFFLE, BYTE_SHUFFLE, BIT_SHUFFLE = range(3)

_VERSION = 2  # of the format
_BITS_SHUFFLED, _NOT_SPLIT, _LZ4 = 0x04, 0x10, 1 << 5  # flags
_HEADER = struct.Struct("<BBBBIII")  # version, codec version, flags, typesize, nbytes, blocksize, cbytes


def default_shuffle(cname: str) -> int:
    """The shuffle of a compressor where the user names none: of bits for LZ4, for images of every pixel type."""
    return BIT_SHUFFLE if cname == "lz4" else BYTE_SHUFFLE


def default_level(cname: str, shuffle: int) -> int:
    """The level of a compressor where the user names none: a higher one gains little once bits are shuffled."""
    return 1 if (cname, shuffle) == ("lz4", BIT_SHUFFLE) else 5


def encode(data: Data, item_bytes: int, *, cname: str, clevel: int, shuffle: int, blocksize: int = 0) -> bytes:
    """One chunk; item_bytes is the size of an item of `data`, by which bytes or bits are shuffled."""
    if not blocksize:
        encoded = bytes(load().compress(data, item_bytes, clevel, shuffle, cname))
        if not encoded:  # of more than BLOSC_MAX_BUFFERSIZE, 2 GiB less 17 bytes, it makes nothing, without an error
            raise ValueError(f"blosc: {memoryview(data).nbytes} bytes are too many for one chunk")
        return encoded
    from numcodecs import blosc as c_blosc  # as heavy as numpy: loaded when the first such chunk comes

    items = np.frombuffer(data, np.dtype(f"V{item_bytes}"))
    return bytes(c_blosc.compress(items, cname.encode(), clevel, shuffle, blocksize))


@functools.cache
def load() -> ModuleType:
    """Return the package that encodes where the library chooses the size of blocks.

    numcodecs is built for the oldest processors: it shuffles with the instructions of 2001, and copies what it made.
    """
    import blosc
    from blosc import blosc_extension

    blosc.set_nthreads(1)  # mirrors have threads of their own
    blosc.set_releasegil(True)
    # Its outer function parses two version numbers a call, with Python's lock held: 6 % of a mirror's time.
    return cast("ModuleType", blosc_extension)


def of_lz4_blocks(blocks: bytes, starts: Sequence[int], item_bytes: int, block_bytes: int, size: int) -> bytes:
    """A chunk of `size` bytes from blocks of LZ4 with shuffled bits: at each start the length (4 bytes, "<"), then LZ4.

    block_bytes is the size of a decoded block, but for the last one. A block whose encoded and decoded lengths are
    equal would count as not encoded. Source: README_CHUNK_FORMAT of c-blosc.
    """
    first = _HEADER.size + 4 * len(starts)
    sizes = size, min(block_bytes, size), first + len(blocks)
    header = _HEADER.pack(_VERSION, 1, _BITS_SHUFFLED | _NOT_SPLIT | _LZ4, item_bytes, *sizes)
    return header + struct.pack(f"<{len(starts)}I", *(first + start for start in starts)) + blocks


def decode(data: Data, size: int) -> bytearray:
    """The decoded chunk of `size` bytes. Raises CorruptDataset."""
    from numcodecs import blosc as c_blosc

    if len(data) < _HEADER.size:
        raise CorruptDataset(f"blosc: {len(data)} bytes, a header has {_HEADER.size}")
    _, _, _, _, stated_bytes, _, length = _HEADER.unpack_from(data)
    # The library believes both: it would read and write beyond the buffers.
    if length != len(data):
        raise CorruptDataset(f"blosc: the chunk has {len(data)} bytes, its header states {length}")
    check_size("blosc", stated_bytes, size)
    decoded = bytearray(size)
    try:
        c_blosc.decompress(data, decoded)
    except (RuntimeError, ValueError) as error:
        raise CorruptDataset(f"blosc: {error}") from error
    return decoded
