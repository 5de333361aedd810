"""The rules by which a mirror announces the indices of the axis that it grows along, also of mosaics. Pure.

Other software sees no zeros where data will come: an index is announced when all its frames that came are stored, and
no other frame of it will come. That is so when it has all planned frames, or when a frame of a later index has come.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from acqstream.arrays import array_plan
from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.description.image_positions import IMAGE_AXES
from acqstream.grid.block_sizes import reduced_size
from acqstream.mirrors.slab_grid import SlabGrid
from acqstream.model.axes import TILE_AXES, TIME


def growing_axis(grid: SlabGrid) -> int | None:
    """The axis that a mirror grows along: time, else z, else the first other one with more than one item.

    Tiles that are images of their own come before z: a stack of one is complete long before that of the last one. An
    index into the axes of the level; None for an array of one frame.
    """
    spec = grid.spec
    sizes = {spec.axes[axis]: spec.shape[axis] for axis in grid.outer}
    images = [name for name, size in sizes.items() if name in IMAGE_AXES and size != 1]
    if images and not TILE_AXES.isdisjoint(spec.axes) and sizes.get(TIME, 1) == 1:
        return spec.axes.index(images[0])
    found = array_plan.growing_axis(sizes)
    return None if found is None else spec.axes.index(found)


def empty_levels(levels: Sequence[ArraySpec], axis: int) -> tuple[ArraySpec, ...]:
    """The levels before their first index is announced."""
    return tuple(replace(level, shape=(*level.shape[:axis], 0, *level.shape[axis + 1 :])) for level in levels)


def _items_of(indices: int, factor: int, *, is_ended: bool) -> int:
    """Number of items of a level that these indices make up; a last one in part counts at the end alone."""
    return reduced_size(indices, factor) if is_ended else indices // factor


class Growth:
    """Counts the items along the growing axis that may be announced, by level. Used by one thread.

    An item of a level that is reduced along the axis stands for several indices. Memory is taken for frames whose index
    is not announced yet.
    """

    def __init__(self, grids: Sequence[SlabGrid], axis: int, announced: Sequence[int]) -> None:
        """axis is that of `growing_axis`; announced are the sizes along it that an earlier process announced."""
        full = grids[0]
        self.axis = axis
        self._outer = full.outer.index(axis)
        self._factors = [[grid.spec.factors[other] for other in grid.outer] for grid in grids]
        sizes = [full.spec.shape[other] for other in full.outer if other != axis]
        self._planned = 0 if 0 in sizes else math.prod(sizes)
        self._came: dict[int, set[Position]] = {}  # frames by index
        self._stored: list[dict[int, set[Position]]] = [{} for _ in grids]
        self._sizes = list(announced)
        self._last = -1  # index of any frame

    def add_frame(self, place: Sequence[int]) -> None:
        """Note that a frame has come to this place along the outer axes."""
        index = place[self._outer]
        self._last = max(self._last, index)
        if index >= self._first_kept():
            self._came.setdefault(index, set()).add(tuple(place))

    def add_unstored(self, level: int, key: Position) -> None:
        """Note that a slab got pixels: nothing is to be done, each plane is noted when it is stored."""

    def add_stored_slab(self, level: int, key: Position, places: Iterable[Sequence[int]]) -> None:
        """Note that the planes of a slab at these places are in the files of a level."""
        del key
        for place in places:
            self.add_stored(level, place)

    def add_stored(self, level: int, place: Sequence[int]) -> None:
        """Note that a plane is in the files of a level."""
        item = place[self._outer]
        if item >= self._sizes[level]:
            self._stored[level].setdefault(item, set()).add(tuple(place))

    def size(self, level: int) -> int:
        """Number of items that may be announced in a level; it never shrinks."""
        stored, size = self._stored[level], self._sizes[level]
        while self._may_be_announced(level, stored.get(size, set()), size):
            stored.pop(size, None)
            size += 1
        self._sizes[level] = size
        first = self._first_kept()
        for index in [index for index in self._came if index < first]:
            del self._came[index]
        return size

    def sizes(self, level: int) -> dict[int, int]:
        """`size` by axis."""
        return {self.axis: self.size(level)}

    def mark_all_stored(self) -> None:
        """Note that every frame that came is stored in every level, and that no other one will come."""
        ends = [reduced_size(self._last + 1, factors[self._outer]) for factors in self._factors]
        self._sizes = [*map(max, self._sizes, ends)]
        self._came.clear()
        for stored in self._stored:
            stored.clear()

    def _first_kept(self) -> int:
        """The first index that is not announced in every level."""
        return min(size * factors[self._outer] for size, factors in zip(self._sizes, self._factors, strict=True))

    def _may_be_announced(self, level: int, stored: set[Position], item: int) -> bool:
        factors = self._factors[level]
        first, stop = item * factors[self._outer], (item + 1) * factors[self._outer]
        if self._last < stop - 1:
            return False
        if self._last < stop and (not self._planned or len(self._came.get(self._last, ())) < self._planned):
            return False
        came = (place for index in range(first, stop) for place in self._came.get(index, ()))
        return {tuple(at // factor for at, factor in zip(place, factors, strict=True)) for place in came} <= stored


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
        self._is_ended = False

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
        self._is_ended = True

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
            at, item = grid.outer.index(self.axis), index // grid.spec.factors[self.axis]
            return any(key[at] == item // grid.step[at] for key in self._unstored[level])
        first, stop = self._items(level, index), self._items(level, index + 1)
        side = grid.cuts[0].side
        return any(first < (key[-2] + 1) * side and key[-2] * side < stop for key in self._unstored[level])

    def _items(self, level: int, index: int) -> int:
        if not self._is_row:
            return _items_of(index, self._grids[level].spec.factors[self.axis], is_ended=self._is_ended)
        spec, tile = self._grids[level].spec, self._grids[0].cuts[0].tile
        is_end = index == self._end  # the rest of the last block is part of it
        return spec.shape[self.axis] if is_end else min(spec.shape[self.axis], index * tile // spec.factors[self.axis])


class OpenIndexGrowth:
    """Counts the indices of the growing axis that may be announced, by level, and the tiles in them.

    axis is that of `growing_axis`. announced are the shapes of the levels that an earlier process announced. Used by
    one thread.
    """

    def __init__(self, grids: Sequence[SlabGrid], axis: int, announced: Sequence[Sequence[int]]) -> None:
        self._grids = grids
        self._axis = axis
        self._outer = grids[0].outer.index(axis)
        self._announced = announced
        self._unstored: list[set[Position]] = [set() for _ in grids]  # slabs with frames that are not in the files
        self._reached: dict[int, list[int]] = {}  # rows and columns by index, of those not announced in all levels
        self._indices = [0] * len(grids)
        self._tiles = [[0, 0] for _ in grids]  # of the indices announced
        self._last = -1
        self._is_ended = False

    def add_frame(self, place: Sequence[int]) -> None:
        """Note that a tile has come to this place, which ends with row and column."""
        index = place[self._outer]
        self._last = max(self._last, index)
        # one of an index that is announced already makes the picture larger with the next index
        reached = self._reached.setdefault(index if index >= max(self._indices) else self._last, [0, 0])
        reached[:] = [max(before, at + 1) for before, at in zip(reached, place[-2:], strict=True)]

    def add_unstored(self, level: int, key: Position) -> None:
        """Note that a slab got pixels that are not in the files."""
        self._unstored[level].add(key)

    def add_stored_slab(self, level: int, key: Position, places: Iterable[Sequence[int]]) -> None:
        """Note that a slab is in the files, with all that it has got."""
        del places
        self._unstored[level].discard(key)

    def mark_all_stored(self) -> None:
        """Note that every tile that came is stored in every level, and that no other one will come."""
        for unstored in self._unstored:
            unstored.clear()
        self._last += 1
        self._is_ended = True

    def sizes(self, level: int) -> dict[int, int]:
        """Return the sizes that may be announced, by axis of the level; they never shrink."""
        index, tiles = self._indices[level], self._tiles[level]
        while index < self._last and not self._has_unstored(level, index):
            reached = self._reached.get(index, (0, 0))
            tiles[:] = map(max, tiles, reached)
            index += 1
        self._indices[level] = index
        for old in [old for old in self._reached if old < min(self._indices)]:
            del self._reached[old]
        grid, announced = self._grids[level], self._announced[level]
        items = _items_of(index, grid.spec.factors[self._axis], is_ended=self._is_ended)
        found = {self._axis: max(announced[self._axis], items)}
        for axis, cut, full, count in zip(grid.cut_axes, grid.cuts, self._grids[0].cuts, tiles, strict=True):
            size = cut.size or reduced_size(count * full.tile, grid.spec.factors[axis])
            found[axis] = max(announced[axis], size)
        return found

    def _has_unstored(self, level: int, index: int) -> bool:
        """Whether a slab with parts of this index is not in the files, in this level or one above."""
        return any(
            key[self._outer]
            == index // self._grids[above].spec.factors[self._axis] // self._grids[above].step[self._outer]
            for above in range(level + 1)
            for key in self._unstored[above]
        )


class RectangleGrowth:
    """The rectangle of tiles that may be announced, by level, in an array of one picture.

    It is the largest one of stored tiles that has all that is announced already. n_tiles: planned rows and columns, 0
    for a side that is not planned; a planned side is announced complete. announced: see OpenIndexGrowth. Used by one
    thread.
    """

    def __init__(self, grids: Sequence[SlabGrid], announced: Sequence[Sequence[int]], n_tiles: tuple[int, int]) -> None:
        self._grids = grids
        self._n_tiles = n_tiles
        self._came: set[tuple[int, int]] = set()
        self._unstored: list[set[Position]] = [set() for _ in grids]
        self._announced = announced
        self._sides = [self._announced_tiles(level) for level in range(len(grids))]

    def add_frame(self, place: Sequence[int]) -> None:
        """Note that a tile has come to this place, which ends with row and column."""
        self._came.add((place[-2], place[-1]))

    def add_unstored(self, level: int, key: Position) -> None:
        """Note that a slab got pixels that are not in the files."""
        self._unstored[level].add(key)

    def add_stored_slab(self, level: int, key: Position, places: Iterable[Sequence[int]]) -> None:
        """Note that a slab is in the files, with all that it has got."""
        del places
        self._unstored[level].discard(key)

    def mark_all_stored(self) -> None:
        """Note that every tile that came is stored in every level."""
        for unstored in self._unstored:
            unstored.clear()

    def sizes(self, level: int) -> dict[int, int]:
        """Return the sizes that may be announced, by axis of the level; they never shrink."""
        sides = self._sides[level] = self._largest(level)
        axes, announced = self._grids[level].cut_axes, self._announced[level]
        if not all(sides):
            return {axis: announced[axis] for axis in axes}
        return {axis: max(announced[axis], self._items(level, n, sides[n])) for n, axis in enumerate(axes)}

    def _largest(self, level: int) -> tuple[int, int]:
        """The rows and columns of the largest rectangle of stored tiles, with all that is announced."""
        stored, (rows, columns) = self._came - self._unstored_tiles(level), self._sides[level]
        best, width = (rows, columns), max((column for _, column in stored), default=-1) + 1
        for row in range(max((row for row, _ in stored), default=-1) + 1):
            width = next((column for column in range(width) if (row, column) not in stored), width)
            if width < max(columns, 1):
                break
            is_planned = self._n_tiles[0] in (0, row + 1) and self._n_tiles[1] in (0, width)
            if row + 1 >= rows and is_planned and (row + 1) * width > best[0] * best[1]:
                best = row + 1, width
        return best

    def _unstored_tiles(self, level: int) -> set[tuple[int, int]]:
        """The tiles with pixels in a slab that is not in the files, in this level or one above."""
        ends = [max((place[side] for place in self._came), default=-1) + 1 for side in (0, 1)]
        found: set[tuple[int, int]] = set()
        for grid, slabs in zip(self._grids[: level + 1], self._unstored, strict=False):
            for key in slabs:
                ranges = []
                for at, cut, axis, full, end in zip(
                    key[-2:], grid.cuts, grid.cut_axes, self._grids[0].cuts, ends, strict=True
                ):
                    side = cut.side * grid.spec.factors[axis]
                    ranges.append(range(at * side // full.tile, min(end, -(-(at + 1) * side // full.tile))))
                found.update((row, column) for row in ranges[0] for column in ranges[1])
        return found

    def _items(self, level: int, side: int, count: int) -> int:
        grid = self._grids[level]
        cut, axis = grid.cuts[side], grid.cut_axes[side]
        if cut.size and count == self._n_tiles[side]:
            return cut.size
        return reduced_size(count * self._grids[0].cuts[side].tile, grid.spec.factors[axis])

    def _announced_tiles(self, level: int) -> tuple[int, int]:
        """Rows and columns that an earlier process announced, planned ones without it."""
        grid = self._grids[level]
        rows, columns = (
            planned or -(-self._announced[level][axis] * grid.spec.factors[axis] // cut.tile)
            for axis, cut, planned in zip(grid.cut_axes, self._grids[0].cuts, self._n_tiles, strict=True)
        )
        return rows, columns
