"""The rows of a PNG image that is not interlaced: filters undone. Source: PNG specification (ISO/IEC 15948), clause 9.

Pillow reads 16-bit color as 8 bits; this reads it without a loss, slowly where a row has the filters Average or Paeth.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from acqstream.codecs import gzip
from acqstream.errors import CorruptDataset

_NONE, _SUB, _UP, _AVERAGE, _PAETH = range(5)
_MAGIC_BYTES = 8


def decode_rows(content: bytes, height: int, row_bytes: int, pixel_bytes: int) -> NDArray[np.uint8]:
    """Samples as bytes (height, row_bytes). Raises CorruptDataset."""
    try:
        data = gzip.decode(_image_data(content), height * (1 + row_bytes))
    except CorruptDataset as error:
        raise CorruptDataset(f"png: {error}") from error
    lines = np.frombuffer(data, np.uint8).reshape(height, 1 + row_bytes)
    rows = np.empty((height, row_bytes), np.uint8)
    above = np.zeros(row_bytes, np.uint8)
    for line, row in zip(lines, rows, strict=True):
        row[:] = _unfiltered(int(line[0]), line[1:], above, pixel_bytes)
        above = row
    return rows


def _image_data(content: bytes) -> bytes:
    """The joined IDAT parts. Raises CorruptDataset for a part that is cut or whose checksum does not agree."""
    parts: list[bytes] = []
    at = _MAGIC_BYTES
    while at + 12 <= len(content):
        # A part: length, kind, content, checksum of kind and content.
        (length,) = struct.unpack_from(">I", content, at)
        kind, end = content[at + 4 : at + 8], at + 8 + length
        if end + 4 > len(content):
            break
        if struct.unpack_from(">I", content, end)[0] != zlib.crc32(content[at + 4 : end]):
            raise CorruptDataset(f"the checksum of a part {kind!r} does not agree")
        if kind == b"IEND":
            return b"".join(parts)
        if kind == b"IDAT":
            parts.append(content[at + 8 : end])
        at = end + 4
    raise CorruptDataset("it ends within a part")


def _unfiltered(kind: int, line: NDArray[np.uint8], above: NDArray[np.uint8], step: int) -> NDArray[np.uint8]:
    """A row; step is the bytes of a pixel. All sums are modulo 256."""
    if kind == _NONE:
        return line
    if kind == _SUB:
        return np.cumsum(line.reshape(-1, step), axis=0, dtype=np.uint8).reshape(-1)
    if kind == _UP:
        return line + above
    if kind not in (_AVERAGE, _PAETH):
        raise CorruptDataset(f"png: a row has the filter {kind}, expected 0 to 4")
    # Each byte depends on the one a pixel before: plain integers are faster than arrays here.
    source, upper = line.tolist(), [0] * step + above.tolist()
    found = [0] * step
    for at, value in enumerate(source):
        left, up = found[at], upper[at + step]
        if kind == _AVERAGE:
            found.append((value + (left + up) // 2) & 255)
            continue
        corner = upper[at]
        to_left, to_up, to_corner = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
        near = left if to_left <= to_up and to_left <= to_corner else up if to_up <= to_corner else corner
        found.append((value + near) & 255)
    return np.array(found[step:], np.uint8)
