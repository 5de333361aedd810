"""acqstream.journal: fixed-size records for all frame numbers in their order, beside the stacks.

The journal is what recovery and `verify` trust: where each frame lies, and the checksums of its pixels and its
metadata. All is little endian. Version 3 is written; versions 1 and 2 are read, and become 3 when a run is resumed.

    header (4096 bytes)                        record (64 bytes)
    0   8   magic "ACQJRNL1"                   0   8   frame number
    8   4   version 1, 2 or 3                  8   4   flags: 1 frame, 2 skip (declared), 4 refused, 8 many (with 2)
    12  4   record size 64                     12  4   stack number
    16  64  dataset id, ASCII, NUL padded      16  4   pixel offset in the stack, bytes
    80  4   clean flag: 1 closed, 0 open       20  4   pixel length, bytes
    84  4   CRC-32 of bytes 0..83              24  8   capture time, ns since 1970, signed; 0 where it is not known
                                               32  8   XXH3-64 of the pixels
    of many skipped numbers                    40  4   directory offset in the stack, bytes
    0   8   the first of them                  44  4   pixel type, as in the index
    16  8   how many                           48  1   1 if the producer sent no checksum of the pixels, else 0
                                               49  1   1 if the producer sent the checksum of the metadata, else 0
    of a frame, versions 1 and 2               50  1   1 if the capture time is known, else 0
    16  8   pixel offset                       51  1   packing: 1; 0 in records of versions 1 and 2, as of gaps
    24  8   pixel length                       52  8   XXH3-64 of the metadata
    49  3   0                                  60  4   CRC-32 of bytes 0..59

Version 1 has a record for each number. In memory (`unpack`) all records have the form of version 3.

Published when: the frame's index entry is in NDTiff.index; the record is written just before it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acqstream.errors import CorruptDataset
from acqstream.formats.ndtiff.layout import Pages
from acqstream.model.frame_header import MAX_NUMBER

JOURNAL_NAME = "acqstream.journal"
VERSION = 3
VERSIONS = (1, 2, 3)
HEADER_BYTES = 4096
RECORD_BYTES = 64
FRAME, SKIP, HOLE, MANY = 1, 2, 4, 8
KNOWN_FLAGS_1 = (FRAME, SKIP, HOLE)  # of version 1
KNOWN_FLAGS = (*KNOWN_FLAGS_1, SKIP | MANY)
MAX_SINGLE_SKIPS = 16  # in records of their own

_HEADER = struct.Struct("<8sII64sI")
_RECORD = struct.Struct("<QIIIIqQIIBBBBQ")
_PACKING = 1
_HALF_BITS = 32
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
            "time_ns",
            "checksum",
            "directory",
            "pixel_type",
            "own_checksum",
            "metadata_sent",
            "timed",
            "packing",
            "metadata_checksum",
            "crc",
        ],
        "formats": ["<u8", *["<u4"] * 4, "<i8", "<u8", "<u4", "<u4", *["u1"] * 4, "<u8", "<u4"],
        "offsets": [0, 8, 12, 16, 20, 24, 32, 40, 44, 48, 49, 50, 51, 52, 60],
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
    version: int = VERSION


def encode_journal_header(dataset_id: str, *, clean: bool, version: int = VERSION) -> bytes:
    """The first HEADER_BYTES of a journal."""
    fields = _HEADER.pack(_MAGIC, version, RECORD_BYTES, dataset_id.encode("ascii"), clean)
    return (fields + _CRC.pack(zlib.crc32(fields))).ljust(HEADER_BYTES, b"\0")


def decode_journal_header(content: bytes, path: str) -> JournalHeader:
    """Raises CorruptDataset if these are not the first bytes of a journal of version 1, 2 or 3."""
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
        text = f"journal of version {version} with records of {record_bytes} bytes; this acqstream reads 1 to 3, of 64"
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
    metadata_checksum: int,
    time_ns: int | None,
) -> bytes:
    """The record of a stored frame whose checksums were computed from the stored bytes."""
    place = (number, FRAME, stack, offset, length, time_ns or 0, checksum, directory, pixel_type)
    return _with_crc(_RECORD.pack(*place, True, False, time_ns is not None, _PACKING, metadata_checksum))


def encode_frames(
    pages: Pages, checksums: Sequence[int], metadata_checksums: Sequence[int], *, stack: int, pixel_type: int
) -> bytes:
    """The records of frames of one kind: their pages in stack number `stack`, with the checksums of what is stored."""
    frames = pages.frames
    records = np.zeros(len(frames), RECORD_DTYPE)
    records["number"] = np.arange(frames.number, frames.next_number)
    records["flags"] = FRAME
    records["stack"] = stack
    records["offset"], records["directory"] = pages.pixels, pages.directories
    records["length"] = frames.frame_bytes
    records["checksum"] = np.fromiter(checksums, np.uint64, len(frames))
    records["pixel_type"] = pixel_type
    records["metadata_sent"] = True  # mostly: no look at each of them then
    if None in frames.checksums:
        records["own_checksum"] = [checksum is None for checksum in frames.checksums]
    if None in frames.metadata_checksums:
        records["metadata_sent"] = [checksum is not None for checksum in frames.metadata_checksums]
    records["metadata_checksum"] = np.fromiter(metadata_checksums, np.uint64, len(frames))
    records["packing"] = _PACKING
    if frames.times_ns.count(None) < len(frames):
        records["timed"] = [time_ns is not None for time_ns in frames.times_ns]
        records["time_ns"] = [time_ns or 0 for time_ns in frames.times_ns]
    # One CRC call per record over bytes objects; numpy has no CRC over columns.
    covered = records.view(_COVERED)["fields"].tolist()
    records["crc"] = np.fromiter(map(zlib.crc32, covered), np.uint32, len(frames))
    return records.tobytes()


def encode_skip(first: int, count: int) -> bytes:
    """The records of numbers declared as never coming: one for each, or one for many."""
    if count > MAX_SINGLE_SKIPS:
        return _encode_gap(first, SKIP | MANY, count)
    return b"".join(_encode_gap(number, SKIP, 0) for number in range(first, first + count))


def encode_hole(number: int, *, stack: int = 0, offset: int = 0, directory: int = 0) -> bytes:
    """The record of a frame that was refused; where its page lies, if it was written before."""
    return _with_crc(_RECORD.pack(number, HOLE, stack, offset, 0, 0, 0, directory, *[0] * 6))


def _encode_gap(number: int, flags: int, count: int) -> bytes:
    low, high = count & (2**_HALF_BITS - 1), count >> _HALF_BITS
    return _with_crc(_RECORD.pack(number, flags, 0, low, high, *[0] * 9))


def _with_crc(fields: bytes) -> bytes:
    return fields + _CRC.pack(zlib.crc32(fields))


def unpack(content: bytearray) -> tuple[NDArray[np.void], NDArray[np.bool_]]:
    """Records over `content`, which is changed: those of frames of versions 1 and 2 get the form of version 3.

    The second array is False for records whose fields are impossible.
    """
    records = np.frombuffer(content, RECORD_DTYPE)
    is_old = (records["flags"] == FRAME) & (records["packing"] == 0)
    # In the old form the upper halves of offset and length, which no stack file needs.
    is_possible = ~is_old | ((records["length"] == 0) & (records["time_ns"] >> _HALF_BITS == 0))
    is_possible &= (records["packing"] <= _PACKING) & (records["timed"] <= records["packing"])
    is_old &= is_possible
    # The old length lies where the time is now.
    records["length"][is_old], records["time_ns"][is_old] = records["time_ns"][is_old], 0
    return records, is_possible


def stored_bytes(records: NDArray[np.void]) -> bytes:
    """Records of `unpack` as they are in the file."""
    is_old = (records["flags"] == FRAME) & (records["packing"] == 0)
    if not is_old.any():
        return records.tobytes()
    stored = records.copy()
    stored["time_ns"][is_old], stored["length"][is_old] = records["length"][is_old], 0
    return stored.tobytes()


def _many(records: NDArray[np.void]) -> NDArray[np.uint64]:
    return records["offset"].astype(np.uint64) | records["length"].astype(np.uint64) << np.uint64(_HALF_BITS)


def counts_of(records: NDArray[np.void]) -> NDArray[np.uint64]:
    """Number of frame numbers of each record; 0 for an impossible one."""
    counts = np.where(records["flags"] & MANY, _many(records), np.uint64(1))
    # Each term first: the sum of two hostile 64-bit numbers would wrap to a small one.
    is_possible = (counts <= MAX_NUMBER) & (records["number"] <= MAX_NUMBER)
    is_possible &= records["number"] + counts <= MAX_NUMBER
    return np.where(is_possible, counts, np.uint64(0))


def next_number(records: NDArray[np.void]) -> int:
    """The number after those of valid records."""
    return int(records["number"][-1] + counts_of(records[-1:])[0]) if len(records) else 0
