"""Gives frames their places in a stored array. Not pure: new values get their places as they come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_plan import ArrayPlan
from acqstream.arrays.array_spec import ArraySpec
from acqstream.arrays.axis_index import KeyColumn, StoredPlaces
from acqstream.errors import DatasetError
from acqstream.model.axes import PICTURE_AXES, Axes, AxisValue


class FramePlaces:
    """Places of frames along the axes of the stored array. Used by one thread.

    kinds are the sets of axes of the frames that came before.
    """

    def __init__(self, plan: ArrayPlan, kinds: Iterable[tuple[str, ...]] = ()) -> None:
        self._plan = plan
        self._axes = {axis.name: StoredPlaces(axis) for axis in plan.axes}
        self._names = tuple(self._axes)
        self._known = frozenset(self._axes)
        self._kinds = set(kinds)

    def take(self, key: Axes) -> tuple[int, ...]:
        """Return the place of a frame along each axis of the plan. Raises DatasetError for an axis that it has not."""
        if not self._known.issuperset(key):
            raise self._unknown_axis(next(name for name in key if name not in self._known), key)
        self._kinds.add(tuple(name for name in self._names if name in key))
        return tuple(places.take(key.get(name)) for name, places in self._axes.items())

    def take_columns(self, keys: Mapping[str, KeyColumn], count: int) -> NDArray[np.int64]:
        """As `take`, for `count` frames in order of arrival: their places, of shape (frames, axes of the plan).

        Raises DatasetError for an axis that the plan has not, before any frame has its place.
        """
        present = {name: column for name, column in keys.items() if any(value is not None for value in column.values)}
        if not self._known.issuperset(present):
            more = next(name for name in present if name not in self._known)
            raise self._unknown_axis(more, {name: _first(column) for name, column in present.items()})
        absent = KeyColumn((None,), np.zeros(count, np.int32))
        columns = [keys.get(name, absent) for name in self._names]
        self._add_kinds(columns, count)
        places = np.empty((count, len(columns)), np.int64)
        # A value keeps the place of its first frame, and axes are independent: distinct values in order are enough.
        for at, (axis, column) in enumerate(zip(self._axes.values(), columns, strict=True)):
            known = np.array([axis.take(value) for value in column.values], np.int64)
            places[:, at] = known[column.positions] if count else 0
        return places

    def keys_at(self, place: Sequence[int]) -> Iterator[dict[str, AxisValue]]:
        """Yield the keys that a frame at this place may have."""
        for kind in tuple(self._kinds):  # the web face takes frames in another thread meanwhile
            key: dict[str, AxisValue] = {}
            for (name, places), at in zip(self._axes.items(), place, strict=True):
                if name not in kind:
                    if not places.is_home(at):
                        break
                    continue
                key[name] = places.value(at)
            else:
                yield key

    def known(self) -> tuple[ArrayPlan, tuple[tuple[str, ...], ...]]:
        """Return the plan with all values so far, and the kinds, for another process."""
        return replace(self._plan, axes=tuple(axis.known() for axis in self._axes.values())), tuple(sorted(self._kinds))

    def labels(self) -> dict[str, list[str]]:
        """Return names of the places so far, of axes where some value is not its own place."""
        return {name: names for name, places in self._axes.items() if (names := places.names())}

    def shown_axes(self) -> tuple[str, ...]:
        """Return the axes that readers show, slowest first: those that frames have, then those of the pixels."""
        seen = {name for kind in self._kinds for name in kind}
        shown = [name for name in self._plan.order if name in seen]
        return (*shown, *PICTURE_AXES[: len(self._plan.frame_shape)])

    def axis_values(self) -> Mapping[str, Sequence[AxisValue | None]]:
        """Return the value of each place by axis, None for places without frames."""
        return {name: self._axes[name].listed() for name in self.shown_axes() if name in self._axes}

    def values_along(self, name: str) -> Sequence[AxisValue | None]:
        """Return the value of each place of an axis; empty for an axis that it has not."""
        return self._axes[name].listed() if name in self._axes else ()

    def with_values(self, levels: Sequence[ArraySpec]) -> tuple[ArraySpec, ...]:
        """Return these levels with the values of the places so far."""
        shown, values = self.shown_axes(), self.axis_values()
        return tuple(replace(level, shown_axes=shown, axis_values=values) for level in levels)

    def out_of_order(self) -> str:
        """Why frames do not lie in the order of their values, "" if they do."""
        axes = [name for name, places in self._axes.items() if not places.is_ordered]
        if not axes:
            return ""
        return f"frames came along {axes[0]} whose places were taken: declare `start` and `size` of the axis"

    @property
    def names(self) -> tuple[str, ...]:
        """The axes of the plan."""
        return self._names

    def value_at(self, name: str, at: int) -> AxisValue:
        """Return the value of frames at a place."""
        return self._axes[name].value(at)

    def index(self, name: str, value: AxisValue) -> int | None:
        """Return the place of a value; None for one that is unknown yet."""
        return self._axes[name].index(value) if name in self._axes else None

    def _add_kinds(self, columns: Sequence[KeyColumn], count: int) -> None:
        """Note the sets of axes that these frames have."""
        if not columns:
            self._kinds.add(())
            return
        kinds = np.zeros(count, np.uint64)  # a bit for each axis: at most 32 axes are read
        for bit, column in enumerate(columns):
            has = np.array([value is not None for value in column.values], np.uint64) << np.uint64(bit)
            kinds |= has[column.positions]
        for kind in np.unique(kinds).tolist():
            self._kinds.add(tuple(name for bit, name in enumerate(self._names) if kind >> bit & 1))

    def _unknown_axis(self, name: str, key: Axes) -> DatasetError:
        return DatasetError(
            f"a frame with {_words(key)} has the axis {name!r}, others have {', '.join(self._names) or 'none'}: "
            "declare all axes when the acquisition is opened, or make the mirror afterwards"
        )


def _first(column: KeyColumn) -> AxisValue:
    return next(value for value in column.values if value is not None)


def _words(key: Axes) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in key.items()) or "no axes"
