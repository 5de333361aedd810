"""The header of a stack file, versions 2 and 3.

Source: NDTiff specification, "NDTiff file header".

offset v3  v2   size  value
0          0    2     b"II" (or b"MM": everything big endian)
2          2    2     42
4          4    4     offset of the first page directory
8          8    4     483729
12         12   4     major version
16         -    4     minor version
20         16   4     2355492
24         20   4     L
28         24   L     summary metadata, JSON, UTF-8
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from acqstream.errors import CorruptDataset, UnsupportedFeature
from acqstream.model.metadata import MAX_JSON_BYTES
from acqstream.storage.files.small_file import parse_json

ReadAt = Callable[[int, int], bytes]
"""Bytes [offset, offset + count) of a file, fewer at its end."""

ByteOrder = Literal["<", ">"]

NDTIFF_MAGIC = 483729
SUMMARY_MAGIC = 2355492
INDEX_MAP_MAGIC = 54773648  # versions 0 and 1 have it where later ones have NDTIFF_MAGIC
TIFF_MAGIC = 42
_ORDERS: dict[bytes, ByteOrder] = {b"II": "<", b"MM": ">"}
_SUMMARY_MARK_AT = {2: 16, 3: 20}


@dataclass(frozen=True, slots=True)
class StackHeader:
    """Content before the first page. minor is None in version 2; offsets are bytes; end is the end of the JSON."""

    major: int
    minor: int | None
    byte_order: ByteOrder
    first_directory: int
    summary_metadata: dict[str, Any]
    end: int


def byte_order_of(read: ReadAt, path: str) -> ByteOrder:
    """Byte order of a stack file from its first bytes. Raises CorruptDataset if it is not a TIFF file."""
    head = read(0, 4)
    order = _ORDERS.get(head[:2])
    if order is None or len(head) < 4 or struct.unpack_from(order + "H", head, 2)[0] != TIFF_MAGIC:
        raise CorruptDataset(f"is not a TIFF file: begins with {head!r}, not 'II*\\0' or 'MM\\0*'", path=path, offset=0)
    return order


def parse_stack_header(read: ReadAt, size: int, path: str) -> StackHeader:
    """The header of the stack file that `read` reads, `size` bytes long; `path` is for errors.

    Raises CorruptDataset with the first offending byte, UnsupportedFeature for versions other than 2 and 3.
    """
    order = byte_order_of(read, path)
    head = read(0, 28)
    major = _major_version(head, order, path)
    mark_at = _SUMMARY_MARK_AT[major]
    expect(_u32(head, mark_at, order, path), SUMMARY_MAGIC, "the summary mark", path, mark_at)
    length = _u32(head, mark_at + 4, order, path)
    start = mark_at + 8
    # Before the text is read: a damaged length must not make a reader allocate gigabytes.
    if start + length > size:
        raise CorruptDataset(f"summary of {length} bytes ends beyond the file of {size}", path=path, offset=mark_at + 4)
    check_json_length(length, "a summary", path, mark_at + 4)
    return StackHeader(
        major=major,
        minor=_u32(head, 16, order, path) if major == 3 else None,
        byte_order=order,
        first_directory=_u32(head, 4, order, path),
        summary_metadata=parse_json_object(read(start, length), path, start),
        end=start + length,
    )


def check_json_length(length: int, what: str, path: str, offset: int) -> None:
    """Raises CorruptDataset for a length that no writer produces."""
    if length > MAX_JSON_BYTES:
        raise CorruptDataset(f"{what} of {length} bytes; at most {MAX_JSON_BYTES} are read", path=path, offset=offset)


def parse_json_object(data: bytes, path: str, offset: int) -> dict[str, Any]:
    """A JSON object from a stack file; empty for no bytes. Raises CorruptDataset."""
    text = decode_text(data).rstrip("\0 ")  # some writers count a closing NUL, or pad with spaces
    if not text:
        return {}
    value = parse_json(text, path, what="metadata", offset=offset)
    if not isinstance(value, dict):
        raise CorruptDataset(f"metadata is a {type(value).__name__}, not a JSON object", path=path, offset=offset)
    return value


def decode_text(data: bytes) -> str:
    """UTF-8, else Windows-1252, else Latin-1: some Java writers used the charset of their platform."""
    for charset in ("utf-8", "cp1252"):
        try:
            return data.decode(charset)
        except UnicodeDecodeError:
            continue  # Windows-1252 leaves five bytes undefined
    return data.decode("latin-1")


def _major_version(head: bytes, order: ByteOrder, path: str) -> int:
    mark = _u32(head, 8, order, path)
    if mark == INDEX_MAP_MAGIC:
        raise UnsupportedFeature(f"{path}: NDTiff versions 0 and 1 have no index: they can be read, nothing else")
    expect(mark, NDTIFF_MAGIC, "the NDTiff mark", path, 8)
    major = _u32(head, 12, order, path)
    if major not in _SUMMARY_MARK_AT:
        raise UnsupportedFeature(f"{path}: NDTiff version {major} cannot be read; versions 2 and 3 can")
    return major


def _u32(head: bytes, offset: int, order: ByteOrder, path: str) -> int:
    if offset + 4 > len(head):  # the file is shorter than a header
        raise CorruptDataset("the file ends inside its header", path=path, offset=len(head))
    value: int = struct.unpack_from(order + "I", head, offset)[0]
    return value


def expect(value: int, expected: int, name: str, path: str, offset: int) -> None:
    """Raises CorruptDataset unless the mark `name` has its value."""
    if value != expected:
        raise CorruptDataset(f"{value} where {name} {expected} was expected", path=path, offset=offset)
