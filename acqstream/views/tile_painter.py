"""Paints the images of lower levels in memory, from tiles in memory and in the files of the levels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from acqstream.grid.reduction import quadrant
from acqstream.views.full_resolution import FullResolution
from acqstream.views.pyramid_levels import PyramidLevels
from acqstream.views.pyramid_tiles import ALL, LevelTile, TileKey, TileMemory


class TilePainter:
    """tiles is the tree's own mapping. unpublished: tiles that were written and not published.

    The writer reads the memory of unpublished tiles: it is neither painted without a wait nor given back.
    """

    def __init__(
        self, tiles: dict[TileKey, LevelTile], levels: PyramidLevels, full: FullResolution, memory: TileMemory
    ) -> None:
        self.unpublished: set[LevelTile] = set()
        self._tiles = tiles
        self._levels = levels
        self._full = full
        self._memory = memory

    def missing(self, keys: Sequence[TileKey]) -> list[TileKey]:
        """Return the keys of tiles without an image in memory."""
        return [key for key in keys if key not in self._tiles or self._tiles[key].image is None]

    def paint(self, parent: LevelTile, key: TileKey, tile: LevelTile) -> None:
        """Paint a tile, halved, into its quadrant of the tile above. Raises FrameNotFound, StorageError."""
        if tile.image is not None:
            self.fill(key, tile)
        image = tile.image if tile.image is not None else self._levels.read(key.level, key.axes())
        self._full.halving.halve(image, self.image(parent)[self.quadrant(key)])
        parent.painted |= key.bit

    def fill(self, key: TileKey, tile: LevelTile) -> None:
        """Set quadrants to zero that were not painted: used memory has old pixels."""
        assert tile.image is not None
        if tile.painted != ALL:
            for child in key.children():
                if not tile.painted & child.bit:
                    tile.image[self.quadrant(child)] = 0
            tile.painted = ALL

    def repaint_later(self, parent_key: TileKey, parent: LevelTile, last: int) -> None:
        """Repaint children with frames after row `last`: they keep the pixels that they share with the painted one."""
        later = [(key, tile) for key in parent_key.children() if (tile := self._tiles.get(key)) and tile.last > last]
        for key, tile in sorted(later, key=last_row):
            if tile.image is not None or tile.is_stored:
                self.paint(parent, key, tile)

    def quadrant(self, key: TileKey) -> tuple[slice, slice]:
        """Return the place of a tile in the tile above it."""
        return quadrant(key.row, key.column, *self._memory.shape.inner)

    def image(self, tile: LevelTile) -> NDArray[Any]:
        """Return the image of a tile to paint into, once the writer does not read it. Memory must be free."""
        if tile.image is None:
            return self._memory.give(tile)
        if tile in self.unpublished:
            self._levels.wait()
        return tile.image

    def load(self, key: TileKey) -> None:
        """Bring a tile into memory, from its file or its children. Raises FrameNotFound, StorageError."""
        tile = self._tiles[key]
        if tile.image is not None:
            return
        if tile.is_dirty:
            self._recover(key, tile)
        elif tile.is_stored:
            self.image(tile)[:] = self._levels.read(key.level, key.axes())
            tile.painted = ALL

    def _recover(self, key: TileKey, tile: LevelTile) -> None:
        """Repaint a tile from its children that an earlier process had in memory only, the latest last."""
        image = self.image(tile)
        if key.level > 1:
            below = [(child, lower) for child in key.children() if (lower := self._tiles.get(child))]
            for child, lower in sorted(below, key=last_row):
                if lower.is_stored or lower.image is not None:
                    self.paint(tile, child, lower)
            return
        leaves = sorted((self._full.row(child), child) for child in key.children() if tile.mask & child.bit)
        for row, child in leaves:
            image[self.quadrant(child)] = self._full.halved(self._full.read(row))
            tile.painted |= child.bit

    def give_back(self, tile: LevelTile) -> None:
        """Free the memory of a tile, unless it has the only copy or the writer reads it."""
        if not (tile.is_dirty or tile in self.unpublished):
            self._memory.take_back(tile)


def last_row(item: tuple[TileKey, LevelTile]) -> int:
    return item[1].last
