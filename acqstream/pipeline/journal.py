"""acqstream.journal: one fixed-size record for every frame number, beside the stacks.

The journal is what recovery and `verify` trust: where each frame lies and the checksum of its pixels. Record k is
frame number k, so that the file's length tells how many there are. Little endian throughout.

    header (4096 bytes)                        record (64 bytes), record k at 4096 + 64 k
    0   8   magic "ACQJRNL1"                   0   8   frame number
    8   4   version 1                          8   4   flags: 1 frame, 2 skip (declared), 4 hole (lost)
    12  4   record size 64                     12  4   stack number
    16  64  dataset id, ASCII, NUL padded      16  8   pixel offset in the stack, bytes
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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import xxhash
from numpy.typing import NDArray

from acqstream.errors import CorruptDataset
from acqstream.formats.base import Pages

JOURNAL_NAME = "acqstream.journal"
HEADER_BYTES = 4096
RECORD_BYTES = 64
FRAME, SKIP, HOLE = 1, 2, 4

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


@dataclass(frozen=True, slots=True)
class JournalHeader:
    dataset_id: str
    clean: bool


def encode_journal_header(dataset_id: str, *, clean: bool) -> bytes:
    """The first HEADER_BYTES of a journal."""
    fields = _HEADER.pack(_MAGIC, 1, RECORD_BYTES, dataset_id.encode("ascii"), clean)
    return (fields + _CRC.pack(zlib.crc32(fields))).ljust(HEADER_BYTES, b"\0")


def decode_journal_header(content: bytes, path: str) -> JournalHeader:
    """Raises CorruptDataset if these are not the first bytes of a journal of version 1."""
    if len(content) < HEADER_BYTES:
        raise CorruptDataset(f"journal of {len(content)} bytes has no whole header", path=path, offset=0)
    fields = content[: _HEADER.size]
    magic, version, record_bytes, dataset_id, clean = _HEADER.unpack(fields)
    if magic != _MAGIC or version != 1 or record_bytes != RECORD_BYTES:
        raise CorruptDataset(f"not a journal of version 1 (starts with {magic!r})", path=path, offset=0)
    if _CRC.unpack_from(content, _HEADER.size)[0] != zlib.crc32(fields):
        raise CorruptDataset("the journal's header fails its checksum", path=path, offset=_HEADER.size)
    return JournalHeader(dataset_id.rstrip(b"\0").decode("ascii", "replace"), bool(clean))


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
    covered = records.view(_COVERED)["fields"].tolist()
    records["crc"] = np.fromiter(map(zlib.crc32, covered), np.uint32, len(frames))
    return records.tobytes()


def encode_gap(numbers: Iterable[int], flag: int) -> bytes:
    """Records of frame numbers without pixels. flag: SKIP or HOLE."""
    parts: list[bytes] = []
    for number in numbers:
        fields = _RECORD.pack(number, flag, 0, 0, 0, 0, 0, 0, 0, 0)
        parts += (fields, _CRC.pack(zlib.crc32(fields)))
    return b"".join(parts)


def decode_records(content: bytes) -> NDArray[np.void]:
    """The valid records from the start of `content` (a journal behind its header), as columns.

    A record is valid if its CRC holds and its number is its position; the first invalid one ends the list.
    """
    count = len(content) // RECORD_BYTES
    records = np.frombuffer(content, dtype=RECORD_DTYPE, count=count)
    in_order = records["number"] == np.arange(count, dtype=np.uint64)
    good = count if in_order.all() else int(np.argmin(in_order))
    for position in range(good):
        start = position * RECORD_BYTES
        if zlib.crc32(content[start : start + RECORD_BYTES - 4]) != records["crc"][position]:
            return records[:position]
    return records[:good]
