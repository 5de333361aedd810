"""Pixels of a snapshot: where a frame lies, pieces of frames and mosaics, and lower levels made on request.

A request costs at most one frame or `MAX_SOURCE_BYTES` of tiles, and memory for a band of it. `LevelCache` keeps arrays
that were read or computed, up to a number of bytes; each is made once at a time.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.mosaic import Canvas, Side, TileRun
from acqstream.formats.ndtiff.pixels import StoredFrame
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.frames.frame_snapshot import PlacedArray
from acqstream.grid.block_mean import BlockMean
from acqstream.grid.block_sizes import reduced_shape
from acqstream.model.axes import COLUMN, ROW, AxisValue
from acqstream.storage.files.read_file import ReadFile

MAX_SOURCE_BYTES = 64 * 2**20  # of tiles from which a chunk of a lower level is made
MAX_REDUCED_BYTES = 2**30  # of a frame: a larger one has no lower levels
MAX_BAND_BYTES = 256 * 2**20  # of the rows of a frame that a chunk lies in, which are read together
_BAND_BYTES = 8 * 2**20

Pixels = NDArray[np.generic]
Factors = Sequence[tuple[int, int]]
"""Items (y, x) of level 0 that an item of each level covers."""


@dataclass(frozen=True, slots=True)
class Region:
    """A part of one picture: its level; indices along the axes of the frames; and pixels of the level, [first, stop)
    along y and x.
    """

    level: int
    outer: Mapping[str, int]
    y: tuple[int, int]
    x: tuple[int, int]


@dataclass(frozen=True, slots=True)
class FramePiece:
    """A frame, or a tile, of which a region has pixels: its row in the index, the name of its stack file, and its
    offsets there. y and x: which pixels; None for all of a frame.
    """

    row: int
    name: str
    frame: StoredFrame
    y: TileRun | None = None
    x: TileRun | None = None


@dataclass(frozen=True, slots=True)
class PixelSource:
    """The frames that a region is made of. level: of the reader; higher levels are made from it."""

    reader: NDTiffReader
    level: int
    pieces: tuple[FramePiece, ...]

    @property
    def identity(self) -> tuple[object, ...]:
        """Values of which one differs if a frame was written again, or a mosaic moved its tiles."""
        found: list[object] = []
        for piece in self.pieces:
            found += (piece.name, piece.frame.pixels, piece.y, piece.x)
        return tuple(found)

    def span(self) -> tuple[ReadFile, StoredFrame, str] | None:
        """The file, the place and the byte order of the only frame; None for several, or if it is compressed."""
        if len(self.pieces) != 1:
            return None
        piece = self.pieces[0]
        if not piece.frame.is_plain:
            return None
        file, byte_order = self.reader.stack_file(piece.name)
        return file, piece.frame, byte_order


def read_part(reader: NDTiffReader, row: int, y: TileRun, x: TileRun) -> Pixels:
    """The pixels of a frame that lie in these runs; of its rows only those are read."""
    is_whole = y.stop - y.first == reader.frame_shape(row)[0]
    rows = reader.read_pixels(row) if is_whole else reader.read_rows(row, y.first, y.stop)
    return rows[y.inside, x.source]


class FramePixels:
    """Reads for one open dataset. Thread safe.

    readers: of its levels, the full resolution first; lower ones are used for mosaics only.
    """

    def __init__(self, readers: Sequence[NDTiffReader], cache: LevelCache, identity: str) -> None:
        self._readers = readers
        self._cache = cache
        self._identity = identity
        self._means = BlockMean()
        self._like: dict[NDTiffReader, StoredFrame] = {}  # the first frame of a reader never changes

    def find(
        self, placed: PlacedArray, fixed: Mapping[str, int], region: Region, factors: Factors, n_own: int
    ) -> PixelSource | None:
        """The frames of a region in a snapshot; None if none of them exists, or they are unlike the first frame.

        n_own: number of the dataset's own lower levels that show this snapshot.
        """
        position = [{**fixed, **region.outer}.get(name, 0) for name in placed.names]
        keys = list(placed.places.keys_at(position))
        if placed.mosaic is None:
            piece = self._find_frame(self._readers[0], keys, placed.count)
            if piece is None or _is_too_large(piece.frame, region):
                return None
            return PixelSource(self._readers[0], 0, (piece,))
        own = region.level if has_level(placed.mosaic, region.level, n_own) else 0
        return self._find_tiles(placed, keys, region, factors, own)

    def read(self, source: PixelSource, region: Region, factors: Factors) -> Pixels:
        """The pixels of a region, (Y, X) or (Y, X, 3). Raises CorruptDataset, StorageError."""
        if source.pieces[0].y is not None:
            return self._read_tiles(source, region, factors)
        row = source.pieces[0].row
        if region.level == 0:
            return self._read_band(row, *region.y)[:, region.x[0] : region.x[1]]
        levels = self._cache.get((self._identity, row, "levels"), lambda: self._make_levels(row, factors))
        return levels[region.level - 1][region.y[0] : region.y[1], region.x[0] : region.x[1]]

    def _find_frame(
        self, reader: NDTiffReader, keys: Sequence[Mapping[str, AxisValue]], stop: int
    ) -> FramePiece | None:
        """The latest of the first `stop` frames that has one of the keys; None also for one unlike the first frame."""
        rows = [row for key in keys if (row := reader.history.find(key, stop)) is not None]
        if not rows:
            return None
        row = max(rows)
        name, frame = reader.stored_frame(row)
        like = self._like.get(reader)
        if like is None:
            like = self._like[reader] = reader.stored_frame(0)[1]
        is_alike = (frame.shape, frame.pixel_type.numpy_dtype) == (like.shape, like.pixel_type.numpy_dtype)
        return FramePiece(row, name, frame) if is_alike else None

    def _find_tiles(
        self,
        placed: PlacedArray,
        keys: Sequence[Mapping[str, AxisValue]],
        region: Region,
        factors: Factors,
        own: int,
    ) -> PixelSource | None:
        """own: the level whose tiles are taken."""
        assert placed.mosaic is not None
        reader = self._readers[own]
        stop = placed.count if own == 0 else len(reader)
        fy, fx = (1, 1) if own else factors[region.level]
        oy, ox = factors[own] if own else (1, 1)
        sides = []
        for side, (first, end), factor, covered in (
            (placed.mosaic.y, region.y, fy, oy),
            (placed.mosaic.x, region.x, fx, ox),
        ):
            # Tiles of lower levels have no overlap, and rows and columns that count from the same origin.
            along = Side(side.step, 0 if own else side.crop)
            origin = side.origin // covered
            sides.append(list(along.runs(range(origin + first * factor, origin + end * factor))))
        pieces = []
        for y in sides[0]:
            for x in sides[1]:
                at_tile = [{**key, ROW: y.tile, COLUMN: x.tile} for key in keys]
                piece = self._find_frame(reader, at_tile, stop)
                if piece is not None:
                    pieces.append(replace(piece, y=y, x=x))
        return PixelSource(reader, own, tuple(pieces)) if pieces else None

    def _read_tiles(self, source: PixelSource, region: Region, factors: Factors) -> Pixels:
        fy, fx = (1, 1) if source.level else factors[region.level]
        shape = ((region.y[1] - region.y[0]) * fy, (region.x[1] - region.x[0]) * fx)
        first = source.reader.frame_shape(source.pieces[0].row)
        found: NDArray[Any] = np.zeros((*shape, *first[2:]), source.reader.frame_dtype(source.pieces[0].row))
        for piece in source.pieces:
            assert piece.y is not None
            assert piece.x is not None
            found[piece.y.target, piece.x.target] = read_part(source.reader, piece.row, piece.y, piece.x)
        if source.level or region.level == 0:
            return found
        for above, below in itertools.pairwise(factors[: region.level + 1]):
            found = self._halve(found, (below[0] // above[0], below[1] // above[1]))
        return found

    def _read_band(self, row: int, first: int, stop: int) -> Pixels:
        """Rows of a frame, which neighbouring chunks will need, too."""
        reader = self._readers[0]
        return self._cache.get((self._identity, row, first, stop), lambda: (reader.read_rows(row, first, stop),))[0]

    def _make_levels(self, row: int, factors: Factors) -> tuple[Pixels, ...]:
        """All lower levels of a frame, each of means of the one above. It is read in bands, so memory is bounded."""
        parts: list[list[Pixels]] = [[] for _ in factors[1:]]
        for band in self._bands(row, factors[-1][0]):
            picture = band
            for number, (above, below) in enumerate(itertools.pairwise(factors)):
                ratios = (below[0] // above[0], below[1] // above[1])
                if picture.shape[0] < ratios[0] and parts[number]:
                    break  # less than a block at the end: it belongs to no item
                picture = self._halve(picture, ratios)
                parts[number].append(picture)
        return tuple(np.concatenate(pictures) for pictures in parts)

    def _bands(self, row: int, step: int) -> Iterator[Pixels]:
        """The rows of a frame in bands of a multiple of `step` rows."""
        reader = self._readers[0]
        height, width = reader.frame_shape(row)[:2]
        row_bytes = width * reader.frame_dtype(row).itemsize * (3 if len(reader.frame_shape(row)) > 2 else 1)
        count = max(1, _BAND_BYTES // (row_bytes * step)) * step
        for first in range(0, height, count):
            yield reader.read_rows(row, first, min(first + count, height))

    def _halve(self, picture: Pixels, ratios: tuple[int, int]) -> Pixels:
        every = (*ratios, 1)[: picture.ndim]
        return self._means.mean([np.ascontiguousarray(picture)], every, reduced_shape(picture.shape, every))


def _is_too_large(frame: StoredFrame, region: Region) -> bool:
    """Return True for a frame of which a region would take more memory than a request may."""
    if not frame.is_plain:  # all of it is decompressed
        return frame.payload_bytes > MAX_BAND_BYTES
    n_rows = region.y[1] - region.y[0] if region.level == 0 else 1
    return frame.width * frame.pixel_type.pixel_bytes * n_rows > MAX_BAND_BYTES


def has_level(mosaic: Canvas, level: int, n_own: int) -> bool:
    """Return True if a level of a mosaic is among the dataset's own ones, at whole pixels of it."""
    return level <= n_own and not any(side.origin % (1 << level) for side in (mosaic.y, mosaic.x))


