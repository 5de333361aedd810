"""The bytes of a chunk in each encoding. Pure. Sources: the Neuroglancer precomputed volume format, and its compressed
segmentation.

raw is little-endian values, x fastest, then y, z and the channel: an array (channels, z, y, x) in C order. png and jpeg
are an image as wide as the chunk, with z planes below each other, whose samples are the channels.

A chunk of labels in compressed segmentation is words of u32 LE: for each channel the word where its data begin, then
the data of the channels. Those begin with two words for each block, x fastest:

word  bits      field
0     0 to 23   where the table of the block begins: its labels, one or two words each
0     24 to 31  bits a voxel: 0, 1, 2, 4, 8, 16 or 32
1     0 to 31   where its voxels begin: numbers of labels in the table, x fastest, the first one in the lowest bits

These are counted in words from the start of the channel's data. Blocks at the end are padded.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from acqstream.codecs.images import JPEG_CHANNELS, PNG_CHANNELS, decode_jpeg, decode_png, encode_jpeg, encode_png
from acqstream.codecs.sizes import SPARE_BYTES
from acqstream.errors import CorruptDataset, UnsupportedFeature
from acqstream.formats.chunk_layout import Encoded

PNG_DTYPES = ("uint8", "uint16")
JPEG_DTYPES = ("uint8",)
READ_ENCODINGS = ("raw", "png", "jpeg", "compressed_segmentation")

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
        return [encode_labels(native, block)]
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
        if dtype.name not in LABEL_DTYPES:
            raise CorruptDataset(f"compressed segmentation of {dtype}, expected uint32 or uint64", path=where)
        return decode_labels(data, shape, block, dtype, where)
    raise UnsupportedFeature(f"{where}: encoding {encoding!r:.80}; {', '.join(READ_ENCODINGS)} are read")


def max_chunk_bytes(shape: _Shape, dtype: np.dtype[np.generic], kind: tuple[str, _Block]) -> int:
    """More than any encoded chunk of this shape takes."""
    encoding, block = kind
    if encoding == "compressed_segmentation":
        return max_label_bytes(shape, block, dtype)
    return 2 * math.prod(shape) * dtype.itemsize + SPARE_BYTES


def _decode_image(data: bytes, shape: _Shape, dtype: np.dtype[np.generic], encoding: str) -> NDArray[np.generic]:
    channels, *sides = shape
    counts, dtypes = (PNG_CHANNELS, PNG_DTYPES) if encoding == "png" else (JPEG_CHANNELS, JPEG_DTYPES)
    if channels not in counts or dtype.name not in dtypes:
        raise CorruptDataset(f"{encoding} of {channels} channels of {dtype}")
    pixels = math.prod(sides)
    image = decode_png(data, pixels, channels, dtype) if encoding == "png" else decode_jpeg(data, pixels, channels)
    # The image has a pixel's samples side by side; the chunk has one channel after another.
    return np.ascontiguousarray(image.T).reshape(shape)


LABEL_DTYPES = ("uint32", "uint64")
MAX_LABEL_VOXELS = 2**22  # written: the place of a table has 24 bits

_BITS = (0, 1, 2, 4, 8, 16, 32)
_BATCH_VOXELS = 2**20  # decoded at a time: places take 8 bytes each


def encode_labels(chunk: NDArray[np.generic], block: _Block) -> bytes:
    """The bytes of a chunk (channels, z, y, x) of uint32 or uint64, at most MAX_LABEL_VOXELS in a channel."""
    parts = [_encode_channel(channel, block) for channel in chunk]
    starts = itertools.accumulate((len(part) for part in parts[:-1]), initial=len(parts))
    words = np.concatenate([np.array([*starts], np.uint32), *parts])
    return words.astype("<u4").tobytes()


def decode_labels(
    data: bytes, shape: tuple[int, ...], block: _Block, dtype: np.dtype[np.generic], where: str
) -> NDArray[np.generic]:
    """The chunk of this shape (channels, z, y, x). Raises CorruptDataset that names `where`."""
    if len(data) % 4 or len(data) < 4 * shape[0]:
        raise CorruptDataset(f"compressed segmentation of {len(data)} bytes, expected 32-bit words", path=where)
    words = np.frombuffer(data, "<u4")
    found = np.zeros(shape, dtype)
    for number, channel in enumerate(found):
        _decode_channel(words[int(words[number]) :], channel, block, where)
    return found


def max_label_bytes(shape: tuple[int, ...], block: _Block, dtype: np.dtype[np.generic]) -> int:
    """More than any chunk of this shape takes: a table entry and an index for each voxel, and the headers."""
    channels, *sides = shape
    counts = [-(-size // step) for size, step in zip(sides, block, strict=True)]
    return channels * math.prod(counts) * (8 + math.prod(block) * (dtype.itemsize + 4)) + 4 * channels + SPARE_BYTES


def _blocks(shape: tuple[int, ...], block: _Block) -> Iterator[tuple[slice, ...]]:
    """The places of all blocks, x fastest."""
    sides = [
        [slice(start, min(start + step, size)) for start in range(0, size, step)]
        for size, step in zip(shape, block, strict=True)
    ]
    return itertools.product(*sides)


def _decode_channel(words: NDArray[np.uint32], target: NDArray[np.generic], block: _Block, where: str) -> None:
    count = math.prod(-(-size // step) for size, step in zip(target.shape, block, strict=True))
    if len(words) < 2 * count:
        raise CorruptDataset(f"compressed segmentation has {len(words)} words, {count} blocks take more", path=where)
    headers = words[: 2 * count].astype(np.int64).reshape(-1, 2)
    tables, bits, places = headers[:, 0] & 0xFFFFFF, headers[:, 0] >> 24, headers[:, 1]
    if wrong := set(np.unique(bits).tolist()) - set(_BITS):
        raise CorruptDataset(f"compressed segmentation with {wrong.pop()} bits a voxel", path=where)
    # Blocks with the same number of bits are decoded together; a batch bounds the memory.
    step = max(1, _BATCH_VOXELS // math.prod(block))
    regions = _blocks(target.shape, block)
    for first in range(0, count, step):
        batch = slice(first, min(first + step, count))
        labels = np.empty((batch.stop - batch.start, math.prod(block)), target.dtype)
        for kind in np.unique(bits[batch]).tolist():
            rows = np.flatnonzero(bits[batch] == kind)
            numbers = _numbers(words, places[batch][rows], kind, labels.shape[1], where)
            labels[rows] = _labels(words, tables[batch][rows], numbers, target.dtype, where)
        for row, region in zip(labels, itertools.islice(regions, len(labels)), strict=True):
            inside = tuple(slice(0, part.stop - part.start) for part in region)
            target[region] = row.reshape(block)[inside]


def _numbers(
    words: NDArray[np.uint32], places: NDArray[np.int64], bits: int, voxels: int, where: str
) -> NDArray[np.int64]:
    """The number of the label of each voxel, for blocks with so many bits a voxel."""
    if not bits:
        return np.zeros((len(places), voxels), np.int64)
    taken = _taken(words, places[:, None] + np.arange(-(-voxels * bits // 32)), where)
    # A word has the numbers of 32 / bits voxels, the first one lowest.
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    numbers = taken[:, :, None] >> shifts & np.uint32(2**bits - 1)
    return numbers.reshape(len(places), -1)[:, :voxels].astype(np.int64)


def _labels(
    words: NDArray[np.uint32],
    tables: NDArray[np.int64],
    numbers: NDArray[np.int64],
    dtype: np.dtype[np.generic],
    where: str,
) -> NDArray[np.generic]:
    width = dtype.itemsize // 4
    entries = tables[:, None] + numbers * width
    low = _taken(words, entries, where)
    if width == 1:
        return low.astype(dtype)
    high = _taken(words, entries + 1, where).astype(np.uint64)
    return high << np.uint64(32) | low  # a label of two words, the low one first


def _taken(words: NDArray[np.uint32], at: NDArray[np.int64], where: str) -> NDArray[np.uint32]:
    if at.size and int(at.max()) >= len(words):
        text = f"compressed segmentation has {len(words)} words in a channel, a block needs {int(at.max()) + 1}"
        raise CorruptDataset(text, path=where)
    return words[at]


def _encode_channel(channel: NDArray[np.generic], block: _Block) -> NDArray[np.uint32]:
    """The words of a channel: headers, tables, voxels."""
    blocks = _in_rows(channel, block)
    # The table of a block is its sorted labels, each once; a voxel has the place of its label there.
    order = np.argsort(blocks, axis=1, kind="stable")
    ordered = np.take_along_axis(blocks, order, axis=1)
    is_new = np.ones(ordered.shape, bool)
    is_new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    numbers = np.empty(ordered.shape, np.uint32)
    np.put_along_axis(numbers, order, (np.cumsum(is_new, axis=1) - 1).astype(np.uint32), axis=1)
    counts = is_new.sum(axis=1)
    table = ordered[is_new].astype(f"<u{channel.dtype.itemsize}").view("<u4")
    limits = np.array([2**bits for bits in _BITS], np.int64)
    bits = np.array(_BITS)[np.searchsorted(limits, counts)]
    lengths = -(-blocks.shape[1] * bits // 32)
    width = channel.dtype.itemsize // 4
    first_table, first_voxel = 2 * len(blocks), 2 * len(blocks) + len(table)
    tables = first_table + np.cumsum(counts * width) - counts * width
    places = first_voxel + np.cumsum(lengths) - lengths
    words = np.zeros(first_voxel + int(lengths.sum()), np.uint32)
    words[0:first_table:2] = tables | bits << 24
    words[1:first_table:2] = places
    words[first_table:first_voxel] = table
    for kind in np.unique(bits[bits > 0]).tolist():
        rows = np.flatnonzero(bits == kind)
        per_word = 32 // kind
        padded = np.zeros((len(rows), int(lengths[rows[0]]) * per_word), np.uint32)
        padded[:, : blocks.shape[1]] = numbers[rows]
        shifted = padded.reshape(len(rows), -1, per_word) << np.arange(0, 32, kind, dtype=np.uint32)
        words[places[rows][:, None] + np.arange(shifted.shape[1])] = np.bitwise_or.reduce(shifted, axis=2)
    return words


def _in_rows(channel: NDArray[np.generic], block: _Block) -> NDArray[np.generic]:
    """The voxels of each block as a row; blocks at the end repeat their last voxels."""
    sides = [(0, -size % step) for size, step in zip(channel.shape, block, strict=True)]
    padded = np.pad(channel, sides, mode="edge")
    z, y, x = (size // step for size, step in zip(padded.shape, block, strict=True))
    parts = padded.reshape(z, block[0], y, block[1], x, block[2]).transpose(0, 2, 4, 1, 3, 5)
    return np.ascontiguousarray(parts).reshape(z * y * x, -1)
