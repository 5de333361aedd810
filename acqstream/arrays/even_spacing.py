"""The distance of items that lie evenly spaced, from measured places with noise. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

Places = Sequence[tuple[int, float]]
"""Index of an item along its axis, and its place."""


def even_distance(series: Sequence[Places], tolerance: Callable[[float], float], *, min_items: int = 2) -> float | None:
    """The signed distance of neighbouring items, the same in all series; None where the places show none.

    Each series may begin at another place: autofocus moves whole stacks. A place may be off by tolerance(distance), a
    positive distance. The result has six digits: more is noise.
    """
    slopes: list[float] = []
    used: list[list[tuple[int, float]]] = []
    for places in series:
        ordered = sorted(dict(reversed(places)).items())
        if len(ordered) < min_items:
            continue
        used.append(ordered)
        half = max(1, len(ordered) // 2)  # far apart, so that noise counts for little
        slopes += [
            (end - start) / (last - first) for (first, start), (last, end) in zip(ordered, ordered[half:], strict=False)
        ]
    distance = statistics.median(slopes) if slopes else 0.0
    if abs(distance) < 1e-9:  # it did not move, or no place was recorded
        return None
    limit = tolerance(abs(distance))
    for ordered in used:
        starts = [place - index * distance for index, place in ordered]
        middle = statistics.median(starts)
        if any(abs(start - middle) > limit for start in starts):
            return None
    return float(f"{distance:.6g}")
