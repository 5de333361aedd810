"""Note of our writer in the attributes of the container, under a key of its own.

Other readers pass it over. It tells ours the names of axes and positions, and whether anything may still come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from acqstream.arrays.array_spec import ArraySpec
from acqstream.formats.array_members import Numbering
from acqstream.formats.array_note import note_of_array, note_of_level, read_meaning
from acqstream.formats.n5.member_folders import Layout, has_too_many
from acqstream.model.finite_number import finite_number

KEY = "acqstream"
_MAX_AXES = 32
_SEPARATORS = frozenset("/\\\0")  # names of axes are parts of folder names
_MAX_EXTENT = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """full: the array at its full resolution, whose dtype stands elsewhere. numbering is that of setups (layouts)."""

    full: ArraySpec
    layout: Layout
    complete: bool
    numbering: Numbering = "rows"

    @property
    def axes(self) -> tuple[str, ...]:
        return self.full.axes

    @property
    def shape(self) -> tuple[int, ...]:
        return self.full.shape


def to_json(notes: Notes) -> dict[str, Any]:
    """As it stands in attributes.json."""
    level, array = note_of_level(notes.full), note_of_array(notes.full)
    return {
        "layout": notes.layout,
        "complete": notes.complete,
        "axes": array["axes"],
        "shape": level["shape"],
        "scale": level["scale"],
        "units": array["units"],
        "translation": level["translation"],
        **array,
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
    labels, user = given.get("labels"), given.get("attributes")
    full = ArraySpec(
        axes=tuple(axes),
        shape=tuple(shape),
        dtype=np.dtype(np.uint8),
        scale=tuple(map(float, scale)),
        units=tuple(units),
        translation=tuple(map(float, translation)),
        labels={name: _list(values, str) for name, values in labels.items()} if isinstance(labels, dict) else {},
        attributes=user if isinstance(user, dict) else {},
        **read_meaning(given, axes),
    )
    return Notes(
        full=full,
        layout=given["layout"],
        complete=given.get("complete") is True,
        numbering="bits" if given.get("numbering") == "bits" else "rows",
    )


def _list(given: object, kind: type | tuple[type, ...]) -> list[Any]:
    """A list of such values; empty if it is anything else."""
    if not isinstance(given, list):
        return []
    fits = all(isinstance(value, kind) and (kind is str or finite_number(value) is not None) for value in given)
    return given if fits else []
