"""Every n-th pixel of a plane, read in parts, so that a picture of foreign data costs bounded memory and time. Pure.

A plane is as large as a file says. What is read is counted in chunks, of which each is read whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_SIDE = 2048  # of a picture
MAX_PART_BYTES = 2**26  # of chunks that are read at a time; others who read files have their turn after each part
MAX_PART_CHUNKS = 512
MAX_BYTES = 2**31  # of all chunks of a picture: those of 4096 x 4096 uint16 in cubes of 64
MAX_CHUNKS = 2**14


@dataclass(frozen=True, slots=True)
class ThinnedPicture:
    """pixels (Y, X[, 3]) are filled by `parts`, step by step; each gives the bytes that it has read at most.

    steps: stored pixels (y, x) for one of them.
    """

    pixels: NDArray[Any]
    steps: tuple[int, int]
    parts: Iterator[int]

    @classmethod
    def of(cls, pixels: NDArray[Any]) -> ThinnedPicture:
        """A plane that was read already."""
        return cls(pixels, (1, 1), iter(()))

    def complete(self) -> NDArray[Any]:
        """The pixels after all parts that are left."""
        for _ in self.parts:
            pass
        return self.pixels


@dataclass(frozen=True, slots=True)
class ChunkedPlane:
    """A plane of `shape` (y, x) in chunks of `chunk` (y, x), each of chunk_bytes as it is read, of all its axes."""

    shape: tuple[int, int]
    chunk: tuple[int, int]
    chunk_bytes: int

    @property
    def least_step(self) -> int:
        """The step of the largest picture."""
        return -(-max(self.shape) // MAX_SIDE)

    def cost(self, step: int) -> tuple[int, int]:
        """Chunks that every `step`-th pixel along y and x lies in, and their bytes."""
        sides = zip(self.shape, self.chunk, strict=True)
        count = math.prod(min(-(-size // step), -(-size // side)) for size, side in sides)
        return count, count * self.chunk_bytes

    def step(self) -> int:
        """The smallest step, or nearly so, whose picture keeps the bounds, or takes one chunk."""
        step = max(1, self.least_step)
        while True:
            count, count_bytes = self.cost(step)
            if count <= 1 or (count <= MAX_CHUNKS and count_bytes <= MAX_BYTES):
                return step
            step = -(-step * 5 // 4)

    def parts(self, step: int) -> Iterator[tuple[range, range]]:
        """Rows and columns of the picture, part by part; no chunk lies in two parts."""
        most = max(1, min(MAX_PART_CHUNKS, MAX_PART_BYTES // max(1, self.chunk_bytes)))
        (height, width), (side_y, side_x) = self.shape, self.chunk
        across = min(most, -(-width // step), -(-width // side_x))
        for rows in _groups(height, side_y, step, most // max(1, across)):
            for columns in _groups(width, side_x, step, across):
                yield rows, columns

    def read(
        self, samples: Sequence[int], dtype: np.dtype[Any], read: Callable[[slice, slice], NDArray[Any]]
    ) -> ThinnedPicture:
        """The picture. read: gives stored pixels (Y, X, *samples) by their slices along y and x."""
        step = self.step()
        pixels = np.zeros((*(-(-size // step) for size in self.shape), *samples), dtype)

        def parts() -> Iterator[int]:
            for rows, columns in self.parts(step):
                y, x = _stored(rows, step, self.shape[0]), _stored(columns, step, self.shape[1])
                pixels[rows.start : rows.stop, columns.start : columns.stop] = read(y, x)
                sides = zip((rows, columns), self.chunk, strict=True)
                touched = ({one * step // side for one in part} for part, side in sides)
                yield math.prod(map(len, touched)) * self.chunk_bytes

        return ThinnedPicture(pixels, (step, step), parts())


def _groups(size: int, side: int, step: int, count: int) -> Iterator[range]:
    """Numbers 0, 1, .. of every `step`-th item of `size`, in groups that take `count` chunks of `side` each."""
    end, unit, at = -(-size // step), max(side, step) * max(1, count), 0
    for number in range(1, -(-size // unit) + 1):
        stop = min(end, -(-number * unit // step))
        if stop > at:
            yield range(at, stop)
        at = stop


def _stored(numbers: range, step: int, size: int) -> slice:
    """The stored items of numbers in the picture."""
    return slice(numbers.start * step, min(size, (numbers.stop - 1) * step + 1), step)
