"""Whether a codec gave back as much as there must be."""

from __future__ import annotations

from typing import Protocol

from acqstream.errors import CorruptDataset

Data = bytes | memoryview
"""One run of bytes; memoryviews are contiguous."""


class Decompressor(Protocol):
    """What the decompressing objects of the standard library have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...


def check_size(codec: str, found: int, size: int) -> None:
    """Raise CorruptDataset unless `found` bytes are the `size` that there must be."""
    if found != size:
        more = "more than " if found > size else ""
        raise CorruptDataset(f"{codec}: holds {more}{min(found, size)} bytes, expected {size}")


def check_end(codec: str, stream: Decompressor, found: int, size: int) -> None:
    """Raise CorruptDataset unless a stream of `size` bytes is complete and nothing stands behind it."""
    if found > size:
        check_size(codec, found, size)
    if not stream.eof:
        raise CorruptDataset(f"{codec}: the stream is cut off after {found} bytes of data, expected {size}")
    check_size(codec, found, size)
    if stream.unused_data:
        raise CorruptDataset(f"{codec}: {len(stream.unused_data)} bytes behind the end of the stream")
