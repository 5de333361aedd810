"""The memory of a mirror, computed before anything is created."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from acqstream.arrays.array_spec import ArraySpec
from acqstream.errors import ConfigError
from acqstream.formats.registry import chunk_format
from acqstream.mirrors.level_extents import LevelExtents
from acqstream.mirrors.mirror_plan import Budget, plan_chunks, plan_request, plan_spec_chunks, reduction_bytes
from acqstream.mirrors.slab import SlabBuffer
from acqstream.mirrors.slab_grid import slab_grids
from acqstream.mirrors.slab_tasks import LevelReduction

DEEP = {"chunks": [64, 64, 64], "levels": 4, "shards": {"preshift_bits": 9, "minishard_bits": 0}}
"""A shard has 8 x 8 x 8 chunks of 64 x 64 x 64 items."""
STACK = ArraySpec(axes=("z", "y", "x"), shape=(512, 2048, 2048), dtype=np.dtype("uint16"), chunk_shape=())


def test_shards_512_deep_with_four_levels_take_less_than_1_5_gib() -> None:
    precomputed = chunk_format("precomputed")
    budget = Budget.of(1536, threads=3)
    plan = plan_spec_chunks(precomputed, precomputed.parse_options(DEEP), STACK, budget)
    assert plan.fills_shards
    assert len(plan.grids) == 4
    assert plan.need.slabs >= 1
    assert plan.need.max_bytes < 1536 * 2**20


@pytest.mark.parametrize("compression", ["blosc", "none"])
@pytest.mark.parametrize("outer", [[], [{"name": "z", "size": 50}], [{"name": "time"}]], ids=["picture", "z", "time"])
def test_a_mosaic_of_400_tiles_fits(compression: str, outer: list[dict[str, Any]]) -> None:
    """A picture of 38960 x 38960 pixels, 3 GB, with eight levels."""
    ome_zarr = chunk_format("ome-zarr")
    axes = [*outer, {"name": "row", "size": 20}, {"name": "column", "size": 20}]
    frame = {"shape": [2048, 2048], "dtype": "uint16"}
    array = plan_request({"frame": frame, "axes": axes, "tiles": {"overlap": (100, 100)}})
    assert array is not None
    options = ome_zarr.parse_options({"compression": compression})
    plan = plan_chunks(ome_zarr, options, array, {}, Budget.of(1024, threads=4))
    assert len(plan.grids) == 8
    assert plan.need.slabs >= plan.grids[0].slabs_of_frame == 4
    assert plan.need.max_bytes < 1024 * 2**20


def test_what_does_not_fit_is_refused_with_the_numbers() -> None:
    precomputed = chunk_format("precomputed")
    with pytest.raises(ConfigError, match=r"need at least [0-9]+ MiB: .* mirror_memory_mb allows 1000") as caught:
        plan_spec_chunks(precomputed, precomputed.parse_options(DEEP), STACK, Budget.of(1000, threads=3))
    assert caught.value.code == "no_memory"


@pytest.mark.parametrize(
    ("dtype", "axes", "shape", "chunk", "ratios"),
    [
        ("uint8", "zyx", (4, 700, 900), (1, 128, 128), (1, 2, 2)),
        ("uint16", "zyx", (4, 700, 900), (2, 128, 128), (2, 2, 2)),
        ("uint16", "zyx", (2, 3, 400_000), (2, 4, 4096), (2, 2, 2)),
        ("int64", "zyx", (4, 301, 900), (2, 128, 128), (2, 2, 2)),
        ("uint64", "zyx", (4, 301, 901), (2, 128, 128), (2, 2, 2)),
        ("float32", "zyx", (2, 512, 512), (2, 64, 64), (2, 2, 2)),
        ("complex128", "zyx", (2, 512, 512), (2, 64, 64), (2, 2, 2)),
        ("uint8", "zyxc", (2, 512, 512, 3), (2, 64, 64, 3), (2, 2, 2, 1)),
        ("uint8", "czyx", (3, 2, 512, 512), (3, 2, 64, 64), (1, 2, 2, 2)),
    ],
)
def test_reducing_takes_no_more_than_was_computed(
    dtype: str, axes: str, shape: tuple[int, ...], chunk: tuple[int, ...], ratios: tuple[int, ...]
) -> None:
    below = tuple(size // ratio for size, ratio in zip(shape, ratios, strict=True))
    grids = slab_grids(
        [
            ArraySpec(axes=tuple(axes), shape=size, dtype=np.dtype(dtype), chunk_shape=chunk, factors=factors)
            for size, factors in [(shape, (1,) * len(ratios)), (below, ratios)]
        ]
    )
    reduction = LevelReduction(LevelExtents(grids, None))
    source, target = (SlabBuffer(grid, "<") for grid in grids)
    parts = list(reduction.parts(0, (0,) * len(grids[0].outer)))
    assert parts
    tracemalloc.start()
    try:
        for part in parts:
            reduction.reduce(source, target, part)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0 < peak <= reduction_bytes(grids[0])
