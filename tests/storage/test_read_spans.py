from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from acqstream.storage.files.read_file import read_spans

pieces = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 50)), max_size=40)  # gap before, length


@given(pieces, st.integers(1, 100), st.integers(0, 30))
def test_every_piece_is_in_one_span_within_its_bounds(made: list[tuple[int, int]], most: int, gap: int) -> None:
    lengths = np.array([length for _, length in made], np.int64)
    ends = np.cumsum([before + length for before, length in made], dtype=np.int64)
    starts = ends - lengths
    spans = list(read_spans(starts, ends, most, gap))
    assert [i for low, high in spans for i in range(low, high)] == list(range(len(made)))
    for low, high in spans:
        assert high - low == 1 or ends[high - 1] - starts[low] <= most
        assert all(starts[i + 1] - ends[i] <= gap for i in range(low, high - 1))


def test_spans_are_as_long_as_they_may_be() -> None:
    starts = np.arange(0, 100, 10)
    assert list(read_spans(starts, starts + 8, 48, 2)) == [(0, 5), (5, 10)]
    assert list(read_spans(starts, starts + 8, 10**9, 1)) == [(i, i + 1) for i in range(10)]