def may_make(mosaic: Canvas, sides: tuple[int, int], level: int, item_bytes: int, n_own: int) -> bool:
    """Return True if a mosaic can have this level: it has its tiles, or few enough make up a chunk of it."""
    source_bytes = sides[0] * sides[1] * item_bytes << 2 * level  # each level halves y and x
    return has_level(mosaic, level, n_own) or source_bytes <= MAX_SOURCE_BYTES


Arrays = tuple[NDArray[np.generic], ...]


class LevelCache:
    """Least recently used entries go first. An entry that does not fit at all is not kept. Thread safe."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, Arrays] = OrderedDict()
        self._in_progress: dict[Hashable, threading.Lock] = {}
        self.used_bytes = self.peak_bytes = 0

    def get(self, key: Hashable, make: Callable[[], Arrays]) -> Arrays:
        """The entry, which `make` makes if it is missing; other threads that ask for it wait meanwhile."""
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
                return found
            own = self._in_progress.setdefault(key, threading.Lock())
        with own:
            with self._lock:
                found = self._entries.get(key)
            if found is None:
                found = make()
                self._keep(key, found)
        with self._lock:
            self._in_progress.pop(key, None)
        return found

    def _keep(self, key: Hashable, arrays: Arrays) -> None:
        count = _size(arrays)
        with self._lock:
            if count > self._max_bytes:
                return
            self._entries[key] = arrays
            self.used_bytes += count
            while self.used_bytes > self._max_bytes:
                _, oldest = self._entries.popitem(last=False)
                self.used_bytes -= _size(oldest)
            self.peak_bytes = max(self.peak_bytes, self.used_bytes)


def _size(arrays: Arrays) -> int:
    return sum(array.nbytes for array in arrays)
