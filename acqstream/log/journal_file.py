"""The journal's bytes, read in pieces: a file of many gigabytes that is not a journal costs neither memory nor time."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np

from acqstream.log.journal import HEADER_BYTES, RECORD_BYTES, RECORD_DTYPE
from acqstream.storage.read_file import ReadFile

_PIECE_BYTES = 2**14 * RECORD_BYTES
_CRC_AT = RECORD_BYTES - 4


def read_journal(path: Path, *, max_damaged: int = 0) -> bytes:
    """Header and records, up to the end of the piece where more than max_damaged records fail their checksum.

    What it takes in memory is bounded by the sound records and max_damaged. Raises CorruptDataset for a pipe, folder or
    device, StorageError.
    """
    file = ReadFile(path)
    try:
        content = bytearray(file.read(0, HEADER_BYTES))
        damaged = 0
        while damaged <= max_damaged:
            piece = file.read(len(content), _PIECE_BYTES)
            content += piece
            if len(piece) < _PIECE_BYTES:
                break
            damaged += _count_damaged(piece)
        return bytes(content)
    finally:
        file.close()


def _count_damaged(piece: bytes) -> int:
    view = memoryview(piece)
    sums = np.fromiter((zlib.crc32(view[at : at + _CRC_AT]) for at in range(0, len(piece), RECORD_BYTES)), np.uint32)
    return int(np.count_nonzero(sums != np.frombuffer(piece, RECORD_DTYPE)["crc"]))
