"""The tiles of all lower levels, from their first child to their place in the files; extent and saved state."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from numpy.typing import NDArray

from acqstream.errors import CannotResume
from acqstream.grid.reduction import levels_needed
from acqstream.model.acquisition_spec import MAX_LEVELS
from acqstream.views.checkpoint import field, integers, items, of_kind
from acqstream.views.level_files import PyramidLevels
from acqstream.views.pyramid_tiles import ALL, LevelTile, TileKey, TileMemory
from acqstream.views.tile_painter import FullResolution, TilePainter, last_row


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


class OpenTile(NamedTuple):
    """A tile that is not complete in the files of its level and the next one."""

    key: TileKey
    is_dirty: bool


@dataclass(frozen=True, slots=True)
class PyramidState:
    """is_remaking: a rebuild was interrupted. index_bytes: size of each level's index, from level 1 on."""

    is_remaking: bool
    index_bytes: tuple[int, ...]
    open: tuple[OpenTile, ...]

    @staticmethod
    def parse(values: Mapping[str, Any]) -> PyramidState:
        """Raises CannotResume for values that no pyramid writes."""
        index_bytes = integers(values.get("index_bytes"), "state field 'index_bytes'")
        if len(index_bytes) > MAX_LEVELS:
            raise CannotResume(f"the state lists {len(index_bytes)} levels, at most {MAX_LEVELS} are written")
        tiles = items(values.get("open"), "state field 'open'")
        return PyramidState(field(values, "is_remaking", bool), index_bytes, tuple(map(_open_tile, tiles)))


def _open_tile(value: object) -> OpenTile:
    level, row, column, is_dirty, other_axes = items(value, "an open tile", 5)
    numbers = integers([level, row, column], "an open tile")
    axes = tuple(_axis(pair) for pair in items(other_axes, "the axes of an open tile"))
    return OpenTile(TileKey(numbers[0], axes, numbers[1], numbers[2]), bool(of_kind(is_dirty, int, "is_dirty")))


def _axis(pair: object) -> tuple[str, int | str]:
    name, value = items(pair, "an axis of an open tile", 2)
    if not isinstance(value, int | str):
        raise CannotResume(f"axis {name!r:.60} of an open tile is {value!r:.60}, expected an int or a string")
    return of_kind(name, str, "the name of an axis"), value


_FEW_TILES = 8
_EVICTED_SHARE = 8  # of the memory, at once: a sync serves all of them


