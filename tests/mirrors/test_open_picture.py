"""How pictures of unknown size are cut, and what their chunks take."""

from __future__ import annotations

from typing import Any

import pytest

from acqstream.formats.registry import chunk_format
from acqstream.mirrors.mirror_plan import Budget, ChunkPlan, plan_chunks, plan_request
from acqstream.mirrors.slab_grid import frame_bytes

WIDE = Budget.of(100_000, threads=2)


def cut(name: str, frame: tuple[int, int], axes: list[dict[str, Any]], **options: Any) -> ChunkPlan:
    """Tiles with an overlap of (20, 30) pixels."""
    found = chunk_format(name)
    request = {"frame": {"shape": [*frame], "dtype": "uint16"}, "axes": axes, "tiles": {"overlap": (20, 30)}}
    array = plan_request(request, grows_picture=found.grows_picture)
    assert array is not None
    return plan_chunks(found, found.parse_options(options), array, {}, WIDE)


@pytest.mark.parametrize("name", ["n5", "ome-zarr", "wkw"])
@pytest.mark.parametrize("side", ["row", "column", ""])
def test_chunks_and_levels_are_those_of_a_picture_of_16_tiles(name: str, side: str) -> None:
    known = [{"name": side, "size": 16}] if side else []
    many = [{"name": "row", "size": 16}, {"name": "column", "size": 16}]
    plan, right = cut(name, (1044, 1054), known), cut(name, (1044, 1054), many)
    assert len(plan.grids) == len(right.grids) > 3
    for grid, expected in zip(plan.grids, right.grids, strict=True):
        spec = grid.spec
        assert spec.factors == expected.spec.factors
        sizes = dict(zip(spec.axes, expected.spec.shape, strict=True))
        sizes.update({"y": 0} if side != "row" else {}, **({"x": 0} if side != "column" else {}))
        assert dict(zip(spec.axes, spec.shape, strict=True)) == sizes
        if name != "ome-zarr":
            assert spec.chunk_shape == expected.spec.chunk_shape
        else:
            assert spec.block_shape[-2:] == (512, 512)
            assert spec.shard_shape[-2] * spec.shard_shape[-1] * 2 <= 16 * 2**20


@pytest.mark.parametrize("levels", ["auto", 9])
@pytest.mark.parametrize("name", ["n5", "ome-zarr"])
def test_an_item_of_the_last_level_covers_no_more_than_a_tile(name: str, levels: Any) -> None:
    """So each level has an item as soon as there is a tile: 20 x 70 pixels are shown of each."""
    chunks = {"blocks": [1, 8, 8]} if name == "n5" else {"chunks": [1, 8, 8]}
    plan = cut(name, (40, 100), [], levels=levels, **chunks)
    assert [grid.spec.factors[-2:] for grid in plan.grids] == [(2**n, 2**n) for n in range(5)]


def test_a_format_that_cannot_grow_is_not_planned() -> None:
    request = {"frame": {"shape": [40, 100], "dtype": "uint16"}, "axes": [], "tiles": {"overlap": (20, 30)}}
    assert plan_request(request) is None
    assert not chunk_format("precomputed").grows_picture


@pytest.mark.parametrize("name", ["n5", "ome-zarr", "wkw", "hsds"])
def test_bytes_for_each_tile_are_about_those_of_a_planned_picture(name: str) -> None:
    many = [{"name": "row", "size": 64}, {"name": "column", "size": 64}]
    plan, right = (frame_bytes(cut(name, (2068, 2078), axes, levels=4).grids) for axes in ([], many))
    assert plan == pytest.approx(right, rel=0.15)
    assert plan > 2048 * 2048 * 2 * 1.3, "with lower levels"
