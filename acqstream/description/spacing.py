"""Items along an axis: where their integers are stored, and their distance from measured positions or times. Pure."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from acqstream.model.axes import AxisValue


@dataclass(frozen=True, slots=True)
class PlacedValues:
    """The integers along an axis. gap: how many of them lie between two neighbours; None where it is not the same.

    first: the integer of the first place, None: none is known. A gap of 1 means that each is its own place after it.
    """

    gap: float | None = 1.0
    first: int | None = 0
    _places: Mapping[int, int] | None = None  # None: integers count from 0

    @staticmethod
    def of(values: Sequence[AxisValue | None] | None) -> PlacedValues:
        """values: those at each place, None for a place without frames. Without any, integers count from 0."""
        if values is None or isinstance(values, range) or not values or _counts_from_0(values):
            return PlacedValues()
        places = {value: at for at, value in enumerate(values) if isinstance(value, int)}
        pairs = itertools.pairwise(places.items())
        gaps = {(last - first) / (end - start) for (first, start), (last, end) in pairs}
        gap = gaps.pop() if len(gaps) == 1 else 1.0 if not gaps else None
        if gap is not None and gap <= 0:
            gap = None
        start = values[0]
        return PlacedValues(gap, start if isinstance(start, int) else None, places)

    def place(self, value: int) -> int | None:
        """Of an integer; None for one that is not there."""
        return value if self._places is None else self._places.get(value)

    def start(self, distance: float) -> float:
        """Where the first place lies, by its integer, if neighbours are so far apart."""
        return 0.0 if self.first is None or not self.gap else self.first * distance / self.gap


def _counts_from_0(values: Sequence[AxisValue | None]) -> bool:
    """True for 0, 1, 2 and so on, also with places without frames."""
    return all(value is None or value == at for at, value in enumerate(values))


Places = Sequence[tuple[int, float]]
"""Where an item is stored along its axis, and its measured place or time."""

_MIN_MOVE = 1e-9
MIN_TIMES = 3  # any two are evenly spaced


def has_moved(series: Sequence[Places], min_items: int) -> bool:
    """True if so many of a series were measured, and not all at one place: they show a distance, or unevenness."""
    values = [[value for _, value in places] for places in series if len(dict(places)) >= min_items]
    return any(max(measured) - min(measured) > _MIN_MOVE for measured in values)


def even_times(times: Places) -> float | None:
    """The interval of times that are even, by a straight line through all of them; None where they are not.

    Even: three at least, each interval within a tenth of the median one, and each time within half an interval of the
    line, since a slow drift would point at the wrong frame. The result has six digits.
    """
    ordered = sorted(dict(reversed(times)).items())
    if len(ordered) < MIN_TIMES:
        return None
    between = [(end - start) / (last - first) for (first, start), (last, end) in itertools.pairwise(ordered)]
    median = statistics.median(between)
    if median < _MIN_MOVE or any(abs(interval - median) > median / 10 for interval in between):
        return None
    slope, start = statistics.linear_regression(*zip(*ordered, strict=True))
    if any(abs(start + slope * at - time) > slope / 2 for at, time in ordered):
        return None
    return float(f"{slope:.6g}")


def even_distance(series: Sequence[Places], tolerance: Callable[[float], float]) -> float | None:
    """The signed distance of neighbouring items, the same in all series; None where the places show none.

    Each series may begin at another place: autofocus moves whole stacks. A place may be off by tolerance(distance), a
    positive distance. The result has six digits: more is noise.
    """
    slopes: list[float] = []
    used: list[list[tuple[int, float]]] = []
    for places in series:
        ordered = sorted(dict(reversed(places)).items())
        if len(ordered) < 2:
            continue
        used.append(ordered)
        half = max(1, len(ordered) // 2)  # far apart, so that noise counts for little
        slopes += [
            (end - start) / (last - first) for (first, start), (last, end) in zip(ordered, ordered[half:], strict=False)
        ]
    distance = statistics.median(slopes) if slopes else 0.0
    if abs(distance) < _MIN_MOVE:  # it did not move, or no place was recorded
        return None
    limit = tolerance(abs(distance))
    for ordered in used:
        starts = [place - index * distance for index, place in ordered]
        middle = statistics.median(starts)
        if any(abs(start - middle) > limit for start in starts):
            return None
    return float(f"{distance:.6g}")
