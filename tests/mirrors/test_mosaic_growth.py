"""When an index of a mosaic, or a row of its tiles, is announced."""

from __future__ import annotations

import numpy as np

from acqstream.arrays.array_spec import ArraySpec
from acqstream.mirrors.growth import MosaicGrowth
from acqstream.mirrors.slab_grid import SlabGrid, slab_grids

TILE, ROWS, COLUMNS = 6, 3, 2


def grids_of(times: int, levels: int = 1) -> tuple[SlabGrid, ...]:
    """Levels of (time, y, x) in chunks of 4 x 4, of pictures of 3 x 2 tiles of 6 x 6 pixels."""
    shape = (times, ROWS * TILE, COLUMNS * TILE)
    specs = [
        ArraySpec(
            axes=("time", "y", "x"),
            shape=(shape[0], *(side >> level for side in shape[1:])),
            dtype=np.dtype("u2"),
            chunk_shape=(1, 4, 4),
            factors=(1, 2**level, 2**level),
        )
        for level in range(levels)
    ]
    return slab_grids(specs, (TILE, TILE))


def store(growth: MosaicGrowth, grids: tuple[SlabGrid, ...], *places: tuple[int, int, int]) -> None:
    """Take frames and have all slabs that they went to stored."""
    keys = take(growth, grids, *places)
    for key in keys:
        growth.add_stored_slab(0, key, ())


def take(growth: MosaicGrowth, grids: tuple[SlabGrid, ...], *places: tuple[int, int, int]) -> set[tuple[int, ...]]:
    keys = set()
    for place in places:
        growth.add_frame(place)
        for piece in grids[0].pieces_of(place):
            growth.add_unstored(0, piece.key)
            keys.add(piece.key)
    return keys


def tiles(time: int, rows: range = range(ROWS)) -> list[tuple[int, int, int]]:
    return [(time, row, column) for row in rows for column in range(COLUMNS)]


def test_a_picture_is_announced_with_its_last_tile() -> None:
    grids = grids_of(2)
    growth = MosaicGrowth(grids, 0, [0], (ROWS, COLUMNS))
    *first, last = tiles(0)
    store(growth, grids, *first)
    assert growth.size(0) == 0
    store(growth, grids, last)
    assert growth.size(0) == 1
    store(growth, grids, *tiles(1))
    assert growth.size(0) == 2


def test_a_picture_is_not_announced_before_its_slabs_are_stored() -> None:
    grids = grids_of(2)
    growth = MosaicGrowth(grids, 0, [0], (ROWS, COLUMNS))
    keys = take(growth, grids, *tiles(0))
    for key in sorted(keys):
        assert growth.size(0) == 0
        growth.add_stored_slab(0, key, ())
    assert growth.size(0) == 1


def test_an_earlier_picture_ends_where_a_later_one_has_tiles() -> None:
    """A tile may have been skipped: all others are announced before the run ends."""
    grids = grids_of(3)
    growth = MosaicGrowth(grids, 0, [0], (ROWS, COLUMNS))
    store(growth, grids, *tiles(0)[1:])
    assert growth.size(0) == 0
    keys = take(growth, grids, tiles(1)[0])
    assert growth.size(0) == 1
    for key in keys:
        growth.add_stored_slab(0, key, ())
    assert growth.size(0) == 1
    store(growth, grids, *tiles(1)[1:])
    assert growth.size(0) == 2


def test_the_indices_of_a_run_without_a_planned_size_end_before_the_last() -> None:
    """Of z nothing is known here, so only the next time shows that one is complete."""
    spec = ArraySpec(
        axes=("time", "z", "y", "x"),
        shape=(0, 0, ROWS * TILE, COLUMNS * TILE),
        dtype=np.dtype("u2"),
        chunk_shape=(1, 1, 4, 4),
    )
    grids = slab_grids([spec], (TILE, TILE))
    growth = MosaicGrowth(grids, 0, [0], (ROWS, COLUMNS))
    for time in range(2):
        for _, row, column in tiles(time):
            growth.add_frame((time, 0, row, column))
        assert growth.size(0) == time


def test_rows_of_a_single_picture_are_announced_one_by_one() -> None:
    grids = grids_of(1, levels=2)
    growth = MosaicGrowth(grids, 1, [0, 0], (ROWS, COLUMNS))
    for row in range(ROWS):
        keys = take(growth, grids, *tiles(0, range(row, row + 1)))
        assert growth.size(0) == row * TILE
        for key in keys:
            growth.add_stored_slab(0, key, ())
        below = [(0, y, 0) for y in range(grids[1].cuts[0].slabs)]
        for key in below:
            growth.add_unstored(1, key)
        assert [growth.size(0), growth.size(1)] == [(row + 1) * TILE, row * TILE // 2]
        for key in below:
            growth.add_stored_slab(1, key, ())
        assert growth.size(1) == (row + 1) * TILE // 2


def test_a_size_never_shrinks() -> None:
    """An earlier process announced more than this one knows of yet."""
    grids = grids_of(2)
    growth = MosaicGrowth(grids, 0, [2], (ROWS, COLUMNS))
    assert growth.size(0) == 2
    store(growth, grids, *tiles(0))
    assert growth.size(0) == 2


def test_at_the_end_all_that_came_is_announced() -> None:
    grids = grids_of(4)
    growth = MosaicGrowth(grids, 0, [0], (ROWS, COLUMNS))
    take(growth, grids, tiles(0)[0], tiles(2)[3])
    growth.mark_all_stored()
    assert growth.size(0) == 3
