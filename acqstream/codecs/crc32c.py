"""crc32c: the data, then its CRC-32C (Castagnoli) as 4 bytes, little-endian. Source: Zarr v3, codec `crc32c`."""

from __future__ import annotations

from acqstream.codecs.sizes import Data, check_size
from acqstream.errors import CorruptDataset

LENGTH = 4


def checksum(data: Data) -> int:
    """The CRC-32C of the data."""
    import google_crc32c  # only readers and writers of shards need it

    value: int = google_crc32c.value(bytes(data))
    return value


def encode(data: Data) -> bytes:
    """The data with their checksum at the end."""
    return bytes(data) + checksum(data).to_bytes(LENGTH, "little")


def decode(data: Data, size: int) -> bytes:
    """The `size` bytes before the checksum. Raises CorruptDataset."""
    check_size("crc32c", len(data) - LENGTH, size)
    content, stated = bytes(data[:size]), int.from_bytes(data[size:], "little")
    computed = checksum(content)
    if computed != stated:
        raise CorruptDataset(f"crc32c: the checksum is {computed:08x}, the data state {stated:08x}")
    return content
