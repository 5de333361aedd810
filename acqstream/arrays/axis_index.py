"""Gives the values along one axis their places in a stored array, in order of arrival. Not pure: it remembers them.

Stored or announced chunks cannot move, so a value keeps the place that its first frame got. See docs/arrays.md.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from acqstream.model.axes import AxisValue
from acqstream.model.fields import check_choice, check_integer, check_optional_integer, check_text, field_error


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """The values of one axis, for consecutive frames.

    values are the distinct ones in order of first appearance, None for frames that lack the axis. positions has, for
    each frame, the position of its value in `values`; shape (frames,).
    """

    values: Sequence[AxisValue | None]
    positions: NDArray[np.int32]


MAX_POSITION = 10_000_000
_FREE_PLACES = 16  # that integers may leave empty, besides one per value

PlaceRule = Literal["dense"]
"""The rule for places of values, as it is noted. A mirror with another one is not resumed."""


@dataclass(frozen=True, slots=True)
class PlannedAxis:
    """An axis of frames in a stored array, as it is noted in `mirror.json`.

    size: its number of places, 0: unknown, it grows. values are those that are not their own place, and places where
    they lie. own_below: smaller integers from 0 on are their own place, wherever that
    is free. home: the place of frames that lack this axis, None: undecided.
    """

    name: str
    size: int
    values: tuple[AxisValue, ...] = ()
    rule: PlaceRule = "dense"
    places: tuple[int, ...] = ()
    own_below: int = 0
    home: int | None = None


def plan_places(
    name: str, size: int, labels: Sequence[str], arrived: Sequence[AxisValue], *, is_final: bool
) -> PlannedAxis:
    """Return the plan of an axis. labels are its declared names, arrived the values seen so far in order of arrival.

    is_final: no other value will come.
    """
    values: list[AxisValue] = list(dict.fromkeys(labels))
    own_below = max(size, 2 * len(arrived) + _FREE_PLACES)
    own = [value for value in arrived if isinstance(value, int) and len(values) <= value < min(own_below, MAX_POSITION)]
    end = max([len(values) - 1, *own]) + 1
    places = list(range(len(values)))
    kept = {*values, *own}
    for value in arrived:
        if value not in kept:
            values.append(value)
            places.append(end)
            kept.add(value)
            end += 1
    if is_final and arrived and not labels and all(isinstance(value, str) for value in arrived):
        size = end  # each declared place was for a name, and those that came are all
    is_known = bool(size or is_final or labels)
    home = None
    if arrived and all(isinstance(value, str) for value in arrived):
        home = places[values.index(arrived[0])] if not labels else 0
    return PlannedAxis(
        name,
        max(size, end) if is_known else 0,
        tuple(values),
        places=tuple(places),
        own_below=max([size - 1, *own]) + 1,
        home=home,
    )


def are_own_places(integers: Collection[int], size: int, count: int) -> bool:
    """True if integers may each be their own place: few places stay empty. count: of all values."""
    return min(integers) >= 0 and max(integers) < min(max(size, 2 * count + _FREE_PLACES), MAX_POSITION)


def in_order(name: str, values: Sequence[AxisValue]) -> PlannedAxis:
    """The plan of an axis whose values lie side by side in this order; others that come all the same follow them."""
    home = next((at for at, value in enumerate(values) if value == 0 or isinstance(value, str)), None)
    return PlannedAxis(name, len(values), tuple(values), places=tuple(range(len(values))), home=home)


def checked_axis(axis: PlannedAxis) -> PlannedAxis:
    """The axis, if its fields are what `plan_places` makes; a note may be damaged. Raises FieldError."""
    check_text(axis.name, "axes.name")
    check_integer(axis.size, "axes.size")
    check_choice(axis.rule, "axes.rule", get_args(PlaceRule))
    check_integer(axis.own_below, "axes.own_below")
    check_optional_integer(axis.home, "axes.home")
    if not all(type(value) in (str, int) for value in axis.values):
        raise field_error("axes.values", "strings and integers", axis.values)
    if len(axis.places) not in (0, len(axis.values)) or not all(type(at) is int and at >= 0 for at in axis.places):
        raise field_error("axes.places", f"{len(axis.values)} integers from 0 on", axis.places)
    return axis


class StoredPlaces:
    """The places of the values of one axis. Used by one thread."""

    def __init__(self, axis: PlannedAxis) -> None:
        self._axis = axis
        self._places = dict(zip(axis.values, axis.places or range(len(axis.values)), strict=True))
        self._value_at = {at: value for value, at in self._places.items()}
        self._own = bytearray()  # by place: 1 where an integer is its own place
        self._taken = bytearray()  # by place: 1 where a frame has come
        self._count = len(axis.values)
        self._end = max(self._value_at, default=-1) + 1
        self._first: AxisValue | None = next(
            (value for value in axis.values if isinstance(value, int)), None
        )  # of values that came
        self._ordered = (True, 0)  # as of so many values
        self._home = axis.home
        self._waits_for_home = False  # frames lack the axis, and no value is known

    def take(self, value: AxisValue | None) -> int:
        """Return the place of a frame; None: it lacks this axis."""
        at = self._home_place() if value is None else self._place(value)
        if at >= len(self._taken):
            self._taken.extend(bytes(at + 1 - len(self._taken)))
        self._taken[at] = 1
        return at

    def value(self, at: int) -> AxisValue:
        """Return the value that frames at this place have."""
        value = self._value_at.get(at)
        return at if value is None else value

    def find(self, value: AxisValue) -> int | None:
        """Return the place of a value; None for one that has not come and was not declared."""
        if isinstance(value, int) and 0 <= value < len(self._own) and self._own[value]:
            return value
        return self._places.get(value)

    def index(self, value: AxisValue) -> int | None:
        """As `find`; integers that will be their own place have it already."""
        place = self.find(value)
        is_own = isinstance(value, int) and 0 <= value < self._axis.own_below and value not in self._value_at
        return value if place is None and is_own and isinstance(value, int) else place

    def is_home(self, at: int) -> bool:
        """Return whether frames without this axis lie at this place."""
        return at == (self._home or 0)

    def listed(self) -> Sequence[AxisValue | None]:
        """Return the value of each place up to the last one that is used; None where no frame has come."""
        if not self._places and self._taken == self._own:
            return range(len(self._own)) if all(self._own) else self._values()
        return self._values()

    def known(self) -> PlannedAxis:
        """Return the plan with all values so far, for another process."""
        return replace(
            self._axis,
            values=tuple(self._places),
            places=tuple(self._places.values()),
            own_below=max(self._axis.own_below, len(self._own)),
            home=self._home,
        )

    @property
    def is_ordered(self) -> bool:
        """False if integers do not lie in the order of their values: another mirror of the same frames would."""
        if self._places and self._ordered[0] and self._ordered[1] != self._count:
            integers = [value for value in self._values() if isinstance(value, int)]
            self._ordered = all(map(operator.lt, integers, integers[1:])), self._count
        return self._ordered[0]

    def names(self) -> list[str]:
        """Return a name for each place; none where every integer is its own place."""
        if not self._places:
            return []
        names = {at: str(value) for value, at in self._places.items()}
        return [names.get(at, str(at) if at < len(self._own) and self._own[at] else "") for at in range(self._end)]

    def _values(self) -> list[AxisValue | None]:
        return [
            None if not has_frame else self._value_at.get(at, at if at < len(self._own) and self._own[at] else None)
            for at, has_frame in enumerate(self._taken)
        ]

    def _place(self, value: AxisValue) -> int:
        place = self.find(value)
        if place == 0 and self._waits_for_home:  # else an integer that comes later would take this place, too
            self._bind_home(value)
        return self._assign(value) if place is None else place

    def _assign(self, value: AxisValue) -> int:
        if self._waits_for_home:
            self._bind_home(value)
            return self._place(value)
        self._first = value if self._first is None else self._first
        self._count += 1
        limit = min(max(self._axis.own_below, 2 * self._count + _FREE_PLACES), MAX_POSITION)
        if isinstance(value, int) and 0 <= value < limit and value not in self._value_at:
            self._set_own(value)
            return value
        return self._move(value, self._end)

    def _home_place(self) -> int:
        if self._home is None:
            if self._first is None:  # declared names may never come; the one at place 0 may have
                if not self._waits_for_home and self._taken[:1] == b"\1":
                    self._home = 0
                    return 0
                self._waits_for_home = True
                self._end = max(self._end, 1)
                return 0
            self._home = self._place(0 if isinstance(self._first, int) else self._first)
        return self._home

    def _bind_home(self, first: AxisValue) -> None:
        """The first value of the axis decides what the frames without it count as, which lie at place 0."""
        self._waits_for_home = False
        self._first, self._home = first, 0
        self._count += 1
        if isinstance(first, int):
            self._places.pop(self._value_at.pop(0, 0), None)
            self._set_own(0)
        elif 0 not in self._value_at:
            self._move(first, 0)

    def _set_own(self, place: int) -> None:
        if place >= len(self._own):
            self._own.extend(bytes(place + 1 - len(self._own)))
        self._own[place] = 1
        self._end = max(self._end, place + 1)

    def _move(self, value: AxisValue, place: int) -> int:
        self._places[value] = place
        self._value_at[place] = value
        self._end = max(self._end, place + 1)
        return place
