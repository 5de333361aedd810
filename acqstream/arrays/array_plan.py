"""Plans the stored array of a mirror: its axes, their sizes as far as they are known, and its space. Pure.

A mirror is planned before its frames arrive, or with those that were published so far. See docs/arrays.md for the rule.
An array announces an index of the axis that it grows along when all its frames are there, and earlier ones when a frame
of a later index has come: other software sees no zeros where data will come.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from acqstream.arrays.array_spec import ArraySpec
from acqstream.arrays.axis_index import PlannedAxis, are_own_places, checked_axis, in_order, plan_places
from acqstream.arrays.frame_array import AxisPlan, axis_plans
from acqstream.arrays.mosaic import Canvas, Side, planned_canvas
from acqstream.description.image_positions import position_names
from acqstream.description.space import SECOND, UM, FrameSpace, frame_space
from acqstream.errors import DatasetError
from acqstream.model.axes import (
    COLUMN,
    PICTURE_AXES,
    POSITION,
    ROW,
    TILE_AXES,
    TIME,
    Axes,
    AxisValue,
    Z,
    axis_order,
    stored_axis_order,
)


def growing_axis(sizes: Mapping[str, int]) -> str | None:
    """The axis that an array grows along: time, else z, else the first other one with more than one item.

    sizes: planned ones by axis, slowest first, 0 for unknown. None for an array of one frame.
    """
    longer = [name for name, size in sizes.items() if size != 1]
    for name in (TIME, Z):
        if name in longer:
            return name
    return longer[0] if longer else None


def announced_size(seen: int, came: int, needed: int) -> int:
    """The size to announce along the growing axis.

    seen: one more than the last index of any frame; came: frames of that index; needed: frames that it has at the end.
    """
    return seen if came >= needed else seen - 1


@dataclass(frozen=True, slots=True)
class ArrayPlan:
    """axes are those of the frames as they are stored, slowest first; order is how readers show them.

    frame_shape is (Y, X) or (Y, X, 3), dtype a numpy type string. The distances are those known before any frame, from
    hints and summary: levels are chosen by them (decision 025). mosaic: the picture of tiles of frame_shape; None
    without tiles.
    """

    axes: tuple[PlannedAxis, ...]
    frame_shape: tuple[int, ...]
    dtype: str
    pixel_size_um: float | None = None
    z_step_um: float | None = None
    interval_s: float | None = None
    order: tuple[str, ...] = ()
    mosaic: Canvas | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the plan as it stands in mirror.json."""
        return asdict(self)

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> ArrayPlan:
        """Return the plan in mirror.json. Raises KeyError, TypeError or ValueError."""
        fields = dict(values)
        fields["axes"] = tuple(map(_axis_of_json, fields["axes"]))
        fields["frame_shape"] = tuple(fields["frame_shape"])
        fields["order"] = tuple(fields["order"])
        mosaic = fields.get("mosaic")
        fields["mosaic"] = None if mosaic is None else Canvas(Side(**mosaic["y"]), Side(**mosaic["x"]))
        return ArrayPlan(**fields)

    def labels(self) -> dict[str, list[str]]:
        """Return names of places, of the axes whose declared or known values have names."""
        return {axis.name: [str(value) for value in axis.values] for axis in self.axes if axis.values}

    def spec(self, attributes: Mapping[str, Any], labels: Mapping[str, Sequence[str]]) -> ArraySpec:
        """Return the array, which a format has yet to cut into chunks."""
        names = tuple(axis.name for axis in self.axes)
        height, width, *samples = self.frame_shape
        if self.mosaic is not None:
            height, width = self.mosaic.shape
        pixel_um, unit = self.pixel_size_um or 1.0, "um" if self.pixel_size_um else ""
        steps = {TIME: (self.interval_s, "s"), Z: (self.z_step_um, "um")}
        known = [steps.get(name, (None, "")) for name in names]
        spaces = [(float(size), text) if size else (1.0, "") for size, text in known]
        return ArraySpec(
            axes=(*names, "y", "x", *("c" for _ in samples)),
            shape=(*(axis.size for axis in self.axes), height, width, *samples),
            dtype=np.dtype(self.dtype).newbyteorder("="),
            scale=(*(size for size, _ in spaces), pixel_um, pixel_um, *(1.0 for _ in samples)),
            units=(*(text for _, text in spaces), unit, unit, *("" for _ in samples)),
            labels=labels,
            attributes=attributes,
        )


def _axis_of_json(values: Mapping[str, Any]) -> PlannedAxis:
    """An axis in mirror.json."""
    return checked_axis(PlannedAxis(**{**values, "values": tuple(values["values"]), "places": tuple(values["places"])}))


