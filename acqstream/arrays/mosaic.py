"""The picture that the tiles of a level make together. Pure geometry, in pixels.

Source: NDTiff's Java viewer and the golden pyramids. Tile (row, column) covers canvas rows [row * h, (row + 1) * h) and
columns [column * w, (column + 1) * w); of a tile that is stored with its overlap the middle h x w pixels are taken. A
canvas may begin at negative coordinates. A frame that is not a tile is a canvas of one tile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from acqstream.arrays.selection import as_slice
from acqstream.errors import DatasetError
from acqstream.model.axes import AxisValue


class TileRun(NamedTuple):
    """Selected positions along one side that lie in one tile.

    tile is its row or column; target are the positions in the result. In the stored frame the positions lie within
    [first, stop), source are those counted from the frame's begin, inside those counted from `first`.
    """

    tile: int
    target: slice
    first: int
    stop: int
    source: slice
    inside: slice


@dataclass(frozen=True, slots=True)
class Side:
    """The canvas along y or x.

    step is the part of a tile that is shown, and crop where it begins in the stored frame; first is the lowest row or
    column, count the number of them. count 0: not known yet, the canvas grows from `first` on.
    """

    step: int
    crop: int = 0
    first: int = 0
    count: int = 1

    @property
    def is_open(self) -> bool:
        """Whether more rows or columns may come after those so far."""
        return not self.count

    @property
    def size(self) -> int:
        """Length of the canvas; 0 where it is open."""
        return self.step * self.count

    @property
    def origin(self) -> int:
        """Canvas coordinate of position 0."""
        return self.step * self.first

    @property
    def shown(self) -> slice:
        """The part of a stored tile that is shown."""
        return slice(self.crop, self.crop + self.step)

    def runs(self, selected: range) -> Iterator[TileRun]:
        """The tiles that hold the selected positions, in the order of these; as many steps as tiles are hit."""
        at = 0
        while at < len(selected):
            tile = selected[at] // self.step
            start = selected[at] - tile * self.step
            after = self.step - 1 - start if selected.step > 0 else start
            count = min(after // abs(selected.step) + 1, len(selected) - at)
            source = range(self.crop + start, self.crop + start + count * selected.step, selected.step)
            first, stop = min(source[0], source[-1]), max(source[0], source[-1]) + 1
            inside = range(source.start - first, source.stop - first, source.step)
            yield TileRun(self.first + tile, slice(at, at + count), first, stop, as_slice(source), as_slice(inside))
            at += count


@dataclass(frozen=True, slots=True)
class Canvas:
    """Both sides of a level's picture."""

    y: Side
    x: Side

    @property
    def shape(self) -> tuple[int, int]:
        return self.y.size, self.x.size

    @property
    def is_open(self) -> bool:
        """Whether the canvas may grow along a side."""
        return self.y.is_open or self.x.is_open


def planned_canvas(
    sides: Sequence[tuple[int, Sequence[AxisValue]]],
    frame_shape: Sequence[int],
    overlap: Sequence[int],
    *,
    is_final: bool,
    may_grow: bool = False,
) -> Canvas | None:
    """Return the picture of all tiles to come; None while it is not known.

    sides: of y and x the declared number of rows or columns, 0 for none, and those seen so far. overlap: that of tiles,
    (y, x) in pixels. is_final: no other tile will come. may_grow: a side that is not known is open, and begins at the
    lowest tile so far. Raises DatasetError for tiles that make up no picture.
    """
    found = []
    for (size, seen), shared, length in zip(sides, overlap, frame_shape, strict=False):
        numbers = [value for value in seen if isinstance(value, int)]
        if len(numbers) != len(seen) or not 0 <= shared < length:
            raise DatasetError(
                f"tiles of {length} pixels with rows or columns {[*seen][:5]} and an overlap of {shared} make up no "
                "picture: rows and columns are integers, and the overlap is less than a tile"
            )
        if not (size or (is_final and numbers)):
            if not may_grow:
                return None
            found.append(Side(length - shared, shared // 2, min(numbers, default=0), 0))
            continue
        declared = [0, size - 1] if size else []
        first, last = min([*declared, *numbers]), max([*declared, *numbers])
        found.append(Side(length - shared, shared // 2, first, last - first + 1))
    return Canvas(*found)
