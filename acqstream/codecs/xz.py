"""xz: one .xz stream with LZMA2 and CRC64."""

from __future__ import annotations

import lzma

from acqstream.codecs.sizes import Data, check_end
from acqstream.errors import CorruptDataset

_MEMORY_BYTES = 256 * 1024 * 1024  # preset 9 needs 65 MiB to be read; a header may ask for 4 GiB


def encode(data: Data, preset: int = 6) -> bytes:
    """One stream; preset 0 to 9."""
    return lzma.compress(data, lzma.FORMAT_XZ, lzma.CHECK_CRC64, preset)


def decode(data: Data, size: int) -> bytes:
    """The decoded stream of `size` bytes. Raises CorruptDataset."""
    stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, _MEMORY_BYTES)
    try:
        decoded = stream.decompress(data, size + 1)
    except lzma.LZMAError as error:
        raise CorruptDataset(f"xz: {error}") from error
    check_end("xz", stream, len(decoded), size)
    return decoded
