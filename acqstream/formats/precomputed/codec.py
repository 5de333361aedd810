"""The bytes of a chunk in each encoding. Pure. Source: the Neuroglancer precomputed volume format.

raw is little-endian values, x fastest, then y, z and the channel: an array (channels, z, y, x) in C order. png and jpeg
are an image as wide as the chunk, with z planes below each other, whose samples are the channels.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from acqstream.codecs.images import JPEG_CHANNELS, PNG_CHANNELS, decode_jpeg, decode_png, encode_jpeg, encode_png
from acqstream.errors import CorruptDataset, UnsupportedFeature
from acqstream.formats.chunk_layout import Encoded
from acqstream.formats.precomputed import compressed_segmentation

PNG_DTYPES = ("uint8", "uint16")
JPEG_DTYPES = ("uint8",)
READ_ENCODINGS = ("raw", "png", "jpeg", "compressed_segmentation")
_SPARE_BYTES = 65536  # headers and texts of images, and what gzip adds

_Shape = tuple[int, ...]  # channels, z, y, x
_Block = tuple[int, int, int]  # z, y, x


def encode_chunk(chunk: NDArray[np.generic], encoding: str, block: _Block, quality: int) -> Encoded:
    """The bytes of a chunk (channels, z, y, x). Raw chunks in little-endian that are contiguous are not copied.

    quality is that of jpeg, 1 to 100. Raises UnsupportedFeature for jpeg without Pillow.
    """
    if encoding in ("png", "jpeg"):
        pixels = np.moveaxis(chunk, 0, -1)
        image = np.ascontiguousarray(pixels.reshape(-1, pixels.shape[2], pixels.shape[3]))
        return [encode_png(image) if encoding == "png" else encode_jpeg(image, quality)]
    if encoding == "compressed_segmentation":
        native = chunk.astype(chunk.dtype.newbyteorder("="), copy=False)
        return [compressed_segmentation.encode(native, block)]
    little = np.ascontiguousarray(chunk, chunk.dtype.newbyteorder("<"))
    return [little.reshape(-1).view(np.uint8).data]


def decode_chunk(
    data: bytes, shape: _Shape, dtype: np.dtype[np.generic], kind: tuple[str, _Block], where: str
) -> NDArray[np.generic]:
    """The chunk (channels, z, y, x), in this machine's byte order; kind is the encoding and its block (z, y, x).

    Raises CorruptDataset that names `where`, UnsupportedFeature for other encodings and without Pillow.
    """
    encoding, block = kind
    try:
        if encoding == "raw":
            expected = math.prod(shape) * dtype.itemsize
            if len(data) != expected:
                raise CorruptDataset(f"a raw chunk of {len(data)} bytes, expected {expected}")
            return np.frombuffer(data, dtype.newbyteorder("<")).reshape(shape).astype(dtype)
        if encoding in ("png", "jpeg"):
            return _decode_image(data, shape, dtype, encoding)
    except CorruptDataset as error:
        raise CorruptDataset(str(error), path=where, offset=0) from error
    except UnsupportedFeature as error:
        raise UnsupportedFeature(f"{where}: {error}") from error
    if encoding == "compressed_segmentation":
        if dtype.name not in compressed_segmentation.DTYPES:
            raise CorruptDataset(f"compressed segmentation of {dtype}, expected uint32 or uint64", path=where)
        return compressed_segmentation.decode(data, shape, block, dtype, where)
    raise UnsupportedFeature(f"{where}: encoding {encoding!r:.80}; {', '.join(READ_ENCODINGS)} are read")


def max_chunk_bytes(shape: _Shape, dtype: np.dtype[np.generic], kind: tuple[str, _Block]) -> int:
    """More than any encoded chunk of this shape takes."""
    encoding, block = kind
    if encoding == "compressed_segmentation":
        return compressed_segmentation.max_bytes(shape, block, dtype)
    return 2 * math.prod(shape) * dtype.itemsize + _SPARE_BYTES


def _decode_image(data: bytes, shape: _Shape, dtype: np.dtype[np.generic], encoding: str) -> NDArray[np.generic]:
    channels, *sides = shape
    counts, dtypes = (PNG_CHANNELS, PNG_DTYPES) if encoding == "png" else (JPEG_CHANNELS, JPEG_DTYPES)
    if channels not in counts or dtype.name not in dtypes:
        raise CorruptDataset(f"{encoding} of {channels} channels of {dtype}")
    pixels = math.prod(sides)
    image = decode_png(data, pixels, channels, dtype) if encoding == "png" else decode_jpeg(data, pixels, channels)
    return np.ascontiguousarray(image.T).reshape(shape)
