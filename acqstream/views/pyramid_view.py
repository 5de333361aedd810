"""The resolution levels of a tiled dataset, made from its frames.

A tile of the full resolution is halved and painted into its quadrant of a tile of level 1. A tile with all its
quadrants (or all that the grid has) is complete: it is painted into the next level, written and published. An
incomplete tile waits in memory. It is published as it is after a while, at the end, or when memory is short, and again
when it has more. The Java library sends every arriving tile through all levels, with the same result. Tiles of odd size
share pixels; they are those of the tile that arrived last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from numpy.typing import NDArray

from acqstream.errors import CannotResume, CorruptDataset, DatasetError
from acqstream.formats.ndtiff.folders import FULL_RESOLUTION, level_name
from acqstream.formats.ndtiff.layout import STACK_LIMIT_BYTES
from acqstream.storage.files.free_space import SpaceBound
from acqstream.views.base import View, ViewSource
from acqstream.views.frame_feed import Lease
from acqstream.views.level_files import PyramidLevels, level_folders
from acqstream.views.pyramid_tiles import MEMORY_BYTES, TileKey, TileMemory, leaf_key
from acqstream.views.pyramid_tree import PyramidState, PyramidTree, TileGrid
from acqstream.views.tile_painter import FullResolution

PUBLISH_INTERVAL_S = 0.25
PUBLISH_BYTES = 64 * 2**20
_FEW_FRAMES = 4
_MANY_FRAMES = 64
_MIN_DIGESTS = 8


class _Contribution(NamedTuple):
    """One frame: its key, and its halved image, in memory that is reused after `keep`; or, if no process overwrites
    them, the pixels themselves."""

    row: int
    leaf: TileKey
    image: NDArray[Any] | None
    pixels: NDArray[Any] | None = None


class PyramidView(View):
    """is_remade: existing levels are replaced by new ones once those are complete. keep_free_mb: of the disk, left to
    the log."""

    marks_first = True

    def __init__(
        self,
        *,
        memory_bytes: int = MEMORY_BYTES,
        stack_limit_bytes: int = STACK_LIMIT_BYTES,
        is_remade: bool = False,
        keep_free_mb: float = 0,
    ) -> None:
        self._keep_free_bytes = int(keep_free_mb * 2**20)
        self._space: SpaceBound | None = None
        self._memory_bytes = memory_bytes
        self._limit_bytes = stack_limit_bytes
        self._is_remade = is_remade
        self._is_finished = False
        self._requested_levels: int | None = None
        self._wait_s: float | None = None
        self._full: FullResolution | None = None  # None before the first frame
        self._is_closed = False
        self._summary: dict[str, Any] = {}
        self._published_s = 0.0

    def open(self, source: ViewSource) -> None:
        self._source, self._reader = source, source.reader
        if not (source.dataset / FULL_RESOLUTION).is_dir():
            raise DatasetError(
                f"{source.dataset} is flat: resolution levels are made of tiles, with the integer axes row and column, "
                f"in a folder {FULL_RESOLUTION!r}"
            )
        if level_folders(source.dataset) and not (source.is_ours or self._is_remade):
            raise DatasetError(
                f"{source.dataset} has {level_name(1)}, made by another program, or copied without "
                f"{source.folder.name}: `acqstream mirror PATH --to pyramid --rebuild` replaces its levels"
            )
        name, path = source.dataset.name, str(source.dataset)
        later = "acqstream mirror PATH --to pyramid"
        self._space = SpaceBound(source.disk, path, f"levels of {name}", self._keep_free_bytes, later=later)
        tiles = source.request.get("tiles") or {}
        self._requested_levels, self._wait_s = tiles.get("levels"), tiles.get("wait_s")
        if not isinstance(self._requested_levels, int):
            self._requested_levels = None
        self._grid_size = _grid_size(source.request)
        self._levels = PyramidLevels(source.disk, source.dataset, source.folder, is_remade=self._is_remade)

    def restore(self, state: Mapping[str, Any], cursor: int) -> None:
        saved = PyramidState.parse(state)
        if self._is_remade or saved.is_remaking:
            raise CannotResume("the levels are being rebuilt")
        if not len(self._reader):
            if cursor or self._levels.n_existing():
                raise CannotResume("its frames are missing")
            return
        self._full = self._set_up(0)
        self._open_levels(max(self._levels.n_existing(), len(saved.index_bytes)))
        for expected, actual in zip(saved.index_bytes, self._levels.index_bytes(), strict=False):
            if expected > actual:
                raise CannotResume(f"an index of {expected} bytes has {actual} now")
        leaves = list(map(self._leaf, range(cursor)))
        for leaf in leaves:
            self._tree.foresee(leaf)
        for row, leaf in enumerate(leaves):
            self._tree.note(leaf, row)
        self._open_levels(self._tree.level_count)
        self._tree.restore(saved.open)

    def _open_levels(self, count: int) -> None:
        """Open at least `count` levels of an earlier process. Raises CannotResume if one of their files is damaged."""
        try:
            self._levels.open(count)
        except CorruptDataset as error:
            raise CannotResume(f"a level was changed: {error}") from error

    def clear(self) -> None:
        self._levels.clear()

    def is_ready(self, row: int) -> bool:
        if self._full is None:
            return False
        try:
            self._full.check(row)
            return self._tree.is_ready(self._leaf(row))
        except DatasetError:
            return False  # make_ready raises it

    def is_nearly_ready(self, row: int) -> bool:
        """True before the first frame, and if a few levels are missing: little work that blocks all other frames."""
        if self._full is None:
            return True
        leaf = self._leaf(row)
        return self._tree.grows_lightly(leaf) and (bool(self._tree.level_count) or row <= _FEW_FRAMES)

    @property
    def space_warning(self) -> str:
        return self._space.warning if self._space is not None else ""

    def _require_space(self) -> None:
        """Raises DiskFull while the rest of the disk is left to the log."""
        if self._space is not None:
            self._space.require()

    def make_ready(self, row: int) -> None:
        self._require_space()
        if self._full is None:
            self._full = self._set_up(row)
        self._full.check(row)
        leaf = self._leaf(row)
        self._levels.open(self._tree.grid.levels_with(leaf))
        if not self._tree.level_count and self._tree.grid.levels_with(leaf):
            self._tree.grow(leaf)
            self._begin_levels(self._full, row)
        self._tree.make_ready(leaf)

    def _begin_levels(self, full: FullResolution, end: int) -> None:
        """Add the frames before row `end`: they were all in one place, and no level was made of them."""
        for row in range(end):
            leaf = self._leaf(row)
            self._tree.make_ready(leaf)
            self._tree.add(leaf, row, partial(full.halve, full.read(row)))

    @property
    def bytes_per_frame(self) -> float:
        """A quarter, a sixteenth ... of a tile: its share of all levels."""
        return 0.0 if self._full is None else self._full.shape.payload_bytes / 3

    @property
    def max_digests(self) -> int:
        """Three quarters of the memory without that of tiles: four digests become one tile and a third."""
        if self._full is None:
            return 0
        tile_bytes = self._full.shape.payload_bytes
        free_bytes = 3 * self._memory_bytes // 4 - self._tree.memory.used * tile_bytes
        return max(_MIN_DIGESTS, 4 * free_bytes // tile_bytes)

    def digest(self, pixels: NDArray[Any]) -> NDArray[Any] | None:
        """Return the halved image."""
        if self._full is None or not self._full.shape.fits(pixels):
            return None
        if not self._tree.level_count and len(self._reader) > _MANY_FRAMES:
            return None  # all in one place: no levels
        return self._full.new_halved(pixels)

    def take(self, lease: Lease) -> _Contribution:
        assert self._full is not None
        leaf = self._leaf(lease.row)
        if lease.digest is not None:
            return _Contribution(lease.row, leaf, lease.digest)
        if not lease.is_from_memory:
            return _Contribution(lease.row, leaf, None, lease.pixels)
        image = self._full.halved(lease.pixels) if self._tree.level_count else self._full.scratch
        return _Contribution(lease.row, leaf, image)

    def keep(self, taken: _Contribution) -> None:
        assert self._full is not None
        if taken.pixels is not None:
            self._tree.add(taken.leaf, taken.row, partial(self._full.halve, taken.pixels))
            return
        assert taken.image is not None
        self._tree.add(taken.leaf, taken.row, partial(_copy, taken.image))
        self._full.give_back(taken.image)

    @property
    def waiting(self) -> int:
        """Number of tiles that are not complete, or not published yet."""
        return self._tree.waiting if self._full is not None else 0

    def work(self, now_s: float, *, is_idle: bool) -> None:
        if self._full is None:
            return
        if self.waiting:
            self._require_space()
        self._tree.now_s = now_s
        if is_idle:
            self._tree.write_complete(PUBLISH_BYTES)
        is_due = is_idle or now_s - self._published_s >= PUBLISH_INTERVAL_S
        if is_due or self._tree.unpublished_bytes >= PUBLISH_BYTES:
            self._published_s = now_s
            self._tree.publish()
            if self._wait_s is not None and self._reader.writing:
                self._tree.settle(now_s - self._wait_s)
        if not is_idle:  # while the next frames are taken
            self._tree.write_complete(PUBLISH_BYTES)

    def finish(self) -> None:
        if self._full is not None:
            self._require_space()
            self._tree.settle(float("inf"))
            self._levels.finish()
        self._is_finished = True

    def save(self) -> tuple[dict[str, Any], Callable[[], None]]:
        is_remaking = self._is_remade and not self._is_finished
        state: dict[str, Any] = {"is_remaking": is_remaking, "index_bytes": [], "tiles": [], "open": []}
        if self._full is None:
            return state, lambda: None
        self._tree.write_complete(PUBLISH_BYTES)  # more may wait after a backlog: the state lists them
        self._tree.publish()
        self._levels.force()
        tiles, unsaved = self._levels.counts(), self._tree.state()
        return {**state, "index_bytes": self._levels.index_bytes(), "tiles": tiles, "open": unsaved}, lambda: None

    def summary(self) -> dict[str, Any]:
        """Return published tiles by level, repeated ones included, and the peak number of tiles in memory."""
        if self._full is not None and not self._is_closed:
            counts = {level_name(level): count for level, count in enumerate(self._levels.counts(), 1)}
            self._summary = {**counts, "peak_tiles": self._tree.memory.peak}
        return self._summary

    def close(self) -> None:
        self.summary()
        self._is_closed = True
        if self._full is not None:
            self._full.close()
            self._tree.memory.close()
        if hasattr(self, "_levels"):
            self._levels.close()

    def _leaf(self, row: int) -> TileKey:
        """Return the key of the frame in this row. Raises DatasetError if it is not a tile."""
        return leaf_key(self._reader.key(row), row)

    def _set_up(self, row: int) -> FullResolution:
        """Start with the frame in this row. Raises DatasetError if it cannot be reduced."""
        full = FullResolution(self._source.dataset, self._reader, row, limit_bytes=self._limit_bytes)
        self._levels.begin(full.layout, full.stack_header, limit_bytes=self._limit_bytes)
        memory = TileMemory(full.shape, self._memory_bytes)
        self._tree = PyramidTree(self._levels, full, memory, TileGrid(self._requested_levels, self._grid_size))
        return full


def _copy(image: NDArray[Any], out: NDArray[Any]) -> None:
    out[:] = image


def _grid_size(request: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return rows and columns if the producer declared them."""
    sizes = {axis["name"]: axis["size"] for axis in request.get("axes") or ()}
    rows, columns = sizes.get("row"), sizes.get("column")
    return (rows, columns) if rows and columns else None
