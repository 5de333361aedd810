from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from acqstream.export.frame_references import block_shape, cut

SIZES = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=0, max_size=4)


@given(SIZES, st.integers(1, 500))
def test_blocks_cover_every_item_once_and_begin_at_chunks(sizes: list[tuple[int, int]], max_items: int) -> None:
    shape, chunk = tuple(size for size, _ in sizes), tuple(side for _, side in sizes)
    sides = block_shape(shape, chunk, max_items)
    counts = np.zeros(shape, int)
    for box in cut(shape, sides):
        counts[tuple(slice(side.start, side.stop) for side in box)] += 1
        for side, own, size in zip(box, chunk, shape, strict=True):
            assert side.start % min(own, size) == 0
            assert len(side) == size or side.stop == size or len(side) % min(own, size) == 0
    assert (counts == 1).all()
    smallest = math.prod(min(own, size) for own, size in zip(chunk, shape, strict=True))
    assert math.prod(sides) <= max(max_items, smallest)


def test_the_last_axes_are_filled_first() -> None:
    assert block_shape((100, 2, 50), (1, 1, 1), 2000) == (20, 2, 50)
    assert block_shape((100, 3, 1500), (1, 1, 1), 2000) == (1, 1, 1500)
    assert block_shape((5000,), (1,), 2000) == (2000,)
    assert block_shape((4, 8, 40, 70), (1, 4, 40, 70), 1) == (1, 4, 40, 70)


def test_an_empty_array_has_no_block() -> None:
    assert list(cut((3, 0), (1, 1))) == []
