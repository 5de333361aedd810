"""raw: bytes as they are."""

from __future__ import annotations

from acqstream.codecs.sizes import Data, check_size


def encode(data: Data) -> Data:
    """The same bytes."""
    return data


def decode(data: Data, size: int) -> Data:
    """The same bytes, `size` of them. Raises CorruptDataset."""
    check_size("raw", len(data), size)
    return data
