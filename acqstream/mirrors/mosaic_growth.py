"""The rule by which the mirror of a mosaic announces the indices of the axis that it grows along. Pure.

It is that of `growth`, for frames that fill pieces of several slabs. An array of one mosaic grows by rows of tiles; a
row is announced when all its planned tiles are stored, since tiles of several rows may come by turns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from acqstream.arrays.array_spec import Position
from acqstream.mirrors.slab_grid import SlabGrid


class MosaicGrowth:
    """Counts the indices of the growing axis that may be announced, by level. Used by one thread.

    axis is that of `growing_axis`, or y: then indices are rows of tiles. n_tiles: (rows, columns). announced are the
    sizes along the axis, in items, that an earlier process announced.
    """

    def __init__(
        self, grids: Sequence[SlabGrid], axis: int, announced: Sequence[int], n_tiles: tuple[int, int]
    ) -> None:
        full = grids[0]
        self.axis = axis
        self._grids = grids
        self._is_row = axis not in full.outer
        sizes = [full.spec.shape[other] for other in full.outer if other != axis]
        sides = n_tiles[1:] if self._is_row else n_tiles
        self._planned = 0 if 0 in sizes else math.prod(sizes) * math.prod(sides)
        self._end = n_tiles[0] if self._is_row else None
        self._came: dict[int, set[Position]] = {}  # frames by index
        self._unstored: list[set[Position]] = [set() for _ in grids]  # slabs with frames that are not in the files
        self._announced = list(announced)
        self._indices = [0] * len(grids)
        self._last = -1

    def add_frame(self, place: Sequence[int]) -> None:
        """Note that a frame has come to this place, which ends with row and column."""
        index = place[-2] if self._is_row else place[self._grids[0].outer.index(self.axis)]
        self._last = max(self._last, index)
        if index >= min(self._indices):
            self._came.setdefault(index, set()).add(tuple(place))

    def add_unstored(self, level: int, key: Position) -> None:
        """Note that a slab got pixels that are not in the files."""
        self._unstored[level].add(key)

    def add_stored_slab(self, level: int, key: Position, places: Iterable[Sequence[int]]) -> None:
        """Note that a slab is in the files, with all that it has got."""
        del places
        self._unstored[level].discard(key)

    def size(self, level: int) -> int:
        """Size along the axis that may be announced in a level; it never shrinks."""
        index = self._indices[level]
        while self._may_be_announced(level, index):
            index += 1
        self._indices[level] = index
        for old in [old for old in self._came if old < min(self._indices)]:
            del self._came[old]
        self._announced[level] = max(self._announced[level], self._items(level, index))
        return self._announced[level]

    def sizes(self, level: int) -> dict[int, int]:
        """`size` by axis."""
        return {self.axis: self.size(level)}

    def mark_all_stored(self) -> None:
        """Note that every frame that came is stored in every level, and that no other one will come."""
        for unstored in self._unstored:
            unstored.clear()
        self._indices = [max(index, self._last + 1) for index in self._indices]

    def _may_be_announced(self, level: int, index: int) -> bool:
        if index > self._last or (self._end is not None and index >= self._end):
            return False
        is_complete = bool(self._planned) and len(self._came.get(index, ())) >= self._planned
        if not is_complete and (self._is_row or index == self._last):
            return False
        return not any(self._has_unstored(above, index) for above in range(level + 1))

    def _has_unstored(self, level: int, index: int) -> bool:
        """Whether some slab with parts of this index is not in the files."""
        grid = self._grids[level]
        if not self._is_row:
            at = grid.outer.index(self.axis)
            return any(key[at] == index // grid.step[at] for key in self._unstored[level])
        first, stop = self._items(level, index), self._items(level, index + 1)
        side = grid.cuts[0].side
        return any(first < (key[-2] + 1) * side and key[-2] * side < stop for key in self._unstored[level])

    def _items(self, level: int, index: int) -> int:
        if not self._is_row:
            return index
        spec, tile = self._grids[level].spec, self._grids[0].cuts[0].tile
        is_end = index == self._end  # the rest of the last block is part of it
        return spec.shape[self.axis] if is_end else min(spec.shape[self.axis], index * tile // spec.factors[self.axis])
