"""Slabs that were reduced where an axis ended for now. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from acqstream.mirrors.level_extents import LevelExtents
from acqstream.mirrors.slab import SlabKey


class ProvisionalSlabs:
    """Remembers the depths at which slabs ended within an item of the next level: if the end of the array moves they
    are reduced again. Used by one thread."""

    def __init__(self, extents: LevelExtents) -> None:
        self._extents = extents
        self._depths: dict[SlabKey, tuple[int, ...]] = {}

    def note(self, slab: SlabKey) -> None:
        """Note that a slab was reduced."""
        depths = self._extents.inside(*slab)
        if self._extents.is_provisional(slab[0], depths):
            self._depths[slab] = depths
        else:
            self._depths.pop(slab, None)  # an earlier end of this slab may be noted

    def moved(self) -> Iterator[SlabKey]:
        """Yield the slabs that now end elsewhere."""
        for slab, depths in list(self._depths.items()):
            if self._extents.inside(*slab) != depths:
                yield slab

    def forget(self, slab: SlabKey) -> None:
        """Note that a slab will be reduced again."""
        del self._depths[slab]

    def to_json(self) -> list[list[Any]]:
        return [[level, list(key), list(depths)] for (level, key), depths in self._depths.items()]

    def restore(self, saved: Sequence[Sequence[Any]]) -> None:
        """Continue with the slabs of another process: level, key and depths of each."""
        self._depths = {(level, tuple(key)): tuple(depths) for level, key, depths in saved}
