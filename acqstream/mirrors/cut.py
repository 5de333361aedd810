"""Cuts y or x of a mosaic's picture into slabs, and the slabs into the pieces that tiles fill. Pure geometry.

Tiles have any size, chunks another one, so a slab begins and ends within tiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

_ENDLESS = 2**62  # items


class TileSpan(NamedTuple):
    """Where a tile meets a slab along one side.

    tile is its row or column, slab the number of the slab, piece that of the tile among those of the slab. The pixels
    are [first, stop) in the slab and begin at `inside` in the tile.
    """

    tile: int
    slab: int
    piece: int
    first: int
    stop: int
    inside: int


@dataclass(frozen=True, slots=True)
class Cut:
    """One side of a picture of `size` items, in slabs of `side` items and tiles of `tile` items, both from item 0.

    size 0 is not known: the picture has no end. Then `slabs` and `tiles` are 0.
    """

    size: int
    side: int
    tile: int

    @property
    def slabs(self) -> int:
        return -(-self.size // self.side)

    @property
    def tiles(self) -> int:
        return -(-self.size // self.tile)

    @property
    def most(self) -> int:
        """Number of tiles that meet one slab, at most."""
        return _most_met(self.side, self.tile)

    @property
    def most_slabs(self) -> int:
        """Number of slabs that one tile meets, at most."""
        met = _most_met(self.tile, self.side)
        return min(self.slabs, met) if self.size else met

    @property
    def end(self) -> int:
        """The item after the last one of the picture."""
        return self.size or _ENDLESS

    def of_piece(self, tile: int) -> Iterator[TileSpan]:
        """The slabs that a tile meets; none beyond the picture."""
        first, stop = tile * self.tile, min((tile + 1) * self.tile, self.end)
        for slab in range(first // self.side, -(-stop // self.side) if stop > first else 0):
            yield self._span(tile, slab)

    def in_slab(self, slab: int, end: int = 0) -> Iterator[TileSpan]:
        """The tiles that meet a slab before item `end`, or before the end of the picture."""
        first, stop = slab * self.side, min((slab + 1) * self.side, end or self.end)
        for tile in range(first // self.tile, -(-stop // self.tile) if stop > first else 0):
            yield self._span(tile, slab)

    def inside(self, slab: int) -> int:
        """Number of items of a slab that lie in the picture."""
        return max(0, min(self.side, self.end - slab * self.side))

    def _span(self, tile: int, slab: int) -> TileSpan:
        begin = slab * self.side
        first = max(tile * self.tile, begin)
        stop = min((tile + 1) * self.tile, begin + self.side, self.end)
        return TileSpan(tile, slab, tile - begin // self.tile, first - begin, stop - begin, first - tile * self.tile)


def _most_met(length: int, other: int) -> int:
    """Number of pieces of `other` items that `length` items meet at most, wherever they begin on a multiple of it."""
    return length // other if not length % other else (length - 1) // other + 2
