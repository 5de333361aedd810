"""Chunks of labels in compressed segmentation. Pure. Source: the Neuroglancer compressed segmentation format.

A chunk is words of u32 LE: for each channel the word where its data begin, then the data of the channels. Those begin
with two words for each block, x fastest:

word  bits      field
0     0 to 23   where the table of the block begins: its labels, one or two words each
0     24 to 31  bits a voxel: 0, 1, 2, 4, 8, 16 or 32
1     0 to 31   where its voxels begin: numbers of labels in the table, x fastest, the first one in the lowest bits

Places are counted in words from the start of the channel's data. Blocks at the end are padded.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from acqstream.errors import CorruptDataset

DTYPES = ("uint32", "uint64")
MAX_CHUNK_VOXELS = 2**22  # written: the place of a table has 24 bits

_BITS = (0, 1, 2, 4, 8, 16, 32)
_BATCH_VOXELS = 2**20  # decoded at a time: places take 8 bytes each

_Shape = tuple[int, int, int]  # z, y, x


def encode(chunk: NDArray[np.generic], block: _Shape) -> bytes:
    """The bytes of a chunk (channels, z, y, x) of uint32 or uint64, at most MAX_CHUNK_VOXELS in a channel."""
    parts = [_encode_channel(channel, block) for channel in chunk]
    starts = itertools.accumulate((len(part) for part in parts[:-1]), initial=len(parts))
    words = np.concatenate([np.array([*starts], np.uint32), *parts])
    return words.astype("<u4").tobytes()


def decode(
    data: bytes, shape: tuple[int, ...], block: _Shape, dtype: np.dtype[np.generic], where: str
) -> NDArray[np.generic]:
    """The chunk of this shape (channels, z, y, x). Raises CorruptDataset that names `where`."""
    if len(data) % 4 or len(data) < 4 * shape[0]:
        raise CorruptDataset(f"compressed segmentation of {len(data)} bytes, expected 32-bit words", path=where)
    words = np.frombuffer(data, "<u4")
    found = np.zeros(shape, dtype)
    for number, channel in enumerate(found):
        _decode_channel(words[int(words[number]) :], channel, block, where)
    return found


def max_bytes(shape: tuple[int, ...], block: _Shape, dtype: np.dtype[np.generic]) -> int:
    """More than any chunk of this shape takes: a table entry and an index for each voxel, and the headers."""
    channels, *sides = shape
    counts = [-(-size // step) for size, step in zip(sides, block, strict=True)]
    return channels * math.prod(counts) * (8 + math.prod(block) * (dtype.itemsize + 4)) + 4 * channels + 65536


def _blocks(shape: tuple[int, ...], block: _Shape) -> Iterator[tuple[slice, ...]]:
    """The places of all blocks, x fastest."""
    sides = [
        [slice(start, min(start + step, size)) for start in range(0, size, step)]
        for size, step in zip(shape, block, strict=True)
    ]
    return itertools.product(*sides)


def _decode_channel(words: NDArray[np.uint32], target: NDArray[np.generic], block: _Shape, where: str) -> None:
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


def _encode_channel(channel: NDArray[np.generic], block: _Shape) -> NDArray[np.uint32]:
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


def _in_rows(channel: NDArray[np.generic], block: _Shape) -> NDArray[np.generic]:
    """The voxels of each block as a row; blocks at the end repeat their last voxels."""
    sides = [(0, -size % step) for size, step in zip(channel.shape, block, strict=True)]
    padded = np.pad(channel, sides, mode="edge")
    z, y, x = (size // step for size, step in zip(padded.shape, block, strict=True))
    parts = padded.reshape(z, block[0], y, block[1], x, block[2]).transpose(0, 2, 4, 1, 3, 5)
    return np.ascontiguousarray(parts).reshape(z * y * x, -1)
