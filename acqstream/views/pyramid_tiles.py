"""Keys, state and memory of the tiles of lower levels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from acqstream.errors import DatasetError
from acqstream.formats.ndtiff.layout import align_up
from acqstream.model.axes import AxisValue
from acqstream.model.frame_header import PixelType
from acqstream.storage.page_memory import MemoryAhead

MEMORY_BYTES = 256 * 2**20
MIN_IMAGES = 24  # in memory, whatever the budget: one of each level, and some to evict
_PIECE_BYTES = 32 * 2**20
_MAX_AHEAD, _MAX_SPARE = 4, 32
ALL = 0b1111  # mask of a tile with all four children; bit 2 * row + column is set by each


class TileKey(NamedTuple):
    """Identity of a tile. other_axes are those beside row and column, in order of their names."""

    level: int
    other_axes: tuple[tuple[str, AxisValue], ...]
    row: int
    column: int

    @property
    def parent(self) -> TileKey:
        return TileKey(self.level + 1, self.other_axes, self.row >> 1, self.column >> 1)

    @property
    def bit(self) -> int:
        """Its bit in the mask of its parent."""
        return 1 << (2 * (self.row & 1) + (self.column & 1))

    def children(self) -> Iterator[TileKey]:
        for row in (2 * self.row, 2 * self.row + 1):
            for column in (2 * self.column, 2 * self.column + 1):
                yield TileKey(self.level - 1, self.other_axes, row, column)

    def axes(self) -> dict[str, AxisValue]:
        return {**dict(self.other_axes), "row": self.row, "column": self.column}


def leaf_key(axes: Mapping[str, AxisValue], row: int) -> TileKey:
    """Return the key of a full-resolution frame in `row` of the index. Raises DatasetError if it is not a tile."""
    place = axes.get("row"), axes.get("column")
    if not all(type(value) is int for value in place):
        text = f"frame {row} has no integer axes row and column, but {dict(axes)}: resolution levels need tiles"
        raise DatasetError(text)
    other_axes = tuple(sorted((name, value) for name, value in axes.items() if name not in ("row", "column")))
    return TileKey(0, other_axes, place[0], place[1])  # type: ignore[arg-type] # checked above


@dataclass(slots=True, eq=False)
class LevelTile:
    """State of one tile of a lower level.

    mask has the bits of complete children. first and last are the first and latest frame below it, as rows of the
    index. image is its memory; painted has the bits of painted quadrants, the others contain old pixels. is_dirty: the
    level's files lack its current version; is_unsent: the next level lacks it. is_stored: the files have some version.
    """

    first: int
    last: int
    mask: int = 0
    image: NDArray[Any] | None = None
    painted: int = 0
    memory: NDArray[np.uint8] | None = None
    is_dirty: bool = False
    is_unsent: bool = False
    is_stored: bool = False

    @property
    def is_lost(self) -> bool:
        """It was painted by an earlier process only, and has to be repainted from its children."""
        return self.is_dirty and self.image is None


@dataclass(frozen=True, slots=True)
class TileShape:
    """Size of the full tiles in pixels, overlap (y, x), pixel type; the same for all tiles of a dataset."""

    height: int
    width: int
    overlap: tuple[int, int]
    pixel_type: PixelType

    @property
    def inner(self) -> tuple[int, int]:
        """(h, w) of the tiles of all lower levels."""
        return self.height - self.overlap[0], self.width - self.overlap[1]

    @property
    def shape(self) -> tuple[int, ...]:
        """Array shape of a tile of a lower level."""
        return self.pixel_type.shape(*self.inner)

    @property
    def payload_bytes(self) -> int:
        return self.inner[0] * self.inner[1] * self.pixel_type.pixel_bytes

    def fits(self, pixels: NDArray[Any]) -> bool:
        """Return whether the array has the size and type of a full tile."""
        return pixels.shape == self.pixel_type.shape(self.height, self.width) and (
            pixels.dtype == self.pixel_type.numpy_dtype
        )

    @property
    def is_odd(self) -> bool:
        """Quadrants share pixels."""
        return bool(self.inner[0] % 2 or self.inner[1] % 2)


def image_in(memory: NDArray[np.uint8], shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return an array at the start of this memory."""
    return np.frombuffer(memory, dtype, math.prod(shape)).reshape(shape)


class SpareImages:
    """Reusable images of one shape; the caller limits their number. Used by one thread.

    Several share one piece of memory, large enough for huge pages where the system has them.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._shape = shape
        self._dtype = dtype
        self._size = align_up(math.prod(shape) * dtype.itemsize)
        self._length = max(1, _PIECE_BYTES // self._size) * self._size
        self._memory = MemoryAhead(self._length, ahead=1)
        self._spare: list[NDArray[Any]] = []

    def take(self) -> NDArray[Any]:
        """Return an image with arbitrary content."""
        if not self._spare:
            memory = self._memory.take()
            starts = range(0, self._length, self._size)
            self._spare = [image_in(memory[start:], self._shape, self._dtype) for start in starts]
        return self._spare.pop()

    def give_back(self, image: NDArray[Any]) -> None:
        """Keep an image for reuse."""
        if len(self._spare) < _MAX_SPARE:
            self._spare.append(image)

    def close(self) -> None:
        self._memory.close()


class TileMemory:
    """Memory for a fixed number of images of tiles, each allocated at its first use and then reused.

    used: number of tiles with an image; peak: its maximum so far.
    """

    def __init__(self, shape: TileShape, budget_bytes: int) -> None:
        size = align_up(shape.payload_bytes)
        self.shape = shape
        self.count = max(MIN_IMAGES, budget_bytes // size)
        self.used = self.peak = 0
        self._free: list[NDArray[np.uint8]] = []
        self._ahead = MemoryAhead(size, ahead=min(_MAX_AHEAD, _PIECE_BYTES // size), max_pieces=self.count)

    @property
    def free(self) -> int:
        return self.count - self.used

    def give(self, tile: LevelTile) -> NDArray[Any]:
        """Give an image to a tile without one; of zeros if quadrants share pixels. Memory must be free."""
        assert self.free > 0
        is_new = not self._free
        memory = self._ahead.take() if is_new else self._free.pop()
        tile.memory, tile.image = memory, image_in(memory, self.shape.shape, self.shape.pixel_type.numpy_dtype)
        tile.painted = ALL if is_new else 0
        if self.shape.is_odd and not is_new:
            tile.image[:] = 0
            tile.painted = ALL
        self.used += 1
        self.peak = max(self.peak, self.used)
        return tile.image

    def take_back(self, tile: LevelTile) -> None:
        """Take the image of a tile, if it has one, for reuse."""
        if tile.memory is not None:
            self._free.append(tile.memory)
            self.used -= 1
        tile.memory = tile.image = None

    def close(self) -> None:
        """End the thread that allocates memory."""
        self._ahead.close()
