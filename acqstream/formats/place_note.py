"""Places of positions in the notes that our writers leave in a container."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from acqstream.arrays.frame_space import Place, StageAxes
from acqstream.model.finite_number import finite_number


def read_places(note: Mapping[str, Any]) -> tuple[tuple[Place | None, ...], StageAxes]:
    """`places` and `stage_axes` of a note in JSON (keys places_um, stage_axes); what is damaged is left out."""
    given, axes = note.get("places_um"), note.get("stage_axes")
    places: list[Place | None] = []
    for entry in given if isinstance(given, list) else []:
        numbers = [finite_number(value) for value in entry] if isinstance(entry, list) else []
        z, y, x = numbers if len(numbers) == 3 else (None, None, None)
        places.append(None if z is None or y is None or x is None else (z, y, x))
    return tuple(places), "affine" if axes == "affine" else "parallel" if axes == "parallel" else ""
