"""When a picture of a mosaic is announced, and how much of it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from acqstream.arrays.array_spec import ArraySpec
from acqstream.mirrors.level_extents import Growth
from acqstream.mirrors.slab_grid import SlabGrid, slab_grids

TILE, ROWS, COLUMNS = 6, 3, 2
Place = tuple[int, ...]


def grids_of(shape: Sequence[int], levels: int = 1, axes: Sequence[str] = ("time", "y", "x")) -> tuple[SlabGrid, ...]:
    """Levels in chunks of 4 x 4, of pictures of tiles of 6 x 6 pixels; z is reduced too."""
    specs = []
    for level in range(levels):
        factors = tuple(2**level if axis in "zyx" else 1 for axis in axes)
        sizes = tuple(size // factor for size, factor in zip(shape, factors, strict=True))
        chunks = tuple(4 if axis in "yx" else 1 for axis in axes)
        kind = np.dtype("u2")
        specs.append(ArraySpec(axes=tuple(axes), shape=sizes, dtype=kind, chunk_shape=chunks, factors=factors))
    return slab_grids(specs, (TILE, TILE))


def planned(times: int) -> tuple[SlabGrid, ...]:
    return grids_of((times, ROWS * TILE, COLUMNS * TILE))


def growth_of(grids: Sequence[SlabGrid], n_tiles: tuple[int, int] = (ROWS, COLUMNS), size: int = 0) -> Growth:
    return Growth(grids, 0, [(size, 0, 0)] * len(grids), n_tiles)


def take(growth: Growth, grids: Sequence[SlabGrid], *places: Place) -> list[set[Place]]:
    """Take tiles. Return the slabs that they reach, by level."""
    found: list[set[Place]] = [set() for _ in grids]
    for place in places:
        growth.add_frame(place)
        met = {piece.key for piece in grids[0].pieces_of(place)}
        for level in range(len(found)):
            if level:
                met = {piece.key for key in met for piece in grids[level - 1].pieces_of(key)}
            for key in met:
                growth.add_unstored(level, key)
            found[level] |= met
    return found


def store(growth: Growth, found: Sequence[set[Place]]) -> None:
    for level, keys in enumerate(found):
        for key in keys:
            growth.add_stored_slab(level, key)


def tiles(time: int) -> list[Place]:
    return [(time, row, column) for row in range(ROWS) for column in range(COLUMNS)]


def test_a_picture_is_announced_with_its_last_tile() -> None:
    grids = planned(2)
    growth = growth_of(grids)
    *first, last = tiles(0)
    store(growth, take(growth, grids, *first))
    assert growth.sizes(0) == {0: 0}
    store(growth, take(growth, grids, last))
    assert growth.sizes(0) == {0: 1}
    store(growth, take(growth, grids, *tiles(1)))
    assert growth.sizes(0) == {0: 2}


def test_a_picture_is_not_announced_before_its_slabs_are_stored() -> None:
    grids = planned(2)
    growth = growth_of(grids)
    (keys,) = take(growth, grids, *tiles(0))
    for key in sorted(keys):
        assert growth.sizes(0) == {0: 0}
        growth.add_stored_slab(0, key)
    assert growth.sizes(0) == {0: 1}


def test_an_earlier_picture_ends_where_a_later_one_has_tiles() -> None:
    """A tile may have been skipped: all others are announced before the run ends."""
    grids = planned(3)
    growth = growth_of(grids)
    store(growth, take(growth, grids, *tiles(0)[1:]))
    assert growth.sizes(0) == {0: 0}
    store(growth, take(growth, grids, tiles(1)[0]))
    assert growth.sizes(0) == {0: 1}
    store(growth, take(growth, grids, *tiles(1)[1:]))
    assert growth.sizes(0) == {0: 2}


def test_the_indices_of_a_run_without_a_planned_size_end_before_the_last() -> None:
    """Of z nothing is known here, so only the next time shows that one is complete."""
    shape = (0, 0, ROWS * TILE, COLUMNS * TILE)
    grids = grids_of(shape, axes=("time", "z", "y", "x"))
    growth = Growth(grids, 0, [(0, 0, 0, 0)], (ROWS, COLUMNS))
    for time in range(2):
        for _, row, column in tiles(time):
            growth.add_frame((time, 0, row, column))
        assert growth.sizes(0) == {0: time}


def test_a_size_never_shrinks() -> None:
    """An earlier process announced more than this one knows of yet."""
    grids = planned(2)
    growth = growth_of(grids, size=2)
    assert growth.sizes(0) == {0: 2}
    store(growth, take(growth, grids, *tiles(0)))
    assert growth.sizes(0) == {0: 2}


def test_at_the_end_all_that_came_is_announced_and_more_may_come_after_a_pause() -> None:
    grids = planned(6)
    growth = growth_of(grids)
    take(growth, grids, tiles(0)[0], tiles(2)[3])
    growth.mark_all_stored()
    assert growth.sizes(0) == {0: 3}
    store(growth, take(growth, grids, tiles(3)[0]))
    assert growth.sizes(0) == {0: 3}, "this picture is not complete"
    store(growth, take(growth, grids, *tiles(3)[1:]))
    assert growth.sizes(0) == {0: 4}


def test_a_picture_without_a_plan_is_announced_when_a_later_one_has_begun_and_it_is_stored() -> None:
    grids = grids_of((0, 0, 0), levels=2)
    growth = growth_of(grids, (0, 0))
    first = take(growth, grids, (0, 0, 0), (0, 0, 1))
    assert growth.sizes(0) == {0: 0, 1: 0, 2: 0}
    growth.add_frame((1, 3, 0))
    assert growth.sizes(0) == {0: 0, 1: 0, 2: 0}, "its slabs are not in the files"
    store(growth, first[:1])
    assert growth.sizes(0) == {0: 1, 1: TILE, 2: 2 * TILE}, "as far as this index reaches"
    assert growth.sizes(1) == {0: 0, 1: 0, 2: 0}
    growth.mark_all_stored()
    assert growth.sizes(0) == {0: 2, 1: 4 * TILE, 2: 2 * TILE}
    assert growth.sizes(1) == {0: 2, 1: 2 * TILE, 2: TILE}


def test_a_late_tile_makes_the_picture_larger_with_the_next_index() -> None:
    grids = grids_of((0, 0, 0))
    growth = growth_of(grids, (0, 0))
    for tile in ((0, 0, 0), (1, 0, 0)):
        growth.add_frame(tile)
    assert growth.sizes(0) == {0: 1, 1: TILE, 2: TILE}
    growth.add_frame((0, 0, 2))
    assert growth.sizes(0) == {0: 1, 1: TILE, 2: TILE}
    growth.add_frame((2, 0, 0))
    assert growth.sizes(0) == {0: 2, 1: TILE, 2: 3 * TILE}


def test_a_level_that_is_reduced_along_z_has_an_item_when_all_its_planes_are_there() -> None:
    grids = grids_of((0, ROWS * TILE, COLUMNS * TILE), levels=2, axes=("z", "y", "x"))
    growth = growth_of(grids)
    for z in range(5):
        store(growth, take(growth, grids, *tiles(z)))
        assert [growth.sizes(level)[0] for level in (0, 1)] == [z + 1, (z + 1) // 2]
    growth.mark_all_stored()
    assert [growth.sizes(level)[0] for level in (0, 1)] == [5, 2]


@given(seed=st.integers(0, 10_000), is_planned=st.booleans())
def test_no_picture_is_announced_before_its_tiles_that_came_first_are_stored(seed: int, is_planned: bool) -> None:
    """Tiles come by pictures, in any order within one; slabs are stored at any time after."""
    rng = random.Random(seed)
    grids = planned(4) if is_planned else grids_of((0, 0, 0))
    growth = growth_of(grids, (ROWS, COLUMNS) if is_planned else (0, 0))
    unstored: set[Place] = set()
    came: list[Place] = []
    for place in itertools.chain.from_iterable(rng.sample(tiles(time), ROWS * COLUMNS) for time in range(4)):
        came.append(place)
        unstored |= take(growth, grids, place)[0]
        for key in rng.sample(sorted(unstored), rng.randint(0, len(unstored))):
            growth.add_stored_slab(0, key)
            unstored.discard(key)
        size = growth.sizes(0)[0]
        assert all(key[0] >= size for key in unstored)
        assert {place for time in range(size) for place in tiles(time)} <= {*came}
    growth.mark_all_stored()
    assert growth.sizes(0)[0] == 4
