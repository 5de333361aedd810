"""Cuts an array into chunks and computes the memory for it, before anything is created. Pure."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from acqstream.arrays.array_plan import ArrayPlan, check_no_tiles, plan_array, plan_mosaic, planned_spec
from acqstream.arrays.array_spec import ArraySpec
from acqstream.errors import ConfigError, DatasetError
from acqstream.formats.chunk_format import ChunkFormat
from acqstream.formats.chunk_layout import Plan
from acqstream.mirrors.memory_need import MIB, MemoryNeed, keeps_up, memory_need
from acqstream.mirrors.open_picture import plan_picture
from acqstream.mirrors.open_shards import OPEN_SHARDS_BYTES
from acqstream.mirrors.slab_grid import SlabGrid, slab_grids
from acqstream.model.axes import PICTURE_AXES, declared_names
from acqstream.storage.stores.data_path import place_of

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
    """plan has the levels of the array; grids are those of their slabs; need is the memory. fills_shards: one process
    stores all chunks. layers: chunks along z that slabs join, see `slab_grids`.
    """

    plan: Plan
    grids: tuple[SlabGrid, ...]
    need: MemoryNeed
    fills_shards: bool
    layers: int


def options_of(found: ChunkFormat[Any], settings: Mapping[str, Any], container: Path | None = None) -> Any:
    """The options of a format in the settings of a mirror; container: of one that exists. Raises ConfigError."""
    has_separate_tiles(settings)
    options = found.parse_options({name: value for name, value in settings.items() if name not in _OF_EVERY_FORMAT})
    return options if container is None else found.resume_options(options, place_of(container))


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

    Raises ConfigError with the numbers if the memory does not suffice, DatasetError if an axis must not grow in this
    format.
    """
    unknown = [axis.name for axis in plan.axes if not axis.size]
    if unknown and not found.grows:
        raise DatasetError(
            f"{found.name} needs to know how long {', '.join(unknown)} will be: declare the axes with their sizes, or "
            "make the mirror afterwards"
        )
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
    fills_shards = layout.needs == "append"

    def cut(layers: int) -> ChunkPlan:
        grids = slab_grids(chunked.levels, tile, joined_layers=layers)
        need = memory_need(
            grids,
            lambda spec: found.max_encode_memory(spec, options),
            threads=budget.threads,
            budget_bytes=budget.memory_bytes,
            shard_bytes=OPEN_SHARDS_BYTES if fills_shards else 0,
        )
        if layers > 1 and not keeps_up(need, grids[0]):
            raise ConfigError(
                f"{need.slabs} slabs of {need.slab_bytes / MIB:.0f} MiB are fewer than frames come to in turn: they "
                f"would be rebuilt again and again. Allow more than {budget.memory_bytes / MIB:.0f} MiB",
                code="no_memory",
            )
        return ChunkPlan(chunked, grids, need, fills_shards, layers)

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
