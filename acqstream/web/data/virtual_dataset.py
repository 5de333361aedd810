"""An open dataset, its snapshots, and the virtual datasets made of them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path

from acqstream.arrays.array_plan import planned_spec
from acqstream.arrays.array_spec import ArraySpec
from acqstream.dataset.dataset import Dataset
from acqstream.dataset.frame_source import NDTiffSource
from acqstream.dataset.sources import Source, open_source
from acqstream.description.channels import CHANNEL
from acqstream.errors import ConfigError, CorruptDataset, DatasetError, UnknownFormat
from acqstream.formats.ndtiff import FORMAT
from acqstream.formats.ndtiff.completion import dataset_id
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.frames.frame_description import ArraySpace, FrameLooks
from acqstream.frames.frame_indices import FramePlaces
from acqstream.frames.frame_pixels import MAX_REDUCED_BYTES, Factors, FramePixels, LevelCache, PixelSource, may_make
from acqstream.frames.frame_snapshot import FrameHistory, PlacedArray
from acqstream.model.axes import TIME, Z
from acqstream.storage.files.boundary import following_links
from acqstream.web.data.data_address import DataOptions
from acqstream.web.data.virtual_array import (
    VIRTUAL_LAYOUTS,
    ChunkCut,
    ServedChunk,
    VirtualArray,
    announce,
    choose_cut,
    plate_array,
)

logger = logging.getLogger("acqstream.web")

REFRESH_S = 0.1  # between looks at the index of a growing dataset
_PINNED_REFRESH_S = 1.0  # a pinned snapshot needs to know only that its files are still in place
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")  # Python refuses to convert thousands of digits
_MAX_ARRAYS = 16  # virtual datasets kept for a dataset


@dataclass(frozen=True, slots=True)
class ServedArray:
    """A virtual dataset of a snapshot. fixed: places along axes that it does not have. Others: see FramePixels."""

    virtual: VirtualArray
    placed: PlacedArray
    fixed: Mapping[str, int]
    factors: Factors
    pixels: FramePixels
    n_own: int

    def find(self, place: ServedChunk) -> PixelSource | None:
        """The frames of a chunk; None if none of them exists."""
        return self.pixels.find(self.placed, self.fixed, place, self.factors, self.n_own)


class ServedDataset:
    """An open dataset, which the shelf lends to viewers and page. Follows no link out of its folder. Thread safe.

    dataset: as all readers have it; who reads by its levels takes `lock`, since a refresh adds some. Raises as
    `acqstream.open`.
    """

    def __init__(self, path: Path, cache: LevelCache) -> None:
        self.path = path
        self.lock = threading.RLock()
        self._cache = cache
        source = _open_source(path)
        self.dataset = Dataset(source)
        self._readers: Sequence[NDTiffReader] = source.readers if isinstance(source, NDTiffSource) else ()
        self._refreshed_s = time.monotonic()
        self._is_damage_noted = False
        self._arrays: OrderedDict[tuple[object, ...], ServedArray] = OrderedDict()

    @property
    def frames(self) -> NDTiffReader | None:
        """The reader of frames that are pictures of their own; None for tiles and arrays."""
        return self._full if self._readers and self._full.tile_overlap is None else None

    @cached_property
    def content_identity(self) -> str:
        """Digits of the content of a dataset of frames: others where the frames were recorded again."""
        return frame_identity(self._full)

    @cached_property
    def identity(self) -> str:
        """Digits of a dataset of frames, by its id."""
        return dataset_id(self._full.container).replace("-", "").lower() or self.content_identity

    @property
    def count(self) -> int:
        """Frames published, as of the last refresh; of an array, its items."""
        return self.dataset.levels[0].item_count

    def refresh(self, max_age_s: float = REFRESH_S) -> None:
        """Look for new frames, unless that was done a moment ago.

        Raises DatasetError if the dataset was replaced or removed: open it again.
        """
        with self.lock:
            if time.monotonic() - self._refreshed_s >= max_age_s:
                self.dataset.refresh()
                self._refreshed_s = time.monotonic()

    def close(self) -> None:
        """Close its files."""
        self.dataset.close()

    def array(self, layout: str, options: DataOptions) -> ServedArray | None:
        """A virtual dataset; None if it does not exist now: other identity, no such frames, axis or value.

        Raises UnknownFormat for an array in chunks, else as `refresh`.
        """
        with self.lock:
            generation = options.generation
            is_pinned = generation is not None and generation <= self.count
            self.refresh(_PINNED_REFRESH_S if is_pinned else REFRESH_S)
            count = len(self._full) if generation is None else generation
            if count > self.count or not self.identity.startswith(options.identity):
                return None
            is_final = count == self.count and not self._may_grow()
            fixed = tuple(sorted(options.fixed.items()))
            n_own = self._own_levels(count, is_pinned=generation is not None)
            key = (layout, options.chunk, fixed, count, generation is None, is_final, n_own)
            found = self._arrays.get(key)
            if found is None:
                found = self._make(layout, options, count, n_own, is_final=is_final)
                if found is None:
                    return None
                self._arrays[key] = found
                if len(self._arrays) > _MAX_ARRAYS:
                    self._arrays.popitem(last=False)
            self._arrays.move_to_end(key)
            return found

    @property
    def _full(self) -> NDTiffReader:
        """The reader of the full resolution. Raises UnknownFormat for an array in chunks."""
        if not self._readers:
            raise UnknownFormat(f"{self.path}: keeps no frames")
        return self._readers[0]

    @cached_property
    def _pixels(self) -> FramePixels:
        return FramePixels(self._readers, self._cache, f"{self.content_identity} {self.path.name}")

    @cached_property
    def _looks(self) -> FrameLooks:
        return FrameLooks(self._full)

    @cached_property
    def _space(self) -> Callable[[FramePlaces], ArraySpace]:
        return lru_cache(1)(partial(ArraySpace, self._full))  # of the latest set of axes

    @cached_property
    def _history(self) -> FrameHistory:
        return FrameHistory(self._full)

    def _own_levels(self, count: int, *, is_pinned: bool) -> int:
        """Number of the dataset's own lower levels that have all of the first `count` frames, and no later one.

        They have no generations: the tiles of a level are written again as more tiles of the full resolution come.
        """
        if len(self._readers) == 1:
            return 0
        try:
            if not self._full.levels_state.is_finished:
                return 0
            if is_pinned:
                is_whole = count == self.count and all(reader.complete for reader in self._readers)
            else:
                is_whole = not any(reader.writing for reader in self._readers)
        except CorruptDataset as error:  # levels are made of the frames
            self._note_damage(error)
            return 0
        return len(self._readers) - 1 if is_whole else 0

    def _may_grow(self) -> bool:
        """True also if the state is damaged: the frames are served, and none of them as the last one."""
        try:
            return self._full.writing
        except CorruptDataset as error:
            self._note_damage(error)
            return True

    def _note_damage(self, error: CorruptDataset) -> None:
        if not self._is_damage_noted:
            self._is_damage_noted = True
            logger.warning("the frames of %s are served all the same: %s", self.path, error)

    def _make(self, layout: str, options: DataOptions, count: int, n_own: int, *, is_final: bool) -> ServedArray | None:
        # What a generation shows never changes, so the end of the run must not change it.
        is_ended = is_final and options.generation is None
        placed = self._history.at(count, is_final=is_final, in_order=is_ended)
        if placed is None:
            return None
        kind = VIRTUAL_LAYOUTS[layout]
        is_swapped = kind.shows_time_as_z and options.fixed.get(Z) == TIME
        fixed = self._without_z(placed, options.fixed) if is_swapped else _fixed_places(placed, options.fixed)
        if fixed is None:
            return None
        planned = planned_spec(replace(placed.plan, mosaic=placed.mosaic), self._full.summary_metadata)
        labels = {**planned.labels, **placed.places.labels()}
        shown = [name for name in planned.axes if name not in fixed]
        (spaced,) = self._space(placed.places).spaced([planned], placed.mosaic)
        looks = tuple(self._looks.find(placed.values.get(CHANNEL, ())).values())
        planned = replace(spaced, axis_values=placed.values, looks=looks).of_image(fixed).ordered(shown)
        values = {name: planned.axis_values[name] for name in planned.axis_values if name in shown}
        shown_axes = tuple(name for name in planned.shown_axes if name in shown)
        planned = replace(planned, shown_axes=shown_axes, axis_values=values)
        sizes = {name: size for name, size in zip(placed.names, placed.sizes, strict=True) if name not in fixed}
        plate = plate_array(planned, sizes, labels, is_ended=is_ended)
        cut = replace(self._cut(planned, placed, options, n_own), is_plate=plate is not None)
        try:
            virtual_layout = kind.make(plate or planned, cut)
        except ConfigError as error:
            raise DatasetError(f"{self.path}: cannot be served as {layout}: {error}") from error
        virtual_layout = announce(virtual_layout, sizes, labels, self.path.name)
        if plate is not None:
            virtual_layout = virtual_layout.with_members([*virtual_layout.plan.members()])
        virtual = VirtualArray(virtual_layout, self.path.name, is_final)
        axes = virtual_layout.plan.full.axes
        y, x = axes.index("y"), axes.index("x")
        factors = [(level.factors[y], level.factors[x]) for level in virtual_layout.plan.levels]
        return ServedArray(virtual, placed, fixed, factors, self._pixels, n_own)

    def _without_z(self, placed: PlacedArray, options: Mapping[str, str]) -> dict[str, int] | None:
        """As `_fixed_places`, with z at the value of the first frame: of all values this one never changes."""
        if TIME not in placed.names or TIME in options:
            return None
        fixed = _fixed_places(placed, {name: text for name, text in options.items() if name != Z})
        if fixed is None or Z not in placed.names:
            return fixed
        first = self._full.key(0).get(Z)
        at = 0 if first is None else placed.places.index(Z, first)
        return None if at is None or at >= placed.sizes[placed.names.index(Z)] else {**fixed, Z: at}

    def _cut(self, planned: ArraySpec, placed: PlacedArray, options: DataOptions, n_own: int) -> ChunkCut:
        sizes = dict(zip(planned.axes, planned.shape, strict=True))
        item_bytes = planned.dtype.itemsize * sizes.get("c", 1)
        mosaic = placed.mosaic
        tile = None if mosaic is None else (mosaic.y.step, mosaic.x.step)
        cut = choose_cut((sizes["y"], sizes["x"]), item_bytes, tile=tile, side=options.chunk)
        if mosaic is None:  # a frame that no daemon takes is not read to make levels of it
            is_large = sizes["y"] * sizes["x"] * item_bytes > MAX_REDUCED_BYTES
            return replace(cut, n_levels=1) if is_large else cut
        # Chunks of lower levels of a mosaic are made of many tiles, so without tiles of its own there are fewer levels.
        n_levels = 1
        while n_levels < cut.n_levels and may_make(mosaic, cut.sides, n_levels, item_bytes, n_own):
            n_levels += 1
        return ChunkCut(cut.sides, n_levels)


def _fixed_places(placed: PlacedArray, fixed: Mapping[str, str]) -> dict[str, int] | None:
    """The places of the values of OPTIONS; None if an axis or a value does not exist."""
    found: dict[str, int] = {}
    for name, text in fixed.items():
        if name not in placed.names:
            return None
        at = placed.places.index(name, text)
        if at is None and _INTEGER.fullmatch(text):
            at = placed.places.index(name, int(text))
        if at is None or at >= placed.sizes[placed.names.index(name)]:
            return None
        found[name] = at
    return found


def _open_source(path: Path) -> Source:
    """Frames first: a damaged index is an error of its own, also before the first frame."""
    try:
        with following_links(False):
            return NDTiffSource(path, FORMAT.name, FORMAT.open(path), follows_links=False)
    except UnknownFormat:
        return open_source(path, follow_links=False)


_MAX_FIRST_BYTES = 2**26  # of a first frame that is read


def frame_identity(reader: NDTiffReader) -> str:
    """Hexadecimal digits that another dataset does not have, nor one whose first frame was recorded again."""
    noted = dataset_id(reader.container).replace("-", "").lower()
    summary = "" if noted else json.dumps(dict(reader.summary_metadata), sort_keys=True, default=str)
    found = hashlib.sha256(f"{noted}{summary}".encode())
    with contextlib.suppress(DatasetError, IndexError):  # no frame yet, or a damaged one
        if reader.stored_frame(0)[1].payload_bytes <= _MAX_FIRST_BYTES:  # an entry may claim any size
            found.update(reader.read_pixels(0).tobytes())
        found.update(reader.metadata_bytes(0))
    return found.hexdigest()[:32]
