"""Pixels of one frame, from a stack file to an array."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from acqstream.errors import CorruptDataset, UnsupportedFeature
from acqstream.formats.ndtiff.stack_header import ByteOrder
from acqstream.model.frame_header import PixelType
from acqstream.storage.files.read_file import ReadFile

PIXEL_TYPES = {
    0: PixelType("|u1", 1, 8),
    1: PixelType("<u2", 1, 16),
    2: PixelType("|u1", 3, 8),
    3: PixelType("<u2", 1, 10),
    4: PixelType("<u2", 1, 12),
    5: PixelType("<u2", 1, 14),
    6: PixelType("<u2", 1, 11),  # not in the published table, but written by both reference libraries
}
"""By their code in the index."""
_PIXEL_BYTES = np.array([PIXEL_TYPES[code].pixel_bytes for code in range(len(PIXEL_TYPES))], np.int64)

RAW = frozenset({0, 1})  # 1 is TIFF's code for none; some writers put TIFF codes into the index
_ZLIB = frozenset({8, 32946})
_ZLIB_BEST_RATIO = 1032  # deflate cannot shrink more; bounds what a hostile index can make us allocate
_SMALL_BYTES = 64 * 2**20  # may be allocated for nothing


class StoredFrame(NamedTuple):
    """Place and encoding of one frame's pixels. Offsets are bytes from the start of the stack file."""

    pixel_type: PixelType
    height: int
    width: int
    compression: int
    pixels: int
    metadata: int

    @property
    def shape(self) -> tuple[int, ...]:
        return self.pixel_type.shape(self.height, self.width)

    @property
    def payload_bytes(self) -> int:
        """Bytes of the pixels, decompressed."""
        return self.height * self.width * self.pixel_type.pixel_bytes

    @property
    def is_plain(self) -> bool:
        """Stored uncompressed: the bytes in the file are the pixels."""
        return self.compression in RAW


def pixel_type_of_code(code: int, path: Path) -> PixelType:
    """The pixel type of an index entry's code. Raises UnsupportedFeature."""
    pixel_type = PIXEL_TYPES.get(code)
    if pixel_type is None:
        raise UnsupportedFeature(f"{path}: pixel type {code} is not known; 0 to {max(PIXEL_TYPES)} are")
    return pixel_type


def is_raw(compression: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Which codes of the index stand for uncompressed pixels."""
    return np.isin(compression, list(RAW))


def payload_bytes(numbers: NDArray[np.void]) -> NDArray[np.int64]:
    """Bytes of the decompressed pixels of index entries (dtype index.NUMBERS); -1 where the pixel type is unknown."""
    code = numbers["pixel_type"]
    is_known = (code >= 0) & (code < len(_PIXEL_BYTES))
    pixel_bytes = _PIXEL_BYTES[np.where(is_known, code, 0)]
    payload = numbers["width"].astype(np.int64) * numbers["height"] * pixel_bytes
    return np.where(is_known, payload, -1)


def read_pixels(file: ReadFile, frame: StoredFrame, byte_order: ByteOrder) -> NDArray[Any]:
    """A new array of shape (Y, X), or (Y, X, 3) for RGB, uint8 or little-endian uint16.

    Raises CorruptDataset if bytes are missing, UnsupportedFeature for an unknown compression.
    """
    if frame.compression in RAW:
        array = _read_raw(file, frame)
    elif frame.compression in _ZLIB:
        array = _read_zlib(file, frame)
    else:
        raise UnsupportedFeature(f"{file.path}: pixel compression {frame.compression} cannot be read; 0, 1 and 8 can")
    if byte_order == ">":
        array.byteswap(inplace=True)
    return array


def _read_raw(file: ReadFile, frame: StoredFrame) -> NDArray[Any]:
    pixel_type, height, width, _, offset, _ = frame
    payload_bytes = height * width * pixel_type.pixel_bytes
    if payload_bytes > _SMALL_BYTES and not file.reaches(offset + payload_bytes):
        raise _beyond_end(file, offset, payload_bytes, file.size())  # before anything is allocated
    octets = np.empty(payload_bytes, np.uint8)
    if file.read_into(offset, octets.data) != payload_bytes:
        raise _beyond_end(file, offset, payload_bytes, file.size())
    # One call: a view and a change of shape take twice as long.
    return np.ndarray(pixel_type.shape(height, width), pixel_type.numpy_dtype, octets)


def _read_zlib(file: ReadFile, frame: StoredFrame) -> NDArray[Any]:
    size = file.size()
    end = frame.metadata if frame.pixels < frame.metadata <= size else size
    stored = end - frame.pixels
    if stored <= 0 or frame.payload_bytes > stored * _ZLIB_BEST_RATIO:
        raise _beyond_end(file, frame.pixels, max(1, frame.payload_bytes // _ZLIB_BEST_RATIO), size)
    data = file.read(frame.pixels, stored)
    try:
        pixels = zlib.decompressobj().decompress(data, frame.payload_bytes + 1)
    except zlib.error as error:
        raise CorruptDataset(f"pixels do not decompress: {error}", path=str(file.path), offset=frame.pixels) from error
    if len(pixels) != frame.payload_bytes:
        raise CorruptDataset(
            f"pixels decompress to {len(pixels)} bytes or more, expected {frame.payload_bytes}",
            path=str(file.path),
            offset=frame.pixels,
        )
    return np.frombuffer(bytearray(pixels), frame.pixel_type.numpy_dtype).reshape(frame.shape)


def _beyond_end(file: ReadFile, offset: int, count: int, size: int) -> CorruptDataset:
    return CorruptDataset(
        f"pixels of {count} bytes end beyond the end of the file at {size}", path=str(file.path), offset=offset
    )
