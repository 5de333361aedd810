"""bzip2: one stream."""

from __future__ import annotations

import bz2

from acqstream.codecs.sizes import Data, check_end
from acqstream.errors import CorruptDataset


def encode(data: Data, block_size: int = 9) -> bytes:
    """One stream; block_size is in units of 100,000 bytes, 1 to 9."""
    return bz2.compress(data, block_size)


def decode(data: Data, size: int) -> bytes:
    """The decoded stream of `size` bytes. Raises CorruptDataset."""
    stream = bz2.BZ2Decompressor()
    try:
        decoded = stream.decompress(data, size + 1)
    except OSError as error:
        raise CorruptDataset(f"bzip2: {error}") from error
    check_end("bzip2", stream, len(decoded), size)
    return decoded
