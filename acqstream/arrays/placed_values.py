"""Where the integers of an axis are stored along it, and how far apart those are that lie side by side. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
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
