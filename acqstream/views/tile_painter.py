"""Paints the images of lower levels in memory, from tiles of the full resolution, in memory and in files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from acqstream.errors import DatasetError
from acqstream.formats.ndtiff.layout import NDTiffLayout, stack_header_bytes
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.formats.ndtiff.stack_header import parse_stack_header
from acqstream.grid.reduction import Halving, inner_tile, quadrant
from acqstream.model.axes import check_axes
from acqstream.model.frame_header import FrameHeader
from acqstream.views.level_files import PyramidLevels
from acqstream.views.pyramid_tiles import ALL, LevelTile, SpareImages, TileKey, TileMemory, TileShape


class FullResolution:
    """Made from the frame in `row`, which all others must be like. Raises DatasetError if it cannot be reduced.

    shape is that of all tiles. layout and stack_header are for the files of lower levels, up to limit_bytes each.
    scratch: an image of half the size of a tile, overwritten by `halved`. Used by one thread.
    """

    def __init__(self, dataset: Path, reader: NDTiffReader, row: int, *, limit_bytes: int) -> None:
        self._reader = reader
        name, frame = reader.stored_frame(row)
        file, _ = reader.stack_file(name)
        header = parse_stack_header(file.read, file.size(), str(file.path))
        if header.major != 3:
            raise DatasetError(f"{dataset} is NDTiff version {header.major}; levels are added to version 3")
        summary = {name: _finite(value) for name, value in header.summary_metadata.items()}
        overlap = (_overlap(summary, "GridPixelOverlapY"), _overlap(summary, "GridPixelOverlapX"))
        if overlap[0] >= frame.height or overlap[1] >= frame.width:
            raise DatasetError(f"tiles of {frame.height} x {frame.width} pixels cannot overlap by {overlap}")
        summary |= {"TiledImageStorage": True, "GridPixelOverlapX": overlap[1], "GridPixelOverlapY": overlap[0]}
        self.layout = NDTiffLayout(name.rpartition("_NDTiffStack")[0], summary, stack_limit_bytes=limit_bytes)
        try:
            self.stack_header = stack_header_bytes(summary)
        except ValueError as error:  # text that no reader of another language could take
            raise DatasetError(f"{file.path}: the summary cannot be written into the levels: {error}") from error
        self.shape = TileShape(frame.height, frame.width, overlap, frame.pixel_type)
        height, width = self.shape.inner
        self.halving = Halving(frame.pixel_type.numpy_dtype)
        quarter = frame.pixel_type.shape((height + 1) // 2, (width + 1) // 2)
        self._spare = SpareImages(quarter, frame.pixel_type.numpy_dtype)
        self.scratch = self._spare.take()

    def check(self, row: int) -> None:
        """Raises DatasetError if the frame differs from the first one in size or pixel type."""
        _, frame = self._reader.stored_frame(row)
        expected = (self.shape.height, self.shape.width, self.shape.pixel_type)
        if (frame.height, frame.width, frame.pixel_type) != expected:
            raise DatasetError(
                f"frame {row} is {_words(frame.height, frame.width, frame.pixel_type)}, those before are "
                f"{_words(*expected)}: tiles of one pyramid are alike"
            )

    def halve(self, pixels: NDArray[Any], out: NDArray[Any]) -> None:
        """Halve a tile without its overlap."""
        self.halving.halve(inner_tile(pixels, self.shape.overlap), out)

    def halved(self, pixels: NDArray[Any]) -> NDArray[Any]:
        """Halve a tile into `scratch`."""
        self.halve(pixels, self.scratch)
        return self.scratch

    def new_halved(self, pixels: NDArray[Any]) -> NDArray[Any]:
        """Halve a tile into an image of its own, until `give_back`."""
        image = self._spare.take()
        self.halve(pixels, image)
        return image

    def give_back(self, image: NDArray[Any]) -> None:
        """Use the memory of this image again, unless it is `scratch`."""
        if image is not self.scratch:
            self._spare.give_back(image)

    def row(self, leaf: TileKey) -> int:
        """Return the row of the latest frame with these axes. Raises FrameNotFound, DatasetError as `check`."""
        row = self._reader.row(leaf.axes())
        self.check(row)
        return row

    def read(self, row: int) -> NDArray[Any]:
        """Read a frame from the disk."""
        return self._reader.read_pixels(row)

    def level_header(self, key: TileKey, first: int) -> FrameHeader:
        """Return the header of a tile of a lower level; first is the first frame below it, whose metadata it has."""
        axes = check_axes({**self._reader.key(first), "row": key.row, "column": key.column})
        height, width = self.shape.inner
        return FrameHeader(0, self.shape.pixel_type, height, width, axes, self._reader.metadata_bytes(first))

    def close(self) -> None:
        self._spare.close()


def _finite(value: Any) -> Any:
    """Replace NaN and infinite numbers, which other programs write, by null: standard JSON has neither."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list) else value


def _words(height: int, width: int, pixel_type: Any) -> str:
    return f"{height} x {width} {pixel_type.dtype} ({pixel_type.bits} bits, {pixel_type.samples} samples)"


def _overlap(summary: Mapping[str, Any], name: str) -> int:
    value = summary.get(name, 0)
    if type(value) is not int or value < 0:
        raise DatasetError(f"{name} in the summary metadata is {value!r:.60}, not a number of pixels")
    return value


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
        image = tile.image if tile.image is not None else self._levels[key.level].read(key.axes())
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
            self.image(tile)[:] = self._levels[key.level].read(key.axes())
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
