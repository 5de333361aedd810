"""The picture that the tiles of a level make together. Pure geometry, in pixels.

Source: NDTiff's Java viewer and the golden pyramids. Tile (row, column) covers canvas rows [row * h, (row + 1) * h) and
columns [column * w, (column + 1) * w); of a tile that is stored with its overlap the middle h x w pixels are taken. A
canvas may begin at negative coordinates. A frame that is not a tile is a canvas of one tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from acqstream.arrays.selection import as_slice


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
    column, count the number of them.
    """

    step: int
    crop: int = 0
    first: int = 0
    count: int = 1

    @property
    def size(self) -> int:
        """Length of the canvas."""
        return self.step * self.count

    @property
    def origin(self) -> int:
        """Canvas coordinate of position 0."""
        return self.step * self.first

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
