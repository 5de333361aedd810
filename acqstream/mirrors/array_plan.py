"""Which array the frames of a dataset make up: its axes, their sizes as far as they are known, and its space. Pure.

An axis with integers from 0 on has its values as positions. Any other has its values in the order in which they were
declared, then in which they first arrive: the same, whenever the mirror is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from acqstream.arrays.array_spec import ArraySpec
from acqstream.errors import DatasetError
from acqstream.model.axes import Axes, AxisValue
from acqstream.model.frame_space import SECOND, UM, FrameSpace, frame_space

TIME, POSITION, CHANNEL, Z = "time", "position", "channel", "z"
TILE_AXES = frozenset({"row", "column"})
MAX_POSITION = 10_000_000
_RESERVED = frozenset({"y", "x", "c"})
_RANKS = {TIME: 0, POSITION: 1, CHANNEL: 2, Z: 4}
_OTHER_RANK = 3


@dataclass(frozen=True, slots=True)
class PlannedAxis:
    """An axis of the frames. size: how many positions it has, 0: not known, it grows. values: of an axis with names,
    those declared or seen so far; is_named: its values are no positions themselves."""

    name: str
    size: int
    is_named: bool = False
    values: tuple[AxisValue, ...] = ()


@dataclass(frozen=True, slots=True)
class ArrayPlan:
    """axes are those of the frames, slowest first; frame_shape is (Y, X) or (Y, X, 3), dtype a numpy type string.

    The distances are those known before any frame, from hints and summary: levels are chosen by them (decision 025).
    """

    axes: tuple[PlannedAxis, ...]
    frame_shape: tuple[int, ...]
    dtype: str
    pixel_size_um: float | None = None
    z_step_um: float | None = None
    interval_s: float | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> ArrayPlan:
        """Raises KeyError, TypeError or ValueError."""
        axes = tuple(PlannedAxis(**{**axis, "values": tuple(axis["values"])}) for axis in values["axes"])
        return ArrayPlan(**{**values, "axes": axes, "frame_shape": tuple(values["frame_shape"])})

    def spec(self, attributes: Mapping[str, Any], labels: Mapping[str, Sequence[str]]) -> ArraySpec:
        """The array, to be cut into chunks by a format."""
        names = tuple(axis.name for axis in self.axes)
        height, width, *components = self.frame_shape
        pixel_um, unit = self.pixel_size_um or 1.0, "um" if self.pixel_size_um else ""
        steps = {TIME: (self.interval_s, "s"), Z: (self.z_step_um, "um")}
        known = [steps.get(name, (None, "")) for name in names]
        spaces = [(float(size), text) if size else (1.0, "") for size, text in known]
        rest = len(components)
        return ArraySpec(
            axes=(*names, "y", "x", *("c" for _ in components)),
            shape=(*(axis.size for axis in self.axes), height, width, *components),
            dtype=np.dtype(self.dtype).newbyteorder("="),
            scale=(*(size for size, _ in spaces), pixel_um, pixel_um, *(1.0,) * rest),
            units=(*(text for _, text in spaces), unit, unit, *("",) * rest),
            labels=labels,
            attributes=attributes,
        )


class AxisPositions:
    """Where frames lie along the axes of the array. Not pure: names get their positions as they come.

    kinds: the sets of axes of the frames that came before.
    """

    def __init__(self, plan: ArrayPlan, kinds: Iterable[tuple[str, ...]] = ()) -> None:
        self._plan = plan
        self._names = tuple(axis.name for axis in plan.axes)
        self._known = frozenset(self._names)
        self._named: dict[str, dict[AxisValue, int]] = {
            axis.name: {value: position for position, value in enumerate(axis.values)}
            for axis in plan.axes
            if axis.is_named
        }
        self._kinds = set(kinds)  # which axes frames have

    def place(self, key: Axes) -> tuple[int, ...]:
        """The position of a frame along each axis of the plan; 0 along one that it does not have.

        Raises DatasetError for an axis, or a value, that the array has no place for.
        """
        if not self._known.issuperset(key):
            more = next(name for name in key if name not in self._known)
            raise DatasetError(
                f"a frame with {_words(key)} has the axis {more!r}, others have {', '.join(self._names) or 'none'}: "
                "declare all axes when the acquisition is opened, or make the mirror afterwards"
            )
        self._kinds.add(tuple(name for name in self._names if name in key))
        return tuple(self._position(name, key[name]) if name in key else 0 for name in self._names)

    def keys_at(self, position: Sequence[int]) -> Iterable[dict[str, AxisValue]]:
        """The axes that a frame in this place may have."""
        for kind in self._kinds:
            key: dict[str, AxisValue] = {}
            for name, at in zip(self._names, position, strict=True):
                if name not in kind:
                    if at:
                        break
                    continue
                value = self._value(name, at)
                if value is None:
                    break
                key[name] = value
            else:
                yield key

    def known(self) -> tuple[ArrayPlan, tuple[tuple[str, ...], ...]]:
        """The plan with all names so far, and the kinds: for another process."""
        axes = [replace(axis, values=tuple(self._named.get(axis.name, ()))) for axis in self._plan.axes]
        return replace(self._plan, axes=tuple(axes)), tuple(sorted(self._kinds))

    def labels(self) -> dict[str, list[str]]:
        """Names of the positions so far, of the axes that have names."""
        return {name: [str(value) for value in values] for name, values in self._named.items()}

    def _position(self, name: str, value: AxisValue) -> int:
        named = self._named.get(name)
        if named is not None:
            return named.setdefault(value, len(named))
        if not isinstance(value, int) or not 0 <= value < MAX_POSITION:
            raise DatasetError(
                f"axis {name!r} has the value {value!r:.60} after integers from 0 on: an axis has one kind of values, "
                f"below {MAX_POSITION}"
            )
        return value

    def _value(self, name: str, at: int) -> AxisValue | None:
        named = self._named.get(name)
        if named is None:
            return at
        return next((value for value, position in named.items() if position == at), None)


def plan_array(
    first: Axes,
    frame_shape: Sequence[int],
    dtype: str,
    *,
    declared: Sequence[Mapping[str, Any]] = (),
    seen: Mapping[str, Sequence[AxisValue]] | None = None,
    is_final: bool = False,
    expect: int | None = None,
    summary: Mapping[str, Any] | None = None,
) -> ArrayPlan:
    """The array for frames like the first one. declared: the axes of the request, as in acqstream.json; seen: values by
    axis of all frames that are published; is_final: there will be no others. Raises DatasetError for frames that make
    up none.
    """
    seen = seen or {}
    hints = {str(axis["name"]): axis for axis in declared}
    names = list(dict.fromkeys([*hints, *first, *seen]))
    if TILE_AXES & set(names):
        raise DatasetError(
            "tiles make up larger images, by row and column: a mirror is made of frames that stand alone"
        )
    if _RESERVED & set(names):
        raise DatasetError(
            f"axes {sorted(_RESERVED & set(names))} of the frames are those of the pixels: a mirror has them once"
        )
    names.sort(key=lambda name: _RANKS.get(name, _OTHER_RANK))
    axes = tuple(
        _axis(name, first.get(name), hints.get(name, {}), seen.get(name, ()), is_final=is_final) for name in names
    )
    unknown = [axis for axis in axes if not axis.size]
    if expect and len(unknown) == 1:
        others = int(np.prod([axis.size for axis in axes if axis.size], dtype=np.int64))
        axes = tuple(replace(axis, size=-(-expect // others)) if axis is unknown[0] else axis for axis in axes)
    space = frame_space(declared, summary or {})
    return ArrayPlan(
        axes,
        tuple(frame_shape),
        np.dtype(dtype).str,
        pixel_size_um=space.pixel_um,
        z_step_um=_told(space, Z, UM),
        interval_s=_told(space, TIME, SECOND),
    )


def _axis(
    name: str, first: AxisValue | None, hint: Mapping[str, Any], seen: Sequence[AxisValue], *, is_final: bool
) -> PlannedAxis:
    labels: tuple[AxisValue, ...] = tuple(hint.get("labels") or ())
    size = hint.get("size")
    size = size if isinstance(size, int) and size > 0 else 0
    sample = first if first is not None else next(iter(seen), None)
    is_named = isinstance(sample, str) or (sample is None and bool(labels)) or (isinstance(sample, int) and sample < 0)
    is_named = is_named or any(isinstance(value, str) or value < 0 for value in seen)
    if is_named:
        known = tuple(dict.fromkeys([*(labels if isinstance(sample, str) or sample is None else ()), *seen]))
        return PlannedAxis(
            name, max(size, len(known)) if size or is_final or labels else 0, is_named=True, values=known
        )
    largest = max((value for value in seen if isinstance(value, int)), default=-1) + 1
    return PlannedAxis(name, max(size, largest) if size or is_final else 0)


def _told(space: FrameSpace, axis: str, unit: str) -> float | None:
    distance, known_unit = space.distance(axis)
    return distance if known_unit == unit else None


def _words(key: Axes) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in key.items()) or "no axes"
