"""The rule by which a mirror announces the indices of the axis that it grows along. Pure.

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


class Growth:
    """Counts the indices of the growing axis that may be announced, by level. Used by one thread.

    All levels have the same outer indices: formats that reduce the growing axis cannot use it. Memory is taken for
    frames whose index is not announced yet.
    """

    def __init__(self, grids: Sequence[SlabGrid], axis: int, announced: Sequence[int]) -> None:
        """axis is that of `growing_axis`; announced are the sizes along it that an earlier process announced."""
        full = grids[0]
        self.axis = axis
        self._outer = full.outer.index(axis)
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
        if index >= min(self._sizes):
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
        index = place[self._outer]
        if index >= self._sizes[level]:
            self._stored[level].setdefault(index, set()).add(tuple(place))

    def size(self, level: int) -> int:
        """Number of indices that may be announced in a level; it never shrinks."""
        stored, size = self._stored[level], self._sizes[level]
        while size <= self._last and self._may_be_announced(stored.get(size, set()), size):
            stored.pop(size, None)
            size += 1
        self._sizes[level] = size
        for index in [index for index in self._came if index < min(self._sizes)]:
            del self._came[index]
        return size

    def sizes(self, level: int) -> dict[int, int]:
        """`size` by axis."""
        return {self.axis: self.size(level)}

    def mark_all_stored(self) -> None:
        """Note that every frame that came is stored in every level, and that no other one will come."""
        self._sizes = [max(size, self._last + 1) for size in self._sizes]
        self._came.clear()
        for stored in self._stored:
            stored.clear()

    def _may_be_announced(self, stored: set[Position], index: int) -> bool:
        came = self._came.get(index, set())
        if index == self._last and (not self._planned or len(came) < self._planned):
            return False
        return came <= stored