class PyramidTree:
    """All tiles of the lower levels. Memory holds the tiles that change; the others are in the files of the levels.

    `add` uses no disk where `is_ready`. now_s is the time as of the last `work`.
    """

    def __init__(self, levels: PyramidLevels, full: FullResolution, memory: TileMemory, grid: TileGrid) -> None:
        self.memory = memory
        self.grid = grid
        self.level_count = grid.requested_levels or 0
        self.now_s = 0.0
        self.unpublished_bytes = 0
        self._levels = levels
        self._full = full
        self._tiles: dict[TileKey, LevelTile] = {}
        self._open: dict[TileKey, float] = {}  # dirty or unsent tiles, and since when
        self._complete: deque[TileKey] = deque()  # open tiles that are to be written
        self._painter = TilePainter(self._tiles, levels, full, memory)

    @property
    def waiting(self) -> int:
        """Number of tiles whose current version is not published."""
        return len(self._open) + len(self._painter.unpublished)

    def foresee(self, leaf: TileKey) -> None:
        """Count levels for a tile that will be noted. Called for all tiles before the first `note`."""
        self.grid.widen(leaf)
        self.level_count = self.grid.levels_with(leaf)

    def note(self, leaf: TileKey, row: int) -> None:
        """Note a tile that an earlier process has added; nothing is painted."""
        key = leaf.parent
        bit = leaf.bit
        for tile_key, tile in self._chain(leaf, row):
            if tile_key == key:
                tile.mask |= bit
                if self.grid.is_complete(key, tile.mask):
                    tile.is_stored = True
                    key, bit = tile_key.parent, tile_key.bit

    def is_ready(self, leaf: TileKey) -> bool:
        """Return whether this tile can be added without the disk."""
        if self.grid.levels_with(leaf) != self.level_count:
            return False
        missing = self._painter.missing(self._touched(leaf))
        return len(missing) <= self.memory.free and not any(
            tile is not None and (tile.is_stored or tile.is_lost) for tile in map(self._tiles.get, missing)
        )

    def grows_lightly(self, leaf: TileKey) -> bool:
        """Return whether this tile adds levels that can be made from a few tiles, in free memory."""
        added = self.grid.levels_with(leaf) - self.level_count
        if added <= 0:
            return False
        top = sum(key.level == self.level_count for key in self._tiles)
        return top <= _FEW_TILES and (top + 1) * (added + 1) + self.level_count <= self.memory.free

    def make_ready(self, leaf: TileKey) -> None:
        """Add levels, write tiles to free memory, and read others for `add`. Raises StorageError, DatasetError."""
        self.grow(leaf)
        touched = self._touched(leaf)
        self._free_memory(len(self._painter.missing(touched)), touched)
        for key in touched:
            if key in self._tiles:
                self._painter.load(key)

    def grow(self, leaf: TileKey) -> None:
        """Add the levels that a tile requires, each made from the one before; level 1 stays empty."""
        count = self.grid.levels_with(leaf)
        while self.level_count < count:
            top = self.level_count
            self.level_count += 1
            tiles = sorted(((key, tile) for key, tile in self._tiles.items() if key.level == top), key=last_row)
            for key, tile in tiles:
                parent = self._tiles.setdefault(key.parent, LevelTile(tile.first, tile.last))
                parent.first, parent.last = min(parent.first, tile.first), max(parent.last, tile.last)
                tile.is_unsent = True
                self._open.setdefault(key, self.now_s)
            for key, tile in tiles:
                if self.grid.is_complete(key, tile.mask):
                    both = [key, key.parent]
                    self._free_memory(len(self._painter.missing(both)), both)
                    self._painter.load(key)
                    self._send(key, tile, self.now_s)
                    self._painter.give_back(tile)
                    self._settled(key, tile)

    def add(self, leaf: TileKey, row: int, paint: Callable[[NDArray[Any]], None]) -> None:
        """Add a tile of the full resolution that is ready. `paint` gets its quadrant and paints it there, halved."""
        self.grid.widen(leaf)
        if not self.level_count:
            return
        for _ in self._chain(leaf, row):
            pass
        key = leaf.parent
        tile = self._tiles[key]
        paint(self._painter.image(tile)[self._painter.quadrant(leaf)])
        tile.painted |= leaf.bit
        tile.mask |= leaf.bit
        self._changed(key, tile, self.now_s)

    def write_complete(self, limit_bytes: float = float("inf")) -> None:
        """Write complete tiles in order, about limit_bytes of them. Raises StorageError."""
        max_bytes = self.unpublished_bytes + limit_bytes
        while self._complete and self.unpublished_bytes < max_bytes:
            key = self._complete[0]
            if self._tiles[key].is_dirty:
                self._write(key)
            self._complete.popleft()

    def publish(self) -> None:
        """Publish the tiles that were written, and free their memory. Raises StorageError."""
        self._levels.publish()
        self.unpublished_bytes = 0
        written, self._painter.unpublished = self._painter.unpublished, set()
        for tile in written:
            tile.is_stored = True
            self._painter.give_back(tile)

    def settle(self, until_s: float) -> None:
        """Publish incomplete tiles that wait since until_s or before, and paint them on. Raises StorageError."""
        for level in range(1, self.level_count + 1):
            waiting = [key for key, since_s in self._open.items() if key.level == level and since_s <= until_s]
            if not waiting:
                continue
            for key in sorted(waiting, key=lambda key: self._tiles[key].last):
                parents = [key.parent] if level < self.level_count else []
                both = [key, *parents]
                self._free_memory(len(self._painter.missing(both)), both)
                self._painter.load(key)
                tile = self._tiles[key]
                if tile.is_unsent:
                    self._send(key, tile, self._open[key])
                if tile.is_dirty:
                    self._write(key)
                self._painter.give_back(tile)
                self._settled(key, tile)
            self.write_complete()
            self.publish()

    def state(self) -> list[Any]:
        """Return the tiles that the files of their level or of the next one lack, for `restore`."""
        return [
            [key.level, key.row, key.column, int(self._tiles[key].is_dirty), [list(pair) for pair in key.other_axes]]
            for key in self._open
        ]

    def restore(self, open_tiles: Sequence[OpenTile]) -> None:
        """Restore `state` after `note` of all earlier tiles. Raises CannotResume for a tile above none of them."""
        for tile_key, _ in open_tiles:
            if tile_key not in self._tiles:
                raise CannotResume(f"the state names a tile without frames: {tile_key}")
        for key, tile in self._tiles.items():
            if not tile.is_stored:
                tile.is_stored = self._levels[key.level].has(key.axes())
        for key, is_dirty in open_tiles:
            tile = self._tiles[key]
            tile.is_dirty, tile.is_unsent = is_dirty, key.level < self.level_count
            self._open[key] = self.now_s

    def _chain(self, leaf: TileKey, row: int) -> Iterable[tuple[TileKey, LevelTile]]:
        """Yield the tiles above a tile of the full resolution, created if missing, with its frame as the latest."""
        key = leaf
        for _ in range(self.level_count):
            key = key.parent
            tile = self._tiles.get(key)
            if tile is None:
                tile = self._tiles[key] = LevelTile(row, row)
            tile.last = row
            yield key, tile

    def _touched(self, leaf: TileKey) -> list[TileKey]:
        """Return the tiles that change with this one: its parent, and further while they become complete."""
        touched: list[TileKey] = []
        key, bit = leaf.parent, leaf.bit
        for _ in range(self.level_count):
            touched.append(key)
            tile = self._tiles.get(key)
            if not self.grid.is_complete(key, (tile.mask if tile is not None else 0) | bit):
                break
            key, bit = key.parent, key.bit
        return touched

    def _changed(self, key: TileKey, tile: LevelTile, since_s: float) -> None:
        tile.is_dirty = True
        tile.is_unsent = key.level < self.level_count
        self._open[key] = min(since_s, self._open.get(key, since_s))
        if self.grid.is_complete(key, tile.mask):
            if tile.is_unsent:
                self._send(key, tile, since_s)
            self._complete.append(key)

    def _send(self, key: TileKey, tile: LevelTile, since_s: float) -> None:
        """Paint a tile into the next level."""
        parent_key = key.parent
        parent = self._tiles[parent_key]
        self._painter.load(parent_key)
        self._painter.paint(parent, key, tile)
        if self.memory.shape.is_odd:
            self._painter.repaint_later(parent_key, parent, tile.last)
        tile.is_unsent = False
        if self.grid.is_complete(key, tile.mask):
            parent.mask |= key.bit
        self._changed(parent_key, parent, since_s)

    def _write(self, key: TileKey) -> None:
        tile = self._tiles[key]
        assert tile.memory is not None
        self._painter.fill(key, tile)
        self._levels[key.level].write(self._full.level_header(key, tile.first), tile.memory.data)
        tile.is_dirty = False
        self.unpublished_bytes += self.memory.shape.payload_bytes
        self._painter.unpublished.add(tile)
        self._settled(key, tile)

    def _settled(self, key: TileKey, tile: LevelTile) -> None:
        if not (tile.is_dirty or tile.is_unsent):
            self._open.pop(key, None)

    def _free_memory(self, count: int, kept: Sequence[TileKey]) -> None:
        """Free memory for `count` more images. Tiles in `kept` keep theirs."""
        if count <= self.memory.free:
            return
        self.write_complete()
        self.publish()
        if count <= self.memory.free:
            return
        n_evicted = max(count, self.memory.count // _EVICTED_SHARE) - self.memory.free
        oldest = [key for key in self._open if self._tiles[key].image is not None and key not in kept]
        for key in oldest[:n_evicted]:
            if self._tiles[key].is_dirty:
                self._write(key)
            self._painter.give_back(self._tiles[key])
        self.publish()
