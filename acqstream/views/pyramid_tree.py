"""Which tiles there are, what was painted into them, and what of that is written: the view's account of all levels."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from acqstream.errors import CannotResume
from acqstream.grid.reduction import Halving, levels_needed, quadrant
from acqstream.model.acquisition_spec import MAX_LEVELS
from acqstream.model.frame_header import FrameHeader
from acqstream.views.pyramid_levels import PyramidLevels
from acqstream.views.pyramid_state import OpenTile
from acqstream.views.pyramid_tiles import ALL, LevelTile, TileKey, TileMemory

_FEW_TILES = 8
_EVICTED_SHARE = 8  # of the memory, at once: a sync serves all of them


class FullResolution(Protocol):
    """Where level 1 comes from."""

    def read_level_0(self, leaf: TileKey) -> tuple[int, NDArray[Any]]:
        """The latest frame with these axes: row of the index, image halved. Raises FrameNotFound."""

    def header_of(self, key: TileKey, first: int) -> FrameHeader:
        """Of a tile of a lower level; first is the row of the first frame below it."""


class PyramidTree:
    """All tiles of the lower levels. asked_levels: how many levels to make, None: until one tile is left. grid: rows
    and columns of the full resolution, from 0 on, where they are known: tiles at its edge need no more than it has.

    Memory holds the tiles that change; the others are in the level's files. `add` uses no disk where `is_ready`.
    now_s is the time as of the last `work`.
    """

    def __init__(
        self,
        levels: PyramidLevels,
        full: FullResolution,
        memory: TileMemory,
        halving: Halving,
        *,
        asked_levels: int | None = None,
        grid: tuple[int, int] | None = None,
    ) -> None:
        self.memory = memory
        self.now_s = 0.0
        self.unpublished_bytes = 0
        self._levels = levels
        self._full = full
        self._halving = halving
        self._asked_levels = asked_levels
        self._grid = grid
        self._level_count = asked_levels or 0
        self._tiles: dict[TileKey, LevelTile] = {}
        self._open: dict[TileKey, float] = {}  # dirty or unsent, and since when
        self._complete: deque[TileKey] = deque()  # of those: to be written
        self._written: set[LevelTile] = set()  # to be published; their memory is being read until then
        self._rows: tuple[int, int] | None = None  # first and last row and column of the full resolution
        self._columns: tuple[int, int] | None = None

    @property
    def level_count(self) -> int:
        return self._level_count

    @property
    def waiting(self) -> int:
        """Tiles that are not published as they are."""
        return len(self._open) + len(self._written)

    def levels_with(self, leaf: TileKey) -> int:
        """How many levels there are once this tile has come."""
        if self._asked_levels is not None:
            return self._asked_levels
        rows, columns = _widened(self._rows, leaf.row), _widened(self._columns, leaf.column)
        return min(MAX_LEVELS, levels_needed(rows[1] - rows[0] + 1, columns[1] - columns[0] + 1))

    def foresee(self, leaf: TileKey) -> None:
        """This tile will be noted: have as many levels as it asks for. For all of them before the first is noted."""
        self._widen(leaf)
        self._level_count = self.levels_with(leaf)

    def note(self, leaf: TileKey, row: int) -> None:
        """An earlier process has added this tile; nothing is painted."""
        key = leaf.parent
        bit = leaf.bit
        for tile_key, tile in self._chain(leaf, row):
            if tile_key == key:
                tile.mask |= bit
                if self._is_complete(key, tile.mask):
                    tile.is_stored = True
                    key, bit = tile_key.parent, tile_key.bit

    def is_ready(self, leaf: TileKey) -> bool:
        """Whether this tile can be added without the disk."""
        if self.levels_with(leaf) != self._level_count:
            return False
        missing = self._missing(self._touched(leaf))
        return len(missing) <= self.memory.free and not any(
            tile is not None and (tile.is_stored or tile.is_lost) for tile in map(self._tiles.get, missing)
        )

    def grows_lightly(self, leaf: TileKey) -> bool:
        """Whether this tile asks for more levels that can be made of a few tiles, in the memory there is."""
        added = self.levels_with(leaf) - self._level_count
        if added <= 0:
            return False
        top = sum(key.level == self._level_count for key in self._tiles)
        return top <= _FEW_TILES and (top + 1) * (added + 1) + self._level_count <= self.memory.free

    def make_ready(self, leaf: TileKey) -> None:
        """Make it so: add levels, write tiles to get memory, read others. Raises StorageError, DatasetError."""
        self.grow(leaf)
        touched = self._touched(leaf)
        self._make_room(len(self._missing(touched)), touched)
        for key in touched:
            if key in self._tiles:
                self._load(key)

    def grow(self, leaf: TileKey) -> None:
        """Add the levels that a tile asks for, each made from the one above; level 1 is not."""
        count = self.levels_with(leaf)
        while self._level_count < count:
            top = self._level_count
            self._level_count += 1
            tiles = sorted(((key, tile) for key, tile in self._tiles.items() if key.level == top), key=_last)
            for key, tile in tiles:
                parent = self._tiles.setdefault(key.parent, LevelTile(tile.first, tile.last))
                parent.first, parent.last = min(parent.first, tile.first), max(parent.last, tile.last)
                tile.is_unsent = True
                self._open.setdefault(key, self.now_s)
            for key, tile in tiles:
                if self._is_complete(key, tile.mask):
                    both = [key, key.parent]
                    self._make_room(len(self._missing(both)), both)
                    self._load(key)
                    self._send(key, tile, self.now_s)
                    self._give_back(tile)
                    self._settled(key, tile)

    def add(self, leaf: TileKey, row: int, paint: Callable[[NDArray[Any]], None]) -> None:
        """Paint a tile of the full resolution, halved: `paint` gets where it goes. It must be ready."""
        self._widen(leaf)
        if not self._level_count:
            return
        for _ in self._chain(leaf, row):
            pass
        key = leaf.parent
        tile = self._tiles[key]
        paint(self._image(tile)[self._quadrant(leaf)])
        tile.painted |= leaf.bit
        tile.mask |= leaf.bit
        self._changed(key, tile, self.now_s)

    def write_complete(self, limit_bytes: float = float("inf")) -> None:
        """Write complete tiles, in order, about so many bytes of them. Raises StorageError."""
        most_bytes = self.unpublished_bytes + limit_bytes
        while self._complete and self.unpublished_bytes < most_bytes:
            key = self._complete[0]
            if self._tiles[key].is_dirty:
                self._write(key)
            self._complete.popleft()

    def publish(self) -> None:
        """Publish what was written, and give its memory back. Raises StorageError."""
        self._levels.publish()
        self.unpublished_bytes = 0
        written, self._written = self._written, set()
        for tile in written:
            tile.is_stored = True
            self._give_back(tile)

    def settle(self, until_s: float) -> None:
        """Publish tiles that have waited since before until_s as they are, and send them on. Raises StorageError."""
        for level in range(1, self._level_count + 1):
            waiting = [key for key, since_s in self._open.items() if key.level == level and since_s <= until_s]
            if not waiting:
                continue
            for key in sorted(waiting, key=lambda key: self._tiles[key].last):
                parents = [key.parent] if level < self._level_count else []
                both = [key, *parents]
                self._make_room(len(self._missing(both)), both)
                self._load(key)
                tile = self._tiles[key]
                if tile.is_unsent:
                    self._send(key, tile, self._open[key])
                if tile.is_dirty:
                    self._write(key)
                self._give_back(tile)
                self._settled(key, tile)
            self.write_complete()
            self.publish()

    def state(self) -> list[Any]:
        """Tiles whose content is not all in the files of their level and of the next one; for `restore`."""
        return [
            [key.level, key.row, key.column, int(self._tiles[key].is_dirty), [list(pair) for pair in key.rest]]
            for key in self._open
        ]

    def restore(self, open_tiles: Sequence[OpenTile]) -> None:
        """After `note` of all earlier tiles. Raises CannotResume for a tile that none of them belongs to."""
        for tile_key, _ in open_tiles:
            if tile_key not in self._tiles:
                raise CannotResume(f"the state names a tile without frames: {tile_key}")
        for key, tile in self._tiles.items():
            if not tile.is_stored:
                tile.is_stored = self._levels.has(key.level, key.axes())
        for key, is_dirty in open_tiles:
            tile = self._tiles[key]
            tile.is_dirty, tile.is_unsent = is_dirty, key.level < self._level_count
            self._open[key] = self.now_s

    def _widen(self, leaf: TileKey) -> None:
        self._rows, self._columns = _widened(self._rows, leaf.row), _widened(self._columns, leaf.column)

    def _chain(self, leaf: TileKey, row: int) -> Iterable[tuple[TileKey, LevelTile]]:
        """The tiles above a tile of the full resolution, made where they are not known; they have got its frame."""
        key = leaf
        for _ in range(self._level_count):
            key = key.parent
            tile = self._tiles.get(key)
            if tile is None:
                tile = self._tiles[key] = LevelTile(row, row)
            tile.last = row
            yield key, tile

    def _touched(self, leaf: TileKey) -> list[TileKey]:
        """The tiles that change when this one comes: as far up as it completes them."""
        touched: list[TileKey] = []
        key, bit = leaf.parent, leaf.bit
        for _ in range(self._level_count):
            touched.append(key)
            tile = self._tiles.get(key)
            if not self._is_complete(key, (tile.mask if tile is not None else 0) | bit):
                break
            key, bit = key.parent, key.bit
        return touched

    def _is_complete(self, key: TileKey, mask: int) -> bool:
        if mask == ALL or self._grid is None:
            return mask == ALL
        scale = key.level - 1
        inside = (
            child.bit
            for child in key.children()
            if 0 <= child.row << scale < self._grid[0] and 0 <= child.column << scale < self._grid[1]
        )
        return bool(mask) and not sum(inside) & ~mask

    def _missing(self, keys: Sequence[TileKey]) -> list[TileKey]:
        return [key for key in keys if key not in self._tiles or self._tiles[key].image is None]

    def _changed(self, key: TileKey, tile: LevelTile, since_s: float) -> None:
        tile.is_dirty = True
        tile.is_unsent = key.level < self._level_count
        self._open[key] = min(since_s, self._open.get(key, since_s))
        if self._is_complete(key, tile.mask):
            if tile.is_unsent:
                self._send(key, tile, since_s)
            self._complete.append(key)

    def _send(self, key: TileKey, tile: LevelTile, since_s: float) -> None:
        """Paint a tile into the next level."""
        parent_key = key.parent
        parent = self._tiles[parent_key]
        self._load(parent_key)
        self._paint(parent, key, tile)
        if self.memory.shape.is_odd:
            self._repaint_later(parent_key, parent, tile.last)
        tile.is_unsent = False
        if self._is_complete(key, tile.mask):
            parent.mask |= key.bit
        self._changed(parent_key, parent, since_s)

    def _paint(self, parent: LevelTile, key: TileKey, tile: LevelTile) -> None:
        if tile.image is not None:
            self._fill(key, tile)
        image = tile.image if tile.image is not None else self._levels.read(key.level, key.axes())
        self._halving.halve(image, self._image(parent)[self._quadrant(key)])
        parent.painted |= key.bit

    def _fill(self, key: TileKey, tile: LevelTile) -> None:
        """Zeros where nothing was painted."""
        assert tile.image is not None
        if tile.painted != ALL:
            for child in key.children():
                if not tile.painted & child.bit:
                    tile.image[self._quadrant(child)] = 0
            tile.painted = ALL

    def _repaint_later(self, parent_key: TileKey, parent: LevelTile, last: int) -> None:
        """Children that frames have come to since then keep the pixels that they share with the one painted now."""
        later = [(key, tile) for key in parent_key.children() if (tile := self._tiles.get(key)) and tile.last > last]
        for key, tile in sorted(later, key=_last):
            if tile.image is not None or tile.is_stored:
                self._paint(parent, key, tile)

    def _quadrant(self, key: TileKey) -> tuple[slice, slice]:
        return quadrant(key.row, key.column, *self.memory.shape.inner)

    def _image(self, tile: LevelTile) -> NDArray[Any]:
        """To paint into: nobody else looks at it."""
        if tile.image is None:
            return self.memory.give(tile)
        if tile in self._written:
            self._levels.wait()
        return tile.image

    def _load(self, key: TileKey) -> None:
        """Have what is known of a tile in memory."""
        tile = self._tiles[key]
        if tile.image is not None:
            return
        if tile.is_dirty:
            self._recover(key, tile)
        elif tile.is_stored:
            self._image(tile)[:] = self._levels.read(key.level, key.axes())
            tile.painted = ALL

    def _recover(self, key: TileKey, tile: LevelTile) -> None:
        """Paint again, from the tiles below, what an earlier process had in memory."""
        image = self._image(tile)
        if key.level > 1:
            below = [(child, known) for child in key.children() if (known := self._tiles.get(child))]
            for child, known in sorted(below, key=_last):
                if known.is_stored or known.image is not None:
                    self._paint(tile, child, known)
            return
        found = []
        for child in key.children():
            if tile.mask & child.bit:
                row, _ = self._full.read_level_0(child)
                found.append((row, child))
        for _, child in sorted(found):
            image[self._quadrant(child)] = self._full.read_level_0(child)[1]
            tile.painted |= child.bit

    def _write(self, key: TileKey) -> None:
        tile = self._tiles[key]
        assert tile.memory is not None
        self._fill(key, tile)
        self._levels.write(key.level, self._full.header_of(key, tile.first), tile.memory.view)
        tile.is_dirty = False
        self.unpublished_bytes += self.memory.shape.payload_bytes
        self._written.add(tile)
        self._settled(key, tile)

    def _settled(self, key: TileKey, tile: LevelTile) -> None:
        if not (tile.is_dirty or tile.is_unsent):
            self._open.pop(key, None)

    def _make_room(self, count: int, kept: Sequence[TileKey]) -> None:
        """Have memory for so many images more, without those in `kept` losing theirs."""
        if count <= self.memory.free:
            return
        self.write_complete()
        self.publish()
        if count <= self.memory.free:
            return
        wanted = max(count, self.memory.count // _EVICTED_SHARE) - self.memory.free
        oldest = [key for key in self._open if self._tiles[key].image is not None and key not in kept]
        for key in oldest[:wanted]:
            if self._tiles[key].is_dirty:
                self._write(key)
            self._give_back(self._tiles[key])
        self.publish()

    def _give_back(self, tile: LevelTile) -> None:
        """Its memory, unless that is all there is of it."""
        if not (tile.is_dirty or tile in self._written):
            self.memory.take_back(tile)


def _widened(span: tuple[int, int] | None, value: int) -> tuple[int, int]:
    return (value, value) if span is None else (min(span[0], value), max(span[1], value))


def _last(item: tuple[TileKey, LevelTile]) -> int:
    return item[1].last
