"""Checks that a codec returned the expected number of bytes."""

from __future__ import annotations

from typing import Protocol

from acqstream.errors import CorruptDataset

Data = bytes | memoryview
"""One run of bytes; memoryviews are contiguous."""

SPARE_BYTES = 65536  # more than any codec adds to data that it cannot shrink, with headers and texts


class Decompressor(Protocol):
    """The interface that decompressors of the standard library share."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...


def check_size(codec: str, count: int, size: int) -> None:
    """Raise CorruptDataset unless `count` bytes are the `size` that there must be."""
    if count != size:
        more = "more than " if count > size else ""
        raise CorruptDataset(f"{codec}: holds {more}{min(count, size)} bytes, expected {size}")


def check_end(codec: str, stream: Decompressor, count: int, size: int) -> None:
    """Raise CorruptDataset unless a stream of `size` bytes is complete and nothing follows it."""
    if count > size:
        check_size(codec, count, size)
    if not stream.eof:
        raise CorruptDataset(f"{codec}: the stream is cut off after {count} bytes of data, expected {size}")
    check_size(codec, count, size)
    if stream.unused_data:
        raise CorruptDataset(f"{codec}: {len(stream.unused_data)} bytes after the end of the stream")
