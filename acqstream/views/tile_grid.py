"""The extent of the full resolution in tiles, and the number of levels that follows from it."""

from __future__ import annotations

from acqstream.grid.reduction import levels_needed
from acqstream.model.acquisition_spec import MAX_LEVELS
from acqstream.views.pyramid_tiles import ALL, TileKey


class TileGrid:
    """requested_levels: number of levels to make, None: until one tile is left.

    declared: rows and columns of the full resolution, from 0 on, if the producer declared them. Tiles at that edge need
    no more children than it has.
    """

    def __init__(self, requested_levels: int | None = None, declared: tuple[int, int] | None = None) -> None:
        self.requested_levels = requested_levels
        self._declared = declared
        self._rows: tuple[int, int] | None = None  # first and last row and column so far
        self._columns: tuple[int, int] | None = None

    def levels_with(self, leaf: TileKey) -> int:
        """Return the number of levels once this tile has come."""
        if self.requested_levels is not None:
            return self.requested_levels
        rows, columns = _widened(self._rows, leaf.row), _widened(self._columns, leaf.column)
        return min(MAX_LEVELS, levels_needed(rows[1] - rows[0] + 1, columns[1] - columns[0] + 1))

    def widen(self, leaf: TileKey) -> None:
        """Note that this tile has come."""
        self._rows, self._columns = _widened(self._rows, leaf.row), _widened(self._columns, leaf.column)

    def is_complete(self, key: TileKey, mask: int) -> bool:
        """Return whether the children in this mask are all that the tile can have."""
        if mask == ALL or self._declared is None:
            return mask == ALL
        # the first child's row and column in the full resolution tell whether any of it lies in the declared extent
        scale = key.level - 1
        inside = (
            child.bit
            for child in key.children()
            if 0 <= child.row << scale < self._declared[0] and 0 <= child.column << scale < self._declared[1]
        )
        return bool(mask) and not sum(inside) & ~mask


def _widened(span: tuple[int, int] | None, value: int) -> tuple[int, int]:
    return (value, value) if span is None else (min(span[0], value), max(span[1], value))
