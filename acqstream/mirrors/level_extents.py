"""Sizes of all levels of a mirror while frames come: planned, reached, stored, final, and announced. Pure.

Other software sees no zeros where data will come: an index of the axis that a mirror grows along is announced when all
its frames that came are stored, and no other frame of it will come. That is so when it has all planned frames, or when
a frame of a later index has come.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from acqstream.arrays.array_spec import Position
from acqstream.grid.block_sizes import reduced_size
from acqstream.mirrors.slab import Slab
from acqstream.mirrors.slab_grid import SlabGrid, growing_axis, level_sizes


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


class Growth:
    """Counts the items along the growing axis that may be announced, by level, and of a mosaic the tiles in them.

    axis is that of `growing_axis`. announced are the shapes of the levels that an earlier process announced; n_tiles:
    rows and columns of a mosaic, 0 for a side that is not planned. An item of a level that is reduced along the axis
    stands for several indices. Memory is taken for frames whose index is not announced yet. Used by one thread.
    """

    def __init__(
        self,
        grids: Sequence[SlabGrid],
        axis: int,
        announced: Sequence[Sequence[int]],
        n_tiles: tuple[int, ...] = (),
    ) -> None:
        full = grids[0]
        self._grids = grids
        self._axis = axis
        self._outer = full.outer.index(axis)
        self._end = full.spec.shape[axis]  # planned; 0: not known
        sizes = [full.spec.shape[other] for other in full.outer if other != axis]
        self._planned = math.prod((*sizes, *n_tiles))  # frames of an index; 0: not known
        self._announced = announced
        self._came: dict[int, set[Position]] = {}  # frames by index, of those not announced in all levels
        self._unstored: list[set[Position]] = [set() for _ in grids]  # slabs with frames that are not in the files
        self._reached: dict[int, list[int]] = {}  # rows and columns by index
        self._indices = [shape[axis] * grid.spec.factors[axis] for shape, grid in zip(announced, grids, strict=True)]
        self._tiles = [[0] * len(full.cuts) for _ in grids]  # of the indices announced
        self._last = -1  # index of any frame
        self._is_ended = False

    def add_frame(self, place: Sequence[int]) -> None:
        """Note that a frame has come to this place along the outer axes, with its row and column in a mosaic."""
        index = place[self._outer]
        self._last = max(self._last, index)
        self._is_ended = False
        if index >= min(self._indices):
            self._came.setdefault(index, set()).add(tuple(place))
        if sides := len(self._tiles[0]):
            # one of an index that is announced already makes the picture larger with the next index
            reached = self._reached.setdefault(index if index >= max(self._indices) else self._last, [0] * sides)
            reached[:] = [max(before, at + 1) for before, at in zip(reached, place[-sides:], strict=True)]

    def add_unstored(self, level: int, key: Position) -> None:
        """Note that a slab got pixels that are not in the files."""
        self._unstored[level].add(key)

    def add_stored_slab(self, level: int, key: Position) -> None:
        """Note that a slab is in the files, with all that it has got."""
        self._unstored[level].discard(key)

    def mark_all_stored(self) -> None:
        """Note that every frame that came is stored in every level, and that no other one will come."""
        for unstored in self._unstored:
            unstored.clear()
        self._is_ended = True

    def sizes(self, level: int) -> dict[int, int]:
        """Return the sizes that may be announced, by axis of the level; they never shrink."""
        index, tiles = self._indices[level], self._tiles[level]
        while self._may_be_announced(level, index):
            tiles[:] = map(max, tiles, self._reached.get(index, tiles))
            index += 1
        self._indices[level] = index
        first = min(self._indices)
        for known in (self._came, self._reached):
            for old in [old for old in known if old < first]:
                del known[old]
        grid, announced = self._grids[level], self._announced[level]
        factor = grid.spec.factors[self._axis]
        is_end = self._is_ended or 0 < self._end <= index  # the last item may stand for less
        found = {self._axis: max(announced[self._axis], reduced_size(index, factor) if is_end else index // factor)}
        for axis, cut, full, count in zip(grid.cut_axes, grid.cuts, self._grids[0].cuts, tiles, strict=True):
            if not cut.size:
                found[axis] = max(announced[axis], reduced_size(count * full.tile, grid.spec.factors[axis]))
        return found

    def _may_be_announced(self, level: int, index: int) -> bool:
        if index > self._last:
            return False
        is_whole = self._is_ended or (bool(self._planned) and len(self._came.get(index, ())) >= self._planned)
        return (is_whole or index < self._last) and not self._has_unstored(level, index)

    def _has_unstored(self, level: int, index: int) -> bool:
        """Whether a slab with parts of this index is not in the files, in this level or one above."""
        for grid, unstored in zip(self._grids[: level + 1], self._unstored, strict=False):
            item = index // grid.spec.factors[self._axis] // grid.step[self._outer]
            if any(key[self._outer] == item for key in unstored):
                return True
        return False


class LevelExtents:
    """Sizes along the outer axes, by level. Used by one thread.

    frame_extent is one more than the last place of a frame, at level 0; stored_extents are the same for slabs in the
    files. picture has the sizes along y and x of a mosaic. growth: what of the growing axis may be announced;
    None: as far as slabs are stored.
    """

    def __init__(self, grids: Sequence[SlabGrid], growth: Growth | None = None) -> None:
        self.grids = grids
        self.picture = PictureExtents(grids, growing_axis(grids[0]))
        self._growth = growth
        self.frame_extent = [0] * len(grids[0].outer)
        self.stored_extents = [[0] * len(grid.outer) for grid in grids]
        self._final: tuple[int, ...] | None = None  # of level 0, once the run has ended

    def shape(self, level: int) -> tuple[int, ...]:
        """Return the larger of the planned and the reached sizes of a level; the final ones after `end`."""
        full = self.grids[0]
        sizes = self._final or [
            max(full.spec.shape[axis], extent) for axis, extent in zip(full.outer, self.frame_extent, strict=True)
        ]
        return level_sizes(self.grids, level, sizes)

    def announceable(self, level: int) -> Mapping[int, int]:
        """Return the sizes that other software may see now, by axis of the level, where they may have changed."""
        found = dict(zip(self.grids[0].outer, self.stored_extents[level], strict=True))
        found.update(self.picture.stored_sizes(level) if self._growth is None else self._growth.sizes(level))
        return found

    def planned_sizes(self, level: int) -> tuple[int, ...]:
        """Return the sizes of a level; 0 for axes that grow."""
        grid = self.grids[level]
        shape = self.shape(level)
        return tuple(size if grid.spec.shape[axis] else 0 for axis, size in zip(grid.outer, shape, strict=True))

    def is_complete(self, slab: Slab) -> bool:
        """Return whether a slab has all pixels that it waits for."""
        ends = self.picture.expected_ends(slab.level, slab.key)
        expected = self.grids[slab.level].expected(slab.key, self.planned_sizes(slab.level), ends)
        return (
            bool(slab.filled) and not expected & ~slab.filled
        )  # it may have more: tiles that came after it was complete

    def inside(self, level: int, key: Position) -> tuple[int, ...]:
        """Return the depths of a slab that lie inside the array as it is now."""
        grid = self.grids[level]
        sizes = zip(grid.outer_key(key), grid.step, self.shape(level), strict=True)
        return tuple(max(0, min(step, size - at * step)) for at, step, size in sizes)

    def is_provisional(self, level: int, depths: Sequence[int]) -> bool:
        """Whether a slab that is so deep ends within an item of the next level, along an axis that grows."""
        grid = self.grids[level]
        ends = zip(grid.outer, depths, grid.outer_ratios, strict=True)
        return any(not grid.spec.shape[axis] and depth % ratio for axis, depth, ratio in ends)

    def add_frame(self, place: Sequence[int]) -> None:
        """Note that a frame has come to this place, in this process or an earlier one."""
        if self._growth is not None:
            self._growth.add_frame(place)
        self.picture.add_tile(place)
        extent = self.frame_extent
        for axis in range(len(extent)):
            if place[axis] >= extent[axis]:
                extent[axis] = place[axis] + 1

    def add_stored(self, slab: Slab) -> None:
        """Note that the planes of a slab are in the files."""
        grid, extent = self.grids[slab.level], self.stored_extents[slab.level]
        mask = (1 << grid.pieces) - 1
        filled = [plane for plane in range(grid.planes) if slab.filled >> plane * grid.pieces & mask]
        places = [grid.place(slab.key, plane) for plane in filled]
        if self._growth is not None:
            self._growth.add_stored_slab(slab.level, slab.key)
        self.picture.add_stored(slab.level, slab.key)
        for place in places:
            for axis, at in enumerate(place):
                extent[axis] = max(extent[axis], at + 1)

    def add_unstored(self, level: int, key: Position) -> None:
        """Note that a slab got pixels that are not in the files."""
        if self._growth is not None:
            self._growth.add_unstored(level, key)

    def mark_all_stored(self) -> None:
        """Note that every level is in the files up to its shape."""
        if self._growth is not None:
            self._growth.mark_all_stored()
        self.stored_extents = [list(self.shape(level)) for level in range(len(self.grids))]

    def end(self, sizes: Sequence[int]) -> list[list[int]]:
        """End level 0 here, maybe before its planned end. Return, by level, the axes whose only block became shorter.

        The remainder of the only block of a lower level makes up one item (`reduced_size`), so slabs at the start of
        these axes were reduced as if the block were complete. A second call changes nothing.
        """
        if self._final is not None:
            return [[] for _ in self.grids]
        before = [self.shape(level) for level in range(len(self.grids))]
        self._final = tuple(sizes)
        return [
            [
                axis
                for axis, (planned, size, ratio) in enumerate(
                    zip(before[level], self.shape(level), grid.outer_ratios, strict=True)
                )
                if size < min(planned, ratio)
            ]
            for level, grid in enumerate(self.grids)
        ]
