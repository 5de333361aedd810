"""The rules by which the mirror of a mosaic without planned rows and columns is announced. Pure.

Other software sees no zeros where data will come, see `growth`. With an axis besides y and x, a picture is announced
when a tile of a later one has come, and y and x are announced as announced pictures need them. An array of one picture
grows by complete rows and columns of tiles: all tiles of the announced rectangle are stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from acqstream.arrays.array_spec import Position
from acqstream.grid.block_sizes import reduced_size
from acqstream.mirrors.slab_grid import SlabGrid


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
        found = {self._axis: max(announced[self._axis], index)}
        for axis, cut, full, count in zip(grid.cut_axes, grid.cuts, self._grids[0].cuts, tiles, strict=True):
            size = cut.size or reduced_size(count * full.tile, grid.spec.factors[axis])
            found[axis] = max(announced[axis], size)
        return found

    def _has_unstored(self, level: int, index: int) -> bool:
        """Whether a slab with parts of this index is not in the files, in this level or one above."""
        return any(
            key[self._outer] == index // self._grids[above].step[self._outer]
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