def plan_array(
    first: Axes,
    frame_shape: Sequence[int],
    dtype: str,
    *,
    declared: Sequence[Mapping[str, Any]] = (),
    seen: Mapping[str, Sequence[AxisValue]] | None = None,
    kinds: Iterable[Sequence[str]] = (),
    order: Iterable[str] = (),
    is_final: bool = False,
    expect: int | None = None,
    summary: Mapping[str, Any] | None = None,
) -> ArrayPlan:
    """Return the array for frames like the first one; of tiles, row and column are axes, and each tile is an image.

    declared are the axes of the request, as in acqstream.json; order is the order of axes that was asked for. seen are
    values by axis of all published frames, kinds the sets of axes that they have. is_final: no other frame will come.
    expect is the number of frames to come. Raises DatasetError for frames that make up no array.
    """
    arrived = {name: [value] for name, value in first.items()} | dict(seen or {})
    plans = axis_plans(declared)
    names = [*dict.fromkeys([*first, *arrived, *plans])]
    reserved = sorted(set(PICTURE_AXES) & set(names))
    if reserved:
        raise DatasetError(f"axes {reserved} of the frames are those of the pixels: a mirror has them once")
    known_kinds = [*kinds]
    axes = tuple(
        _plan_axis(name, plans.get(name, AxisPlan()), arrived.get(name, ()), known_kinds, is_final=is_final)
        for name in stored_axis_order(names)
    )
    unknown = [axis for axis in axes if not axis.size]
    if expect and len(unknown) == 1:
        others = int(np.prod([axis.size for axis in axes if axis.size], dtype=np.int64))
        size = -(-expect // others)
        axes = tuple(
            replace(axis, size=size, own_below=max(size, axis.own_below)) if axis is unknown[0] else axis
            for axis in axes
        )
    space = frame_space(declared, summary or {})
    return ArrayPlan(
        axes,
        tuple(frame_shape),
        np.dtype(dtype).str,
        pixel_size_um=space.pixel_um,
        z_step_um=_distance(space, Z, UM),
        interval_s=_distance(space, TIME, SECOND),
        order=axis_order(names, order),
    )


def check_no_tiles(names: Iterable[str]) -> None:
    """Raise DatasetError if these are axes of tiles: without an overlap they make up no picture."""
    if TILE_AXES & set(names):
        raise DatasetError(
            "frames have a row and a column, and the summary has no overlap: tiles of a picture have one, if only 0. "
            'A mirror with "tiles": "separate" keeps each tile as an image'
        )


def plan_mosaic(
    overlap: Sequence[int],
    first: Axes,
    frame_shape: Sequence[int],
    dtype: str,
    *,
    declared: Sequence[Mapping[str, Any]] = (),
    seen: Mapping[str, Sequence[AxisValue]] | None = None,
    is_final: bool = False,
    expect: int | None = None,
    may_grow: bool = False,
    **more: Any,
) -> ArrayPlan | None:
    """As `plan_array`, for tiles that make up pictures; None while the size of a picture is not known.

    overlap: of neighbours, (y, x) in pixels. may_grow: see `planned_canvas`. more: see `plan_array`.
    """
    arrived = {name: [value] for name, value in first.items()} | dict(seen or {})
    plans = axis_plans(declared)
    sides = [(plans.get(name, AxisPlan()).size, arrived.get(name, ())) for name in (ROW, COLUMN)]
    mosaic = planned_canvas(sides, frame_shape, overlap, is_final=is_final, may_grow=may_grow)
    if mosaic is None:
        return None
    plan = plan_array(
        {name: value for name, value in first.items() if name not in TILE_AXES},
        frame_shape,
        dtype,
        declared=[axis for axis in declared if axis.get("name") not in TILE_AXES],
        seen={name: values for name, values in arrived.items() if name not in TILE_AXES},
        is_final=is_final,
        expect=None if expect is None or mosaic.is_open else -(-expect // (mosaic.y.count * mosaic.x.count)),
        **more,
    )
    return replace(plan, mosaic=mosaic)


def planned_spec(plan: ArrayPlan, summary: Mapping[str, Any]) -> ArraySpec:
    """The array of a plan, not cut yet, with the names that the dataset's summary gives to channels and positions."""
    labels = plan.labels()
    names = summary.get("ChNames")
    if "channel" not in labels and isinstance(names, list) and all(isinstance(name, str) for name in names):
        labels["channel"] = names
    positions = position_names(summary)
    if positions and POSITION not in labels and any(axis.name == POSITION for axis in plan.axes):
        labels[POSITION] = positions
    return plan.spec(dict(summary), labels)


def _plan_axis(
    name: str, plan: AxisPlan, arrived: Sequence[AxisValue], kinds: Sequence[Sequence[str]], *, is_final: bool
) -> PlannedAxis:
    has_names = any(isinstance(value, str) for value in arrived)
    labels = plan.labels if has_names or not arrived else ()
    if arrived and any(name not in kind for kind in kinds):
        arrived = list(dict.fromkeys([*arrived, plan.home(arrived)]))
    if is_final or (plan.start and plan.size):
        integers = {value for value in arrived if isinstance(value, int)}
        if plan.start and plan.size and not has_names:
            integers |= {*range(plan.start, plan.start + plan.size)}
        if integers and not labels and not are_own_places(integers, plan.size, len(arrived)):
            names = [value for value in arrived if isinstance(value, str)]
            return in_order(name, [*sorted(integers), *names])
    return plan_places(name, plan.size, labels, arrived, is_final=is_final)


def _distance(space: FrameSpace, axis: str, unit: str) -> float | None:
    distance, known_unit = space.distance(axis)
    return distance if known_unit == unit else None
