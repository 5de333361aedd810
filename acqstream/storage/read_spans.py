"""Groups of pieces of a file to read in one call, so neither calls nor memory grow with the number of pieces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray


def read_spans(
    starts: NDArray[np.integer[Any]], ends: NDArray[np.integer[Any]], max_bytes: int, max_gap: int
) -> Iterator[tuple[int, int]]:
    """Runs [low, high) of pieces [start, end) to read together; both sorted, pieces do not overlap, offsets in bytes.

    A run takes at most max_bytes from its first start to its last end, unless it is one piece; it spans no gap of more
    than max_gap bytes.
    """
    breaks = np.flatnonzero(starts[1:] - ends[:-1] > max_gap) + 1
    low = 0
    for edge in [*breaks.tolist(), len(starts)]:
        while low < edge:
            high = int(np.searchsorted(ends[low:edge], starts[low] + max_bytes, "right")) + low
            high = max(high, low + 1)
            yield low, high
            low = high
