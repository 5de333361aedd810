"""Computes the memory of a mirror before anything is created."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from acqstream.arrays.array_spec import ArraySpec
from acqstream.errors import ConfigError
from acqstream.grid.block_sizes import BAND_BYTES
from acqstream.mirrors.slab_grid import SlabGrid

# One slab for each that a frame goes to is the least, in every level; with twice as many, some are written meanwhile.
_LONG_COPIES = 5  # of a band of integers of 64 bits: their halves, and the sums of these
_SUM_COPIES = 2.5  # of a band of others: sums along the first axis, along all axes, of all planes, and the result
_TABLE_BYTES = 104  # of the compiled kernels, for an item along an axis: offsets, sums, runs of one item, 16 means
MIB = 2**20


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
