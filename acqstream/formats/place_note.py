"""Places of images in the notes that our writers leave in a container."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from acqstream.arrays.axis_order import POSITION
from acqstream.arrays.frame_space import Place, StageAxes
from acqstream.arrays.image_places import IMAGE_AXES, NO_PLACES, ImagePlaces
from acqstream.model.finite_number import finite_number


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
