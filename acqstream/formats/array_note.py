"""What our writers say of an array in the note of every container, in the same words: the meaning of its items.

Formats add what they need to find their chunks. What is damaged in the parts that only describe is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from acqstream.arrays.array_spec import ArraySpec
from acqstream.arrays.reader_axes import note_of_values, read_note_of_values
from acqstream.description.channels import ChannelLook
from acqstream.description.image_positions import IMAGE_AXES, NO_PLACES, ImagePlaces
from acqstream.description.space import MAX_COORDINATES, Coordinates, OwnSpacing, Place, StageAxes
from acqstream.model.axes import POSITION
from acqstream.model.fields import Fields
from acqstream.model.metadata import finite_number

_COLOR = re.compile("#[0-9a-f]{6}")
_MAX_BITS = 16


def note_of_array(full: ArraySpec) -> dict[str, Any]:
    """The note of an array, as JSON, without its levels."""
    return {
        "axes": [*full.axes],
        "units": [*full.units],
        "calibrated": not full.unknown_distances,
        **note_of_places(full.places, full.stage_axes),
        **({"own": [[at, *one] for at, own in full.own.items() for one in own.items()]} if full.own else {}),
        **({"coordinates": {axis: [*found] for axis, found in full.coordinates.items()}} if full.coordinates else {}),
        **({"evidence": dict(full.evidence)} if full.evidence else {}),
        **note_of_values(full.shown_axes, full.axis_values),
        **({"looks": [_look_note(look) for look in full.looks]} if full.looks else {}),
        **({"bits": full.bits} if full.bits else {}),
        "labels": {name: [*values] for name, values in full.labels.items()},
        "attributes": dict(full.attributes),
    }


def note_of_level(level: ArraySpec) -> dict[str, Any]:
    """Shape and space of one level, as JSON."""
    return {
        "shape": [*level.shape],
        "factors": [*level.factors],
        "scale": [*map(float, level.scale)],
        "translation": [*map(float, level.translation)],
    }


def read_array(fields: Fields, axes: tuple[str, ...], dtype: np.dtype[np.generic]) -> ArraySpec:
    """The array of a note with one item along each axis, to which `read_level` adds. Raises the error of `fields`."""
    labels = fields.child("labels")
    return ArraySpec(
        axes=axes,
        shape=(1,) * len(axes),
        dtype=dtype,
        units=fields.texts("units", len(axes)),
        labels={axis: labels.texts(axis) for axis in labels.values},
        attributes=fields.mapping("attributes"),
        **read_meaning(fields.values, axes),
    )


def read_level(level: Fields, array: ArraySpec) -> ArraySpec:
    """A level of the array; without factors the full resolution. Raises the error of `level`."""
    count = len(array.axes)
    return replace(
        array,
        shape=level.integers("shape", count),
        factors=level.integers("factors", count, minimum=1) if "factors" in level else (1,) * count,
        scale=level.numbers("scale", count),
        translation=level.numbers("translation", count),
    )


def read_meaning(note: Mapping[str, Any], axes: Sequence[str]) -> dict[str, Any]:
    """Fields of ArraySpec that only describe; without those that are missing or damaged."""
    places, stage_axes = read_places(note)
    shown, values = read_note_of_values(note, axes)
    given, bits, evidence = note.get("looks"), note.get("bits"), note.get("evidence")
    sources = evidence.items() if isinstance(evidence, dict) else ()
    looks = [_look(look) for look in given] if isinstance(given, list) else []
    return {
        "places": places,
        "stage_axes": stage_axes,
        "shown_axes": shown,
        "axis_values": values,
        "own": _own(note.get("own"), axes),
        "coordinates": _coordinates(note.get("coordinates"), axes),
        "evidence": {axis: source for axis, source in sources if axis in axes and isinstance(source, str)},
        "looks": tuple(look for look in looks if look is not None) if None not in looks else (),
        "bits": bits if type(bits) is int and 0 < bits < _MAX_BITS else 0,
    }


def plain_value(value: object) -> Any:
    """What the user's attributes may hold besides plain values, as JSON."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple | set) else str(value)


