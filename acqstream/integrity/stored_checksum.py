"""The checksum of bytes that lie in a file, in pieces: a damaged length must not take as much memory."""

from __future__ import annotations

import xxhash

from acqstream.storage.read_file import ReadFile

_PIECE_BYTES = 4 * 2**20


def stored_checksum(file: ReadFile, offset: int, length: int) -> int | None:
    """XXH3-64 of the bytes [offset, offset + length); None where the file ends before. Raises StorageError."""
    end = offset + length
    if file.size() < end:
        return None
    digest = xxhash.xxh3_64()
    while offset < end:
        piece = file.read(offset, min(_PIECE_BYTES, end - offset))
        if not piece:
            return None  # cut meanwhile
        digest.update(piece)
        offset += len(piece)
    return digest.intdigest()
