"""Sizes along y and x of a mosaic that grows while tiles come, by level."""

from __future__ import annotations

from collections.abc import Sequence

from acqstream.arrays.array_spec import Position
from acqstream.grid.block_sizes import reduced_size
from acqstream.mirrors.slab_grid import SlabGrid


class PictureExtents:
    """Follows the tiles that came, and the slabs in the files. Used by one thread.

    A side that is planned stays as it is. grids without cuts are no mosaic: then all sizes are (). axis: that of
    `growing_axis`, None for an array of one picture.
    """

    def __init__(self, grids: Sequence[SlabGrid], axis: int | None) -> None:
        full = grids[0]
        self._is_changed = False
        self._grids = grids
        self._cuts = full.cuts
        self._is_open = any(not cut.size for cut in full.cuts)
        self._outer = None if axis is None else full.outer.index(axis)
        self._tiles = [0] * len(full.cuts)  # rows and columns
        self._last = -1  # index of any tile along the growing axis
        self._grown = 0  # the side that got longer last
        self._stored = [[0] * len(full.cuts) for _ in grids]

    def add_tile(self, place: Sequence[int]) -> None:
        """Note that a tile has come to this place, which ends with row and column."""
        if not self._is_open:
            return
        for side, at in enumerate(place[-2:]):
            if at >= self._tiles[side]:
                self._tiles[side], self._grown = at + 1, side
                self._is_changed = True
        if self._outer is not None and place[self._outer] > self._last:
            self._last = place[self._outer]
            self._is_changed = True

    def take_change(self) -> bool:
        """Return whether any slab may have become complete since the last call."""
        is_changed, self._is_changed = self._is_changed, False
        return is_changed

    def add_stored(self, level: int, key: Position) -> None:
        """Note that a slab of a level is in the files."""
        for side, (cut, at) in enumerate(zip(self._grids[level].cuts, key[-2:], strict=False)):
            self._stored[level][side] = max(self._stored[level][side], (at + 1) * cut.side)

    def sizes(self) -> tuple[int, ...]:
        """Return the sizes of level 0, in items."""
        return tuple(cut.size or count * cut.tile for cut, count in zip(self._cuts, self._tiles, strict=True))

    def stored_sizes(self, level: int) -> dict[int, int]:
        """Return the sizes up to which a level is in the files, by axis, of sides that are not planned."""
        grid, sizes = self._grids[level], self.sizes()
        return {
            axis: min(reduced_size(size, grid.spec.factors[axis]), stored)
            for axis, cut, size, stored in zip(grid.cut_axes, grid.cuts, sizes, self._stored[level], strict=True)
            if not cut.size
        }

    def ends(self, level: int) -> tuple[int, ...]:
        """Return the ends of the picture in a level; a block at the edge counts, even if a part of it is missing.

        Its chunk is stored: tiles of other slabs may complete the block, and this slab does not come back for them.
        """
        grid = self._grids[level]
        return tuple(
            cut.size or -(-size // grid.spec.factors[axis])
            for axis, cut, size in zip(grid.cut_axes, grid.cuts, self.sizes(), strict=True)
        )

    def expected_ends(self, level: int, key: Position) -> tuple[int, ...]:
        """Return the ends of the picture where a slab need not wait for more tiles, 0 for sides where it does.

        It need not when a later index has come: pictures are alike. Nor beyond the last column, say, while tiles come
        in rows: when a later row has come. Tiles that come later are not lost: the slab is rebuilt.
        """
        if not self._is_open:
            return ()
        grid = self._grids[level]
        factors = [grid.spec.factors[axis] for axis in grid.cut_axes]
        # slabs of the level above come here with their last incomplete block, too
        ends = tuple(
            cut.size or -(-size // factor) for cut, size, factor in zip(grid.cuts, self.sizes(), factors, strict=True)
        )
        if self._outer is not None:
            at, axis = key[self._outer], grid.outer[self._outer]
            if (at + 1) * grid.step[self._outer] * grid.spec.factors[axis] <= self._last:
                return ends
            return (0, 0)
        found = [0, 0]
        side, other = 1 - self._grown, self._grown
        last_tile = (self._tiles[other] - 1) * self._cuts[other].tile
        if self._tiles[side] > 1 and (key[other - 2] + 1) * grid.cuts[other].side * factors[other] <= last_tile:
            found[side] = ends[side]
        return tuple(found)
