"""Compares the tiles of a dataset with the picture that a mirror has made of them."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import Position
from acqstream.errors import CorruptDataset
from acqstream.formats.chunk_format import ChunkArrayReader
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.mirrors.log_frames import LogFrames
from acqstream.model.axes import PICTURE_AXES

KEPT_BYTES = 256 * 2**20  # of chunks: the tiles beside share them


def compared_tiles(
    reader: NDTiffReader, array: ChunkArrayReader, frames: LogFrames, rows: Mapping[tuple[int, ...], int]
) -> Iterator[tuple[int, bool]]:
    """Yield rows of the dataset, and whether the mirror has each. rows: the one to compare at each place.

    A place ends with row and column of the tile. Raises DatasetError and StorageError where tiles or files cannot be
    read; a chunk that cannot be decoded counts as different.
    """
    chunks = _Chunks(array)
    for place, row in sorted(rows.items()):
        tile = frames.plane(reader.read_pixels(row))
        yield row, chunks.has(place, tile)


class _Chunks:
    """Chunks of a picture, of which the last ones stay in memory."""

    def __init__(self, array: ChunkArrayReader) -> None:
        spec = array.spec
        self._array = array
        self._outer = [axis for axis, name in enumerate(spec.axes) if name not in PICTURE_AXES]
        self._picture = [axis for axis, name in enumerate(spec.axes) if name in PICTURE_AXES]
        self._most = max(1, KEPT_BYTES // max(1, spec.chunk_bytes))
        self._kept: OrderedDict[Position, NDArray[Any] | None] = OrderedDict()

    def has(self, place: Position, tile: NDArray[Any]) -> bool:
        """Return whether the picture has this tile. Its place ends with row and column."""
        spec = self._array.spec
        position, index = [0] * len(spec.axes), [slice(None)] * len(spec.axes)
        for axis, at in zip(self._outer, place[:-2], strict=True):
            position[axis], inside = divmod(at, spec.chunk_shape[axis])
            index[axis] = slice(inside, inside + 1)
        numbers_of = dict(zip((spec.axes.index("y"), spec.axes.index("x")), place[-2:], strict=True))
        starts = [numbers_of.get(axis, 0) * size for axis, size in zip(self._picture, tile.shape, strict=True)]
        ends = [start + size for start, size in zip(starts, tile.shape, strict=True)]
        sides = [
            range(start // spec.chunk_shape[axis], -(-end // spec.chunk_shape[axis]))
            for axis, start, end in zip(self._picture, starts, ends, strict=True)
        ]
        for numbers in itertools.product(*sides):
            part: list[slice] = []
            for axis, number, start, end in zip(self._picture, numbers, starts, ends, strict=True):
                size = spec.chunk_shape[axis]
                position[axis] = number
                first, stop = max(start, number * size), min(end, (number + 1) * size)
                index[axis] = slice(first - number * size, stop - number * size)
                part.append(slice(first - start, stop - start))
            if not self._is_equal(tuple(position), tuple(index), tile[tuple(part)]):
                return False
        return True

    def _is_equal(self, position: Position, index: tuple[slice, ...], part: NDArray[Any]) -> bool:
        try:
            chunk = self._read(position)
        except CorruptDataset:  # its tiles count as different; `verify` reports the cause
            return False
        if chunk is None:  # a missing chunk reads as zeros
            return not part.any()
        return bool(np.array_equal(chunk[index].reshape(part.shape), part)) if chunk[index].size == part.size else False

    def _read(self, position: Position) -> NDArray[Any] | None:
        if any(at >= size for at, size in zip(position, self._array.spec.grid_shape, strict=True)):
            return None
        if position not in self._kept:
            while len(self._kept) >= self._most:
                self._kept.popitem(last=False)
            self._kept[position] = self._array.read_chunk(position)
        self._kept.move_to_end(position)
        return self._kept[position]
