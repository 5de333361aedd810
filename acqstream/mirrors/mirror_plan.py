"""Plans a mirror before anything is created: its folder, array, chunks and memory; and its space, as frames show it.

The daemon uses it, so no view and no chunk format is imported before a request names a mirror.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from acqstream.arrays.array_plan import ArrayPlan, check_no_tiles, plan_array, plan_mosaic, planned_spec
from acqstream.arrays.array_spec import ArraySpec
from acqstream.arrays.mosaic import Canvas
from acqstream.errors import ConfigError, DatasetError
from acqstream.formats.chunk_format import ChunkFormat, SpaceWriter
from acqstream.formats.chunk_layout import ChunkLayout, Plan
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.formats.registry import chunk_format, chunk_format_names, mirror_folder
from acqstream.frames.frame_description import ArraySpace
from acqstream.frames.frame_indices import FramePlaces
from acqstream.grid.block_sizes import BAND_BYTES
from acqstream.mirrors.open_shards import OPEN_SHARDS_BYTES
from acqstream.mirrors.slab_grid import SlabGrid, slab_grids
from acqstream.model.axes import PICTURE_AXES, Z, declared_names
from acqstream.model.view_spec import PYRAMID_KIND, ViewSpec
from acqstream.views.base import ViewSource
from acqstream.views.checkpoint import view_folder

_TILES = 16  # per side: the number of levels is that of a picture of this size
_ENDLESS = 2**28  # items; more than any picture has


def plan_picture(found: ChunkFormat[Any], options: Any, spec: ArraySpec, tile: Sequence[int]) -> Plan:
    """Cut an array as its format does. tile: (y, x) in items, of the tiles that make up its picture; () for none.

    A size of 0 along y or x is not known yet. Then chunks are those of a picture without an end. There are as many
    levels as for 16 x 16 tiles, but an item of the last one covers no more than a tile, so that each level has an item
    as soon as there is a tile. Raises ConfigError.
    """
    sides = dict(zip(("y", "x"), tile, strict=False))
    unknown = {name: side for name, side in sides.items() if not spec.shape[spec.axes.index(name)]}
    if not unknown:
        return found.plan(spec, options)
    near = found.plan(_with_sizes(spec, {name: _TILES * side for name, side in unknown.items()}), options)
    endless = found.plan(_with_sizes(spec, dict.fromkeys(unknown, _ENDLESS)), options)
    levels = []
    for one, level in zip(near.levels, endless.levels, strict=False):
        factors = dict(zip(level.axes, level.factors, strict=True))
        if one.factors != level.factors or any(factors[name] > side for name, side in unknown.items()):
            break
        levels.append(_with_sizes(level, dict.fromkeys(unknown, 0)))
    return endless.with_levels(levels)


def _with_sizes(spec: ArraySpec, sizes: dict[str, int]) -> ArraySpec:
    shape = tuple(sizes.get(name, size) for name, size in zip(spec.axes, spec.shape, strict=True))
    return replace(spec, shape=shape)


def plan_run(
    source: ViewSource, row: int, *, is_separate: bool = False, grows_picture: bool = False
) -> ArrayPlan | None:
    """Plan the array from the request, frame `row` and everything published; None while the size of its picture is not
    known: tiles of a mosaic that was not planned. is_separate: each tile is an image. grows_picture: the size of the
    picture need not be known. Raises DatasetError for frames
    that make up no array."""
    request, reader = source.request, source.reader
    declared, expect, overlap = request.get("axes"), request.get("expect"), reader.tile_overlap
    if is_separate:
        overlap = None
    elif overlap is None:
        check_no_tiles([*reader.key(row), *reader.axis_values()])
    # An interrupted run may continue with other values: only a complete one has its final sizes. A mosaic without
    # planned sizes may have no picture before that, so an interrupted one gets the picture of the tiles that it has.
    is_final = reader.complete if overlap is None or grows_picture else not reader.writing
    return (plan_array if overlap is None else partial(plan_mosaic, overlap, may_grow=grows_picture))(
        reader.key(row),
        reader.frame_shape(row),
        reader.frame_dtype(row).str,
        declared=declared if isinstance(declared, list) else (),
        seen=reader.axis_values(),
        kinds=reader.key_kinds(),
        order=reader.declared_order,
        is_final=is_final,
        expect=expect if isinstance(expect, int) else None,
        summary=reader.summary_metadata,
    )


_NO_TILES = (
    "tiles overlap, so the picture that they make up lies in no stack: a mirror by reference cannot have it; "
    "pixels=copy can"
)


def plan_references(source: ViewSource, row: int) -> ArrayPlan:
    """As `plan_run`. Raises DatasetError for tiles."""
    if source.reader.tile_overlap is not None:
        raise DatasetError(_NO_TILES)
    plan = plan_run(source, row)
    assert plan is not None  # only the size of a mosaic may be unknown
    return plan


# One slab for each that a frame goes to is the least, in every level; with twice as many, some are written meanwhile.
_LONG_COPIES = 5  # of a band of integers of 64 bits: their halves, and the sums of these
_SUM_COPIES = 2.5  # of a band of others: sums along the first axis, along all axes, of all planes, and the result
_TABLE_BYTES = 104  # of the compiled kernels, for an item along an axis: offsets, sums, runs of one item, 16 means
MIB = 2**20
FULL_BYTES = 128 * MIB  # of slabs that wait to be stored; more would make no mirror faster


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """slabs: how many of each level may be in memory at once; slab_bytes: of one of each level, all levels together;
    spare_bytes: for rebuilding a slab from the frames; worker_bytes: for encoding and reducing, all threads;
    shard_bytes: for the indices of open shards."""

    slabs: int
    slab_bytes: int
    spare_bytes: int
    worker_bytes: int
    shard_bytes: int = 0

    @property
    def max_bytes(self) -> int:
        return self.slabs * self.slab_bytes + self.spare_bytes + self.worker_bytes + self.shard_bytes


def keeps_up(need: MemoryNeed, full: SlabGrid) -> bool:
    """Whether the slabs that frames come to in turn, for each index but z and time, fill while those before leave.

    Fewer would leave incomplete, and be rebuilt from the frames. full: of level 0.
    """
    others = [full.spec.shape[axis] for axis in full.outer if full.spec.axes[axis] not in ("z", "time")]
    in_turn = 2 * full.slabs_of_frame * math.prod(others)
    return 0 not in others and need.slabs >= min(in_turn, _slab_count(full) or in_turn)


def memory_need(
    grids: Sequence[SlabGrid],
    max_encode_memory: Callable[[ArraySpec], int],
    *,
    threads: int,
    budget_bytes: int,
    shard_bytes: int = 0,
) -> MemoryNeed:
    """Compute the memory of these levels with as many slabs as fit into the budget.

    Raises ConfigError (no_memory) with the numbers if too few do.
    """
    slab_bytes = sum(grid.slab_bytes for grid in grids)
    spare_bytes = sum(grid.slab_bytes for grid in grids[:-1])
    full = grids[0]
    worker_bytes = threads * max(
        *(max_encode_memory(grid.spec) for grid in grids), *(reduction_bytes(grid) for grid in grids[:-1]), 0
    )
    slabs = (budget_bytes - spare_bytes - worker_bytes - shard_bytes) // slab_bytes
    slab_count = _slab_count(full)
    max_slabs = min(slabs, slab_count) if slab_count else slabs  # 0: an axis grows
    min_slabs = full.slabs_of_frame
    need = MemoryNeed(max(min_slabs, max_slabs), slab_bytes, spare_bytes, worker_bytes, shard_bytes)
    if slabs < min_slabs:
        min_bytes, chunk = need.max_bytes, "x".join(map(str, full.spec.chunk_shape))
        raise ConfigError(
            f"chunks of {chunk} {full.spec.dtype} ({', '.join(full.spec.axes)}) "
            f"need at least {min_bytes / MIB:.0f} MiB: "
            f"{min_slabs * slab_bytes / MIB:.0f} for the chunks that one frame goes to, in all levels, "
            f"{spare_bytes / MIB:.0f} for rebuilding them, {worker_bytes / MIB:.0f} for {threads} threads"
            f"{f', {shard_bytes / MIB:.0f} for the indices of shards' if shard_bytes else ''}; "
            f"mirror_memory_mb allows {budget_bytes / MIB:.0f}. Take smaller blocks, or allow more",
            code="no_memory",
        )
    return need


def _slab_count(grid: SlabGrid) -> int:
    """All slabs of a level; 0 while an axis grows."""
    count = math.prod(-(-grid.spec.shape[axis] // step) for axis, step in zip(grid.outer, grid.step, strict=True))
    return count * math.prod(cut.slabs for cut in grid.cuts)


def reduction_bytes(grid: SlabGrid) -> int:
    """Memory for reducing a slab into the next level, at most: bands of the planes that are averaged, and their sums.

    See `LevelReduction.reduce`; a band has complete rows of blocks. The compiled kernels need tables of a row instead.
    """
    rows, *row_shape = grid.plane_shape
    row_items = math.prod(row_shape)
    kind, itemsize = grid.spec.dtype.kind, grid.spec.dtype.itemsize
    block_rows = min(rows, grid.picture_ratios[0])
    band_rows = max(block_rows, min(rows, BAND_BYTES // max(1, row_items * itemsize)))
    if kind in "iu" and itemsize == 8:
        sum_bytes: float = _LONG_COPIES * itemsize
    else:
        sum_bytes = _SUM_COPIES * (4 if kind == "u" and itemsize <= 2 else max(8, itemsize))
    band_bytes = math.ceil(band_rows * row_items * (math.prod(grid.outer_ratios) * itemsize + sum_bytes))
    return max(band_bytes, _TABLE_BYTES * (rows + row_items))


TILES, STITCHED, SEPARATE = "tiles", "stitched", "separate"
_OF_EVERY_FORMAT = ("format", "name", TILES)
MAX_THREADS = 4  # of a mirror; one of them waits for the disk


@dataclass(frozen=True, slots=True)
class Budget:
    """Memory and threads that one process may use for a mirror, and the free space of the disk that it leaves alone."""

    memory_bytes: int
    threads: int
    keep_free_bytes: int = 0

    @staticmethod
    def of(memory_mb: float, threads: int | None = None, keep_free_mb: float = 0) -> Budget:
        """Sizes in MiB; threads: None is one more than processors, at most MAX_THREADS."""
        threads = threads or min(MAX_THREADS, (os.cpu_count() or 1) + 1)
        return Budget(int(memory_mb * MIB), threads, int(keep_free_mb * MIB))


@dataclass(frozen=True, slots=True)
class ChunkPlan:
    """plan has the levels of the array; grids are those of their slabs; need is the memory. layout: that of a new
    container. layers: chunks along z that slabs join, see `slab_grids`.
    """

    plan: Plan
    grids: tuple[SlabGrid, ...]
    need: MemoryNeed
    layout: ChunkLayout
    layers: int

    @property
    def fills_shards(self) -> bool:
        """One process stores all chunks."""
        return self.layout.needs == "append"

    def full_slabs(self, threads: int) -> int:
        """How many slabs of level 0 may be stored while another one is filled: see SlabBuffers."""
        return max(1, min(threads, FULL_BYTES // self.grids[0].slab_bytes))


def options_of(found: ChunkFormat[Any], settings: Mapping[str, Any]) -> Any:
    """The options of a format in the settings of a mirror. Raises ConfigError."""
    has_separate_tiles(settings)
    return found.parse_options({name: value for name, value in settings.items() if name not in _OF_EVERY_FORMAT})


def has_separate_tiles(settings: Mapping[str, Any]) -> bool:
    """Return True for a mirror that keeps each tile as an image. Raises ConfigError for an unknown mode."""
    given = settings.get(TILES, STITCHED)
    if given not in (STITCHED, SEPARATE):
        raise ConfigError(f'{TILES} of a mirror are {given!r:.80}, expected "{STITCHED}" or "{SEPARATE}"')
    return bool(given == SEPARATE)


def plan_chunks(
    found: ChunkFormat[Any],
    options: Any,
    plan: ArrayPlan,
    summary: Mapping[str, Any],
    budget: Budget,
    *,
    layers: int | None = None,
) -> ChunkPlan:
    """Cut an array into chunks of a format. summary is the dataset's; layers is as in `plan_spec_chunks`.

    Raises ConfigError with the numbers if the memory does not suffice.
    """
    tile = () if plan.mosaic is None else (plan.mosaic.y.step, plan.mosaic.x.step)
    return plan_spec_chunks(found, options, planned_spec(plan, summary), budget, tile, layers=layers)


def plan_spec_chunks(
    found: ChunkFormat[Any],
    options: Any,
    spec: ArraySpec,
    budget: Budget,
    tile: Sequence[int] = (),
    *,
    layers: int | None = None,
) -> ChunkPlan:
    """Cut an array that has no chunks yet. tile: (y, x) in items, of the tiles that make up its picture.

    layers: chunks along z that slabs join; None joins those of the format where that is worth its memory. Raises
    ConfigError with the numbers if the memory does not suffice, also for all joined slabs that frames come to in turn.
    """
    chunked = plan_picture(found, options, spec, tile)
    layout = found.layout(chunked, options)

    def cut(layers: int) -> ChunkPlan:
        grids = slab_grids(chunked.levels, tile, joined_layers=layers)
        need = memory_need(
            grids,
            layout.max_encode_memory,
            threads=budget.threads,
            budget_bytes=budget.memory_bytes,
            shard_bytes=OPEN_SHARDS_BYTES if layout.needs == "append" else 0,
        )
        if layers > 1 and not keeps_up(need, grids[0]):
            raise ConfigError(
                f"{need.slabs} slabs of {need.slab_bytes / MIB:.0f} MiB are fewer than frames come to in turn: they "
                f"would be rebuilt again and again. Allow more than {budget.memory_bytes / MIB:.0f} MiB",
                code="no_memory",
            )
        return ChunkPlan(chunked, grids, need, layout, layers)

    if layers is not None:
        return cut(layers)
    alone = cut(1)
    # The tiles of a picture may come in any order: more slabs at a time than can be known here.
    if not tile and _has_layers_to_join(chunked.full, layout.joined_layers):
        with suppress(ConfigError):  # too little memory
            joined = cut(layout.joined_layers)
            if not _drops_a_series(joined, alone):
                return joined
    return alone


def _drops_a_series(joined: ChunkPlan, alone: ChunkPlan) -> bool:
    """Whether only slabs of one layer are enough for each time at once: frames may come with time faster than z."""
    full = alone.grids[0]
    in_turn = math.prod(full.spec.shape[axis] for axis in full.outer if full.spec.axes[axis] != "z")
    return joined.need.slabs < in_turn <= alone.need.slabs


def _has_layers_to_join(full: ArraySpec, count: int) -> bool:
    """Whether slabs of so many layers along z have few layers beyond the end of a stack, or none."""
    if count == 1 or "z" not in full.axes:
        return False
    z = full.axes.index("z")
    if not full.shape[z]:  # one stack of unknown length; those of a series may be short
        return all(full.shape[axis] == 1 for axis, name in enumerate(full.axes) if name not in (*PICTURE_AXES, "z"))
    layers = -(-full.shape[z] // full.chunk_shape[z])
    return layers % count == 0 or layers >= 4 * count


def plan_request(
    request: Mapping[str, Any], *, is_separate: bool = False, grows_picture: bool = False
) -> ArrayPlan | None:
    """Plan the array of an acquisition without frames from its request; None if their kind or picture is unknown.

    request is as in acqstream.json. is_separate: each tile is an image. grows_picture: the size of the picture need not
    be known. Undeclared axes have no size here, so memory computed from it is a minimum. Raises DatasetError for frames
    that make up no array.
    """
    frame, axes, expect = request.get("frame"), request.get("axes"), request.get("expect")
    if not isinstance(frame, Mapping):
        return None
    tiles, summary = request.get("tiles"), request.get("summary")
    declared = axes if isinstance(axes, list | tuple) else ()
    make: Callable[..., ArrayPlan | None] = plan_array
    if isinstance(tiles, Mapping) and not is_separate:
        make = partial(plan_mosaic, tiles["overlap"], may_grow=grows_picture)
    elif not is_separate:
        check_no_tiles(declared_names(declared))
    return make(
        {},
        frame["shape"],
        frame["dtype"],
        declared=declared,
        expect=expect if isinstance(expect, int) else None,
        summary=summary if isinstance(summary, Mapping) else None,
    )


def folder_of(dataset: Path, spec: ViewSpec) -> Path:
    """The view's own folder, with its checkpoint: beside the dataset, or beside the mirror that it makes.

    Raises ConfigError for an unknown format.
    """
    if not spec.is_mirror:
        return view_folder(dataset, spec.name)
    mirror_format(spec)
    return view_folder(mirror_folder(dataset, spec), "view")


def mirror_format(spec: ViewSpec) -> ChunkFormat[Any]:
    """The format of a mirror. Raises ConfigError if no such format is installed."""
    try:
        return chunk_format(spec.kind)
    except KeyError as error:
        names = ", ".join([PYRAMID_KIND, *chunk_format_names()])  # `null` is for tests of views
        raise ConfigError(f"mirror {spec.kind!r:.60} is not known; {names} can be made") from error


def check_view(spec: ViewSpec) -> None:
    """Raises ConfigError for an unknown kind or for options that the format refuses."""
    if spec.is_mirror:
        options_of(mirror_format(spec), spec.mirror_settings)


def check_request(spec: ViewSpec, request: Mapping[str, Any], budget: Budget) -> None:
    """Check whether a mirror can be made of an acquisition that is not open yet, as far as its request tells.

    request has the fields of acqstream.json. Raises ConfigError with the numbers if the budget is too small,
    DatasetError if the frames cannot be mirrored in this format.
    """
    if not spec.is_mirror:
        return
    target, settings, summary = mirror_format(spec), spec.mirror_settings, request.get("summary")
    options = options_of(target, settings)
    if target.is_by_reference(options):
        if isinstance(request.get("tiles"), Mapping):
            raise DatasetError(_NO_TILES)
        return
    is_separate = has_separate_tiles(settings)
    plan = plan_request(request, is_separate=is_separate, grows_picture=target.grows_picture)
    if plan is not None:
        plan_chunks(target, options, plan, summary if isinstance(summary, Mapping) else {}, budget)


_MAX_SHARE = 0.02  # of the time: with thousands of positions, looking and writing take long


class MirrorSpace:
    """Levels with the space of the frames of `reader`, which is a function of the dataset alone.

    container is the mirror's name in warnings; "" for a format that needs no distances. mosaic: the picture of tiles,
    whose pixels count from (0, 0) of its canvas.
    """

    def __init__(
        self, reader: NDTiffReader, places: FramePlaces, container: str = "", mosaic: Canvas | None = None
    ) -> None:
        self.warning = ""
        self._mosaic = mosaic
        self._container = container
        self._next_s = 0.0
        self._reader = reader
        self._places = places
        self._space = ArraySpace(reader, places)
        self._may_change = not reader.complete  # else the witnesses see the last frame of each place

    def renew(self, levels: tuple[ArraySpec, ...], writer: SpaceWriter, *, is_final: bool) -> tuple[ArraySpec, ...]:
        """As `spaced`; the writer gets what is new. `warning`: of distances that nothing shows. Raises StorageError.

        is_final: no frame will come. If some came since, all places are looked at again: the last frame of each counts.
        """
        began_s = time.monotonic()
        if is_final and self._may_change:
            self._space.forget()
            self._may_change = not self._reader.complete
        elif not is_final and began_s < self._next_s:
            return levels
        spaced = self.spaced(levels)
        if spaced != levels:
            writer.set_space(spaced)
        has_depth = len(self._reader.axis_values().get(Z, ())) > 1  # one plane has no distance
        unknown = [axis for axis in spaced[0].unknown_distances if axis != Z or has_depth]
        if self._container and (is_final or self._space.is_shown) and not self.warning:
            texts = [_warning(self._container, unknown)] if unknown else []
            self.warning = "; ".join([*texts, *(f"{self._container}: {text}" for text in self._space.warnings)])
        now_s = time.monotonic()
        self._next_s = now_s + (now_s - began_s) / _MAX_SHARE
        return spaced

    def note_values(self, levels: tuple[ArraySpec, ...], writer: SpaceWriter) -> tuple[ArraySpec, ...]:
        """Write the values of places into our note: readers put places in order by them. Raises StorageError.

        Call it before places are announced.
        """
        valued = self._places.with_values(levels)
        if valued != levels:
            writer.set_space(valued)
        return valued

    def spaced(self, levels: Sequence[ArraySpec]) -> tuple[ArraySpec, ...]:
        """These levels with all that is known of their space now. Raises StorageError."""
        return self._space.spaced(levels, self._mosaic)


def _warning(container: str, unknown: Sequence[str]) -> str:
    axes = " and ".join(unknown)
    return (
        f"{container}: the distance of items along {axes} is not known: not declared, not in the summary, and stage "
        "positions of the frames do not show it. The files state 1 of their unit instead"
    )
