"""When a picture that grows is announced, and how much of it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from acqstream.arrays.array_spec import ArraySpec
from acqstream.mirrors.growth import OpenIndexGrowth, RectangleGrowth
from acqstream.mirrors.slab_grid import SlabGrid, slab_grids

TILE = 6
TILES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), unique=True, min_size=1, max_size=25)


def grids_of(axes: Sequence[str], shape: Sequence[int], levels: int = 2, chunk: int = 4) -> tuple[SlabGrid, ...]:
    """Levels in chunks of 4 x 4 or so, of a picture of tiles of 6 x 6 pixels."""
    specs = []
    for level in range(levels):
        factors = tuple(2**level if axis in "yx" else 1 for axis in axes)
        sizes = tuple(size // factor for size, factor in zip(shape, factors, strict=True))
        chunks = tuple(chunk if axis in "yx" else 1 for axis in axes)
        kind = np.dtype("u2")
        specs.append(ArraySpec(axes=tuple(axes), shape=sizes, dtype=kind, chunk_shape=chunks, factors=factors))
    return slab_grids(specs, (TILE, TILE))


def nothing_announced(grids: Sequence[SlabGrid]) -> list[tuple[int, ...]]:
    return [tuple(0 if axis in "yx" else 1 for axis in grid.spec.axes) for grid in grids]


def slabs_of(grids: Sequence[SlabGrid], place: tuple[int, ...]) -> list[list[tuple[int, ...]]]:
    """The slabs that a tile reaches, by level."""
    found = [sorted({piece.key for piece in grids[0].pieces_of(place)})]
    for grid, below in itertools.pairwise(grids):
        outer = len(grid.outer)
        keys = {piece.key for key in found[-1] for piece in below.pieces_of((*key[:outer], *key[outer:]))}
        found.append(sorted(keys))
    return found


@given(TILES, st.integers(3, 9), st.data())
def test_the_announced_rectangle_has_only_stored_tiles(
    tiles: list[tuple[int, int]], chunk: int, data: st.DataObject
) -> None:
    """Tiles come in any order, their slabs are stored at any time, and a new process may take over."""
    grids = grids_of(("y", "x"), (0, 0), chunk=chunk)
    announced = nothing_announced(grids)
    growth = RectangleGrowth(grids, announced, (0, 0))
    came: set[tuple[int, int]] = set()
    unstored: list[set[tuple[int, ...]]] = [set() for _ in grids]
    for tile in tiles:
        came.add(tile)
        growth.add_frame(tile)
        for level, met in enumerate(slabs_of(grids, tile)):
            unstored[level].update(met)
            for key in met:
                growth.add_unstored(level, key)
        if data.draw(st.booleans()):
            for level, keys in enumerate(unstored):
                for key in sorted(keys):
                    growth.add_stored_slab(level, key, ())
                keys.clear()
        if data.draw(st.booleans()):
            growth = RectangleGrowth(grids, announced, (0, 0))
            for earlier in came:
                growth.add_frame(earlier)
            for level, keys in enumerate(unstored):
                for key in keys:
                    growth.add_unstored(level, key)
        for level, grid in enumerate(grids):
            sizes = tuple(growth.sizes(level)[axis] for axis in (0, 1))
            assert all(after >= before for after, before in zip(sizes, announced[level], strict=True))
            factor = grid.spec.factors[0]
            needed = {(y * factor // TILE, x * factor // TILE) for y in range(sizes[0]) for x in range(sizes[1])}
            assert needed <= came
            new = {(y, x) for y in range(sizes[0]) for x in range(sizes[1])}
            new -= {(y, x) for y in range(announced[level][0]) for x in range(announced[level][1])}
            side = grid.cuts[0].side
            assert not {(y // side, x // side) for y, x in new} & unstored[level]
            announced[level] = sizes
    growth.mark_all_stored()
    first_row = next(n for n in range(6) if (0, n) not in came)
    assert growth.sizes(0)[1] >= (first_row * TILE if growth.sizes(0)[0] == TILE else 0)


def test_the_largest_rectangle_is_announced() -> None:
    """Two rows of five tiles, and three of the third one."""
    grids = grids_of(("y", "x"), (0, 0))
    growth = RectangleGrowth(grids, nothing_announced(grids), (0, 0))
    for row, column in [*itertools.product(range(2), range(5)), (2, 0), (2, 1), (2, 2)]:
        growth.add_frame((row, column))
    assert growth.sizes(0) == {0: 2 * TILE, 1: 5 * TILE}
    assert growth.sizes(1) == {0: TILE, 1: 5 * TILE // 2}
    growth.add_frame((2, 3))
    assert growth.sizes(0) == {0: 2 * TILE, 1: 5 * TILE}, "what is announced stays"
    growth.add_frame((2, 4))
    assert growth.sizes(0) == {0: 3 * TILE, 1: 5 * TILE}


def test_a_planned_side_is_complete_in_every_step() -> None:
    grids = grids_of(("y", "x"), (3 * TILE, 0))
    growth = RectangleGrowth(grids, nothing_announced(grids), (3, 0))
    for row in range(3):
        growth.add_frame((row, 0))
        assert growth.sizes(0) == ({0: 3 * TILE, 1: TILE} if row == 2 else {0: 0, 1: 0})


def test_a_picture_is_announced_when_a_later_one_has_begun_and_it_is_stored() -> None:
    grids = grids_of(("time", "y", "x"), (0, 0, 0))
    growth = OpenIndexGrowth(grids, 0, [(0, 0, 0)] * 2)
    for tile in ((0, 0, 0), (0, 0, 1)):
        growth.add_frame(tile)
        for level, keys in enumerate(slabs_of(grids, tile)):
            for key in keys:
                growth.add_unstored(level, key)
    assert growth.sizes(0) == {0: 0, 1: 0, 2: 0}
    growth.add_frame((1, 3, 0))
    assert growth.sizes(0) == {0: 0, 1: 0, 2: 0}, "its slabs are not in the files"
    for tile in ((0, 0, 0), (0, 0, 1)):
        for key in slabs_of(grids, tile)[0]:
            growth.add_stored_slab(0, key, ())
    assert growth.sizes(0) == {0: 1, 1: TILE, 2: 2 * TILE}, "as far as this index reaches"
    assert growth.sizes(1) == {0: 0, 1: 0, 2: 0}
    growth.mark_all_stored()
    assert growth.sizes(0) == {0: 2, 1: 4 * TILE, 2: 2 * TILE}
    assert growth.sizes(1) == {0: 2, 1: 2 * TILE, 2: TILE}


def test_a_late_tile_makes_the_picture_larger_with_the_next_index() -> None:
    grids = grids_of(("time", "y", "x"), (0, 0, 0), levels=1)
    growth = OpenIndexGrowth(grids, 0, [(0, 0, 0)])
    for tile in ((0, 0, 0), (1, 0, 0)):
        growth.add_frame(tile)
    assert growth.sizes(0) == {0: 1, 1: TILE, 2: TILE}
    growth.add_frame((0, 0, 2))
    assert growth.sizes(0) == {0: 1, 1: TILE, 2: TILE}
    growth.add_frame((2, 0, 0))
    assert growth.sizes(0) == {0: 2, 1: TILE, 2: 3 * TILE}