def printable(text: str) -> str:
    """A text for XML, which has no control characters."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)


def _coordinates(given: object, axes: Sequence[str]) -> dict[str, Coordinates]:
    found: dict[str, Coordinates] = {}
    for axis, entry in given.items() if isinstance(given, dict) else ():
        unit, values = entry if isinstance(entry, list) and len(entry) == 2 else (None, None)
        if axis in axes and isinstance(unit, str) and isinstance(values, list) and len(values) <= MAX_COORDINATES:
            found[axis] = (unit, tuple(map(finite_number, values)))
    return found


def _own(given: object, axes: Sequence[str]) -> dict[int, dict[str, OwnSpacing]]:
    found: dict[int, dict[str, OwnSpacing]] = {}
    for entry in given if isinstance(given, list) else ():
        at, axis, spacing = entry if isinstance(entry, list) and len(entry) == 3 else (None, "", None)
        start, distance, unit = spacing if isinstance(spacing, list) and len(spacing) == 3 else (None, None, "")
        start, distance = finite_number(start), finite_number(distance)
        if type(at) is int and axis in axes and start is not None and distance is not None and distance > 0:
            found.setdefault(at, {})[str(axis)] = (start, distance, str(unit))
    return found


def _look_note(look: ChannelLook) -> dict[str, Any]:
    limits = {} if look.limits is None else {"limits": [*look.limits]}
    return {"name": look.name, "color": look.color, **limits}


def _look(given: object) -> ChannelLook | None:
    name, color, limits = (given.get(key) if isinstance(given, dict) else None for key in ("name", "color", "limits"))
    if not isinstance(name, str) or not isinstance(color, str) or not _COLOR.fullmatch(color):
        return None
    low, high = map(finite_number, limits if isinstance(limits, list) and len(limits) == 2 else (None, None))
    return ChannelLook(name, color, (low, high) if low is not None and high is not None and low < high else None)


def note_of_places(places: ImagePlaces, stage_axes: StageAxes) -> dict[str, Any]:
    """Return places and stage axes of an array as they stand in a note; {} where nothing is known.

    `places_um` has a place or null for each position. Places of tiles are `tile_places`: its `axes`, and lists of the
    index along each of these and z, y, x.
    """
    if not (places or stage_axes):
        return {}
    if places.axes in ((), (POSITION,)):
        return {"places_um": [*places.positions()], "stage_axes": stage_axes}
    entries = [[*index, *place] for index, place in places.entries]
    return {"tile_places": {"axes": [*places.axes], "places": entries}, "stage_axes": stage_axes}


def read_places(note: Mapping[str, Any]) -> tuple[ImagePlaces, StageAxes]:
    """`places` and `stage_axes` of a note in JSON, see `note_of_places`; what is damaged is left out."""
    given, axes = note.get("places_um"), note.get("stage_axes")
    stage_axes: StageAxes = "affine" if axes == "affine" else "parallel" if axes == "parallel" else ""
    tiles = note.get("tile_places")
    if isinstance(tiles, dict):
        return _tile_places(tiles), stage_axes
    places = [_place(entry) for entry in given] if isinstance(given, list) else []
    return ImagePlaces.of_positions(places), stage_axes


def _tile_places(given: Mapping[str, Any]) -> ImagePlaces:
    names, entries = given.get("axes"), given.get("places")
    axes = tuple(name for name in IMAGE_AXES if isinstance(names, list) and name in names)
    if not isinstance(entries, list) or not axes or names != [*axes]:
        return NO_PLACES
    found: dict[tuple[int, ...], Place] = {}
    for entry in entries:
        index = entry[: len(axes)] if isinstance(entry, list) else []
        place = _place(entry[len(axes) :]) if isinstance(entry, list) else None
        if place is not None and all(type(at) is int and at >= 0 for at in index):
            found[tuple(index)] = place
    return ImagePlaces(axes, tuple(found.items()))


def _place(entry: object) -> Place | None:
    numbers = [finite_number(value) for value in entry] if isinstance(entry, list) else []
    z, y, x = numbers if len(numbers) == 3 else (None, None, None)
    return None if z is None or y is None or x is None else (z, y, x)
