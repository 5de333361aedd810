"""The places along an axis at every count of frames, however many come at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from acqstream.frames.frame_snapshot import _AxisGrowth

Blocks = list[list[int]]


@given(st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=5), max_size=5))
def test_first_rows_and_sizes_at_every_count(blocks: Blocks) -> None:
    growth, places = _AxisGrowth(), list[int]()
    for block in blocks:
        growth.add(len(places), np.array(block, np.int64))
        places += block
    for count in range(len(places) + 1):
        assert growth.size(count) == max(places[:count], default=-1) + 1
    found = [row if row < len(places) else None for row in growth.first_rows.tolist()]
    assert found == [places.index(at) if at in places else None for at in range(max(places, default=-1) + 1)]
