"""Sizes of all levels of a mirror while frames come: planned, reached by frames, stored, and final."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from acqstream.arrays.array_spec import Position
from acqstream.mirrors.growth import growing_axis
from acqstream.mirrors.picture_extents import PictureExtents
from acqstream.mirrors.slab import Slab
from acqstream.mirrors.slab_grid import SlabGrid, level_sizes


class GrowthRule(Protocol):
    """The rule by which indices of the growing axis are announced: see `growth`, `mosaic_growth`, `open_growth`."""

    def add_frame(self, place: Sequence[int]) -> None: ...
    def add_unstored(self, level: int, key: Position) -> None: ...
    def add_stored_slab(self, level: int, key: Position, places: Iterable[Sequence[int]]) -> None: ...
    def mark_all_stored(self) -> None: ...
    def sizes(self, level: int) -> Mapping[int, int]:
        """Sizes that may be announced, by axis of the level; they never shrink."""


class LevelExtents:
    """Sizes along the outer axes, by level. Used by one thread.

    frame_extent is one more than the last place of a frame, at level 0; stored_extents are the same for slabs in the
    files. picture has the sizes along y and x of a mosaic. growth: the rule by which the growing axis is announced;
    None: as far as slabs are stored.
    """

    def __init__(self, grids: Sequence[SlabGrid], growth: GrowthRule | None = None) -> None:
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
            self._growth.add_stored_slab(slab.level, slab.key, places)
        self.picture.add_stored(slab.level, slab.key)
        for place in places:
            for axis, at in enumerate(place):
                extent[axis] = max(extent[axis], at + 1)

    def add_unstored(self, level: int, key: Position) -> None:
        """Note that a slab got pixels that are not in the files."""
        if self._growth is not None:
            self._growth.add_unstored(level, key)

    def add_earlier_stored(self, level: int, place: Sequence[int]) -> None:
        """Note a frame that an earlier process has stored in a level."""
        if self._growth is not None:
            self._growth.add_stored_slab(level, self.grids[level].locate(place)[0], [place])

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
