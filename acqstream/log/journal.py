"""acqstream.journal: fixed-size records for all frame numbers in their order, beside the stacks.

The journal is what recovery and `verify` trust: where each frame lies and the checksum of its pixels. In version 1
record k is frame number k. In version 2 one record may stand for many skipped numbers: the first one in its number,
how many in the place of the pixel offset. A journal gets version 2 with its first such record. All is little endian.

    header (4096 bytes)                        record (64 bytes)
    0   8   magic "ACQJRNL1"                   0   8   frame number
    8   4   version 1 or 2                     8   4   flags: 1 frame, 2 skip (declared), 4 refused, 8 many (with 2)
    12  4   record size 64                     12  4   stack number
    16  64  dataset id, ASCII, NUL padded      16  8   pixel offset in the stack, bytes; of many: how many numbers
    80  4   clean flag: 1 closed, 0 open       24  8   pixel length, bytes
    84  4   CRC-32 of bytes 0..83              32  8   XXH3-64 of the pixels
                                               40  4   directory offset in the stack, bytes
                                               44  4   pixel type, as in the index
                                               48  4   1 if the producer sent no checksum, else 0
                                               52  8   XXH3-64 of the metadata
                                               60  4   CRC-32 of bytes 0..59

Published when: the frame's index entry is in NDTiff.index; the record is written just before it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xxhash
from numpy.typing import NDArray

from acqstream.errors import CorruptDataset
from acqstream.formats.ndtiff.placement import Pages
from acqstream.model.frame_header import MAX_NUMBER

JOURNAL_NAME = "acqstream.journal"
VERSIONS = (1, 2)
HEADER_BYTES = 4096
RECORD_BYTES = 64
FRAME, SKIP, HOLE, MANY = 1, 2, 4, 8
KNOWN_FLAGS_1 = (FRAME, SKIP, HOLE)  # of version 1
KNOWN_FLAGS = (*KNOWN_FLAGS_1, SKIP | MANY)
MAX_SINGLE_SKIPS = 16  # in records of their own: a journal without longer gaps stays readable for version 1

_HEADER = struct.Struct("<8sII64sI")
_RECORD = struct.Struct("<QIIQQQIIIQ")
_CRC = struct.Struct("<I")
_MAGIC = b"ACQJRNL1"
RECORD_DTYPE = np.dtype(
    {
        "names": [
            "number",
            "flags",
            "stack",
            "offset",
            "length",
            "checksum",
            "directory",
            "pixel_type",
            "own_checksum",
            "metadata_checksum",
            "crc",
        ],
        "formats": ["<u8", "<u4", "<u4", "<u8", "<u8", "<u8", "<u4", "<u4", "<u4", "<u8", "<u4"],
        "offsets": [0, 8, 12, 16, 24, 32, 40, 44, 48, 52, 60],
        "itemsize": RECORD_BYTES,
    }
)

_COVERED = np.dtype([("fields", f"V{_RECORD.size}"), ("crc", "<u4")])  # a record: the bytes that the CRC is of

assert _RECORD.size + _CRC.size == RECORD_BYTES
assert HEADER_BYTES % RECORD_BYTES == 0

MAX_UNFORCED_ENTRIES = 2**16
"""Maximum of entries that the committer leaves unforced, and that recovery reads."""
MAX_UNFORCED_BYTES = 4 * 2**30
"""The same, by the pixels of their frames: each page of a large frame is a read of its own."""


@dataclass(frozen=True, slots=True)
class JournalHeader:
    dataset_id: str
    clean: bool
    version: int = 1


def encode_journal_header(dataset_id: str, *, clean: bool, version: int = 1) -> bytes:
    """The first HEADER_BYTES of a journal."""
    fields = _HEADER.pack(_MAGIC, version, RECORD_BYTES, dataset_id.encode("ascii"), clean)
    return (fields + _CRC.pack(zlib.crc32(fields))).ljust(HEADER_BYTES, b"\0")


def decode_journal_header(content: bytes, path: str) -> JournalHeader:
    """Raises CorruptDataset if these are not the first bytes of a journal of version 1 or 2."""
    if len(content) < HEADER_BYTES:
        raise CorruptDataset(f"journal of {len(content)} bytes has no complete header", path=path, offset=0)
    fields = content[: _HEADER.size]
    magic, version, record_bytes, dataset_id, clean = _HEADER.unpack(fields)
    if magic != _MAGIC:
        raise CorruptDataset(f"not a journal of acqstream (starts with {magic!r})", path=path, offset=0)
    # Before the version: a damaged version field is damage, not a newer program.
    if _CRC.unpack_from(content, _HEADER.size)[0] != zlib.crc32(fields):
        raise CorruptDataset("the journal's header fails its checksum", path=path, offset=_HEADER.size)
    if version not in VERSIONS or record_bytes != RECORD_BYTES:
        text = f"journal of version {version} with records of {record_bytes} bytes; this acqstream reads 1 and 2, of 64"
        raise CorruptDataset(text, path=path, offset=8)
    return JournalHeader(dataset_id.rstrip(b"\0").decode("ascii", "replace"), bool(clean), version)


def encode_frame(
    number: int,
    *,
    stack: int,
    offset: int,
    length: int,
    checksum: int,
    directory: int,
    pixel_type: int,
    own_checksum: bool,
    metadata_checksum: int,
) -> bytes:
    """The record of a stored frame. own_checksum: the producer sent none, it was computed when the frame came."""
    sums = (checksum, directory, pixel_type, own_checksum, metadata_checksum)
    fields = _RECORD.pack(number, FRAME, stack, offset, length, *sums)
    return fields + _CRC.pack(zlib.crc32(fields))


def encode_frames(pages: Pages, checksums: Sequence[int], *, stack: int, pixel_type: int) -> bytes:
    """The records of frames of one kind: their pages in stack number `stack`, with the checksums of their pixels."""
    frames = pages.frames
    records = np.zeros(len(frames), RECORD_DTYPE)
    records["number"] = np.arange(frames.number, frames.next_number)
    records["flags"] = FRAME
    records["stack"] = stack
    records["offset"], records["directory"] = pages.pixels, pages.directories
    records["length"] = frames.frame_bytes
    records["checksum"] = np.fromiter(checksums, np.uint64, len(frames))
    records["pixel_type"] = pixel_type
    records["own_checksum"] = [checksum is None for checksum in frames.checksums]
    records["metadata_checksum"] = np.fromiter(map(xxhash.xxh3_64_intdigest, frames.metadata), np.uint64, len(frames))
    # One CRC call per record over bytes objects; numpy has no CRC over columns.
    covered = records.view(_COVERED)["fields"].tolist()
    records["crc"] = np.fromiter(map(zlib.crc32, covered), np.uint32, len(frames))
    return records.tobytes()


def encode_skip(first: int, count: int) -> bytes:
    """The records of numbers declared as never coming: one for each, or one for many (version 2)."""
    if count > MAX_SINGLE_SKIPS:
        return _encode_gap(first, SKIP | MANY, count)
    return b"".join(_encode_gap(number, SKIP, 0) for number in range(first, first + count))


def encode_hole(number: int, *, stack: int = 0, offset: int = 0, directory: int = 0) -> bytes:
    """The record of a frame that was refused; where its page lies, if it was written before."""
    fields = _RECORD.pack(number, HOLE, stack, offset, 0, 0, directory, 0, 0, 0)
    return fields + _CRC.pack(zlib.crc32(fields))


def needs_version_2(count: int) -> bool:
    """Return True if a gap of `count` numbers is written as one record."""
    return count > MAX_SINGLE_SKIPS


def _encode_gap(number: int, flags: int, count: int) -> bytes:
    fields = _RECORD.pack(number, flags, 0, count, 0, 0, 0, 0, 0, 0)
    return fields + _CRC.pack(zlib.crc32(fields))


def counts_of(records: NDArray[np.void]) -> NDArray[np.uint64]:
    """Number of frame numbers of each record; 0 for an impossible one."""
    counts = np.where(records["flags"] & MANY, records["offset"], np.uint64(1))
    # Each term first: the sum of two hostile 64-bit numbers would wrap to a small one.
    is_possible = (counts <= MAX_NUMBER) & (records["number"] <= MAX_NUMBER)
    is_possible &= records["number"] + counts <= MAX_NUMBER
    return np.where(is_possible, counts, np.uint64(0))


def next_number(records: NDArray[np.void]) -> int:
    """The number after those of valid records."""
    return int(records["number"][-1] + counts_of(records[-1:])[0]) if len(records) else 0
