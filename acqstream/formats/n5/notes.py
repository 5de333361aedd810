"""Note of our writer in the attributes of the container, under a key of its own.

Other readers pass it over. It tells ours the names of axes and positions, and whether anything may still come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from acqstream.arrays.array_spec import ArraySpec
from acqstream.arrays.frame_space import StageAxes
from acqstream.arrays.image_places import NO_PLACES, ImagePlaces
from acqstream.arrays.shown_array import note_of_values, read_note_of_values
from acqstream.formats.n5.members import Numbering, has_too_many
from acqstream.formats.n5.options import Layout
from acqstream.formats.place_note import note_of_places, read_places
from acqstream.model.axes import AxisValue
from acqstream.model.finite_number import finite_number

KEY = "acqstream"
_MAX_AXES = 32
_SEPARATORS = frozenset("/\\\0")  # names of axes are parts of folder names
_MAX_EXTENT = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """axes and what follows them have an item per axis of the whole array, slowest first, level 0.

    places and stage_axes are as in ArraySpec; calibrated: no distance along z, y or x had to be made up. labels are
    names of positions along an axis; attributes those of the user. numbering is that of setups (layouts).
    shown_axes and axis_values are as in ArraySpec.
    """

    layout: Layout
    complete: bool
    axes: tuple[str, ...]
    shape: tuple[int, ...]
    scale: tuple[float, ...]
    units: tuple[str, ...]
    translation: tuple[float, ...]
    places: ImagePlaces = NO_PLACES
    stage_axes: StageAxes = ""
    calibrated: bool = True
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    numbering: Numbering = "rows"
    shown_axes: tuple[str, ...] = ()
    axis_values: Mapping[str, Sequence[AxisValue | None]] = field(default_factory=dict)


def make_notes(full: ArraySpec, layout: Layout, numbering: Numbering, *, complete: bool) -> Notes:
    """The notes of an array whose full resolution is `full`."""
    return Notes(
        layout=layout,
        complete=complete,
        axes=full.axes,
        shape=full.shape,
        scale=full.scale,
        units=full.units,
        translation=full.translation,
        places=full.places,
        stage_axes=full.stage_axes,
        calibrated=not full.unknown_distances,
        labels=full.labels,
        attributes=full.attributes,
        numbering=numbering,
        shown_axes=full.shown_axes,
        axis_values=full.axis_values,
    )


def to_json(notes: Notes) -> dict[str, Any]:
    """As it stands in attributes.json."""
    return {
        "layout": notes.layout,
        "complete": notes.complete,
        "axes": [*notes.axes],
        "shape": [*notes.shape],
        "scale": [*notes.scale],
        "units": [*notes.units],
        "translation": [*notes.translation],
        "calibrated": notes.calibrated,
        **note_of_places(notes.places, notes.stage_axes),
        **note_of_values(notes.shown_axes, notes.axis_values),
        "labels": {name: [*values] for name, values in notes.labels.items()},
        "attributes": dict(notes.attributes),
        **({"numbering": notes.numbering} if notes.layout == "bdv" else {}),
    }


def parse_notes(attributes: Mapping[str, Any] | None) -> Notes | None:
    """From the attributes of a container; None if it has none, or something else stands there."""
    given = (attributes or {}).get(KEY)
    if not isinstance(given, dict) or given.get("layout") not in get_args(Layout):
        return None
    axes = _list(given.get("axes"), str)
    count = len(axes)
    shape = _list(given.get("shape"), int)
    scale, translation = (_list(given.get(name), (int, float)) for name in ("scale", "translation"))
    units = _list(given.get("units"), str)
    if (
        not 3 <= count <= _MAX_AXES
        or len(set(axes)) < count
        or not all(_SEPARATORS.isdisjoint(axis) for axis in axes)
        or {len(shape), len(scale), len(translation), len(units)} != {count}
    ):
        return None
    if not all(0 <= size <= _MAX_EXTENT for size in shape) or has_too_many(given["layout"], axes, shape):
        return None
    places, stage_axes = read_places(given)
    shown, values = read_note_of_values(given, axes)
    labels, user = given.get("labels"), given.get("attributes")
    return Notes(
        layout=given["layout"],
        complete=given.get("complete") is True,
        axes=tuple(axes),
        shape=tuple(shape),
        scale=tuple(map(float, scale)),
        units=tuple(units),
        translation=tuple(map(float, translation)),
        places=places,
        stage_axes=stage_axes,
        calibrated=given.get("calibrated") is not False,
        labels={name: _list(values, str) for name, values in labels.items()} if isinstance(labels, dict) else {},
        attributes=user if isinstance(user, dict) else {},
        shown_axes=shown,
        axis_values=values,
        numbering="bits" if given.get("numbering") == "bits" else "rows",
    )


def _list(given: object, kind: type | tuple[type, ...]) -> list[Any]:
    """A list of such values; empty if it is anything else."""
    if not isinstance(given, list):
        return []
    fits = all(isinstance(value, kind) and (kind is str or finite_number(value) is not None) for value in given)
    return given if fits else []
