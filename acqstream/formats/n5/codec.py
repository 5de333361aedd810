"""A block file: header and payload.

Source: N5 file-system specification 4.0.0, item 9. All integers are big-endian.

offset    size  type  field
0         2     u16   mode: 0 default, 1 variable length, 2 object
2         2     u16   n, the number of dimensions (not in mode 2)
4         4n    u32   extents of this block, x first (not in mode 2)
4 + 4n    4     u32   number of elements (mode 1; in mode 2 of bytes, at offset 2)
...       rest        payload: elements in big-endian, x fastest, through the codec as one

Images are written in mode 0; a block in mode 1 is one if its number of elements is the product of its extents.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from acqstream.codecs.sizes import SPARE_BYTES
from acqstream.errors import CorruptDataset, UnsupportedFeature
from acqstream.formats.compression import N5_COMPRESSION
from acqstream.formats.n5.metadata import DatasetAttributes

_DEFAULT, _VARIABLE_LENGTH, _OBJECT = 0, 1, 2
_START = struct.Struct(">HH")


class BlockHeader(NamedTuple):
    """Header of a block. shape has the slowest axis first; length is that of the header, in bytes."""

    shape: tuple[int, ...]
    length: int


def make_header(shape: Sequence[int]) -> bytes:
    """The header of a block in mode 0; shape has the slowest axis first."""
    return struct.pack(f">HH{len(shape)}I", _DEFAULT, len(shape), *reversed(shape))


def max_file_bytes(attributes: DatasetAttributes) -> int:
    """More than any block file of this dataset can have: no codec doubles what it gets."""
    return 2 * math.prod(attributes.block_size) * attributes.dtype.itemsize + SPARE_BYTES


def parse_header(data: bytes, attributes: DatasetAttributes, path: str) -> BlockHeader:
    """The header of a block of this dataset, checked; data may be the beginning of the file only.

    Raises CorruptDataset, and UnsupportedFeature for a block that is not an image.
    """
    # A stranger's file may be cut anywhere: every field is checked before it is used.
    if len(data) < _START.size:
        raise CorruptDataset(f"has {len(data)} bytes, too few for the header of a block", path=path, offset=0)
    mode, ndim = _START.unpack_from(data)
    if mode == _OBJECT:
        raise UnsupportedFeature(f"{path}: a block of objects (mode 2), expected one of elements (mode 0)")
    if mode not in (_DEFAULT, _VARIABLE_LENGTH):
        raise CorruptDataset(f"unknown mode {mode} of a block, expected 0", path=path, offset=0)
    expected = attributes.chunk_shape
    if ndim != len(expected):
        raise CorruptDataset(f"a block of {ndim} dimensions, expected {len(expected)}", path=path, offset=2)
    length = 4 + 4 * ndim + (4 if mode == _VARIABLE_LENGTH else 0)
    if len(data) < length:
        raise CorruptDataset(f"has {len(data)} bytes, the header alone has {length}", path=path, offset=len(data))
    shape = struct.unpack_from(f">{ndim}I", data, 4)[::-1]
    # Blocks at the end may be smaller, none larger: that bounds what decoding allocates.
    if not all(1 <= size <= most for size, most in zip(shape, expected, strict=True)):
        text = f"a block of {shape[::-1]} (x first), expected at most {attributes.block_size}"
        raise CorruptDataset(text, path=path, offset=4)
    if mode == _VARIABLE_LENGTH:
        (elements,) = struct.unpack_from(">I", data, length - 4)
        # Other counts mean elements of several bytes each, whose type the attributes do not tell.
        if elements != math.prod(shape):
            text = f"{path}: a block of {elements} elements of variable length (mode 1), expected {math.prod(shape)}"
            raise UnsupportedFeature(text)
    return BlockHeader(shape, length)


def decode_block(data: bytes, attributes: DatasetAttributes, crop: tuple[int, ...], path: str) -> NDArray[np.generic]:
    """The elements of a block file as a new array of shape `crop`, slowest axis first, in this machine's byte order.

    The header says how far the block reaches: what is beyond `crop` is left out, what is missing is zeros. Raises as
    `parse_header`, and CorruptDataset if the payload is not what the header says.
    """
    header = parse_header(data, attributes, path)
    dtype = attributes.dtype.newbyteorder(">")
    size = math.prod(header.shape) * dtype.itemsize
    try:
        payload = N5_COMPRESSION.decode(attributes.compression, memoryview(data)[header.length :], size)
    except CorruptDataset as error:
        raise CorruptDataset(str(error), path=path, offset=header.length) from error
    except UnsupportedFeature as error:
        raise UnsupportedFeature(f"{path}: {error}") from error
    block = np.frombuffer(payload, dtype).reshape(header.shape)
    inside = tuple(slice(0, size) for size in crop)
    part = block[inside]
    # `block` may be a read-only view of the file's bytes: the result is always a copy.
    if part.shape == crop:
        return part.astype(attributes.dtype)
    array = np.zeros(crop, attributes.dtype)
    array[tuple(slice(0, size) for size in part.shape)] = part
    return array


def encode_items(chunk: NDArray[np.generic]) -> memoryview:
    """The items of a chunk as bytes in big-endian, C order; the chunk's own memory if it is like that already."""
    # No copy where the engine assembled the chunk in big-endian already.
    swapped = np.ascontiguousarray(chunk, chunk.dtype.newbyteorder(">"))
    return swapped.reshape(-1).view(np.uint8).data
